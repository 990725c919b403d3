"""Channels from outside a run: handles that send, streams that read, both as long as the run lives."""

from __future__ import annotations

from collections import OrderedDict, deque
from types import TracebackType
from typing import Any, Generic, TypeVar

import trio

from aiio.context.log import get_logger

from .channel_store import ChannelStore
from .channels import Channel, ChannelMode, Wait
from .errors import RunError, RunErrorKind

T = TypeVar("T")

TOPIC_BUFFER = 1000
"""Values that one stream of a topic keeps for a reader that is slow."""


class Lifetimes:
    """Which executions are open to the outside. Known only for ids somebody outside asked about."""

    def __init__(self) -> None:
        self._depths: dict[str, int] = {}
        self._closed: set[str] = set()
        self._streams: dict[str, dict[ChannelStream[Any], None]] = {}
        self._known: set[str] = set()

    def know(self, execution_id: str) -> None:
        """Remember from now on whether *execution_id* has ended."""
        self._known.add(execution_id)

    def closed(self, execution_id: str) -> bool:
        """Tell whether the root run of *execution_id* has ended since it was known."""
        return execution_id in self._closed

    def attach(self, execution_id: str, stream: ChannelStream[Any]) -> None:
        """End *stream* when the run ends."""
        self._streams.setdefault(execution_id, {})[stream] = None

    def detach(self, execution_id: str, stream: ChannelStream[Any]) -> None:
        """Forget *stream*."""
        streams = self._streams.get(execution_id, {})
        streams.pop(stream, None)
        if not streams:
            self._streams.pop(execution_id, None)

    def begin(self, execution_id: str) -> None:
        """A root run begins: what was closed is open again. Runs inside it count."""
        self._depths[execution_id] = self._depths.get(execution_id, 0) + 1
        self._closed.discard(execution_id)

    def end(self, execution_id: str) -> None:
        """A root run ends; the outermost one closes."""
        self._depths[execution_id] -= 1
        if self._depths[execution_id]:
            return
        del self._depths[execution_id]
        if execution_id in self._known:
            self._closed.add(execution_id)
        for stream in self._streams.pop(execution_id, {}):
            stream.end()


class ChannelHandle(Generic[T]):
    """The sending end, for outside. Never blocks."""

    def __init__(
        self, channel: Channel[T], store: ChannelStore, lifetimes: Lifetimes, execution_id: str
    ) -> None:
        self.channel = channel
        self._store = store
        self._lifetimes = lifetimes
        self._execution_id = execution_id

    @property
    def closed(self) -> bool:
        """Whether the run has ended. A run that is restored opens it again."""
        return self._lifetimes.closed(self._execution_id)

    def send(self, value: T) -> None:
        """Send *value*; a full queue drops its oldest with a warning (at capacity 0: this one).

        RunError: channel_closed; item_schema_mismatch.
        """
        if self.closed:
            text = f"channel {self.channel.name!r}: the run {self._execution_id} has ended"
            raise RunError(RunErrorKind.CHANNEL_CLOSED, text, channel_name=self.channel.name)
        self.channel.check(value)
        if not self._store.state(self.channel).force(value):
            get_logger().warning("channel.dropped", channel=self.channel.name)


class ChannelStream(Generic[T]):
    """The reading end, for outside: `async with stream: async for value in stream`. Read by one task.

    A queue's stream competes with every receiver; a value's begins with the current value and leaves out what
    was overwritten before it was read; a topic's has a buffer of its own, whose oldest drops with a
    warning. It ends when the run does, after what a queue held by then. Leaving the block unsubscribes.
    """

    def __init__(
        self, channel: Channel[T], store: ChannelStore, lifetimes: Lifetimes, execution_id: str
    ) -> None:
        self._channel = channel
        self._state = store.state(channel)
        self._lifetimes = lifetimes
        self._execution_id = execution_id
        self._pending: deque[T] = deque()
        self._wait: Wait | None = None
        self._queue = channel.mode is ChannelMode.QUEUE
        self._remaining = 0
        """Values that a queue held when the run ended, not read yet."""
        self._ended = False
        self._left = False

    async def __aenter__(self) -> ChannelStream[T]:
        if not self._queue:
            self._state.readers[self._take] = None
            if self._state.has_value:
                self._pending.append(self._state.value)
        self._lifetimes.attach(self._execution_id, self)
        if self._lifetimes.closed(self._execution_id):
            self.end()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left = True
        self._state.readers.pop(self._take, None)
        self._lifetimes.detach(self._execution_id, self)

    def __aiter__(self) -> ChannelStream[T]:
        return self

    async def __anext__(self) -> T:
        """Return the next value. Cancellation loses none. A checkpoint."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._left:
            raise StopAsyncIteration
        found, value = self._next_now()
        if found or self._ended:
            await trio.lowlevel.cancel_shielded_checkpoint()
            if not found:
                raise StopAsyncIteration
            taken: T = value
            return taken
        self._wait = wait = self._state.receive() if self._queue else Wait(OrderedDict())
        try:
            taken = await wait.finished()
        except _Ended:
            raise StopAsyncIteration from None
        finally:
            self._wait = None
        return taken

    def end(self) -> None:
        """The run has ended: what a queue holds now is still read, nothing that comes later is."""
        self._ended = True
        self._remaining = len(self._state.items)
        self._state.readers.pop(self._take, None)
        if self._wait is not None:
            self._wait.refuse(_Ended())

    def _next_now(self) -> tuple[bool, Any]:
        if self._pending:
            return True, self._pending.popleft()
        if not self._queue or (self._ended and not self._remaining):
            return False, None
        self._remaining -= self._ended
        return self._state.take(parked=not self._ended)

    def _take(self, value: T) -> None:
        """Take a value that everybody gets."""
        if self._wait is not None and self._wait.waiting:
            self._wait.serve(value)
            return
        if self._channel.mode is ChannelMode.VALUE:
            self._pending.clear()
        elif len(self._pending) >= TOPIC_BUFFER:
            self._pending.popleft()
            get_logger().warning("channel.dropped", channel=self._channel.name)
        self._pending.append(value)


class _Ended(Exception):
    """What a stream's wait is refused with when the run ends."""
