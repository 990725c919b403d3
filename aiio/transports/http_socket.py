"""One TCP connection, plain or TLS, read as fast as trio allows.

A read is `wait_readable` and one non-blocking `recv`; when the last read filled the buffer, more is
probably there, and the wait gives way to a plain checkpoint. Both kinds of connection have the same
face. TLS is an `ssl.SSLObject` between memory BIOs, fed from that same read: two thirds of the cost of
`trio.SSLStream`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Awaitable
from functools import lru_cache
from typing import Protocol

import trio

from .base import checkpoint_with_data

READ_SIZE = 64 << 10
"""Bytes a read asks for: larger ones make every other task of the loop wait longer."""
_TLS_PIECE = 256 << 10  # plaintext bytes that are encrypted ahead of the socket
_NOTHING = memoryview(b"")


class ByteStream(Protocol):
    """A connection to one peer. What is to be sent is kept here until the kernel has taken it."""

    def send_now(self, data: bytes) -> bool:
        """Send *data*, all that was sent before having gone out; False: some is left for `drain`.

        OSError: the connection is broken.
        """
        ...

    async def drain(self) -> None:
        """Send what is left. May run in another task, beside `receive`. OSError: the connection is broken."""
        ...

    def wait(self) -> Awaitable[None]:
        """Wait until `receive_now` is worth trying, by one coroutine less to wake through than `receive`.

        trio.ClosedResourceError: the connection was closed meanwhile. Cancellation: nothing has been
        consumed. Always a checkpoint.
        """
        ...

    def receive_now(self) -> bytes:
        """Return the bytes that one read of the socket brought; over TLS there may be none in it.

        Raises:
          BlockingIOError: nothing is there.
          EOFError: the peer ended the stream properly.
          OSError: the connection broke (`ssl.SSLEOFError`: TLS was not ended properly).
        """
        ...

    async def receive(self) -> bytes:
        """Return what `receive_now` does, when it is there. Raises as `wait` and `receive_now`."""
        while True:
            await self.wait()
            with contextlib.suppress(BlockingIOError):
                return self.receive_now()

    def at_rest(self) -> bool:
        """Tell whether all has been sent, and nothing has come that was not received, not even an end."""
        ...

    def close(self) -> None:
        """Close the socket. Idempotent; never raises."""
        ...


class PlainStream(ByteStream):
    """A TCP connection, made from a connected socket that nobody else holds."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._full = False
        self._unsent = _NOTHING

    def send_now(self, data: bytes) -> bool:
        """See `ByteStream`."""
        self._unsent = memoryview(data)
        return self.flush_now()

    def flush_now(self) -> bool:
        """Send what the kernel takes at once; True: nothing is left."""
        with contextlib.suppress(BlockingIOError):
            while self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
            self._unsent = _NOTHING  # an empty view would keep all that was sent
        return not self._unsent

    async def wait_writable(self) -> None:
        """Wait until the kernel takes more."""
        await trio.lowlevel.wait_writable(self._sock)

    async def drain(self) -> None:
        """See `ByteStream`."""
        while not self.flush_now():
            await self.wait_writable()

    def wait(self) -> Awaitable[None]:
        """See `ByteStream`."""
        # Before the read: a cancelled call must have consumed nothing.
        if self._full:
            return checkpoint_with_data()
        return trio.lowlevel.wait_readable(self._sock)  # noqa: ASYNC105  # who calls this awaits it

    def receive_now(self) -> bytes:
        """See `ByteStream`."""
        self._full = False
        data = self._sock.recv(READ_SIZE)
        if not data:
            raise EOFError
        self._full = len(data) == READ_SIZE
        return data

    def at_rest(self) -> bool:
        """See `ByteStream`."""
        if self._unsent:
            return False
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass  # it broke while nobody looked
        return False

    def close(self) -> None:
        """See `ByteStream`."""
        if self._sock.fileno() >= 0:
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()


async def connect(host: str, port: int) -> socket.socket:
    """Return a TCP connection. OSError, UnicodeError: there is none to be had.

    To a name it is made by trio, which looks it up and races its addresses; an address has one way to it.

    Cancellation: the socket is closed.
    """
    family = _family(host)
    if family is None:
        stream = await trio.open_tcp_stream(host, port)
        return socket.socket(fileno=stream.socket.detach())
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(BlockingIOError):
            sock.connect((host, port))
        await trio.lowlevel.wait_writable(sock)
        if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(code, os.strerror(code))
    except BaseException:
        sock.close()
        raise
    return sock


@lru_cache
def _family(host: str) -> socket.AddressFamily | None:
    """Return the family of an address; None: *host* is a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError, UnicodeError):
            socket.inet_pton(family, host)
            return family
    return None


class TLSStream(ByteStream):
    """TLS over a `PlainStream`; call `handshake` first."""

    def __init__(self, plain: PlainStream, context: ssl.SSLContext, host: str) -> None:
        self._plain = plain
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._plaintext = _NOTHING
        self._end: Exception | None = None  # what the next `receive` raises

    async def handshake(self) -> None:
        """Run the handshake. ssl.SSLError, OSError: it failed."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.drain()
                await self._plain.wait()
                with contextlib.suppress(BlockingIOError):
                    self._feed_now()
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self._flush_now()  # tells the peer why
                raise
            else:
                await self.drain()
                return

    def send_now(self, data: bytes) -> bool:
        """See `ByteStream`."""
        self._plaintext = memoryview(data)
        return self._flush_now()

    async def drain(self) -> None:
        """See `ByteStream`."""
        while not self._flush_now():
            await self._plain.wait_writable()

    def wait(self) -> Awaitable[None]:
        """See `ByteStream`."""
        return self._plain.wait() if self._end is None else checkpoint_with_data()

    def receive_now(self) -> bytes:
        """See `ByteStream`."""
        if self._end is not None:
            raise self._end
        self._feed_now()
        return self._decrypted()

    def at_rest(self) -> bool:
        """See `ByteStream`."""
        held = self._plaintext or self._outgoing.pending or self._incoming.pending or self._tls.pending()
        return self._end is None and not held and self._plain.at_rest()

    def _decrypted(self) -> bytes:
        """Return what the records that have come hold. Raises what `receive` does."""
        pieces: list[bytes] = []
        try:
            while piece := self._tls.read(READ_SIZE):
                pieces.append(piece)
            self._end = EOFError()
        except ssl.SSLWantReadError:
            if self._outgoing.pending:  # the answer to a key update
                with contextlib.suppress(OSError):  # a broken connection is for the next read to report
                    self._flush_now()
        except ssl.SSLError as exc:
            self._end = exc  # after the records that were whole
        if not pieces and self._end is not None:
            raise self._end
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """See `ByteStream`. The peer is told, if the kernel takes that at once."""
        self._plaintext = _NOTHING
        with contextlib.suppress(OSError):
            self._tls.unwrap()  # raises SSLWantReadError: nobody waits for the peer's answer
        with contextlib.suppress(OSError):
            self._flush_now()
        self._plain.close()

    def _flush_now(self) -> bool:
        # All that is in flight is held here or in the BIO, so a reader may call this beside a sender.
        while self._plain.flush_now():
            if self._outgoing.pending:
                self._plain.send_now(self._outgoing.read())
            elif self._plaintext:
                self._plaintext = self._plaintext[self._tls.write(self._plaintext[:_TLS_PIECE]) :]
            else:
                self._plaintext = _NOTHING
                return True
        return False

    def _feed_now(self) -> None:
        try:
            self._incoming.write(self._plain.receive_now())
        except EOFError:
            self._incoming.write_eof()
