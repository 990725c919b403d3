"""Killed at every moment: the same over HTTP and over a WebSocket, in every dialect that speaks over one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pytest
import trio
from trio.testing import MockClock

import aiio
from aiio.context.events import Done, Error, ErrorKind
from tests.serving import Exchange, Server, head, raw, serve
from tests.ws_serving import Socket, serve_ws

from .ws_peers import CONTEXT, CREATED, DIALECTS, answer, delta, independent, peer, say

MOMENTS = (
    "during the handshake",
    "before the first frame",
    "in the middle of the answer",
    "after the terminal",
)


class Served(Protocol):
    """A server that goes as far as a moment says, and then waits until the client has gone."""

    def __call__(self, moment: str) -> AbstractAsyncContextManager[tuple[str, Server]]:
        """Run it; yield its URL, and what it stands on."""
        ...


@asynccontextmanager
async def over_http(moment: str) -> AsyncIterator[tuple[str, Server]]:
    async def script(exchange: Exchange) -> None:
        if moment != "during the handshake":
            await head(chunked=False)(exchange)
        events = {
            "in the middle of the answer": [CREATED, delta("Half")],
            "after the terminal": answer("Whole"),
        }
        for event in events.get(moment, ()):
            await raw(b"data: " + json.dumps(event).encode() + b"\n\n")(exchange)
        await exchange.wait_client_gone()

    async with serve(script) as server:
        yield server.url, server


@dataclass(frozen=True)
class OverSocket:
    """See `Served`; speaks *provider*."""

    provider: str

    @asynccontextmanager
    async def __call__(self, moment: str) -> AsyncIterator[tuple[str, Server]]:
        dialect = DIALECTS[self.provider]

        async def script(socket: Socket) -> None:
            if moment != "during the handshake":
                await socket.accept()
            if moment in ("in the middle of the answer", "after the terminal"):
                await dialect.session(socket)
                await say(socket, *(dialect.whole if moment == "after the terminal" else dialect.half))
            await socket.until_gone()

        async with serve_ws(script) as server:
            yield server.url, server.http


SERVED: dict[str, Served] = {"openai_responses": over_http, **{name: OverSocket(name) for name in DIALECTS}}


async def killed_after(seconds: float, io: aiio.IO, server: Server) -> Done | Error:
    """Write, kill it after some seconds, and return the terminal event; nothing is left of the write then."""
    found: list[Any] = []

    async def write() -> None:
        found.append(await io.write(CONTEXT))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await trio.sleep(seconds)
        await io.kill("enough")
        assert trio.current_time() <= seconds + 1
        await server.wait_idle()
    assert io.state == "closed"
    assert not io.env.active_io
    [terminal] = found
    assert isinstance(terminal, Done | Error)
    return terminal


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("provider", SERVED)
async def test_kill_ends_alike_over_http_and_over_a_socket(
    provider: str, moment: str, autojump_clock: MockClock
) -> None:
    async with SERVED[provider](moment) as (url, server), peer(url, provider=provider) as io:
        terminal = await killed_after(5, io, server)
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


@pytest.mark.parametrize("provider", ["openai_realtime", "gemini_live"])
async def test_kill_while_the_session_is_set_up_says_nothing_more(
    provider: str, autojump_clock: MockClock
) -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        if provider == "openai_realtime":
            await say(socket, {"type": "session.created", "session": {}})
        await socket.until_gone()

    async with serve_ws(script) as server, peer(server.url, provider=provider) as io:
        terminal = await killed_after(5, io, server.http)
        [socket] = server.sockets
        assert len(socket.messages) == 1
        assert socket.close_code == 1000
    assert isinstance(terminal, Error)
    assert (terminal.cancelled, terminal.message, terminal.emitted) == (True, None, False)


@pytest.mark.parametrize("provider", DIALECTS)
async def test_the_partial_of_a_killed_answer_is_taken_up_by_the_next_write(
    provider: str, autojump_clock: MockClock
) -> None:
    """A session belongs to one write: what was killed leaves no half a turn on the server."""
    dialect = DIALECTS[provider]

    async def script(socket: Socket) -> None:
        await socket.accept()
        await dialect.session(socket)
        await say(socket, *(dialect.half if len(server.sockets) == 1 else dialect.whole))
        await socket.until_gone()

    async with serve_ws(script) as server, peer(server.url, provider=provider) as io:
        killed = await killed_after(5, io, server.http)
        assert killed.message is not None
        context = [*CONTEXT, killed.message, aiio.user_message("Go on")]
        whole = await aiio.IO(env=io.env, model="peer/m").write(context)
        assert isinstance(whole, Done)
        sent = "".join(server.sockets[1].messages)
        assert all(text in sent for text in ("Hello", "Half", "Go on"))


async def test_an_independent_server_is_left_politely() -> None:
    async with independent(CREATED, delta("Half")) as server, peer(server.url) as io:
        terminal = await io.write(CONTEXT, {"on_text_delta": lambda event: io.kill_nowait("enough")})
    assert isinstance(terminal, Error)
    assert (terminal.cancelled, terminal.emitted) == (True, True)
    assert server.asked[1:] == [1000]
