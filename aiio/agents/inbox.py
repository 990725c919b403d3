"""What was said to an agent and has not joined its context yet."""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from aiio.context.types import Block

Input: TypeAlias = "str | list[Block]"
"""What a user says: text, or content blocks."""


class Inbox:
    """Two queues: what steers the work in hand, and what is to be taken up after it."""

    def __init__(self) -> None:
        self._steering: deque[Input] = deque()
        self._queued: deque[Input] = deque()

    def __len__(self) -> int:
        return len(self._steering) + len(self._queued)

    def put(self, said: Input, *, steer: bool) -> None:
        """Add *said* to one of the two."""
        (self._steering if steer else self._queued).append(said)

    def waiting(self) -> tuple[Input, ...]:
        """Return everything that waits, in the order in which it will join."""
        return (*self._steering, *self._queued)

    def take_steering(self) -> list[Input]:
        """Take what joins before the next request."""
        taken = list(self._steering)
        self._steering.clear()
        return taken

    def take_next(self) -> list[Input]:
        """Take what starts a further round: all that steers, else the first of the queued ones."""
        if not self._steering and self._queued:
            return [self._queued.popleft()]
        return self.take_steering()

    def take_all(self) -> list[Input]:
        """Take everything."""
        taken = list(self.waiting())
        self._steering.clear()
        self._queued.clear()
        return taken
