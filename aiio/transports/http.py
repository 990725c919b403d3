"""HTTP and HTTPS: one request, one connection, one answer.

`HTTPTransport.open` takes one of two ways. The direct one (http_direct.py) is for nearly everything; a
request through a proxy, or any request when the caller lent a client, goes the stock way
(http_stock.py): slower, same results. Neither follows redirects, retries, reads the environment, or
has timers of its own.
"""

from __future__ import annotations

import ssl
from typing import Protocol

import trio

from .base import TransportRequest
from .http_connection import Answer, HTTPConnection, connection_for
from .http_direct import DirectClient
from .http_errors import fault
from .http_headers import wire_headers
from .http_kept import KeptConnections, Place, Tasks
from .http_stock import LentClient, StockAnswer, proxied_client
from .target import Target, target_of


class HTTPEnv(Protocol):
    """What the HTTP transport needs to know of an `Env`."""

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """Shared by all connections; asked for at the first https request."""
        ...

    @property
    def http_client(self) -> LentClient | None:
        """A client lent by the caller: httpx's or httpx2's `AsyncClient`, or one with their `stream`."""
        ...

    @property
    def nursery(self) -> Tasks:
        """For the task that closes kept connections. RuntimeError: the Env is not entered."""
        ...


class HTTPTransport:
    """See `Transport` in base.py. One instance serves all requests of an Env."""

    def __init__(self, env: HTTPEnv) -> None:
        self._env = env
        self.kept: KeptConnections = KeptConnections(lambda: env.nursery)
        """Empty where no endpoint has the setting `http_keep`."""
        self._client = DirectClient(lambda: env.ssl_context)
        self._closed = False

    async def open(self, request: TransportRequest, nursery: trio.Nursery) -> HTTPConnection:
        """See `Transport`. trio.ClosedResourceError: the transport was closed before."""
        if self._closed:
            raise trio.ClosedResourceError("this HTTP transport is closed")
        target = target_of(request.url, "http")
        direct = request.proxy is None and self._env.http_client is None
        headers = wire_headers(request.headers, keep=direct and request.reuse is not None)
        answer: Answer
        if direct:
            place = self._place(request, target)
            answer = await self._client.open(request.method, target, headers, request.body, place)
        else:
            answer = await self._stock(target, request, headers, nursery)
        try:
            return await connection_for(answer, request)
        except BaseException:
            await answer.aclose()
            raise

    async def aclose(self) -> None:
        """Take no more requests; a lent client is not ours to close."""
        self._closed = True
        self.kept.close()
        await trio.lowlevel.checkpoint()

    def _place(self, request: TransportRequest, target: Target) -> Place | None:
        try:
            return self.kept.place(request, target, lambda: self._env.ssl_context)
        except OSError as exc:
            raise fault(exc, phase="tls", peer=target.peer) from exc

    async def _stock(
        self,
        target: Target,
        request: TransportRequest,
        headers: list[tuple[bytes, bytes]],
        nursery: trio.Nursery,
    ) -> StockAnswer:
        client = self._env.http_client
        if request.proxy is not None:
            client = proxied_client(request.proxy, self._env.ssl_context)
        assert client is not None
        answer = StockAnswer(client, request, target.peer, owned=request.proxy is not None)
        await answer.start(headers, nursery)
        return answer
