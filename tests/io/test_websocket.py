"""Writes over a WebSocket: killed at every moment, in several messages, on kept sockets, by SSE after all."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import structlog.testing
import trio
from trio.testing import MockClock
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

import aiio
from aiio.context.events import Done, Error, ErrorKind, Send
from aiio.context.types import Message
from aiio.providers.base import Provider, ProviderIO
from tests.serving import Exchange, chunk, head, raw, respond, serve, sse, stall
from tests.ws_serving import Socket, serve_ws

CONTEXT = [aiio.user_message("Hello")]
CREATED = {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}


def delta(text: str) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text}


def message(text: str) -> dict[str, Any]:
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return {"type": "response.output_item.done", "output_index": 0, "item": item}


def completed(name: str = "resp_1") -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return {"type": "response.completed", "response": {"id": name, "status": "completed", "usage": usage}}


def answer(text: str, name: str = "resp_1") -> list[dict[str, Any]]:
    return [CREATED, delta(text), message(text), completed(name)]


async def say(socket: Socket, *events: Mapping[str, Any]) -> None:
    await socket.text(*map(json.dumps, events))


@asynccontextmanager
async def peer(url: str, **settings: Any) -> AsyncIterator[aiio.IO]:
    """An IO that talks Responses to *url*, over a socket if that is what it names."""
    async with aiio.open_env() as env:
        provider = "openai_responses_ws" if url.startswith("ws") else "openai_responses"
        settings = {"provider": provider, "auth": "key-1", **settings}
        env.register_endpoint("peer", url=url, **settings)
        yield aiio.IO(env=env, model="peer/m")


# -- kill: the same over HTTP and over a WebSocket

MOMENTS: dict[str, list[Any]] = {
    "during the handshake": [],
    "before the first frame": ["head"],
    "in the middle of the answer": ["head", CREATED, delta("Half")],
    "after the terminal": ["head", *answer("Whole")],
}


@dataclass
class Server:
    """What is asked of a server here, whatever it speaks."""

    url: str
    wait_idle: Callable[[], Awaitable[None]]


@asynccontextmanager
async def over_http(steps: Sequence[Any]) -> AsyncIterator[Server]:
    async def script(exchange: Exchange) -> None:
        for step in steps:
            if step == "head":
                await head(chunked=False)(exchange)
            else:
                await raw(b"data: " + json.dumps(step).encode() + b"\n\n")(exchange)
        await exchange.wait_client_gone()

    async with serve(script) as server:
        yield Server(server.url, server.wait_idle)


@asynccontextmanager
async def over_socket(steps: Sequence[Any]) -> AsyncIterator[Server]:
    async def script(socket: Socket) -> None:
        for step in steps:
            if step == "head":
                await socket.accept()
                await socket.message()
            else:
                await say(socket, step)
        await socket.until_gone()

    async with serve_ws(script) as server:
        yield Server(server.url, server.http.wait_idle)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("serving", [over_http, over_socket])
async def test_kill_ends_alike_over_http_and_over_a_socket(
    serving: Any, moment: str, autojump_clock: MockClock
) -> None:
    found: list[Any] = []
    async with serving(MOMENTS[moment]) as server, peer(server.url) as io:

        async def write() -> None:
            found.append(await io.write(CONTEXT))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.sleep(5)
            await io.kill("enough")
            assert trio.current_time() <= 6
            await server.wait_idle()
        assert io.state == "closed"
        assert not io.env.active_io
    [terminal] = found
    if moment == "after the terminal":
        assert isinstance(terminal, Done)
        assert terminal.message == {"type": 3, "content": [{"type": "text", "text": "Whole"}]}
        return
    assert isinstance(terminal, Error)
    assert (terminal.kind, terminal.cancelled, terminal.error) == (
        ErrorKind.CANCELLED,
        True,
        "cancelled: enough",
    )
    half = moment == "in the middle of the answer"
    content = {"type": 3, "content": [{"type": "text", "text": "Half"}]}
    assert terminal.message == (content if half else None)
    assert terminal.emitted is half


@pytest.mark.parametrize("moment", ["during the handshake", "before the first frame"])
async def test_the_connect_budget_ends_with_the_first_frame(moment: str, autojump_clock: MockClock) -> None:
    async with over_socket(MOMENTS[moment]) as server, peer(server.url, connect_timeout="3s") as io:
        terminal = await io.write(CONTEXT)
        await server.wait_idle()
    assert isinstance(terminal, Error)
    assert (terminal.kind, terminal.limit) == (ErrorKind.NETWORK, "connect")


async def test_I3_pongs_do_not_keep_a_stuck_answer_alive(autojump_clock: MockClock) -> None:
    steps = MOMENTS["in the middle of the answer"]
    limits = {"stuck_timeout": "60s", "ws_ping_interval": "10s"}
    async with over_socket(steps) as server, peer(server.url, **limits) as io:
        terminal = await io.write(CONTEXT)
    assert isinstance(terminal, Error)
    assert (terminal.limit, terminal.native) == ("stuck", {"keepalives": 5})
    assert trio.current_time() == pytest.approx(60, abs=0.6)


async def test_B4_a_refused_handshake_is_one_plain_terminal() -> None:
    async def script(socket: Socket) -> None:
        await socket.refuse(401, b'{"error":{"message":"Incorrect API key","code":"invalid_api_key"}}')

    async with serve_ws(script) as server, peer(server.url) as io:
        terminal = await io.write(CONTEXT)
    assert isinstance(terminal, Error)
    assert (terminal.kind, terminal.status, terminal.code) == (ErrorKind.AUTH, 401, "invalid_api_key")
    assert terminal.error == "Incorrect API key [peer]"


async def test_B4_a_callback_that_raises_while_the_socket_breaks_raises_as_itself() -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.message()
        await say(socket, CREATED, delta("x"))

    def on_text_delta(event: Any) -> None:
        raise ValueError("mine")

    async with serve_ws(script) as server, peer(server.url) as io:
        with pytest.raises(ValueError, match=r"^mine$"):
            await io.write(CONTEXT, {"on_text_delta": on_text_delta})
        assert io.state == "idle"


async def test_a_binary_message_is_malformed() -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.message()
        await say(socket, CREATED, delta("Half"))
        await socket.binary(b"{}")
        await socket.until_gone()

    async with serve_ws(script) as server, peer(server.url) as io:
        terminal = await io.write(CONTEXT)
    assert isinstance(terminal, Error)
    assert (terminal.kind, terminal.emitted) == (ErrorKind.MALFORMED, True)


# -- a peer that nobody here wrote


async def test_an_independent_server_gets_what_it_needs() -> None:
    """The server side of the library `websockets`, sans-I/O."""
    asked: list[Any] = []

    async def script(exchange: Exchange) -> None:
        protocol = ServerProtocol()
        state = {"open": True}

        async def flush() -> None:
            for data in protocol.data_to_send():
                if data:
                    await exchange.send(data)
                else:
                    state["open"] = False

        while state["open"] and (data := await exchange.stream.receive_some(65536)):
            protocol.receive_data(bytes(data))
            for event in protocol.events_received():
                if isinstance(event, Request):
                    protocol.send_response(protocol.accept(event))
                    protocol.send_ping(b"are you there")
                    continue
                assert isinstance(event, Frame)
                if event.opcode is Opcode.TEXT:
                    asked.append(json.loads(bytes(event.data)))
                    for one in answer("Hi é😀"):
                        text = json.dumps(one, ensure_ascii=False).encode()
                        protocol.send_text(text[:5], fin=False)
                        protocol.send_continuation(text[5:], fin=True)
                elif event.opcode is Opcode.CLOSE:
                    assert protocol.close_rcvd is not None
                    asked.append(protocol.close_rcvd.code)
            await flush()

    async with serve(script, read="nothing") as server:
        async with peer(server.url.replace("http", "ws")) as io:
            terminal = await io.write(CONTEXT)
        await server.wait_idle()
    assert isinstance(terminal, Done)
    assert terminal.message == {"type": 3, "content": [{"type": "text", "text": "Hi é😀"}]}
    assert [asked[0]["type"], asked[1]] == ["response.create", 1000]


# -- messages after the first


class Asking(Provider):
    """Says three things before it is answered."""

    name = "asking"

    def request(self, context: Sequence[Message], io: ProviderIO) -> tuple[Mapping[str, Any], Any]:
        return {}, {"say": "one"}

    def translate(self, native: Any, state: Any, io: ProviderIO) -> Any:
        if native == "ready":
            return [Send(b'{"say":"two"}'), Send(b'{"say":"three"}')]
        return [{"type": "text_delta", "content_index": 0, "text": native}, Done(done_reason="stop")]


@asynccontextmanager
async def asking(url: str) -> AsyncIterator[aiio.IO]:
    async with aiio.open_env() as env:
        env.register_provider(Asking)
        env.register_endpoint("peer", provider="asking", url=url)
        yield aiio.IO(env=env, model="peer/m")


async def test_a_provider_says_more_when_it_is_asked() -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        said = [json.loads(await socket.message())["say"]]
        await socket.text('"ready"')
        said += [json.loads(await socket.message())["say"] for _ in range(2)]
        await socket.text(json.dumps(" ".join(said)))
        await socket.until_gone()

    async with serve_ws(script) as server, asking(server.url) as io:
        terminal = await io.write(CONTEXT)
    assert isinstance(terminal, Done)
    assert terminal.message == {"type": 3, "content": [{"type": "text", "text": "one two three"}]}


async def test_over_http_nothing_more_can_be_said() -> None:
    steps = (head(), chunk(b'data: "ready"\n\n'), stall())
    async with serve(*steps) as server, asking(server.url) as io:
        terminal = await io.write(CONTEXT)
    assert isinstance(terminal, Error)
    assert terminal.kind is ErrorKind.MALFORMED
    assert "Send needs a WebSocket" in terminal.error


# -- sockets that are kept


async def converse(socket: Socket) -> None:
    """Answer every request on one socket with its number."""
    await socket.accept()
    number = 0
    while True:
        await socket.message()
        number += 1
        await say(socket, *answer(f"Answer {number}.", f"resp_{number}"))


def follow(context: list[Message], terminal: Any, text: str) -> list[Message]:
    return [*context, terminal.message, aiio.user_message(text)]


async def test_a_kept_socket_takes_what_is_new() -> None:
    async with serve_ws(converse) as server, peer(server.url, ws_keep=True) as io:
        first = await io.write(CONTEXT)
        context = follow(CONTEXT, first, "And then?")
        second = await io.write(context)
        third = await io.write(follow(context, second, "And after that?"))
        assert isinstance(third, Done)
        assert len(server.sockets) == 1
        sent = [json.loads(text) for text in server.sockets[0].messages]
        await io.kill()
        await server.http.wait_idle()
    assert [request.get("previous_response_id") for request in sent] == [None, "resp_1", "resp_2"]
    assert [len(request["input"]) for request in sent] == [1, 1, 1]
    assert sent[2]["input"][0]["content"][0]["text"] == "And after that?"


async def test_a_context_that_was_changed_is_sent_whole() -> None:
    async with serve_ws(converse) as server, peer(server.url, ws_keep=True) as io:
        first = await io.write(CONTEXT)
        assert isinstance(first, Done)
        assert first.message is not None
        first.message["content"][0]["text"] = "Something else."
        await io.write(follow(CONTEXT, first, "And then?"))
        [socket] = server.sockets
        assert "previous_response_id" not in json.loads(socket.messages[1])
        assert len(json.loads(socket.messages[1])["input"]) == 3


async def test_a_server_that_forgot_gets_the_whole_on_the_same_socket() -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.message()
        await say(socket, *answer("One.", "resp_1"))
        await socket.message()
        fault = {"type": "invalid_request_error", "code": "previous_response_not_found", "message": "gone"}
        await say(socket, {"type": "error", "status": 400, "error": fault})
        await socket.message()
        await say(socket, *answer("Two.", "resp_2"))
        await socket.until_gone()

    async with serve_ws(script) as server, peer(server.url, ws_keep=True) as io:
        starts: list[Any] = []
        first = await io.write(CONTEXT)
        second = await io.write(follow(CONTEXT, first, "Go on"), {"on_start": starts.append})
        assert isinstance(second, Done)
        assert len(starts) == 1
        [socket] = server.sockets
        sent = [json.loads(text) for text in socket.messages]
    assert [request.get("previous_response_id") for request in sent] == [None, "resp_1", None]
    assert len(sent[2]["input"]) == 3


@pytest.mark.parametrize("how", ["the peer closes it", "it is idle too long", "the credential changes"])
async def test_a_socket_that_cannot_be_kept_is_replaced(how: str, autojump_clock: MockClock) -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.message()
        await say(socket, *answer("One."))
        if how == "the peer closes it":
            await trio.sleep(1)
            await socket.close(1001)
        await socket.until_gone()

    async with serve_ws(script) as server, peer(server.url, ws_keep=True, ws_keep_idle="1m") as io:
        first = await io.write(CONTEXT)
        assert isinstance(first, Done)
        match how:
            case "it is idle too long":
                await trio.sleep(50)
                assert server.http.open == 1
                await trio.sleep(20)
            case "the peer closes it":
                await trio.sleep(2)
            case _:
                await io.env.auth_set("peer", {"token": "key-2"})
        assert server.http.open == (1 if how == "the credential changes" else 0)
        second = await io.write(follow(CONTEXT, first, "Go on"))
        assert isinstance(second, Done)
        assert len(server.sockets) == 2
        sent = json.loads(server.sockets[1].messages[0])
        assert ("previous_response_id" in sent) is (how == "the credential changes")
    assert server.http.open == 0


async def test_a_killed_answer_leaves_no_socket_behind(autojump_clock: MockClock) -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.message()
        await say(socket, CREATED, delta("Half"))
        await socket.until_gone()

    async with serve_ws(script) as server, peer(server.url, ws_keep=True) as io:
        with trio.move_on_after(3):
            await io.write(CONTEXT)
        await server.http.wait_idle()
        assert io.kept is None
        assert server.sockets[0].close_code == 1000


async def test_without_the_setting_no_socket_is_kept() -> None:
    async with serve_ws(converse) as server, peer(server.url) as io:
        first = await io.write(CONTEXT)
        await io.write(follow(CONTEXT, first, "Go on"))
        assert len(server.sockets) == 2
        assert "previous_response_id" not in json.loads(server.sockets[1].messages[0])
    assert server.http.open == 0


# -- the way out to SSE


@asynccontextmanager
async def refusing(status: int) -> AsyncIterator[Any]:
    """A server that refuses sockets and answers POST."""

    async def script(exchange: Exchange) -> None:
        assert exchange.request is not None
        if exchange.request.method == "GET":
            await respond(b'{"error":{"message":"no sockets here"}}', status=status)(exchange)
        else:
            await respond(sse(*(json.dumps(event).encode() for event in answer("Over SSE"))))(exchange)

    async with serve(script) as server:
        yield server


async def test_a_refused_handshake_may_be_followed_by_sse() -> None:
    async with refusing(426) as server, peer(f"ws://127.0.0.1:{server.port}", ws_fallback="sse") as io:
        with structlog.testing.capture_logs() as logs:
            terminal = await io.write(CONTEXT)
    assert isinstance(terminal, Done)
    assert terminal.message == {"type": 3, "content": [{"type": "text", "text": "Over SSE"}]}
    get, post = server.requests
    assert (get.target, post.target, post.method) == ("/responses", "/responses", "POST")
    assert post.json()["stream"] is True
    [note] = [entry for entry in logs if entry["event"] == "request.fallback"]
    assert note["why"] == "no sockets here [peer]"


@pytest.mark.parametrize(("status", "setting"), [(426, {}), (401, {"ws_fallback": "sse"})])
async def test_no_other_refusal_is(status: int, setting: dict[str, str]) -> None:
    async with refusing(status) as server, peer(f"ws://127.0.0.1:{server.port}", **setting) as io:
        terminal = await io.write(CONTEXT)
    assert isinstance(terminal, Error)
    assert (terminal.status, len(server.requests)) == (status, 1)


# -- many


async def test_300_writes_half_of_them_killed_leave_nothing_open(autojump_clock: MockClock) -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.message()
        await say(socket, CREATED)
        for _ in range(8):
            await say(socket, delta("x"))
            await trio.sleep(1)
        await say(socket, completed())
        await socket.until_gone()

    terminals: list[Any] = []

    async def write(io: aiio.IO) -> None:
        terminals.append(await io.write(CONTEXT))

    async with serve_ws(script) as server, peer(server.url) as one:
        ios = [aiio.IO(env=one.env, model="peer/m") for _ in range(300)]
        async with trio.open_nursery() as nursery:
            for io in ios:
                nursery.start_soon(write, io)
            await server.http.wait_open(300)
            await trio.sleep(4)
            for io in ios[::2]:
                io.kill_nowait()
            start = trio.current_time()
            while server.http.open > 150:
                await trio.sleep(0.1)
            assert trio.current_time() - start <= 2
        await server.http.wait_idle()
    done = [one for one in terminals if isinstance(one, Done)]
    killed = [one for one in terminals if isinstance(one, Error)]
    assert (len(done), len(killed)) == (150, 150)
    assert all(one.cancelled and one.message is not None for one in killed)
