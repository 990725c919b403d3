"""Connections kept from one request to the next (setting `http_keep`), and which of them may serve again.

A connection is kept when whoever read the answer says that it is whole, and both sides spoke of a connection
that lasts. Dialects say that they are over before the body does, so its end may still be on the way then. It
is looked for when the next request asks: what has come by then is read, without waiting, and the connection
serves again if that was the rest of the body, all had been sent, and not a byte has come since, nor the end
of the stream. Nothing else does.

It serves requests to the same origin, over the same TLS context, with the same credential, for as long as
the request that left it allowed, and the server promised. A task of the Env closes what waits longer; it
lives while there is something to close, and closes all when the Env does. So without an Env that runs tasks
nothing is kept.

A peer may give up a connection while the next request is under way to it. No look beforehand helps, so a
request that fails on a kept connection before any byte of an answer goes out once more, on a new one, and
its `Reuse` is told: what is neither seen nor asked for would be a hidden retry.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from hashlib import blake2b
from typing import Any, Protocol, TypeAlias

import h11
import trio

from aiio.env.durations import try_duration
from aiio.env.errors import ProviderError

from .base import Reuse, TransportRequest
from .http_body import BodyDecoder
from .http_headers import credential_headers
from .http_socket import ByteStream
from .target import Target

KEEP_IDLE = 30.0
"""Seconds that a connection is kept, where a setting of the endpoint does not parse."""
MOST_ALIKE, MOST_KEPT = 32, 256
"""Connections kept for one origin and credential, and in all; of more, the longest waiting is closed."""
MOST_READS = 8
"""Reads that the end of a body may take after the answer is whole."""

_SALT = os.urandom(32)
_PROMISE = re.compile(r"\btimeout=(\d{1,6})\b")

Key: TypeAlias = tuple[object, ...]
"""What two requests must have in common to share a connection. Of a credential only what tells two apart."""
Talk: TypeAlias = Callable[[ByteStream], Awaitable[h11.Response]]
"""Sends a request over a connection, and returns the head of the answer."""


class Tasks(Protocol):
    """What runs the task that closes connections: an Env's nursery."""

    def start_soon(self, fn: Callable[..., Awaitable[Any]], *args: Any, name: object = None) -> None:
        """Run `fn(*args)` in a task of its own. RuntimeError: no more."""
        ...


class Fitness(Enum):
    """What can be said of a connection between two requests."""

    READY = "ready"
    ENDING = "ending"
    """The body before has not come to its end yet."""
    SPOILT = "spoilt"


class Kept:
    """A connection between two requests.

    Args:
      stream: nobody else has it.
      decoder: of the body before, fed with all that was received.
      deadline: on trio's clock; when it is to be closed.
    """

    def __init__(self, key: Key, stream: ByteStream, decoder: BodyDecoder, deadline: float) -> None:
        self.key = key
        self.stream = stream
        self.deadline = deadline
        self._decoder = decoder
        self._reads = MOST_READS

    def fitness(self) -> Fitness:
        """Tell whether it can serve a request now. Reads what has come of the end of the body."""
        decoder, stream = self._decoder, self.stream
        try:
            while not decoder.done and self._reads and not decoder.broken:
                decoder.feed(stream.receive_now())
                self._reads -= 1
        except BlockingIOError:
            return Fitness.ENDING
        except (EOFError, OSError):
            return Fitness.SPOILT
        return Fitness.READY if decoder.exact and stream.at_rest() else Fitness.SPOILT


class KeptConnections:
    """All connections of one Env that are kept.

    Args:
      tasks: returns what runs tasks, asked when there is something to keep. RuntimeError: nothing does.
    """

    def __init__(self, tasks: Callable[[], Tasks]) -> None:
        self._tasks = tasks
        self._kept: list[Kept] = []  # who waits longest is first
        self._nap: trio.CancelScope | None = None  # in which the closing task sleeps; None: there is none
        self._closed = False
        self._process = os.getpid()
        self._of_parent: list[Kept] = []

    def __len__(self) -> int:
        return len(self._kept)

    def place(self, request: TransportRequest, target: Target, context: Callable[[], object]) -> Place | None:
        """Return where the connection of *request* comes from and goes to; None: it is none's but its own.

        Args:
          context: returns the TLS context; called for https only.
        """
        if request.reuse is None:
            return None
        secret = blake2b(repr(credential_headers(request.headers)).encode(), key=_SALT).digest()
        key = (target.host, target.port, context() if target.tls else None, secret)
        return Place(self, key, request.reuse, try_duration(request.http_keep_idle) or KEEP_IDLE)

    def take(self, key: Key) -> ByteStream | None:
        """Return a connection that is ready, the one that was used last; None: there is none."""
        self._leave_to_parent()
        now = trio.current_time()
        for kept in [kept for kept in reversed(self._kept) if kept.key == key]:
            fitness = kept.fitness() if kept.deadline > now else Fitness.SPOILT
            if fitness is not Fitness.ENDING:
                self._kept.remove(kept)
            if fitness is Fitness.READY:
                return kept.stream
            if fitness is Fitness.SPOILT:
                kept.stream.close()
        return None

    def put(self, kept: Kept) -> bool:
        """Keep *kept*; False: it can't be."""
        self._leave_to_parent()
        if self._closed or kept.fitness() is Fitness.SPOILT:
            return False
        if self._nap is None:
            try:
                self._tasks().start_soon(self._close_in_time)
            except RuntimeError:
                return False
            self._nap = trio.CancelScope()
        self._nap.deadline = min(self._nap.deadline, kept.deadline)
        self._kept.append(kept)
        alike = [other for other in self._kept if other.key == kept.key]
        if len(alike) > MOST_ALIKE:
            self._let_go([alike[0]])
        self._let_go(self._kept[:-MOST_KEPT])
        return True

    def close(self) -> None:
        """Close all, and keep none from now on. Idempotent."""
        self._closed = True
        self._leave_to_parent()
        self._let_go(list(self._kept))
        if self._nap is not None:
            self._nap.cancel()

    async def _close_in_time(self) -> None:
        """Close each connection when its time has come, as long as there are any."""
        try:
            while self._kept:
                with trio.CancelScope(deadline=min(kept.deadline for kept in self._kept)) as self._nap:
                    await trio.sleep_forever()
                now = trio.current_time()
                self._let_go([kept for kept in self._kept if kept.deadline <= now])
        finally:
            self._nap = None
            self._let_go(list(self._kept))

    def _let_go(self, gone: list[Kept]) -> None:
        for kept in gone:
            self._kept.remove(kept)
            kept.stream.close()

    def _leave_to_parent(self) -> None:
        """After a fork, keep off what both processes hold now: the parent goes on with it.

        The child does not even close it, because over TLS that would be said to the peer.
        """
        if self._process != os.getpid():
            self._process, self._nap = os.getpid(), None
            self._of_parent += self._kept  # held, so that nobody collects and closes them
            self._kept = []


class Place:
    """Where one request's connection comes from, and where it goes to; made by `KeptConnections.place`."""

    def __init__(self, store: KeptConnections, key: Key, reuse: Reuse, idle: float) -> None:
        self._store = store
        self._key = key
        self._reuse = reuse
        self._idle = idle

    async def talk(self, talk: Talk) -> tuple[ByteStream, h11.Response] | None:
        """Talk over a kept connection, and return it with the head of the answer.

        None: there is none, or it failed before any byte of an answer, and a new one is to be used.

        Raises:
          ProviderError: what *talk* raised after that; the connection is closed.

        Cancellation: the connection is closed.
        """
        stream = self._store.take(self._key)
        if stream is None:
            return None
        listening = _Listening(stream)
        try:
            head = await talk(listening)
        except ProviderError as exc:
            stream.close()
            if listening.heard:
                raise
            self._reuse.redo(exc)
            return None
        except BaseException:
            stream.close()
            raise
        self._reuse.taken = True
        return stream, head

    def keep(self, stream: ByteStream, decoder: BodyDecoder, headers: Mapping[str, str]) -> bool:
        """Keep the connection if its answer is whole and it may serve another; tell whether it is kept.

        Not for longer than the server says, in its *headers*, that it keeps its side.
        """
        if not self._reuse.whole:
            return False
        promise = _PROMISE.search(headers.get("keep-alive", ""))
        idle = min(self._idle, float(promise[1])) if promise else self._idle
        return self._store.put(Kept(self._key, stream, decoder, trio.current_time() + idle))


class _Listening:
    """A stream that notes whether a byte has come."""

    def __init__(self, stream: ByteStream) -> None:
        self.heard = False
        self.send_now, self.drain, self.close = stream.send_now, stream.drain, stream.close
        self.wait, self.receive_now, self.at_rest = stream.wait, stream.receive_now, stream.at_rest
        self._stream = stream

    async def receive(self) -> bytes:
        """See `ByteStream`."""
        data = await self._stream.receive()
        self.heard = self.heard or bool(data)
        return data
