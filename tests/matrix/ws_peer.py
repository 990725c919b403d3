"""A server over a WebSocket that plays the answer of a cell as far as its place, and then does its fault."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import trio

from aiio.testing.http import head_bytes
from tests.serving import EndScript, Exchange, reset
from tests.ws_serving import Gone, Socket, text_frame

from .answers import Cut, cut_at, frames_of
from .cells import LIMITS, Cell, Fault, Place
from .http_peer import ALERT, ELSEWHERE, JUNK, MAX_FRAME, OVERSIZED_HEAD, PAGE, Hook, bomb_answer

_NO_LENGTH = b"\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff"
"""The head of a text frame whose length has its top bit set, which no length may."""


class WSPeer:
    """What one cell's server does with its one socket; see `HTTPPeer`."""

    def __init__(self, cell: Cell, act: Hook, slow: float) -> None:
        self._cell, self._act, self._slow = cell, act, slow
        self._cut: Cut = cut_at(cell.dialect, cell.place)

    async def __call__(self, exchange: Exchange) -> None:
        """Play; ends when the client has left."""
        socket = Socket(exchange)
        if self._cell.fault is Fault.INFORMATIONAL:
            await exchange.send(head_bytes(103, {"x-note": "soon"}))
        if self._cell.place is not Place.BEFORE_HEAD:
            await socket.accept()
        if self._cell.place not in (Place.BEFORE_HEAD, Place.AFTER_HEAD):
            await _PRELUDES[self._cell.dialect](socket)
            await socket.raw(b"".join(map(text_frame, self._cut.frames)) + self._begun())
        await self._act(socket.until_gone)
        try:
            await _FAULTS[self._cell.fault](self, socket)
            await socket.until_gone()
        except (trio.BrokenResourceError, trio.ClosedResourceError, Gone):
            return  # the client is gone already

    def _begun(self) -> bytes:
        """Return as much of a frame as comes before a place in the middle of it."""
        if not self._cut.part:
            return b""
        size = len(self._cut.part) + (1 if self._cell.fault is Fault.WRONG_LENGTH else len(self._cut.rest))
        length = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big")
        return b"\x81" + length + self._cut.part

    @property
    def _in_the_head(self) -> bool:
        return self._cell.place is Place.BEFORE_HEAD

    # -- the faults

    async def _stall(self, socket: Socket) -> None:
        pass

    async def _reset(self, socket: Socket) -> None:
        await reset()(socket.exchange)

    async def _eof(self, socket: Socket) -> None:
        if self._cell.tls:
            with trio.move_on_after(1):
                await socket.exchange.stream.aclose()
        raise EndScript

    async def _half_close(self, socket: Socket) -> None:
        await socket.exchange.tcp.send_eof()

    async def _slow_close(self, socket: Socket) -> None:
        with trio.move_on_after(self._slow):
            await socket.until_gone()
        if self._in_the_head or self._cut.part:
            await socket.exchange.tcp.send_eof()
        else:
            await socket.raw(b"\x88\x02\x03\xe8")

    async def _garbage(self, socket: Socket) -> None:
        if self._in_the_head:
            await socket.raw(JUNK)
        else:
            await socket.raw(b"\xff" * (len(self._cut.rest) or 12))

    async def _tls_alert(self, socket: Socket) -> None:
        await socket.exchange.tcp.send_all(ALERT)

    async def _oversized_message(self, socket: Socket) -> None:
        await socket.raw(text_frame(b"x" * (MAX_FRAME * 3)))

    async def _oversized_head(self, socket: Socket) -> None:
        await socket.raw(b"HTTP/1.1 101 Switching Protocols\r\nx-filler: " + b"x" * OVERSIZED_HEAD)

    async def _gzip_bomb(self, socket: Socket) -> None:
        await socket.raw(bomb_answer())

    async def _wrong_length(self, socket: Socket) -> None:
        await socket.raw(self._cut.rest or _NO_LENGTH)

    async def _informational(self, socket: Socket) -> None:
        if self._cell.action not in LIMITS:  # its first part came before the action
            await socket.accept()
            await _PRELUDES[self._cell.dialect](socket)
            await socket.text(*frames_of(self._cell.dialect))

    async def _redirect(self, socket: Socket) -> None:
        await socket.raw(head_bytes(307, {"location": ELSEWHERE, "content-length": "0"}))

    async def _proxy_page(self, socket: Socket) -> None:
        await socket.refuse(502, PAGE, {"content-type": "text/html"})


_FAULTS: dict[Fault, Callable[[WSPeer, Socket], Awaitable[None]]] = {
    Fault.STALL: WSPeer._stall,
    Fault.RESET: WSPeer._reset,
    Fault.EOF: WSPeer._eof,
    Fault.HALF_CLOSE: WSPeer._half_close,
    Fault.SLOW_CLOSE: WSPeer._slow_close,
    Fault.GARBAGE: WSPeer._garbage,
    Fault.TLS_ALERT: WSPeer._tls_alert,
    Fault.OVERSIZED_LINE: WSPeer._oversized_message,
    Fault.OVERSIZED_HEAD: WSPeer._oversized_head,
    Fault.GZIP_BOMB: WSPeer._gzip_bomb,
    Fault.WRONG_LENGTH: WSPeer._wrong_length,
    Fault.INFORMATIONAL: WSPeer._informational,
    Fault.REDIRECT: WSPeer._redirect,
    Fault.PROXY_PAGE: WSPeer._proxy_page,
}


# -- what comes before the first frame of the answer


async def _one_request(socket: Socket) -> None:
    await socket.message()


async def _a_session(socket: Socket) -> None:
    await socket.text('{"type":"session.created","session":{}}')
    update = json.loads(await socket.message())
    await socket.text(json.dumps({"type": "session.updated", "session": update["session"]}))
    while json.loads(await socket.message())["type"] != "response.create":
        pass


async def _a_setup(socket: Socket) -> None:
    await socket.message()
    await socket.text('{"setupComplete":{}}')
    await socket.message()


_PRELUDES: dict[str, Callable[[Socket], Awaitable[None]]] = {
    "responses_ws": _one_request,
    "realtime": _a_session,
    "gemini_live": _a_setup,
}
