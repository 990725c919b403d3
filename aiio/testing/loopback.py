"""Listening on 127.0.0.1, in the trio run of whoever tests: no thread, and the test's clock."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import h11
import trio

from aiio.env.groups import first_leaf

HOST = "127.0.0.1"
Handler: TypeAlias = Callable[[trio.SocketStream], Awaitable[None]]

GONE = (trio.BrokenResourceError, trio.ClosedResourceError, OSError, h11.RemoteProtocolError)
"""What a client that went away, or never spoke HTTP, raises on our side."""


class Loopback:
    """A listening port and its connections. Made by `listening`."""

    def __init__(self, handler: Handler, nursery: trio.Nursery, port: int) -> None:
        self._handler, self._nursery = handler, nursery
        self._change = trio.lowlevel.ParkingLot()
        self._listener: trio.SocketListener | None = None
        self.port: int = port
        """0 before the first `accept`."""
        self.open: int = 0
        """Connections now."""
        self.connections: int = 0
        """Connections so far."""
        self.faults: list[Exception] = []
        """What broke on our side: clients that went away."""

    def accept(self) -> None:
        """Listen. Nothing happens if we do already. OSError: the port is taken."""
        if self._listener is not None:
            return
        plain = socket.socket()
        try:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            plain.bind((HOST, self.port))
            plain.listen(1024)
        except BaseException:
            plain.close()
            raise
        self.port = plain.getsockname()[1]
        self._listener = trio.SocketListener(trio.socket.from_stdlib_socket(plain))
        self._nursery.start_soon(self._accept, self._listener)

    def refuse(self) -> None:
        """Refuse new connections: nobody listens. Those that are open go on."""
        if self._listener is not None:
            self._listener.socket.close()
            self._listener = None

    async def wait_idle(self) -> None:
        """Wait until no connection is open."""
        while self.open:
            await self._change.park()

    async def _accept(self, listener: trio.SocketListener) -> None:
        with contextlib.suppress(trio.ClosedResourceError):
            while True:
                self._nursery.start_soon(self._handle, await listener.accept())

    async def _handle(self, stream: trio.SocketStream) -> None:
        self.open += 1
        self.connections += 1
        try:
            await self._handler(stream)
        except GONE as exc:
            self.faults.append(exc)
        finally:
            stream.socket.close()
            self.open -= 1
            self._change.unpark_all()


@asynccontextmanager
async def listening(handler: Handler, port: int = 0) -> AsyncIterator[Loopback]:
    """Serve connections by *handler* for the length of the block; at its end they are closed.

    Raises what the block or a handler raises (no `GONE`), never a group. OSError: the port is taken.
    """
    try:
        async with trio.open_nursery() as nursery:
            loopback = Loopback(handler, nursery, port)
            loopback.accept()
            try:
                yield loopback
            finally:
                loopback.refuse()
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        leaf = first_leaf(group)
        raise leaf from leaf.__cause__


def abort(stream: trio.SocketStream) -> None:
    """Close *stream* with a TCP RST. What the peer has not read yet may be lost to it."""
    with contextlib.suppress(OSError):
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


async def wait_gone(stream: trio.abc.ReceiveStream) -> None:
    """Read and drop until the peer closes or resets. Cancellation: what came meanwhile is lost."""
    with contextlib.suppress(trio.BrokenResourceError):
        while await stream.receive_some(65536):
            pass
