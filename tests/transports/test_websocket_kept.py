"""A socket that is kept in a slot: who gets it next, and when it is let go."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from aiio.env.errors import ProviderError
from aiio.transports.base import Slot, TransportRequest
from aiio.transports.websocket import WebSocketTransport
from tests.ws_serving import Socket, SocketServer, serve_ws

from .asking import FakeEnv


@dataclass
class Keeping:
    """A server that counts what it is asked, and a client that keeps its socket."""

    server: SocketServer
    transport: WebSocketTransport
    slot: Slot
    nursery: trio.Nursery

    async def ask(self, *, whole: bool = True, **options: Any) -> tuple[list[bytes], int, int]:
        """Make one request; return the frames, the bytes and the keepalives that its connection counted."""
        given = {"url": self.server.url, "slot": self.slot, "body": b"?", **options}
        connection = await self.transport.open(TransportRequest(**given), self.nursery)
        frames = await connection.receive()
        assert frames is not None
        if whole:
            self.slot.keep({"said": frames[-1]})
        counted = connection.bytes_received, connection.keepalives
        await connection.aclose()
        return (frames, *counted)


@asynccontextmanager
async def keeping() -> AsyncIterator[Keeping]:
    async def script(socket: Socket) -> None:
        await socket.accept()
        for number in range(100):
            if await socket.message() == "close":
                await socket.close(1001)
            await socket.ping()
            await socket.text(f"answer {number}")

    async with serve_ws(script) as server, trio.open_nursery() as nursery:
        yield Keeping(server, WebSocketTransport(FakeEnv(nursery=nursery)), Slot(), nursery)
        nursery.cancel_scope.cancel()


def remembered(slot: Slot) -> Mapping[str, Any] | None:
    return slot.memory


async def test_the_next_request_gets_the_socket_and_counts_anew() -> None:
    async with keeping() as client:
        assert remembered(client.slot) is None
        first = await client.ask()
        assert remembered(client.slot) == {"said": b"answer 0"}
        second = await client.ask()
        assert (first[0], second[0]) == ([b"answer 0"], [b"answer 1"])
        assert first[1:] == second[1:] == (2 + 2 + len("answer 0"), 1)
        assert len(client.server.sockets) == 1


async def test_an_answer_that_was_not_whole_takes_its_socket_with_it() -> None:
    async with keeping() as client:
        await client.ask()
        await client.ask(whole=False)
        assert remembered(client.slot) is None
        assert (await client.ask())[0] == [b"answer 0"]
        assert len(client.server.sockets) == 2


@pytest.mark.parametrize("change", [{"headers": {"x-a": "b"}}, {"url": "/other"}])
async def test_a_socket_that_goes_elsewhere_is_replaced(change: dict[str, Any]) -> None:
    async with keeping() as client:
        await client.ask()
        if "url" in change:
            change = {"url": client.server.url + change["url"]}
        assert (await client.ask(**change))[0] == [b"answer 0"]
        assert len(client.server.sockets) == 2
        assert client.server.sockets[0].close_code == 1000


async def test_an_idle_socket_is_let_go(autojump_clock: MockClock) -> None:
    async with keeping() as client:
        await client.ask(ws_keep_idle="1m")
        await trio.sleep(59)
        assert remembered(client.slot) is not None
        await client.ask(ws_keep_idle="nonsense")
        await trio.sleep(299)
        assert client.server.http.open == 1
        await trio.sleep(2)
        assert remembered(client.slot) is None
        await client.server.http.wait_idle()


async def test_late_words_of_one_answer_are_not_the_next_one() -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.message()
        await socket.text("first")
        await asked_again.wait()
        await socket.text("late")
        came.set()
        await socket.message()
        await socket.text("second")
        await socket.until_gone()

    asked_again, came = trio.Event(), trio.Event()
    async with serve_ws(script) as server, trio.open_nursery() as nursery:
        client = Keeping(server, WebSocketTransport(FakeEnv(nursery=nursery)), Slot(), nursery)
        assert (await client.ask())[0] == [b"first"]
        asked_again.set()
        await came.wait()
        await wait_all_tasks_blocked(0.01)
        assert (await client.ask())[0] == [b"second"]
        nursery.cancel_scope.cancel()


async def test_a_slot_is_emptied_at_once() -> None:
    async with keeping() as client:
        await client.ask()
        client.slot.close_nowait()
        client.slot.close_nowait()
        assert remembered(client.slot) is None
        await client.server.http.wait_idle()


async def test_a_socket_that_ends_during_its_request_is_not_kept() -> None:
    async with keeping() as client:
        await client.ask()
        with pytest.raises(ProviderError, match="1001"):
            await client.ask(body=b"close")
        assert remembered(client.slot) is None


async def test_a_request_may_have_nothing_to_say_first() -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.text("hello")
        await socket.until_gone()

    async with serve_ws(script) as server, trio.open_nursery() as nursery:
        request = TransportRequest(url=server.url, slot=Slot())
        connection = await WebSocketTransport(FakeEnv(nursery=nursery)).open(request, nursery)
        assert await connection.receive() == [b"hello"]
        await connection.aclose()
