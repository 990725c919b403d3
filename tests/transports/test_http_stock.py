"""The stock way: proxies, and clients that the caller lends."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import AsyncIterator
from typing import Any

import httpx
import httpx2
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from aiio.transports.base import TransportRequest
from aiio.transports.http import HTTPTransport
from tests.serving import Authority, chunk, head, respond, serve, sse, stall

from .asking import FakeEnv, ask
from .proxying import run_proxy

LIBRARIES: list[Any] = [httpx, httpx2]


async def test_a_proxy_is_used_for_the_request_that_names_it(transport: HTTPTransport) -> None:
    async with serve(respond(sse(b"1", b"2"))) as server, run_proxy() as proxy:
        url = proxy.url.replace("//", "//user:pass%21@")
        outcome = await ask(transport, server.url + "/x", proxy=url, body=b"{}")
        assert (outcome.frames, outcome.error) == ([b"1", b"2"], None)
        assert proxy.heads[0].startswith(b"POST http://127.0.0.1:%d/x HTTP/1.1" % server.port)
        assert b"proxy-authorization: basic dxnlcjpwyxnzIQ==".lower() in proxy.heads[0].lower()
        assert (await ask(transport, server.url)).frames == [b"1", b"2"]
        assert len(proxy.heads) == 1
    assert server.requests[0].body == b"{}"


async def test_a_proxy_tunnels_tls(authority: Authority) -> None:
    transport = HTTPTransport(FakeEnv(authority.client_context()))
    async with serve(respond(sse(b"1")), tls=authority.server_context()) as server, run_proxy() as proxy:
        outcome = await ask(
            transport, server.url, proxy=proxy.url, headers={"authorization": "Bearer SECRET"}
        )
        assert (outcome.frames, outcome.error) == ([b"1"], None)
    assert proxy.heads[0].startswith(b"CONNECT 127.0.0.1:%d " % server.port)
    assert b"SECRET" not in proxy.heads[0]
    await transport.aclose()


async def test_a_proxy_that_refuses_is_named_as_the_place(transport: HTTPTransport) -> None:
    async with run_proxy() as proxy:
        proxy.refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n"
        outcome = await ask(transport, "https://example.invalid/", proxy=proxy.url)
    assert (outcome.kind, outcome.phase, outcome.error.retryable) == ("network", "proxy", False)
    assert "407" in outcome.text


async def test_a_proxy_that_is_not_there_is_named_as_the_place(transport: HTTPTransport) -> None:
    outcome = await ask(transport, "http://example.invalid/", proxy="http://user:SECRET@127.0.0.1:9")
    assert (outcome.kind, outcome.phase) == ("network", "proxy")
    assert "SECRET" not in outcome.text
    assert "127.0.0.1:9" in outcome.text


@pytest.mark.parametrize(
    "proxy", ["ftp://h:1", "no url", "socks5://u:SECRET@h:1", "http://[::bad?SECRET", "http://\ud800"]
)
async def test_a_proxy_url_that_cannot_be_used_is_malformed(transport: HTTPTransport, proxy: str) -> None:
    outcome = await ask(transport, "http://127.0.0.1:9/", proxy=proxy)
    assert (outcome.kind, outcome.phase) == ("malformed", "proxy")
    assert "SECRET" not in outcome.text


async def test_a_tls_proxy_gets_our_context(authority: Authority) -> None:
    transport = HTTPTransport(FakeEnv(authority.client_context()))
    async with serve(respond(sse(b"1")), tls=authority.server_context()) as proxy:
        outcome = await ask(transport, "http://example.invalid/x", proxy=proxy.url)
        assert (outcome.frames, outcome.error) == ([b"1"], None)
    assert proxy.requests[0].target == "http://example.invalid/x"
    await transport.aclose()


async def test_cancelling_through_a_proxy_closes_both_connections(transport: HTTPTransport) -> None:
    async with serve(head(), chunk(b"data: 1\n\n"), stall()) as server, run_proxy() as proxy:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: ask(transport, server.url, proxy=proxy.url))
            await server.wait_open(1)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        await server.wait_idle()
        await wait_all_tasks_blocked()
        assert proxy.open == 0


# --- lent clients ----------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_lent_client_keeps_its_ways_and_stays_open(library: Any) -> None:
    seen: list[str] = []

    async def hook(request: Any) -> None:
        seen.append(str(request.url))

    async with library.AsyncClient(
        trust_env=False,
        event_hooks={"request": [hook]},
        headers={"x-mine": "1"},
        follow_redirects=True,
        timeout=0.001,
    ) as client:
        transport = HTTPTransport(FakeEnv(http_client=client))
        async with serve(respond(sse(b"1"))) as server:
            assert (await ask(transport, server.url, body=b"{}")).frames == [b"1"]
            assert server.requests[0].headers["x-mine"] == "1"
            server.script(respond(b"", status=307, headers={"location": "/x"}))
            assert (await ask(transport, server.url)).error.status == 307
        await transport.aclose()
        assert not client.is_closed
        assert len(seen) == 2


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_mock_transport_works_as_its_users_know_it(library: Any) -> None:
    def answer(request: Any) -> Any:
        assert request.content == b"{}"
        return library.Response(
            200, content=b"data: 1\n\ndata: 2\n\n", headers={"content-type": "text/event-stream"}
        )

    async def stream() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        yield b"data: 2\n\n"

    for handler in (answer, lambda request: library.Response(200, content=stream())):
        async with library.AsyncClient(transport=library.MockTransport(handler)) as client:
            outcome = await ask(HTTPTransport(FakeEnv(http_client=client)), "http://mock/x", body=b"{}")
        assert (outcome.frames, outcome.error) == ([b"1", b"2"], None)


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_mocked_gzip_answer_is_not_decompressed_twice(library: Any) -> None:
    import gzip

    for status in (200, 400):
        body = gzip.compress(b"data: 1\n\n")
        answer = library.Response(status, content=body, headers={"content-encoding": "gzip"})
        async with library.AsyncClient(transport=library.MockTransport(lambda _, a=answer: a)) as client:
            outcome = await ask(HTTPTransport(FakeEnv(http_client=client)), "http://mock/x")
        assert outcome.frames == [b"1"] if status == 200 else outcome.error.body == "data: 1\n\n"


class OnlyStream:
    """A lent object with nothing but the `stream` face."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.options: list[dict[str, Any]] = []

    def stream(self, method: str, url: str, **options: Any) -> contextlib.AbstractAsyncContextManager[Any]:
        self.options.append(options)
        return self._client.stream(method, url, **options)


async def test_the_stream_face_is_all_a_lent_client_needs() -> None:
    async with httpx.AsyncClient(trust_env=False) as client, serve(respond(sse(b"1"))) as server:
        lent = OnlyStream(client)
        outcome = await ask(HTTPTransport(FakeEnv(http_client=lent)), server.url, body=b"{}")
        assert (outcome.frames, outcome.error) == ([b"1"], None)
        assert (lent.options[0]["timeout"], lent.options[0]["follow_redirects"]) == (None, False)


async def test_a_lent_client_with_a_bug_ends_the_request_only() -> None:
    def bug(request: httpx.Request) -> httpx.Response:
        raise KeyError("SECRET")

    async with httpx.AsyncClient(transport=httpx.MockTransport(bug)) as client:
        outcome = await ask(HTTPTransport(FakeEnv(http_client=client)), "http://mock/")
    assert (outcome.kind, outcome.text) == ("provider", "the HTTP client failed at mock:80: KeyError")


class Endless(httpx.AsyncByteStream):
    """A body that never awaits anything."""

    def __init__(self) -> None:
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield b"data: 1\n\n"

    async def aclose(self) -> None:
        self.closed = True


@pytest.mark.filterwarnings("ignore:Async generator")  # it is abandoned, for it can't be stopped
async def test_a_body_that_never_awaits_can_be_left() -> None:
    body = Endless()
    handler = httpx.MockTransport(lambda request: httpx.Response(200, stream=body))
    async with httpx.AsyncClient(transport=handler) as client, trio.open_nursery() as nursery:
        transport = HTTPTransport(FakeEnv(http_client=client))
        connection = await transport.open(TransportRequest(url="http://mock/"), nursery)
        assert await connection.receive() == [b"1"]
        await connection.aclose()
    assert body.closed
    gc.collect()


class Foreign:
    """A response of some other library: its chunks come from no generator."""

    status_code, reason_phrase, headers, is_stream_consumed = 200, "OK", httpx.Headers(), False

    def stream(self, *args: Any, **options: Any) -> Any:
        return contextlib.nullcontext(self)

    def aiter_raw(self) -> Any:
        return self

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> bytes:
        return b"data: 1\n\n"


async def test_chunks_that_come_from_no_generator_can_be_left_too() -> None:
    async with trio.open_nursery() as nursery:
        transport = HTTPTransport(FakeEnv(http_client=Foreign()))
        connection = await transport.open(TransportRequest(url="http://mock/"), nursery)
        assert await connection.receive() == [b"1"]
        await connection.aclose()


@pytest.mark.parametrize("library", LIBRARIES)
async def test_leaving_in_mid_stream_leaves_no_generator_behind(library: Any) -> None:
    """Warnings are errors here, so an abandoned one would fail this test."""
    async with library.AsyncClient(trust_env=False) as client:
        transport = HTTPTransport(FakeEnv(http_client=client))
        async with serve(head(), *[chunk(b"data: 1\n\n")] * 500, stall()) as server:
            for reads in range(4):
                async with trio.open_nursery() as nursery:
                    connection = await transport.open(TransportRequest(url=server.url), nursery)
                    for _ in range(reads):
                        await connection.receive()
                    await wait_all_tasks_blocked()
                    await connection.aclose()
                await server.wait_idle()
                del connection
                gc.collect()


async def test_a_nursery_that_is_cancelled_takes_the_pump_with_it(any_transport: HTTPTransport) -> None:
    """Closing after the nursery has ended must not wait for a task that is gone."""
    async with serve(head(), chunk(b"data: 1\n\n"), stall()) as server:
        async with trio.open_nursery() as nursery:
            connection = await any_transport.open(TransportRequest(url=server.url), nursery)
            nursery.cancel_scope.cancel()
        await connection.aclose()
        await server.wait_idle()
