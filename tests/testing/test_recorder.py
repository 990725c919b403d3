"""The recorder: what is kept of real traffic, what is not, and that it plays again."""

from __future__ import annotations

import math
import stat
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

import aiio
from aiio.context.types import Message
from aiio.testing import (
    MockServer,
    Step,
    call,
    fail,
    finish,
    hang,
    head,
    load_recordings,
    pause,
    ping,
    raw,
    record,
    say,
    think,
)
from aiio.testing.dialects import DIALECTS
from aiio.testing.recorder import RecordingTransport

CONTEXT: list[Message] = [aiio.user_message("Hello")]
KEY = "sk-recorded-0123456789abcdef"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "traffic.jsonl"


async def ask(env: aiio.Env, model: str, **limits: Any) -> tuple[list[Any], Any]:
    """All events of one write, and its terminal event as data."""
    heard: list[Any] = []

    def hear(event: Any) -> None:
        heard.append((event.type, getattr(event, "text", None)))

    names = ("text_delta", "thinking_delta", "tool_call_start", "tool_call_end")
    io = aiio.IO(env=env, model=model, **limits)
    terminal = await io.write(CONTEXT, {f"on_{name}": hear for name in names})
    return heard, (
        terminal.type,
        terminal.message,
        getattr(terminal, "status", None),
        getattr(terminal, "limit", None),
    )


def contents(path: Path) -> bytes:
    return path.read_bytes()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


ANSWERS: dict[str, list[Step]] = {
    "whole": [think("hm"), say("Let "), say("me."), call("look", {"at": 1}), finish()],
    "refused": [fail(429, retry_after="3s")],
    "failed in the middle": [say("Half"), fail(500)],
    "ended without a signal": [say("Half")],
    "reset": [say("Half"), fail()],
    "reset before the head": [fail()],
    "went silent": [say("Half"), ping(), ping(), hang()],
    "silent from the start": [hang()],
}


@pytest.mark.parametrize("steps", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_what_was_recorded_plays_again(
    aiio_env: aiio.Env,
    aiio_server: MockServer,
    aiio_clock: MockClock,
    path: Path,
    dialect: str,
    steps: list[Step],
) -> None:
    recorder = record(aiio_env, path)
    limits = {"connect_timeout": "10s", "stuck_timeout": "10s"}
    aiio_server.play(*steps)
    original = await ask(aiio_env, aiio_server.model(dialect), **limits)
    assert recorder.answers == 1
    (recording,) = load_recordings(path)
    assert recording.request["path"] == aiio_server.requests[0].target.partition("?")[0]
    assert recording.request["body_bytes"] == len(aiio_server.requests[0].body)
    aiio_server.replay(path)
    assert await ask(aiio_env, aiio_server.model(dialect), **limits) == original


async def test_times_and_reads_are_kept(
    aiio_env: aiio.Env, aiio_server: MockServer, aiio_clock: MockClock, path: Path
) -> None:
    record(aiio_env, path)
    aiio_server.play(pause("2s"), head(), pause("3s"), say("a"), pause("4s"), say("b"), finish())
    await ask(aiio_env, aiio_server.model())
    (recording,) = load_recordings(path)
    assert recording.head_at_ms == pytest.approx(2000, abs=500)
    times = [piece.at_ms for piece in recording.pieces]
    assert times[0] == pytest.approx(5000, abs=500)
    assert times[-1] == pytest.approx(9000, abs=500)
    assert b'"a"' in recording.pieces[0].data


async def test_no_credential_is_in_the_file(aiio_env: aiio.Env, aiio_server: MockServer, path: Path) -> None:
    url = f"{aiio_server.url}/{KEY}/v1"
    aiio_env.register_endpoint("mine", url=url, auth=KEY, proxy="direct")
    record(aiio_env, path)
    secret = {
        "x-request-id": "req-1",
        "set-cookie": "sid=abc",
        "x-ratelimit-limit-tokens": "30",
        "retry-after": KEY,
    }
    aiio_server.play(head(secret), say(f"Your key is {KEY}."), raw(b"data: \xff\n\n"), finish())
    await ask(aiio_env, "mine/m")
    aiio_server.play(fail(401, f"Incorrect key {KEY}", headers={"x-organization": "org-1"}))
    await ask(aiio_env, "mine/m")
    first, second = load_recordings(path)
    written = contents(path) + b"".join(piece.data for one in (first, second) for piece in one.pieces)
    for leak in (KEY.encode(), b"req-1", b"sid=", b"org-1", b"Hello", b"authorization"):
        assert leak not in written
    assert first.headers == {
        "content-type": "text/event-stream",
        "x-ratelimit-limit-tokens": "30",
        "retry-after": "***",
    }
    assert first.request["path"] == "/***/v1/chat/completions"
    assert b"Your key is ***." in written
    assert (second.status, second.ending) == (401, "end")


async def test_bytes_that_are_no_text_are_kept(
    aiio_env: aiio.Env, aiio_server: MockServer, path: Path
) -> None:
    record(aiio_env, path)
    aiio_server.play(raw(b"data: \xff\xfe\n\n"), hang())
    await ask(aiio_env, aiio_server.model())
    assert load_recordings(path)[0].pieces[0].data == b"data: \xff\xfe\n\n"


@pytest.mark.parametrize(
    ("kind", "dialect", "body", "kept"),
    [
        ("application/json", "chat", b'{"a": 1}', b'{"a": 1}'),
        ("application/ndjson", "ollama", b'{"error": "no"}\n', b'{"error": "no"}\n'),
        ("application/json", "ollama", b'{"error": "no"}\n', b'{"error": "no"}\n'),
        ("text/event-stream", "chat", b"data: {\ndata: }\n\n", b"data: {\ndata: }\n\n"),
        (
            "text/event-stream",
            "chat",
            b'event: error\ndata: {"error": {}}\n\n',
            b'event: error\ndata: {"error": {}}\n\n',
        ),
    ],
)
async def test_every_framing_is_written_as_it_was(
    aiio_env: aiio.Env, aiio_server: MockServer, path: Path, kind: str, dialect: str, body: bytes, kept: bytes
) -> None:
    record(aiio_env, path)
    aiio_server.play(head({"content-type": kind}), raw(body))
    await ask(aiio_env, aiio_server.model(dialect))
    (recording,) = load_recordings(path)
    assert b"".join(piece.data for piece in recording.pieces) == kept


async def test_an_answer_that_was_killed_was_left(
    aiio_env: aiio.Env, aiio_server: MockServer, path: Path
) -> None:
    record(aiio_env, path)
    aiio_server.play(say("Half"), hang())
    io = aiio.IO(env=aiio_env, model=aiio_server.model())
    await io.write(CONTEXT, {"on_text_delta": lambda event: io.kill_nowait()})
    assert load_recordings(path)[0].ending == "left"


async def test_answers_side_by_side_are_written_one_after_the_other(
    aiio_env: aiio.Env, aiio_server: MockServer, path: Path
) -> None:
    recorder = record(aiio_env, path)
    aiio_server.play(*(say("x") for _ in range(50)), finish())
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(ask, aiio_env, aiio_server.model())
    assert recorder.answers == len(load_recordings(path)) == 10
    assert mode(path) == 0o600
    aiio_server.replay(path, speed=math.inf)
    assert (await ask(aiio_env, aiio_server.model()))[1][0] == "done"


async def test_a_file_that_cannot_be_written_is_refused_at_once(aiio_env: aiio.Env, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        record(aiio_env, tmp_path / "missing" / "traffic.jsonl")


async def test_a_disk_that_refuses_harms_no_request(
    aiio_env: aiio.Env, aiio_server: MockServer, path: Path
) -> None:
    recorder = record(aiio_env, path)
    recorder.path = path.parent
    with capture_logs() as logs:
        _, (kind, *_) = await ask(aiio_env, aiio_server.model())
    assert kind == "done"
    assert recorder.answers == 0
    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["recording.failed"]


async def test_transports_that_differ_are_wrapped_each(aiio_env: aiio.Env, path: Path) -> None:
    class Quiet:
        closed = 0

        async def open(self, request: Any, nursery: trio.Nursery) -> Any: ...

        async def aclose(self) -> None:
            Quiet.closed += 1

    aiio_env.register_transport("http", Quiet())
    record(aiio_env, path)
    plain, secure = aiio_env.transport("http://"), aiio_env.transport("https://")
    assert isinstance(plain, RecordingTransport)
    assert isinstance(secure, RecordingTransport)
    assert plain is not secure
    await aiio_env.aclose()
    assert Quiet.closed == 1
    assert contents(path) == b""
