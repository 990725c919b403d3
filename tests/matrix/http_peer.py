"""A server over HTTP that plays the answer of a cell as far as its place, and then does its fault."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable
from functools import cache
from typing import TypeAlias

import trio

from aiio.testing.http import LAST_CHUNK, chunk_bytes, head_bytes
from tests.serving import EndScript, Exchange, reset

from .answers import NDJSON, Cut, cut_at, frames_of
from .cells import LIMITS, Cell, Fault, Place

Hook: TypeAlias = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]
"""Called at the place: does the cell's action. Its argument waits until the client has left."""

MAX_FRAME = 8 << 10
"""Bytes of a frame that the client is told to accept."""
BOMB = 2 << 20
"""Bytes that a few kB of gzip expand to."""
OVERSIZED_HEAD = 160 << 10  # more than any library here reads
JUNK = b"\x00\xff\x16junk\r\n\r\n"
ALERT = b"\x15\x03\x03\x00\x02\x02\x28"
"""A record of TLS, in the clear: fatal, handshake failure."""
PAGE = b"<html><head><title>502 Bad Gateway</title></head>\n<body>\n<h1>nginx</h1>\n</body></html>\n"
ELSEWHERE = "/elsewhere"

_BAD_LENGTHS = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 5\r\ncontent-length: 70\r\n\r\n"
)


@cache
def bomb_answer() -> bytes:
    """Return a refusal with a body that expands a thousandfold."""
    body = zlib.compress(bytes(BOMB), wbits=31)
    headers = {"content-encoding": "gzip", "content-length": str(len(body))}
    return head_bytes(500, headers) + body


class HTTPPeer:
    """What one cell's server does with its one request.

    Args:
      cell: says how far, and what then.
      act: awaited at the place.
      slow: seconds that a slow close takes.
    """

    def __init__(self, cell: Cell, act: Hook, slow: float) -> None:
        self._cell, self._act, self._slow = cell, act, slow
        self._cut: Cut = cut_at(cell.dialect, cell.place)
        self._gzip = zlib.compressobj(wbits=31) if cell.fault is Fault.GZIP_BOMB else None
        self._plain = cell.fault is Fault.WRONG_LENGTH

    async def __call__(self, exchange: Exchange) -> None:
        """Play; ends when the client has left."""
        if self._cell.fault is Fault.INFORMATIONAL:
            await exchange.send(
                b"".join(head_bytes(status, {"x-note": "soon"}) for status in (100, 102, 103))
            )
        if self._cell.place is not Place.BEFORE_HEAD:
            pieces = [*self._cut.frames, self._cut.part]
            await exchange.send(self._head() + b"".join(map(self._coded, pieces)))
        await self._act(exchange.wait_client_gone)
        try:
            await _FAULTS[self._cell.fault](self, exchange)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the client is gone already
        await exchange.wait_client_gone()

    # -- the pieces of an answer

    def _head(self) -> bytes:
        kind = "application/x-ndjson" if self._cell.dialect in NDJSON else "text/event-stream"
        headers = {"content-type": kind}
        if self._plain:  # one byte more than comes before the place
            sent = sum(map(len, self._cut.frames)) + len(self._cut.part)
            headers["content-length"] = str(sent + 1)
        else:
            headers["transfer-encoding"] = "chunked"
        if self._gzip is not None:
            headers["content-encoding"] = "gzip"
        return head_bytes(200, headers)

    def _coded(self, piece: bytes) -> bytes:
        """Return *piece* of the body as it goes on the wire."""
        if not piece:
            return b""
        if self._gzip is not None:
            piece = self._gzip.compress(piece) + self._gzip.flush(zlib.Z_SYNC_FLUSH)
        return piece if self._plain else chunk_bytes(piece)

    def _begin_line(self, text: bytes) -> bytes:
        """Return *text* at the place, as payload of a frame: of the open one, or of a new one."""
        return text if self._cut.part or self._cell.dialect in NDJSON else b"data: " + text

    # -- the faults

    async def _stall(self, exchange: Exchange) -> None:
        pass

    async def _reset(self, exchange: Exchange) -> None:
        await reset()(exchange)

    async def _eof(self, exchange: Exchange) -> None:
        if self._cell.tls:
            with trio.move_on_after(
                1
            ):  # its closing message is sent at once; the client's answer may not come
                await exchange.stream.aclose()
        raise EndScript

    async def _half_close(self, exchange: Exchange) -> None:
        await exchange.tcp.send_eof()

    async def _slow_close(self, exchange: Exchange) -> None:
        with trio.move_on_after(self._slow):
            await exchange.wait_client_gone()
        await exchange.tcp.send_eof()

    async def _garbage(self, exchange: Exchange) -> None:
        if self._cell.place in (Place.BEFORE_HEAD, Place.AFTER_HEAD):
            await exchange.send(JUNK)
        else:
            await exchange.send(self._coded(self._begin_line(b'\xff\xfe\x00"junk}\n\n')))

    async def _tls_alert(self, exchange: Exchange) -> None:
        await exchange.tcp.send_all(ALERT)

    async def _oversized_line(self, exchange: Exchange) -> None:
        await exchange.send(self._coded(self._begin_line(b"x" * (MAX_FRAME * 3))))

    async def _oversized_head(self, exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nx-filler: " + b"x" * OVERSIZED_HEAD)

    async def _gzip_bomb(self, exchange: Exchange) -> None:
        if self._cell.place is Place.BEFORE_HEAD:
            await exchange.send(bomb_answer())
        else:
            await exchange.send(self._coded(self._begin_line(b"0" * BOMB)))

    async def _wrong_length(self, exchange: Exchange) -> None:
        if self._cell.place is Place.BEFORE_HEAD:
            await exchange.send(_BAD_LENGTHS)
        else:
            later = frames_of(self._cell.dialect)[len(self._cut.frames) :]
            await exchange.send(self._cut.rest + b"".join(later[1:] if self._cut.part else later) + b"\n\n")

    async def _informational(self, exchange: Exchange) -> None:
        if self._cell.action not in LIMITS:  # its first part came before the action
            body = b"".join(map(chunk_bytes, frames_of(self._cell.dialect)))
            await exchange.send(self._head() + body + LAST_CHUNK)

    async def _redirect(self, exchange: Exchange) -> None:
        await exchange.send(head_bytes(307, {"location": ELSEWHERE, "content-length": "0"}))

    async def _proxy_page(self, exchange: Exchange) -> None:
        if self._cell.place is Place.BEFORE_HEAD:
            headers = {"content-type": "text/html", "content-length": str(len(PAGE))}
            await exchange.send(head_bytes(502, headers) + PAGE)
        else:
            await exchange.send(self._coded(PAGE) + LAST_CHUNK)


_FAULTS: dict[Fault, Callable[[HTTPPeer, Exchange], Awaitable[None]]] = {
    Fault.STALL: HTTPPeer._stall,
    Fault.RESET: HTTPPeer._reset,
    Fault.EOF: HTTPPeer._eof,
    Fault.HALF_CLOSE: HTTPPeer._half_close,
    Fault.SLOW_CLOSE: HTTPPeer._slow_close,
    Fault.GARBAGE: HTTPPeer._garbage,
    Fault.TLS_ALERT: HTTPPeer._tls_alert,
    Fault.OVERSIZED_LINE: HTTPPeer._oversized_line,
    Fault.OVERSIZED_HEAD: HTTPPeer._oversized_head,
    Fault.GZIP_BOMB: HTTPPeer._gzip_bomb,
    Fault.WRONG_LENGTH: HTTPPeer._wrong_length,
    Fault.INFORMATIONAL: HTTPPeer._informational,
    Fault.REDIRECT: HTTPPeer._redirect,
    Fault.PROXY_PAGE: HTTPPeer._proxy_page,
}


class HandshakePeer:
    """A server that answers the client's first words of TLS with an alert."""

    def __init__(self, act: Hook) -> None:
        self._act = act

    async def __call__(self, exchange: Exchange) -> None:
        """Play; ends when the client has left."""
        await exchange.tcp.receive_some(65536)
        await self._act(exchange.wait_client_gone)
        try:
            await exchange.tcp.send_all(ALERT)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        await exchange.wait_client_gone()
