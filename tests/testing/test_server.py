"""The loopback server: what it sees, what it replays and when, and how it ends."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
import trio.testing
from trio.testing import MockClock

import aiio
from aiio.context.types import Message
from aiio.testing import (
    MockServer,
    Recording,
    Request,
    Script,
    call,
    fail,
    finish,
    hang,
    head,
    load_recordings,
    mock_server,
    pause,
    raw,
    say,
)
from aiio.testing.http import head_bytes
from aiio.testing.loopback import Loopback, abort
from aiio.testing.recordings import Piece

from ..transports.recordings import FOLDER

CONTEXT: list[Message] = [aiio.user_message("Hello")]
FIXTURES = Path(__file__).parents[1] / "fixtures"


def text_of(terminal: aiio.Done | aiio.Error) -> str:
    blocks = (terminal.message or {"content": []})["content"]
    return "".join(block["text"] for block in blocks if block["type"] == "text")


async def get(server: MockServer, path: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:
        return await client.get(f"{server.url}{path}")


async def test_requests_are_kept_as_they_came(aiio_env: aiio.Env, aiio_server: MockServer) -> None:
    terminal = await aiio.IO(env=aiio_env, model=aiio_server.model()).write(CONTEXT)
    assert text_of(terminal) == "Hello."
    (request,) = aiio_server.requests
    assert (request.method, request.target) == ("POST", "/v1/chat/completions")
    assert request.headers["authorization"] == "Bearer loopback-key"
    assert request.json()["model"] == "mock"
    assert request.json()["messages"][0]["content"] == "Hello"


async def test_scripts_are_played_in_order(aiio_env: aiio.Env, aiio_server: MockServer) -> None:
    io = aiio.IO(env=aiio_env, model=aiio_server.model("anthropic"))
    aiio_server.play(say("always"), finish())
    aiio_server.play_next(fail(529))
    aiio_server.play_next(say("second"), finish())
    assert [text_of(await io.write(CONTEXT)) for _ in range(4)] == ["", "second", "always", "always"]


async def test_an_answer_may_depend_on_the_request(aiio_env: aiio.Env, aiio_server: MockServer) -> None:
    def answer(request: Request) -> Script:
        last = request.json()["messages"][-1]
        return (
            [say(f"It is {last['content']}."), finish()]
            if last["role"] == "tool"
            else [call("look"), finish()]
        )

    def look() -> str:
        """Look."""
        return "raining"

    aiio_server.answer(answer)
    agent = aiio.Agent(env=aiio_env, model=aiio_server.model(), tools=[look])
    result = await agent.run("How is the weather?")
    assert (result.text, result.rounds) == ("It is raining.", 2)


async def test_the_model_in_the_request_is_the_model_in_the_answer(
    aiio_env: aiio.Env, aiio_server: MockServer
) -> None:
    for name in ("chat", "gemini", "ollama"):
        selector = aiio_server.model(name).replace("/mock", "/m-1")
        terminal = await aiio.IO(env=aiio_env, model=selector).write(CONTEXT)
        assert isinstance(terminal, aiio.Done)
        assert json.dumps(terminal.native).count("m-1"), name


async def test_a_body_that_is_no_json_is_answered_too(aiio_server: MockServer) -> None:
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:
        for body in (b"no json", b"[]", b'{"model": 7}'):
            answer = await client.post(f"{aiio_server.url}/v1/chat/completions", content=body)
            assert '"model":"mock"' in answer.text


async def test_every_dialect_finds_the_model_listed(aiio_env: aiio.Env, aiio_server: MockServer) -> None:
    for name in ("chat", "responses", "anthropic", "gemini", "ollama"):
        assert "mock" in await aiio_env.models(aiio_server.model(name).partition("/")[0], refresh=True), name
    assert aiio_server.requests == []


async def test_a_path_of_no_dialect_is_not_found(aiio_server: MockServer) -> None:
    answer = await get(aiio_server, "/v1/embeddings")
    assert answer.status_code == 404
    assert "/v1/embeddings" in answer.text
    assert len(aiio_server.requests) == 1


async def test_headers_of_a_script_are_sent(aiio_server: MockServer) -> None:
    aiio_server.play(head({"x-request-id": "r-1"}), raw(b""), say("x"), finish())
    answer = await get(aiio_server, "/v1/messages")
    assert answer.headers["x-request-id"] == "r-1"
    assert answer.headers["content-type"] == "text/event-stream"


async def test_a_client_that_leaves_in_a_pause_is_noticed_at_once(
    aiio_env: aiio.Env, aiio_server: MockServer, aiio_clock: MockClock
) -> None:
    aiio_server.play(say("x"), pause("1h"), finish())
    start = trio.current_time()
    await aiio.IO(env=aiio_env, model=aiio_server.model(), timeout="1s").write(CONTEXT)
    await aiio_server.loopback.wait_idle()
    assert trio.current_time() - start < 10
    assert (aiio_server.loopback.open, aiio_server.loopback.connections) == (0, 1)


async def test_a_client_that_speaks_no_http_is_a_fault_of_its_own(aiio_server: MockServer) -> None:
    for data in (b"", b"\r\nnonsense\r\n\r\n"):
        stream = await trio.open_tcp_stream("127.0.0.1", aiio_server.port)
        await stream.send_all(data)
        await stream.send_eof()
        assert await stream.receive_some() == b""
        await stream.aclose()
    await aiio_server.loopback.wait_idle()
    assert len(aiio_server.loopback.faults) == 2


async def test_a_body_that_is_too_long_is_not_read(
    aiio_server: MockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiio.testing.http.MAX_BODY", 10)
    with pytest.raises(httpx.HTTPError):
        async with httpx.AsyncClient(trust_env=False, verify=False) as client:
            await client.post(f"{aiio_server.url}/v1/messages", content=b"x" * 11)
    assert "more than 10 bytes" in str(aiio_server.loopback.faults)


async def test_a_client_that_leaves_within_a_recording_is_noticed_at_once(
    aiio_env: aiio.Env, aiio_server: MockServer, aiio_clock: MockClock
) -> None:
    pieces = (Piece(0, BYTES), Piece(3_600_000, BYTES))
    aiio_server.replay(Recording(status=200, headers=EVENT_STREAM, pieces=pieces))
    start = trio.current_time()
    await aiio.IO(env=aiio_env, model=aiio_server.model(), timeout="1s").write(CONTEXT)
    await aiio_server.loopback.wait_idle()
    assert trio.current_time() - start < 10


async def test_a_client_that_resets_is_gone_too(aiio_server: MockServer) -> None:
    aiio_server.play(hang())
    stream = await trio.open_tcp_stream("127.0.0.1", aiio_server.port)
    await stream.send_all(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
    while not aiio_server.requests:
        await trio.testing.wait_all_tasks_blocked(0.001)
    await stream.send_all(b"more, which nobody asked for")
    await trio.testing.wait_all_tasks_blocked(0.01)
    abort(stream)
    await aiio_server.loopback.wait_idle()
    assert aiio_server.loopback.faults == []


# --- its life -------------------------------------------------------------------------------------


async def test_the_body_of_the_block_raises_its_own_exceptions() -> None:
    with pytest.raises(ZeroDivisionError) as found:
        async with mock_server():
            raise ZeroDivisionError from KeyError("why")
    assert isinstance(found.value.__cause__, KeyError)


async def test_what_an_answer_function_raises_ends_the_server(aiio_env: aiio.Env) -> None:
    with pytest.raises(LookupError, match="no answer"):
        async with mock_server(env=aiio_env, name="bad") as server:

            def answer(request: Request) -> Script:
                raise LookupError("no answer")

            server.answer(answer)
            await aiio.IO(env=aiio_env, model=server.model()).write(CONTEXT)
            await trio.sleep_forever()


async def test_open_connections_end_with_the_block(aiio_env: aiio.Env) -> None:
    got = trio.Event()
    terminals: list[Any] = []

    async def write(model: str) -> None:
        io = aiio.IO(env=aiio_env, model=model)
        terminals.append(await io.write(CONTEXT, {"on_text_delta": lambda event: got.set()}))

    async with (
        trio.open_nursery() as nursery,
        mock_server(say("Half"), hang(), env=aiio_env, name="short") as server,
    ):
        nursery.start_soon(write, server.model())
        await got.wait()
    assert terminals[0].kind is aiio.ErrorKind.NETWORK


async def test_a_port_that_is_taken_is_an_os_error(aiio_server: MockServer) -> None:
    with pytest.raises(OSError, match="in use"):
        async with mock_server(port=aiio_server.port):
            pass


async def test_a_server_that_no_env_knows_has_no_selector() -> None:
    async with mock_server() as server:
        with pytest.raises(ValueError, match="no Env knows 'mock'"):
            server.model()
        assert server.port == server.loopback.port
        assert isinstance(server.loopback, Loopback)
        server.loopback.accept()  # it listens already
        server.loopback.refuse()
        server.loopback.refuse()
        with pytest.raises(OSError, match="all attempts"):
            await trio.open_tcp_stream("127.0.0.1", server.port)


def test_a_status_without_a_name_has_a_head_too() -> None:
    assert head_bytes(599, {}) == b"HTTP/1.1 599 Status\r\n\r\n"
    assert head_bytes(404, {"a": "b"}) == b"HTTP/1.1 404 Not Found\r\na: b\r\n\r\n"


# --- recordings -----------------------------------------------------------------------------------

EVENT_STREAM = {"content-type": "text/event-stream"}
BYTES = b'data: {"choices": [{"delta": {"content": "Hi"}}]}\n\n'


def recorded(ending: Any = "end") -> Recording:
    return Recording(
        status=200,
        headers=EVENT_STREAM,
        head_at_ms=1000,
        pieces=(Piece(3000, BYTES[:20]), Piece(7000, BYTES[20:]), Piece(7500, b"data: [DONE]\n\n")),
        ending=ending,
        ended_at_ms=9000,
    )


async def chunks_of(server: MockServer) -> list[tuple[float, bytes]]:
    """When chunks come, and which; a chunk is a chunk because the server sends them apart."""
    start, found = trio.current_time(), []
    async with (
        httpx.AsyncClient(trust_env=False, verify=False, timeout=None) as client,
        client.stream("GET", f"{server.url}/v1/messages") as answer,
    ):
        found.append((trio.current_time() - start, b""))
        async for data in answer.aiter_raw():
            found.append((trio.current_time() - start, data))
    return found


@pytest.mark.parametrize("speed", [1.0, 4.0])
async def test_a_recording_keeps_its_chunk_edges_and_its_timing(
    aiio_server: MockServer, aiio_clock: MockClock, speed: float
) -> None:
    aiio_server.replay(recorded(), speed=speed)
    found = await chunks_of(aiio_server)
    assert [data for _, data in found] == [b"", BYTES[:20], BYTES[20:], b"data: [DONE]\n\n"]
    assert [at * speed for at, _ in found] == pytest.approx([1, 3, 7, 7.5], abs=0.5)


async def test_a_recording_without_pauses_takes_no_time(
    aiio_server: MockServer, autojump_clock: MockClock
) -> None:
    autojump_clock.autojump_threshold = 1  # a pause of any length would be waited for
    aiio_server.replay(recorded(), speed=math.inf)
    await chunks_of(aiio_server)
    assert trio.current_time() < 1


@pytest.mark.parametrize(
    ("ending", "kind", "limit"),
    [("cut", "network", None), ("reset", "network", None), ("left", "network", "stuck"), ("end", None, None)],
)
async def test_an_answer_ends_as_it_was_recorded(
    aiio_env: aiio.Env,
    aiio_server: MockServer,
    aiio_clock: MockClock,
    ending: Any,
    kind: str | None,
    limit: Any,
) -> None:
    whole = recorded(ending)
    pieces = whole.pieces[: 3 if ending == "end" else 2]
    aiio_server.replay(Recording(status=200, headers=EVENT_STREAM, pieces=pieces, ending=ending), speed=100)
    terminal = await aiio.IO(env=aiio_env, model=aiio_server.model(), stuck_timeout="20s").write(CONTEXT)
    assert (terminal.kind.value if isinstance(terminal, aiio.Error) else None) == kind
    assert getattr(terminal, "limit", None) == limit
    assert text_of(terminal) == "Hi"


@pytest.mark.parametrize(("ending", "limit"), [("reset", None), ("left", "connect")])
async def test_an_answer_without_a_head_is_replayed_too(
    aiio_env: aiio.Env, aiio_server: MockServer, aiio_clock: MockClock, ending: Any, limit: Any
) -> None:
    aiio_server.replay(Recording(status=None, ending=ending))
    terminal = await aiio.IO(env=aiio_env, model=aiio_server.model(), connect_timeout="5s").write(CONTEXT)
    assert isinstance(terminal, aiio.Error)
    assert (terminal.kind.value, terminal.limit) == ("network", limit)


async def test_recordings_are_played_one_a_request_and_the_last_again(
    aiio_env: aiio.Env, aiio_server: MockServer, tmp_path: Path
) -> None:
    path = tmp_path / "two.jsonl"
    no = Recording(status=429, headers={"retry-after": "3"}, pieces=(Piece(0, b'{"error": "slow down"}'),))
    path.write_text("".join(json.dumps(line) + "\n" for one in (no, recorded()) for line in one.lines()))
    assert load_recordings(path) == [no, recorded()]
    assert len(list(no.actions(1.0))) == 2
    aiio_server.replay(path, FIXTURES / "http-openai-401.http.json", speed=math.inf)
    io = aiio.IO(env=aiio_env, model=aiio_server.model())
    first, second, third, fourth = [await io.write(CONTEXT) for _ in range(4)]
    assert isinstance(first, aiio.Error)
    assert (first.status, first.retry_after_ms) == (429, 3000)
    assert text_of(second) == "Hi"
    for terminal in (third, fourth):
        assert isinstance(terminal, aiio.Error)
        assert terminal.kind is aiio.ErrorKind.AUTH


@pytest.mark.parametrize(
    ("file", "dialect"), [("chat-q-unicode.sse", "chat"), ("ollama-unicode.ndjson", "ollama")]
)
async def test_plain_files_are_played_a_frame_at_a_time(
    aiio_env: aiio.Env, aiio_server: MockServer, file: str, dialect: str
) -> None:
    (recording,) = load_recordings(FIXTURES / file)
    assert b"".join(piece.data for piece in recording.pieces) == (FIXTURES / file).read_bytes()
    assert len(recording.pieces) > 2
    aiio_server.replay(FIXTURES / file)
    assert isinstance(await aiio.IO(env=aiio_env, model=aiio_server.model(dialect)).write(CONTEXT), aiio.Done)


FILES = sorted(path for ending in ("sse", "ndjson", "http.json") for path in FOLDER.glob(f"*.{ending}"))


@pytest.mark.skipif(not FILES, reason="no recordings: set AIIO_RECORDINGS to their folder")
async def test_every_plain_recording_is_played_byte_for_byte(aiio_server: MockServer) -> None:
    for path in FILES:
        aiio_server.replay(path)
        answer = await get(aiio_server, "/v1/messages")
        expected = path.read_bytes()
        if path.name.endswith(".http.json"):
            expected = json.loads(expected)["body"].encode()
            assert answer.status_code == json.loads(path.read_bytes())["status"]
        assert answer.content == expected, path.name


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.jsonl", "", "is empty"),
        ("a.jsonl", "{", "line 1: JSONDecodeError"),
        ("a.jsonl", '{"dir": "recv"}\n', "line 1: KeyError: 'recording'"),
        ("a.jsonl", '{"recording": 2}\n', "line 1: ValueError: version 2"),
        ("a.jsonl", '{"recording": 1, "at_ms": 1, "head": null}\n', "no end"),
        ("a.jsonl", '{"recording": 1, "at_ms": 1, "head": null}\n{"at_ms": 1, "data_b64": "%"}\n', "line 2"),
        (
            "a.jsonl",
            '{"recording": 1, "at_ms": 1, "head": null}\n{"at_ms": 1, "event": "x"}\n',
            "line 2: .*'x'",
        ),
        ("a.http.json", "[]", "indices"),
    ],
)
def test_a_file_that_is_no_recording_says_so(tmp_path: Path, name: str, text: str, why: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=rf"a\..* is not a recording: .*{why}"):
        load_recordings(tmp_path / name)


@pytest.mark.parametrize("speed", [0, -1, math.nan])
async def test_a_speed_is_more_than_zero(aiio_server: MockServer, speed: float) -> None:
    with pytest.raises(ValueError, match="speed"):
        aiio_server.replay(recorded(), speed=speed)
    with pytest.raises(ValueError, match="nothing to play"):
        aiio_server.replay()
