"""What a run tells while it runs: one stream of events, for any number of readers.

    sdk         what a model's answer becomes, by OpenResponses' names: `response.output_text.delta`, ...
    framework   what the run does: `<harness name>:step_started`, ...

Telling never waits. A reader begins at the oldest event that is kept, and reads at its own pace; one that is
too slow misses the oldest, and is told how many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from types import TracebackType
from typing import Any

import msgspec
import trio

from aiio.context.log import get_logger

EVENTS_KEPT = 10_000
"""Events that a stream keeps for readers who come later, or are slow."""


class EventSource(StrEnum):
    """Who speaks."""

    SDK = "sdk"
    """The model, through its provider."""
    FRAMEWORK = "framework"
    """The run itself."""


class StreamEvent(msgspec.Struct, frozen=True):
    """One event of a stream."""

    source: EventSource
    type: str
    """`response.output_text.delta`, or `<harness name>:<event>`."""
    data: Mapping[str, Any]
    """JSON data, but for items of the user's own making. Shared by all readers: not to be changed."""
    output_index: int | None = None
    """Which item of a response it is about."""
    content_index: int | None = None
    """Which part of that item."""


class Broadcaster:
    """The events of one run, or of the turns of one session.

    Args:
      size: events kept; the oldest go first. 0: none is kept, and nobody can read.
    """

    def __init__(self, size: int = EVENTS_KEPT) -> None:
        self._events: deque[StreamEvent] = deque(maxlen=size)
        self._next = 0
        """Number of the next event; the last is one less."""
        self._readers: set[EventStream] = set()
        self._abandoned = size == 0
        """Everybody who read has left: what is told now is told to nobody."""
        self._closed = False
        self._waiting = trio.lowlevel.ParkingLot()

    @property
    def wanted(self) -> bool:
        """Whether it makes sense to publish: somebody reads, or may come to read."""
        return not self._abandoned

    def publish(self, event: StreamEvent) -> None:
        """Tell everybody who reads, now or later. Never blocks."""
        if self._abandoned:
            return
        self._events.append(event)
        self._next += 1
        self._waiting.unpark_all()

    def close(self) -> None:
        """End the streams: those who read get what is kept, and then the end. So does who comes later."""
        self._closed = True
        self._waiting.unpark_all()

    def reopen(self) -> None:
        """More is to come: the same run begins again."""
        self._closed = False

    def _join(self, reader: EventStream) -> int:
        """Return the number of the oldest event that is kept."""
        self._readers.add(reader)
        self._abandoned = self._events.maxlen == 0
        return self._oldest

    def _leave(self, reader: EventStream) -> None:
        self._readers.discard(reader)
        if not self._readers:
            self._abandoned = True
            self._events.clear()

    @property
    def _oldest(self) -> int:
        return self._next - len(self._events)


class EventStream:
    """The reading end: `async with stream: async for event in stream`. Read by one task, entered once.

    It begins with what happened before, as far as that is kept, and ends when the run does. Leaving the block
    ends it; once all readers have left, events are discarded until another one comes.
    """

    def __init__(self, broadcaster: Broadcaster) -> None:
        self._source = broadcaster
        self._at = 0
        self._left = False
        self.missed: int = 0
        """Events that were dropped before this reader came to them."""

    async def __aenter__(self) -> EventStream:
        self._at = self._source._join(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left = True
        self._source._leave(self)

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> StreamEvent:
        """Return the next event. Cancellation loses none. A checkpoint."""
        source = self._source
        await trio.lowlevel.checkpoint()
        while not self._left and self._at == source._next and not source._closed:
            await source._waiting.park()
        if self._left or self._at == source._next:
            raise StopAsyncIteration
        return self._take()

    def next_nowait(self) -> StreamEvent | None:
        """Return the next event if there is one now, else None."""
        return None if self._left or self._at == self._source._next else self._take()

    def _take(self) -> StreamEvent:
        source = self._source
        dropped = source._oldest - self._at
        if dropped > 0:
            if not self.missed:  # once is enough for the log; the number goes on
                get_logger().warning("run.events_missed", events=dropped)
            self.missed += dropped
            self._at += dropped
        event = source._events[self._at - source._oldest]
        self._at += 1
        return event
