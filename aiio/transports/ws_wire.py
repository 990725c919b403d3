"""The stream that trio-websocket reads and writes, and through which we see what it does not tell.

It knows when everything of one read has been dispatched (the library asks for more), holds the library
back while the consumer is behind, counts bytes and answered pings, and looks at the answer to the
handshake first: a refusal never reaches the library, which would buffer its body without bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import h11
import trio

from aiio.env.errors import ProviderError

from .http_body import body_decoder
from .http_errors import cut_off, fault
from .http_headers import lower_cased
from .ws_connect import MAX_HEAD, READ_SIZE

_CLOSE, _PONG = 0x88, 0x8A  # first bytes of whole control frames

MAX_WAITING = 1 << 20
"""Bytes of messages that may wait for the consumer before reading stops."""


class Wire(trio.abc.Stream):
    """One stream, handed to trio-websocket in the place of the real one.

    Args:
      stream: connected, TLS and all.
      peer: `host:port`.
      changed: called when a read was dispatched, and when the handshake failed or was refused.
    """

    def __init__(self, stream: trio.abc.Stream, peer: str, changed: Callable[[], None]) -> None:
        self._stream = stream
        self._peer = peer
        self._changed = changed
        self._room = trio.Event()
        self._room.set()
        self._accepted = False
        self.bytes_received: int = 0
        """After the handshake."""
        self.pongs_sent: int = 0
        self.idle: bool = False
        """Nothing of what was read is still to be dispatched."""
        self.refusal: Refusal | None = None
        """The answer to a handshake that was refused; its body is still to be read."""
        self.failure: ProviderError | None = None
        """Why there was no answer to the handshake."""
        self.broken: Exception | None = None
        """What the stream raised; None after a mere end."""
        self.torn: bool = False
        """A message was cut in the middle: nothing more can be sent."""
        self.leaving = False
        """We are closing: the reader must come to the peer's answer, whatever waits."""
        self.closed: bool = False
        self.goodbye: bytes | None = None
        """What was sent in a close frame: the code, two bytes, and the reason."""

    @property
    def held(self) -> bool:
        """Whether reading waits for the consumer."""
        return not self._room.is_set()

    def make_room(self, waiting: int) -> None:
        """Take note that *waiting* bytes of messages have not been taken by the consumer."""
        if waiting <= MAX_WAITING:
            self._room.set()
        elif self._room.is_set() and not self.leaving:
            self._room = trio.Event()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return what one read brought; the first time, the answer to the handshake."""
        if not self._accepted:
            return await self._first()
        self.idle = True
        self._changed()
        await self._room.wait()
        data = await self._read()
        self.bytes_received += len(data)
        self.idle = False
        return data

    async def _read(self) -> bytes:
        try:
            return bytes(await self._stream.receive_some(READ_SIZE))
        except trio.BrokenResourceError as exc:
            self.broken = exc
            raise

    async def _first(self) -> bytes:
        """Return the head of an accepted handshake with all that came behind it."""
        try:
            return await self._handshake()
        except ProviderError as exc:
            self.failure = exc
        except (trio.BrokenResourceError, h11.RemoteProtocolError) as exc:
            self.failure = fault(exc, phase="head", peer=self._peer)
        self._changed()
        raise trio.ClosedResourceError

    async def _handshake(self) -> bytes:
        parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        upgrade = [(b"Host", b"x"), (b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
        parser.send(h11.Request(method=b"GET", target=b"/", headers=upgrade))  # only to set its mind
        parser.send(h11.EndOfMessage())
        raw = bytearray()
        while True:
            event: Any = parser.next_event()
            if event is h11.NEED_DATA:
                data = await self._read()
                if not data:
                    how = "in the middle of the response head" if raw else "without answering"
                    raise cut_off(f"{self._peer} closed the connection {how}", phase="head")
                raw += data
                parser.receive_data(data)
            elif isinstance(event, h11.Response):
                self.refusal = Refusal(event, self._stream, parser.trailing_data[0], self._peer)
                self._changed()
                raise trio.ClosedResourceError
            elif event.status_code == 101:
                self._accepted = True
                self.bytes_received = len(parser.trailing_data[0])
                return bytes(raw)
            else:
                raw = bytearray(parser.trailing_data[0])  # 100, 103: the answer is still to come

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send *data* whole."""
        if data[0] == _CLOSE:
            self.goodbye = _unmasked(bytes(data))
        whole = False
        try:
            await self._stream.send_all(data)
            whole = True
        except trio.BrokenResourceError as exc:
            self.broken = exc
            if not self._accepted:  # the handshake: the library would wait for its answer for ever
                self.failure = fault(exc, phase="send", peer=self._peer)
                self._changed()
            raise
        finally:
            self.torn = self.torn or not whole
        if data[0] == _PONG:
            self.pongs_sent += 1

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is room to send."""
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Close the stream without waiting for the peer."""
        self.closed = True
        self._changed()
        await trio.aclose_forcefully(self._stream)


def _unmasked(frame: bytes) -> bytes:
    """Return the payload of a short frame as clients send it."""
    mask, payload = frame[2:6], frame[6:]
    return bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


class Refusal:
    """A response that is no WebSocket; see `Answer` in http_connection.py."""

    def __init__(self, head: h11.Response, stream: trio.abc.Stream, leftover: bytes, peer: str) -> None:
        self.status: int = head.status_code
        self.reason: str = bytes(head.reason).decode("latin-1")
        self.headers: Mapping[str, str] = lower_cased(head.headers)
        self.decoded = False
        self.closes_at_once = False
        self.peer = peer
        self.bytes_received: int = 0
        self.fault: ProviderError | None = None
        self._decoder = body_decoder(b"GET", head)
        self._stream = stream
        self._leftover = leftover  # came with the head

    async def receive(self) -> bytes | None:
        """Return the body bytes of one read; None at the end, be it a clean one or a `fault`."""
        if self._decoder.done or self._decoder.broken:
            await trio.lowlevel.checkpoint()
            return None
        raw, self._leftover = self._leftover, b""
        if not raw:
            try:
                raw = bytes(await self._stream.receive_some(READ_SIZE))
            except trio.BrokenResourceError as exc:
                self.fault = fault(exc.with_traceback(None), phase="body", peer=self.peer)
                return None
            if not raw:
                return None  # what of it came is all that is wanted
        data = self._decoder.feed(raw)
        self.bytes_received += len(data)
        return data

    async def aclose(self) -> None:
        """Close the connection. Idempotent."""
        await trio.aclose_forcefully(self._stream)
