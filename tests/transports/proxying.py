"""A tiny HTTP proxy in the test's own trio run: CONNECT, and absolute-form requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio


@dataclass
class Proxy:
    """The running proxy."""

    url: str
    heads: list[bytes] = field(default_factory=list)
    """Request heads as they came."""
    refusal: bytes | None = None
    """Answer everything with this."""
    open: int = 0


@asynccontextmanager
async def run_proxy() -> AsyncIterator[Proxy]:
    """Run a proxy for the length of the block."""
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    proxy = Proxy(f"http://127.0.0.1:{listener.socket.getsockname()[1]}")

    async def handle(client: trio.SocketStream) -> None:
        proxy.open += 1
        try:
            async with client:
                await _serve(proxy, client)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            proxy.open -= 1

    raised: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, handle, [listener])
        try:
            yield proxy
        except Exception as exc:  # noqa: BLE001  # comes out below, not wrapped into a group
            raised = exc
        nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised


async def _serve(proxy: Proxy, client: trio.SocketStream) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = await client.receive_some(65536)
        if not more:
            return
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    proxy.heads.append(head)
    if proxy.refusal is not None:
        await client.send_all(proxy.refusal)
        return
    method, target, _ = head.split(b"\r\n", 1)[0].split(b" ")
    if method == b"CONNECT":
        host, _, port = target.decode().rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as server:
            await client.send_all(b"HTTP/1.1 200 Connected\r\n\r\n")
            await _both_ways(client, server)
    else:
        origin, _, path = target.removeprefix(b"http://").partition(b"/")
        host, _, port = origin.decode().rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as server:
            await server.send_all(head.replace(target, b"/" + path, 1) + b"\r\n\r\n" + rest)
            await _both_ways(client, server)


async def _both_ways(a: trio.SocketStream, b: trio.SocketStream) -> None:
    async def copy(source: trio.SocketStream, sink: trio.SocketStream) -> None:
        try:
            async for data in source:
                await sink.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(copy, a, b)
        nursery.start_soon(copy, b, a)
