"""Writes over a WebSocket: in several messages, on kept sockets, by SSE after all, many at once."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog.testing
import trio
from trio.testing import MockClock

import aiio
from aiio.context.events import Done, Error, ErrorKind, Send
from aiio.context.types import Message
from aiio.providers.base import Provider, ProviderIO
from tests.serving import Exchange, chunk, head, respond, serve, sse, stall
from tests.ws_serving import Socket, serve_ws

from .ws_peers import CONTEXT, CREATED, answer, completed, delta, peer, say

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
