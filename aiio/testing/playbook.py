"""What a peer does with one request after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Playbook(Generic[T]):
    """One thing for each of the next requests, then another for all further ones."""

    def __init__(self, default: T) -> None:
        self._default = default
        self._next: deque[T] = deque()

    def set(self, default: T) -> None:
        """Use *default* from now on; what was queued is dropped."""
        self._default = default
        self._next.clear()

    def queue(self, once: T) -> None:
        """Use *once* for one request, after those that are queued already."""
        self._next.append(once)

    def set_all(self, each: Iterable[T]) -> None:
        """Use one of *each* a request, the last one again for all further ones. ValueError: there is none."""
        queued = list(each)
        if not queued:
            raise ValueError("there is nothing to play")
        self._next = deque(queued)
        self._default = queued[-1]

    def take(self) -> T:
        """Return what the next request gets."""
        return self._next.popleft() if self._next else self._default
