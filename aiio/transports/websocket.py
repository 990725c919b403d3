"""WebSocket: one request, one socket, messages both ways; on trio-websocket.

The parts: `ws_connect.py` makes the byte stream, `ws_wire.py` stands between it and the library,
`ws_connection.py` runs the library and hands over what it brings, `ws_errors.py` says what went wrong.
"""

from __future__ import annotations

import ssl
from typing import Protocol

import trio

from aiio.env.background import Background

from .base import TransportRequest
from .http_headers import wire_headers
from .target import target_of
from .ws_connect import open_stream
from .ws_connection import WebSocketConnection

_OF_THE_HANDSHAKE = frozenset({b"connection", b"accept-encoding", b"host"})
_SUBPROTOCOL = b"sec-websocket-protocol"


class WebSocketEnv(Protocol):
    """What the WebSocket transport needs to know of an `Env`."""

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """Shared by all connections; asked for when TLS is spoken."""
        ...

    @property
    def nursery(self) -> Background:
        """For the tasks of sockets that outlive a request."""
        ...


class WebSocketTransport:
    """See `Transport` in base.py. One instance serves all requests of an Env."""

    def __init__(self, env: WebSocketEnv) -> None:
        self._env = env

    async def open(self, request: TransportRequest, nursery: trio.Nursery) -> WebSocketConnection:
        """See `Transport`: the handshake, the request's body as the first message, the first message back.

        Header `Sec-WebSocket-Protocol` names subprotocols, separated by commas.
        """
        target = target_of(request.url, "ws")
        handshake = _handshake_headers(request)
        tasks = nursery if request.slot is None else self._env.nursery
        connection = None if request.slot is None else request.slot.take()
        if connection is not None and not connection.reuse(request):
            await connection.aclose()
            connection = None
        new = connection is None
        if connection is None:
            stream = await open_stream(target, request.proxy, lambda: self._env.ssl_context)
            connection = WebSocketConnection(stream, target, request)
            tasks.start_soon(connection.run, *handshake)
        try:
            if new:
                await connection.handshake()
            if request.body is not None:
                await connection.send(request.body)
            await connection.first()
        except BaseException:
            await connection.aclose()
            raise
        return connection

    async def aclose(self) -> None:
        """Nothing is shared between requests."""
        await trio.lowlevel.checkpoint()


def _handshake_headers(request: TransportRequest) -> tuple[list[tuple[bytes, bytes]], list[str]]:
    """Return the headers beside those of the handshake itself, and the subprotocols. ProviderError: unfit."""
    headers: list[tuple[bytes, bytes]] = []
    subprotocols: list[str] = []
    for name, value in wire_headers(request.headers):
        lowered = name.lower()
        if lowered == _SUBPROTOCOL:
            subprotocols = [part.strip() for part in value.decode("latin-1").split(",")]
        elif lowered not in _OF_THE_HANDSHAKE and not lowered.startswith(b"sec-websocket-"):
            headers.append((name, value))
    return headers, subprotocols
