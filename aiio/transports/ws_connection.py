"""One WebSocket as a `Connection`: trio-websocket in a task of its own, its messages taken in batches.

    the keeper    a task: runs the library in a nursery of its own, takes its messages as they come
    the heartbeat a task: pings now and then; a peer that shows no sign of life is given up
    receive()     in the task of the write: all messages that came since the last call

The library may raise anything out of its reader, in a group; the keeper turns all of it into the one fault
that `receive` reports after the last whole message. Closing is polite for a moment and forced after it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import trio
import trio_websocket

from aiio.env.durations import DEFAULT_STUCK_TIMEOUT_MS, try_duration
from aiio.env.errors import ErrorKind, ProviderError
from aiio.env.groups import first_leaf

from .base import BINARY, Frame, TransportRequest, checkpoint_with_data
from .http_connection import connection_for
from .http_errors import Phase, fault
from .http_headers import lower_cased
from .target import Target
from .ws_connect import READ_SIZE
from .ws_errors import ABNORMAL, close_fault, library_fault
from .ws_wire import Wire

CLOSE_SECONDS = 0.5
"""How long a peer may take to answer a close; then the socket is closed without it."""

KEEP_IDLE = 300.0
PING_INTERVAL, PING_TIMEOUT = 30.0, DEFAULT_STUCK_TIMEOUT_MS / 2000
"""Seconds, where the settings do not say."""

_UNREADABLE = (1002, 1007)
_TOO_BIG = b"\x03\xf1Exceeded maximum message size: %d bytes"  # a 1009 as the library words it


class WebSocketConnection:
    """See `Connection` in base.py. Start `run` in a nursery, then await `handshake`."""

    status = 101

    def __init__(self, stream: trio.abc.Stream, target: Target, request: TransportRequest) -> None:
        self.headers: Mapping[str, str] = {}
        self._target = target
        self._request = request
        self._wire = Wire(stream, target.peer, self._wake)
        self._socket: trio_websocket.WebSocketConnection | None = None
        self._scope = trio.CancelScope()
        self._goodbye = trio.CancelScope()  # around the closing handshake
        self._opened, self._finished = trio.Event(), trio.Event()
        self._frames: list[bytes] = []
        self._waiting = 0  # bytes in `_frames`
        self._left = request.max_response_bytes
        self._pongs = 0
        self._before = (0, 0)  # bytes and keepalives of earlier requests on this socket
        self._news = trio.Event()
        self._fault: ProviderError | None = None
        self._ended = False
        self._closing = False

    @property
    def bytes_received(self) -> int:
        """Bytes after the handshake, with the framing."""
        return self._wire.bytes_received - self._before[0]

    @property
    def keepalives(self) -> int:
        """Pings answered and pongs received."""
        return self._wire.pongs_sent + self._pongs - self._before[1]

    # -- the consumer's side

    async def handshake(self) -> None:
        """Wait until the socket is open.

        Raises:
          HttpStatusError: the handshake was refused; the body was read, bounded in size and time.
          ProviderError: it failed.
        """
        await self._opened.wait()
        if (refusal := self._wire.refusal) is not None:
            answered = await connection_for(refusal, self._request)
            await answered.aclose()
            text = f"{self._target.peer} answered {refusal.status} instead of opening a WebSocket"
            raise ProviderError(ErrorKind.PROVIDER, text, phase="head", status=refusal.status)
        if self._wire.failure is not None:
            raise self._wire.failure
        if self._socket is None:
            text = f"{self._target.peer} does not speak proper WebSocket: its handshake is wrong"
            raise ProviderError(ErrorKind.NETWORK, text, phase="head", retryable=False)

    async def first(self) -> None:
        """Wait for the first message, or for what ends the socket before it; `receive` brings either."""
        while not (self._frames or self._ended):
            await self._news.wait()
            if not (self._frames or self._ended):
                self._news = trio.Event()

    async def send(self, message: bytes) -> None:
        """Send *message*, UTF-8, as one text message. What is broken is for `receive` to report.

        Cancellation: the message may have gone out in part; nothing can be sent any more.
        """
        assert self._socket is not None  # the handshake comes first
        try:
            await self._socket.send_message(message.decode())
        except trio_websocket.ConnectionClosed:
            await trio.lowlevel.checkpoint()

    async def receive(self) -> list[bytes] | None:
        """See `Connection`. Never None: a close is not the end of an answer, whatever its code."""
        if self._news.is_set():
            await checkpoint_with_data()
        else:
            await self._news.wait()
        if not self._ended:
            self._news = trio.Event()
        if self._frames:
            frames, self._frames = self._frames, []
            self._waiting = 0
            self._wire.make_room(0)
            return frames
        if self._ended:
            raise self._fault or ProviderError(
                ErrorKind.NETWORK, "the connection was closed on our side", phase="close"
            )
        return []

    @property
    def alive(self) -> bool:
        """Whether the socket is open and nothing is wrong with it."""
        return not (self._ended or self._closing or self._wire.torn or self._fault is not None)

    def reuse(self, request: TransportRequest) -> bool:
        """Get ready for *request*; False: the socket has ended, or goes elsewhere."""
        before = self._request
        same = (before.url, before.headers, before.proxy) == (request.url, request.headers, request.proxy)
        if not (same and self.alive):
            return False
        self._scope.deadline = math.inf
        self._before = (self._wire.bytes_received, self._wire.pongs_sent + self._pongs)
        self._request = request
        self._left = request.max_response_bytes
        self._frames, self._waiting = [], 0  # late ones of the answer before
        self._news = trio.Event()
        self._wire.make_room(0)
        return True

    def close_nowait(self) -> None:
        """Have the socket closed soon, without a closing handshake. Idempotent."""
        self._scope.cancel()

    async def aclose(self) -> None:
        """See `Connection`: unless it goes into its slot. At most `CLOSE_SECONDS`."""
        slot = self._request.slot
        if slot is not None and slot.put(self):
            idle = try_duration(self._request.ws_keep_idle) or KEEP_IDLE
            self._scope.deadline = trio.current_time() + idle
            await trio.lowlevel.checkpoint()
            return
        self._closing = self._wire.leaving = True
        self._wire.make_room(0)
        if self._socket is not None and not (self._ended or self._wire.torn):
            self._goodbye.shield, self._goodbye.deadline = True, trio.current_time() + CLOSE_SECONDS
            with self._goodbye:
                await self._socket.aclose()
        self._scope.cancel()
        with trio.CancelScope(shield=True):
            await self._finished.wait()

    def _wake(self) -> None:
        """Something changed: a read was dispatched, the last message came, or the socket ended."""
        self._news.set()
        if self._wire.refusal is not None or self._wire.failure is not None or self._wire.closed:
            self._opened.set()

    # -- the tasks

    async def run(self, headers: list[tuple[bytes, bytes]], subprotocols: list[str]) -> None:
        """Keep the socket until it ends. Raises nothing but cancellation from outside."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    self._socket = await self._open(nursery, headers, subprotocols)
                    self.headers = lower_cased(self._socket.handshake_headers)
                    self._opened.set()
                    nursery.start_soon(self._heartbeat)
                    await self._take_messages(self._socket)
                    if self._closing:  # the reader goes on until the peer has answered; `aclose` ends it
                        await trio.sleep_forever()
                    nursery.cancel_scope.cancel()
        except* Exception as group:  # noqa: BLE001  # foreign code, and this task never raises
            self._note(library_fault(first_leaf(group), **self._facts()))
        finally:
            self._note(close_fault(ABNORMAL, None, **self._facts()))  # unless it is known better
            self._ended = True
            self._opened.set()
            self._news.set()
            self._goodbye.cancel()  # the library would wait for its reader, which may be gone
            with trio.CancelScope(shield=True):
                await self._wire.aclose()
            self._finished.set()

    async def _open(
        self, nursery: trio.Nursery, headers: list[tuple[bytes, bytes]], subprotocols: list[str]
    ) -> trio_websocket.WebSocketConnection:
        return await trio_websocket.wrap_client_stream(
            nursery,
            self._wire,  # type: ignore[arg-type]  # any stream will do
            self._target.host_header,
            self._target.resource,
            subprotocols=subprotocols,
            extra_headers=headers,
            max_message_size=self._request.max_frame_bytes,
            receive_buffer_size=READ_SIZE,
        )

    async def _take_messages(self, socket: trio_websocket.WebSocketConnection) -> None:
        """Take messages until there are no more."""
        limit = self._request.max_frame_bytes
        try:
            while True:
                message = await socket.get_message()
                frame = message.encode() if isinstance(message, str) else Frame(message, BINARY)
                size = len(frame)
                if size > limit or size > self._left:
                    what = f"a message of more than {limit}" if size > limit else "an answer of too many"
                    self._note(self._malformed(f"{self._target.peer} sent {what} bytes"))
                    return
                self._left -= size
                self._waiting += size
                self._frames.append(frame)
                self._wire.make_room(self._waiting)
                if self._wire.idle:
                    self._news.set()  # the read that brought it was dispatched before
        except trio_websocket.ConnectionClosed as exc:
            if exc.reason is None:  # the reader crashed; its exception is on its way into the nursery
                with trio.move_on_after(CLOSE_SECONDS):
                    await trio.sleep_forever()
            else:
                self._note(self._closed(exc.reason.code, exc.reason.reason))

    async def _heartbeat(self) -> None:
        request, wire = self._request, self._wire
        interval = try_duration(request.ws_ping_interval) or PING_INTERVAL
        patience = try_duration(request.ws_ping_timeout) or PING_TIMEOUT
        assert self._socket is not None  # started when it is open
        while interval < math.inf:
            await trio.sleep(interval)
            before = wire.bytes_received
            with trio.move_on_after(patience) as waited:
                await self._ping(self._socket)
            if waited.cancelled_caught and wire.bytes_received == before and not wire.held:
                text = f"no sign of life from {self._target.peer}: a ping was not answered for {patience:g} s"
                self._note(ProviderError(ErrorKind.NETWORK, text, code="ping_timeout", **self._where()))
                self._scope.cancel()

    async def _ping(self, socket: trio_websocket.WebSocketConnection) -> None:
        try:
            await socket.ping()
        except trio_websocket.ConnectionClosed:
            await trio.sleep_forever()  # the keeper hears of it as well
        self._pongs += 1
        self._news.set()

    # -- the end

    def _note(self, found: ProviderError) -> None:
        """Note why the socket ended, unless something else was first or we wanted it."""
        if self._fault is None and not self._closing:
            self._fault = found

    def _closed(self, code: int, said: str | None) -> ProviderError:
        limit = self._request.max_frame_bytes
        if self._wire.goodbye == _TOO_BIG % limit:  # the library's own finding, whatever the peer said then
            return self._malformed(f"{self._target.peer} sent a message of more than {limit} bytes")
        if code in _UNREADABLE and self._wire.goodbye is None:  # the library's, too: nobody closed
            return self._malformed(f"{self._target.peer} sent what is no WebSocket message: {said}")
        found = close_fault(code, said, **self._facts())
        if code == ABNORMAL and self._wire.broken is not None:
            cause = fault(self._wire.broken, phase=self._phase(), peer=self._target.peer)
            found = ProviderError(cause.kind, cause.message, found.detail)
            found.__cause__ = self._wire.broken
        return found

    def _malformed(self, text: str) -> ProviderError:
        return ProviderError(ErrorKind.MALFORMED, text, **self._where())

    def _phase(self) -> Phase:
        return "body" if self._left < self._request.max_response_bytes else "head"

    def _facts(self) -> dict[str, Any]:
        return {"peer": self._target.peer, **self._where()}

    def _where(self) -> dict[str, Any]:
        return {"phase": self._phase(), "bytes_received": self.bytes_received}
