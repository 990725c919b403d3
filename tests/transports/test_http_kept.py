"""Connections that are kept: who gets them, who does not, and what becomes of them."""

from __future__ import annotations

import gc
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from aiio.env.errors import HttpStatusError, ProviderError
from aiio.transports import http_kept
from aiio.transports.base import Reuse, TransportRequest
from aiio.transports.http import HTTPTransport
from aiio.transports.http_socket import READ_SIZE, PlainStream
from tests.serving import (
    EVENT_STREAM,
    Authority,
    Exchange,
    Server,
    Step,
    chunk,
    drop,
    half_close,
    hang,
    head,
    last_chunk,
    raw,
    reset,
    respond,
    serve,
    sse,
    stall,
    wait_for,
)

from .asking import FakeEnv

WHOLE = respond(sse(b"1"))


@dataclass
class Asked:
    """What came of a request."""

    reuse: Reuse
    frames: list[bytes] = field(default_factory=list)
    redone: list[ProviderError] = field(default_factory=list)
    error: Any = None
    """The `ProviderError` or `HttpStatusError` that ended it."""


@dataclass
class Client:
    """A transport whose connections are kept as long as its block lasts."""

    transport: HTTPTransport
    nursery: trio.Nursery

    async def ask(
        self, server: Server, *, whole: bool = True, frames: int = -1, path: str = "", **options: Any
    ) -> Asked:
        """Make one request, read *frames* frames or to the end, and close."""
        redone: list[ProviderError] = []
        asked = Asked(Reuse(redo=redone.append), redone=redone)
        options = {"reuse": asked.reuse, "body": b"{}", "url": server.url + path, **options}
        try:
            connection = await self.transport.open(TransportRequest(**options), self.nursery)
        except (ProviderError, HttpStatusError) as exc:
            asked.error = exc
            return asked
        try:
            while len(asked.frames) != frames and (some := await connection.receive()) is not None:
                asked.frames += some
            asked.reuse.whole = whole
        except ProviderError as exc:
            asked.error = exc
        finally:
            await connection.aclose()
            await connection.aclose()
        return asked

    @property
    def kept(self) -> int:
        return len(self.transport.kept)


@asynccontextmanager
async def keeping(context: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
    """Keep connections for the length of the block."""
    async with trio.open_nursery() as nursery:
        env = FakeEnv(nursery=nursery) if context is None else FakeEnv(context, nursery=nursery)
        client = Client(HTTPTransport(env), nursery)
        try:
            yield client
        finally:
            await client.transport.aclose()
        nursery.cancel_scope.cancel()
    assert not client.kept


@pytest.fixture(params=["plain", "tls"])
async def pair(request: pytest.FixtureRequest, authority: Authority) -> AsyncIterator[tuple[Server, Client]]:
    """A server that keeps its side open, and a client, with and without TLS."""
    tls = request.param == "tls"
    async with (
        serve(WHOLE, keep=True, tls=authority.server_context() if tls else None) as server,
        keeping(authority.client_context()) as client,
    ):
        yield server, client


# --- kept ------------------------------------------------------------------------------------------


async def test_the_next_request_goes_out_on_the_same_connection(pair: tuple[Server, Client]) -> None:
    server, client = pair
    answers = [await client.ask(server, path=f"/{number}") for number in range(3)]
    assert [answer.frames for answer in answers] == [[b"1"]] * 3
    assert [answer.reuse.taken for answer in answers] == [False, True, True]
    assert (server.connections, client.kept) == (1, 1)
    assert [request.target for request in server.requests] == ["/0", "/1", "/2"]
    assert {request.headers["connection"] for request in server.requests} == {"keep-alive"}


async def test_a_connection_ends_with_its_answer_unless_that_is_asked_for(
    pair: tuple[Server, Client],
) -> None:
    server, client = pair
    for _ in range(2):
        assert (await client.ask(server, reuse=None)).frames == [b"1"]
        await server.wait_idle()
    assert (server.connections, client.kept) == (2, 0)
    assert {request.headers["connection"] for request in server.requests} == {"close"}


@pytest.mark.parametrize(
    "answer",
    [
        respond(b"data: 1\n\n", headers=EVENT_STREAM),
        raw(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9;x\r\ndata: 1\n\n\r\n0\r\nx-t: 1\r\n\r\n"
        ),
        raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ndata: 1\n\n"),
    ],
)
async def test_a_body_that_says_where_it_ends_leaves_its_connection(answer: Step) -> None:
    async with serve(answer, keep=True) as server, keeping() as client:
        for _ in range(2):
            assert (await client.ask(server)).frames == [b"1"]
        assert server.connections == 1


async def test_an_empty_body_leaves_its_connection() -> None:
    async with serve(respond(b"", status=204), keep=True) as server, keeping() as client:
        for _ in range(2):
            assert (await client.ask(server)).error is None
        assert server.connections == 1


async def test_the_end_of_the_body_may_come_after_the_reader_has_left(pair: tuple[Server, Client]) -> None:
    server, client = pair
    left = trio.Event()
    server.script(head(), chunk(b"data: 1\n\n"), wait_for(left), chunk(b": bye\n\n"), last_chunk())
    assert (await client.ask(server, frames=1)).frames == [b"1"]
    assert client.kept == 1
    left.set()
    await wait_all_tasks_blocked()
    assert (await client.ask(server)).reuse.taken
    assert server.connections == 1


async def test_one_whose_body_has_not_ended_waits_while_another_serves() -> None:
    left = trio.Event()
    async with serve(WHOLE, keep=True) as server, keeping() as client:
        server.script_next(head(), chunk(b"data: 1\n\n"), wait_for(left), last_chunk())
        for taken in (False, False, True):
            assert (await client.ask(server, frames=1)).reuse.taken is taken
        assert (server.connections, client.kept) == (2, 2)
        left.set()
        await wait_all_tasks_blocked()
        both = [client.ask, client.ask]
        async with trio.open_nursery() as nursery:
            for ask in both:
                nursery.start_soon(ask, server)
        assert server.connections == 2


async def test_the_one_used_last_serves_first() -> None:
    async with serve(WHOLE, keep=True) as server, keeping() as client:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(client.ask, server)
        order = [kept.stream for kept in client.transport.kept._kept]
        await client.ask(server)
        assert [kept.stream for kept in client.transport.kept._kept] == order
        assert (server.connections, len(order)) == (3, 3)


async def test_a_large_body_goes_out_on_a_kept_connection(pair: tuple[Server, Client]) -> None:
    server, client = pair
    body = os.urandom(3 << 20)
    for _ in range(2):
        assert (await client.ask(server, body=body)).frames == [b"1"]
    assert [request.body for request in server.requests] == [body, body]
    assert server.connections == 1


# --- not kept --------------------------------------------------------------------------------------

UNFIT: dict[str, Step] = {
    "close, said the server": respond(sse(b"1"), headers={"connection": "close"}),
    "HTTP/1.0": raw(b"HTTP/1.0 200 OK\r\ncontent-length: 9\r\n\r\ndata: 1\n\n"),
    "more than the length": raw(
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ndata: 1\n\nHTTP/1.1 200 OK\r\n"
    ),
    "more than the chunks": raw(
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n0\r\n\r\nHTTP/1.1 200"
    ),
    "more than no body": raw(b"HTTP/1.1 204 OK\r\n\r\nHTTP/1.1 200 OK\r\n"),
    "cut": raw(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\ndata: 1\n\n"),
}


@pytest.mark.parametrize("how", UNFIT)
async def test_what_does_not_end_cleanly_is_closed(pair: tuple[Server, Client], how: str) -> None:
    server, client = pair
    server.script(UNFIT[how], drop() if how == "cut" else hang())
    await client.ask(server)
    assert client.kept == 0


async def test_a_body_that_ends_with_the_connection_is_not_followed_by_another(
    pair: tuple[Server, Client],
) -> None:
    server, client = pair
    server.script(raw(b"HTTP/1.1 200 OK\r\n\r\ndata: 1\n\n"), stall())
    assert (await client.ask(server, frames=1)).frames == [b"1"]
    assert client.kept == 0
    await server.wait_idle()


async def test_an_answer_that_is_not_whole_takes_its_connection_with_it(pair: tuple[Server, Client]) -> None:
    server, client = pair
    await client.ask(server, whole=False)
    assert client.kept == 0
    await server.wait_idle()


@pytest.mark.parametrize("status", [401, 429, 500])
async def test_a_refusal_takes_its_connection_with_it(pair: tuple[Server, Client], status: int) -> None:
    server, client = pair
    server.script(respond(b"{}", status=status))
    assert (await client.ask(server)).error.status == status
    assert client.kept == 0
    await server.wait_idle()


async def test_a_request_that_was_not_sent_whole_takes_its_connection_with_it() -> None:
    async with serve(WHOLE, read="nothing") as server, keeping() as client:
        server.script(raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ndata: 1\n\n"), reset())
        await client.ask(server, body=bytes(30 << 20))
        assert client.kept == 0


async def test_the_rest_of_a_body_is_read_so_far_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_kept, "MOST_READS", 1)
    go = trio.Event()
    steps = [head(), chunk(b"data: 1\n\n"), wait_for(go), chunk(bytes(READ_SIZE)), hang()]
    async with serve(*steps) as server, keeping() as client:
        await client.ask(server, frames=1)
        assert client.kept == 1
        go.set()
        await wait_all_tasks_blocked(0.01)
        assert not (await client.ask(server, frames=1)).reuse.taken
        assert client.kept == 1
        assert server.connections == 2


async def test_a_rest_that_is_cut_spoils_the_connection(pair: tuple[Server, Client]) -> None:
    server, client = pair
    go = trio.Event()
    server.script_next(head(), chunk(b"data: 1\n\n"), wait_for(go), drop())
    await client.ask(server, frames=1)
    assert client.kept == 1
    go.set()
    await wait_all_tasks_blocked(0.01)
    asked = await client.ask(server)
    assert (asked.frames, asked.reuse.taken, asked.redone) == ([b"1"], False, [])
    assert client.kept == 1


async def test_a_rest_that_is_no_body_spoils_the_connection() -> None:
    go = trio.Event()
    steps = [head(), chunk(b"data: 1\n\n"), wait_for(go), raw(b"nonsense\r\n\r\n"), hang()]
    async with serve(*steps) as server, keeping() as client:
        await client.ask(server, frames=1)
        go.set()
        await wait_all_tasks_blocked()
        assert not (await client.ask(server, frames=1)).reuse.taken


async def test_nothing_is_kept_that_nobody_would_close() -> None:
    class NotEntered(FakeEnv):
        @property
        def nursery(self) -> Any:
            raise RuntimeError("not entered")

        @nursery.setter
        def nursery(self, value: object) -> None:
            pass

    async with serve(WHOLE, keep=True) as server, trio.open_nursery() as nursery:
        client = Client(HTTPTransport(NotEntered()), nursery)
        assert (await client.ask(server)).frames == [b"1"]
        assert client.kept == 0
        await server.wait_idle()
        await client.transport.aclose()


async def test_nothing_is_kept_of_a_lent_client() -> None:
    async with (
        serve(WHOLE) as server,
        httpx.AsyncClient(trust_env=False) as lent,
        trio.open_nursery() as nursery,
    ):
        client = Client(HTTPTransport(FakeEnv(http_client=lent, nursery=nursery)), nursery)
        for _ in range(2):
            assert (await client.ask(server)).frames == [b"1"]
        assert (client.kept, server.connections) == (0, 2)
        assert server.requests[0].headers["connection"] == "close"
        await client.transport.aclose()


# --- whose it is -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "shared"),
    [
        ({"Authorization": "Bearer one", "x-request": "2"}, True),
        ({"authorization": "Bearer one"}, True),
        ({"authorization": "Bearer two"}, False),
        ({"authorization": "Bearer one", "x-api-key": "two"}, False),
        ({"x-goog-api-key": "Bearer one"}, False),
        ({}, False),
    ],
)
async def test_another_credential_is_another_connection(headers: dict[str, str], shared: bool) -> None:
    async with serve(WHOLE, keep=True) as server, keeping() as client:
        await client.ask(server, headers={"authorization": "Bearer one", "x-request": "1"})
        assert (await client.ask(server, headers=headers)).reuse.taken is shared
        assert server.connections == (1 if shared else 2)
        held = [kept for kept in gc.get_objects() if isinstance(kept, http_kept.Kept)]
        assert held
        assert not any("Bearer" in repr(vars(kept)) for kept in held)


async def test_another_origin_is_another_connection(authority: Authority) -> None:
    tls = authority.server_context()
    async with (
        serve(WHOLE, keep=True) as plain,
        serve(WHOLE, keep=True) as other,
        serve(WHOLE, keep=True, tls=tls) as secure,
        keeping(authority.client_context()) as client,
    ):
        for server in (plain, other, secure):
            assert not (await client.ask(server)).reuse.taken
        named = secure.url.replace("127.0.0.1", "localhost")
        assert not (await client.ask(secure, url=named)).reuse.taken
        assert (await client.ask(secure, url=named)).reuse.taken


async def test_another_tls_context_is_another_connection(authority: Authority) -> None:
    async with (
        serve(WHOLE, keep=True, tls=authority.server_context()) as server,
        keeping(authority.client_context()) as client,
    ):
        await client.ask(server)
        client.transport._env.ssl_context = authority.client_context()  # type: ignore[misc]
        assert not (await client.ask(server)).reuse.taken


async def test_a_tls_context_that_can_not_be_made_is_a_tls_fault() -> None:
    class Broken(FakeEnv):
        @property
        def ssl_context(self) -> ssl.SSLContext:
            raise FileNotFoundError(2, "No such file", "ca.pem")

        @ssl_context.setter
        def ssl_context(self, value: object) -> None:
            pass

    async with serve(WHOLE) as server, trio.open_nursery() as nursery:
        client = Client(HTTPTransport(Broken(nursery=nursery)), nursery)
        asked = await client.ask(server, url=server.url.replace("http:", "https:"))
        assert (str(asked.error.kind), asked.error.detail["phase"]) == ("network", "tls")
        await client.transport.aclose()


async def test_requests_at_the_same_time_have_connections_of_their_own() -> None:
    async with serve(WHOLE, keep=True) as server, keeping() as client:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(client.ask, server)
        assert (server.connections, client.kept) == (5, 5)


# --- the peer gives it up --------------------------------------------------------------------------

GOES: dict[str, Callable[[], Step]] = {"close": drop, "reset": reset, "half-close": half_close}


@pytest.mark.parametrize("how", GOES)
async def test_one_that_the_peer_has_ended_is_not_used(pair: tuple[Server, Client], how: str) -> None:
    server, client = pair
    go = trio.Event()
    server.script_next(WHOLE, wait_for(go), GOES[how]())
    await client.ask(server)
    assert client.kept == 1
    go.set()
    await wait_all_tasks_blocked()
    asked = await client.ask(server)
    assert (asked.frames, asked.reuse.taken, asked.redone) == ([b"1"], False, [])
    assert (server.connections, len(server.requests)) == (2, 2)


async def test_one_on_which_the_peer_has_spoken_is_not_used(pair: tuple[Server, Client]) -> None:
    server, client = pair
    go = trio.Event()
    server.script_next(WHOLE, wait_for(go), raw(b"HTTP/1.1 408 Request Timeout\r\n\r\n"), hang())
    await client.ask(server)
    go.set()
    await wait_all_tasks_blocked()
    asked = await client.ask(server)
    assert (asked.frames, asked.reuse.taken, server.connections) == ([b"1"], False, 2)


@pytest.mark.parametrize("how", GOES)
async def test_C4_a_request_that_meets_a_closed_connection_goes_out_once_more(
    pair: tuple[Server, Client], how: str
) -> None:
    server, client = pair
    server.script_next(WHOLE)
    server.script_next(GOES[how]())
    await client.ask(server)
    asked = await client.ask(server, path="/second")
    assert (asked.frames, asked.error, asked.reuse.taken) == ([b"1"], None, False)
    assert [error.detail["phase"] for error in asked.redone] == ["head"]
    assert server.connections == 2
    assert [request.target for request in server.requests] == ["/", "/second", "/second"]
    assert (await client.ask(server)).reuse.taken


async def test_C4_a_large_request_that_meets_a_closed_connection_goes_out_once_more() -> None:
    body = os.urandom(8 << 20)
    async with serve(WHOLE, keep=True) as server, keeping() as client:

        async def hear_a_little_and_go(exchange: Exchange) -> None:
            await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ndata: 1\n\n")
            await exchange.stream.receive_some(1000)
            await reset()(exchange)

        server.script_next(hear_a_little_and_go)
        await client.ask(server)
        asked = await client.ask(server, body=body)
        assert (asked.frames, len(asked.redone), server.connections) == ([b"1"], 1, 2)
        assert server.requests[-1].body == body


async def test_C4_it_goes_out_once_more_and_not_twice(pair: tuple[Server, Client]) -> None:
    server, client = pair
    server.script(drop())
    server.script_next(WHOLE)
    await client.ask(server)
    asked = await client.ask(server)
    assert (str(asked.error.kind), len(asked.redone)) == ("network", 1)
    assert (server.connections, len(server.requests), client.kept) == (2, 3, 0)


async def test_C4_a_second_kept_connection_is_not_tried() -> None:
    async with serve(WHOLE, keep=True) as server, keeping() as client:
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(client.ask, server)
        server.script_next(drop())
        asked = await client.ask(server)
        assert (asked.frames, len(asked.redone), server.connections) == ([b"1"], 1, 3)


@pytest.mark.parametrize(
    "said", [b"H", b"HTTP/1.1 103 Early Hints\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"]
)
async def test_C4_it_does_not_go_out_again_after_a_byte_of_the_answer(
    pair: tuple[Server, Client], said: bytes
) -> None:
    server, client = pair
    server.script_next(WHOLE)
    server.script_next(raw(said), drop())
    await client.ask(server)
    asked = await client.ask(server)
    assert (str(asked.error.kind), asked.redone) == ("network", [])
    assert (server.connections, len(server.requests), client.kept) == (1, 2, 0)


async def test_C4_a_new_connection_that_fails_is_not_tried_again(pair: tuple[Server, Client]) -> None:
    server, client = pair
    server.script(drop())
    asked = await client.ask(server)
    assert (str(asked.error.kind), asked.redone, server.connections) == ("network", [], 1)


async def test_cancelling_on_a_kept_connection_closes_it(pair: tuple[Server, Client]) -> None:
    server, client = pair
    await client.ask(server)
    server.script(stall())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.ask, server)
        await wait_all_tasks_blocked(0.01)
        assert len(server.requests) == 2
        nursery.cancel_scope.cancel()
    await server.wait_idle()
    assert client.kept == 0


# --- how long, and how many ------------------------------------------------------------------------


async def test_an_idle_connection_is_closed_in_time(autojump_clock: MockClock) -> None:
    async with serve(WHOLE, keep=True) as server, keeping() as client:
        await client.ask(server, http_keep_idle="1m")
        await trio.sleep(59)
        assert (server.open, client.kept) == (1, 1)
        began = trio.current_time()
        await server.wait_idle()
        assert trio.current_time() - began == 1
        assert client.kept == 0
        await client.ask(server, http_keep_idle="nonsense")
        await trio.sleep(29)
        assert (await client.ask(server, http_keep_idle="10s")).reuse.taken
        await trio.sleep(9)
        assert server.open == 1
        await trio.sleep(2)
        assert (server.open, client.kept, server.connections) == (0, 0, 2)


@pytest.mark.parametrize(
    ("promise", "kept_for"),
    [("timeout=5, max=100", 5), ("max=100", 30), ("timeout=600", 30), ("timeout=0", 0)],
)
async def test_it_is_kept_for_no_longer_than_the_server_promised(
    promise: str, kept_for: float, autojump_clock: MockClock
) -> None:
    answer = respond(sse(b"1"), headers={"keep-alive": promise})
    async with serve(answer, keep=True) as server, keeping() as client:
        await client.ask(server)
        began = trio.current_time()
        await server.wait_idle()
        assert trio.current_time() - began == kept_for


async def test_each_has_its_own_time(autojump_clock: MockClock) -> None:
    async with serve(WHOLE, keep=True) as server, keeping() as client:
        await client.ask(server, headers={"x-api-key": "1"}, http_keep_idle="never")
        await client.ask(server, headers={"x-api-key": "2"}, http_keep_idle="20s")
        await client.ask(server, headers={"x-api-key": "3"}, http_keep_idle="10s")
        for _ in range(3):
            assert server.open == client.kept
            await trio.sleep(10.5)
        assert (server.open, client.kept) == (1, 1)


async def test_one_whose_time_has_come_is_not_used(mock_clock: MockClock) -> None:
    async with serve(WHOLE, keep=True) as server, keeping() as client:
        await client.ask(server, http_keep_idle="1m")
        mock_clock.jump(60)  # the task that closes it has not run yet
        assert not (await client.ask(server)).reuse.taken


async def test_the_closing_task_ends_with_its_work(autojump_clock: MockClock) -> None:
    async with serve(WHOLE, keep=True) as server, keeping() as client:
        before = len(client.nursery.child_tasks)
        await client.ask(server, http_keep_idle="1m")
        await client.ask(server, http_keep_idle="1m")
        assert len(client.nursery.child_tasks) == before + 1
        await trio.sleep(61)
        assert len(client.nursery.child_tasks) == before
        assert not (await client.ask(server)).reuse.taken
        assert len(client.nursery.child_tasks) == before + 1


async def test_only_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_kept, "MOST_ALIKE", 2)
    monkeypatch.setattr(http_kept, "MOST_KEPT", 3)
    async with serve(WHOLE, keep=True) as server, keeping() as client:
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(client.ask, server)
        assert client.kept == 2
        for key in "abc":
            await client.ask(server, headers={"x-api-key": key})
        assert client.kept == 3
        assert (await client.ask(server, headers={"x-api-key": "a"})).reuse.taken
        assert not (await client.ask(server)).reuse.taken
        await wait_all_tasks_blocked(0.01)
        assert server.open == client.kept == 3


async def test_all_are_closed_with_the_transport(pair: tuple[Server, Client]) -> None:
    server, client = pair
    request = TransportRequest(url=server.url, body=b"{}", reuse=Reuse(redo=lambda fault: None))
    late = await client.transport.open(request, client.nursery)
    await client.ask(server)
    assert client.kept == 1
    await client.transport.aclose()
    await client.transport.aclose()
    assert client.kept == 0
    while await late.receive() is not None:
        pass
    assert request.reuse is not None
    request.reuse.whole = True
    await late.aclose()
    assert client.kept == 0
    await server.wait_idle()


async def test_all_are_closed_when_the_closing_task_is_cancelled() -> None:
    async with serve(WHOLE, keep=True) as server, keeping() as client:
        await client.ask(server)
        client.nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await server.wait_idle()
        assert client.kept == 0


async def test_a_child_process_keeps_off_what_its_parent_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve(WHOLE, keep=True) as server, keeping() as client:
        await client.ask(server)
        [parents] = client.transport.kept._kept
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            assert not (await client.ask(server)).reuse.taken
            assert (await client.ask(server)).reuse.taken
            await client.transport.aclose()
            await wait_all_tasks_blocked(0.01)
        assert (client.kept, server.open) == (0, 1)
        parents.stream.close()


# --- the stream by itself --------------------------------------------------------------------------


def test_a_broken_socket_is_not_at_rest() -> None:
    ours, theirs = socket.socketpair()
    stream = PlainStream(ours)
    assert stream.at_rest()
    with pytest.raises(BlockingIOError):
        stream.receive_now()
    theirs.close()
    assert not stream.at_rest()
    ours.close()
    assert not stream.at_rest()
