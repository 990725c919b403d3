"""Channels: how the contexts of a run, and the world outside, hand values to each other.

    value   holds the latest; everybody who waits gets it, reading does not consume
    queue   each value goes to one receiver, in order; full means that senders park
    topic   goes to whoever waits now; kept for nobody

trio's memory channels know only the second, without dropping, and give a sender no timeout. Here a wait is
an entry in a line. Whoever serves an entry takes it out, fills its slot and reschedules its task in one
synchronous step; a cancellation takes the entry out at the moment trio delivers it, not when the task
runs again. So an entry is served or cancelled, never both, and a value that was handed over always
arrives: nothing is lost, nothing comes twice. (An event would not do: between its cancellation and the next
run of the task the entry would still stand in line.)
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeAlias, TypeVar, assert_never

import msgspec
import trio

from .errors import RunError, RunErrorKind

T = TypeVar("T")

DEFAULT_CAPACITY = 1000


class ChannelMode(StrEnum):
    """What happens to a value that is sent."""

    VALUE = "value"
    QUEUE = "queue"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class Channel(Generic[T]):
    """A named channel. The state is the harness's: two of one name are one, as first referred to."""

    name: str
    schema: type[T] | Callable[[Any], object] | None = None
    """A type that values have (as msgspec converts), or a function that raises for a bad value."""
    mode: ChannelMode = ChannelMode.QUEUE
    capacity: int = DEFAULT_CAPACITY
    """Of a queue: values held before senders park; 0: every send waits for its receiver."""
    external: bool = False
    """Whether it can be reached from outside the run."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", ChannelMode(self.mode))
        if type(self.capacity) is not int or self.capacity < 0:
            raise ValueError(f"a channel's capacity is an int >= 0, not {self.capacity!r}")

    def check(self, value: object) -> None:
        """Raise `RunError` (item_schema_mismatch) if *value* is not one of this channel's."""
        schema = self.schema
        try:
            if isinstance(schema, type):
                if not isinstance(value, schema):
                    msgspec.convert(value, schema)
            elif schema is not None:
                schema(value)
        except (TypeError, ValueError) as exc:
            text = f"channel {self.name!r} does not take {str(value)[:80]!r}: {exc}"
            raise RunError(
                RunErrorKind.ITEM_SCHEMA_MISMATCH, text, category="channel", channel_name=self.name
            ) from exc


class Wait:
    """One task that waits: for a value, or with one that finds no room.

    Args:
      line: where it stands; it takes itself out when it ends without being served.
      value: what a sender holds.
    """

    __slots__ = ("_line", "_task", "error", "value")

    def __init__(self, line: Line, value: Any = None) -> None:
        self._line = line
        self._task: trio.lowlevel.Task | None = None
        self.value: Any = value
        self.error: BaseException | None = None
        line[self] = None

    @property
    def waiting(self) -> bool:
        """Whether it stands in line."""
        return self in self._line

    def serve(self, value: Any = None) -> None:
        """End the wait with *value*."""
        self.value = value
        self._end()

    def refuse(self, error: BaseException) -> None:
        """End the wait with *error*, unless it is over or was cancelled."""
        if self.waiting:
            self.error = error
            self._end()

    def leave(self) -> None:
        """Stand in line no more."""
        self._line.pop(self, None)

    async def finished(self) -> Any:
        """Wait until it is served. Raises the error it was refused with.

        Cancellation: only when it was not served, and from that moment it is not in line.
        """
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)
        if self.error is not None:
            raise self.error
        return self.value

    def _abort(self, raise_cancel: object) -> trio.lowlevel.Abort:
        self.leave()
        return trio.lowlevel.Abort.SUCCEEDED

    def _end(self) -> None:
        self.leave()
        assert self._task is not None  # nobody is served between standing in line and waiting
        trio.lowlevel.reschedule(self._task)


Line: TypeAlias = OrderedDict[Wait, None]
"""Who waits, in order."""


class ChannelState:
    """What a channel holds, and who waits for it. Everything here is one synchronous step."""

    def __init__(self, mode: ChannelMode, capacity: int) -> None:
        self.mode = mode
        self.capacity = capacity
        self.items: deque[Any] = deque()
        self.receivers: Line = OrderedDict()
        self.parked: Line = OrderedDict()
        self.has_value: bool = False
        self.value: Any = None
        self.readers: dict[Callable[[Any], None], None] = {}
        """Streams from outside (value and topic): told of every value."""
        self._wakes: list[Callable[[], None]] = []

    def send(self, value: Any) -> Wait | None:
        """Take *value*; return the wait of a sender that must park, None when the value is placed."""
        parked: Wait | None = None
        match self.mode:
            case ChannelMode.VALUE:
                self.has_value, self.value = True, value
                self._tell_all(value)
            case ChannelMode.TOPIC:
                self._tell_all(value)
            case ChannelMode.QUEUE:
                if self.receivers:
                    next(iter(self.receivers)).serve(value)
                elif len(self.items) < self.capacity:
                    self.items.append(value)
                else:
                    parked = Wait(self.parked, value)
            case _:
                assert_never(self.mode)
        if parked is None:
            self._wake()
        return parked

    def force(self, value: Any) -> bool:
        """Take *value* without ever parking: a full queue drops its oldest. False: something was dropped."""
        full = self.mode is ChannelMode.QUEUE and not self.receivers and len(self.items) >= self.capacity
        if not full:
            self.send(value)
            return True
        if self.capacity:
            self.items.popleft()
            self.items.append(value)
            self._wake()
        return False

    def take(self, *, parked: bool = True) -> tuple[bool, Any]:
        """Return (True, a value) if there is one now; (False, None) else.

        Args:
          parked: whether a queue without room may hand over what a parked sender holds.
        """
        if self.mode is ChannelMode.VALUE:
            return self.has_value, self.value
        if self.items:
            value = self.items.popleft()
            if self.parked:
                sender = next(iter(self.parked))
                self.items.append(sender.value)
                sender.serve()
                self._wake()
            return True, value
        if self.parked and parked:
            sender = next(iter(self.parked))
            value = sender.value
            sender.serve()
            return True, value
        return False, None

    def receive(self) -> Wait:
        """Return a wait for the next value: the oldest is served first."""
        return Wait(self.receivers)

    def on_wake(self, fn: Callable[[], None]) -> Callable[[], None]:
        """Call *fn* once, after the next value is placed; consumes nothing. Returns what takes it back."""
        self._wakes.append(fn)

        def forget() -> None:
            if fn in self._wakes:
                self._wakes.remove(fn)

        return forget

    def _tell_all(self, value: Any) -> None:
        for wait in list(self.receivers):
            wait.serve(value)
        for tell in list(self.readers):
            tell(value)

    def _wake(self) -> None:
        wakes, self._wakes = self._wakes, []
        for fn in wakes:
            fn()
