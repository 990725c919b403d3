"""The ledger of requests in flight, and the queue in front of it.

`max_active` is the one limit on concurrent requests in the process. A slot is handed over inside
`release` itself: between a grant and the waiter's wake-up the slot already counts as taken, so nobody
can slip in between, and a waiter that is cancelled either still stands in the queue (and leaves it)
or already holds its slot (and its own `finally` gives it back).
"""

from __future__ import annotations

from collections.abc import KeysView
from typing import Any

import trio


class Ledger:
    """Who is in flight, who waits; first come, first served. For one trio run.

    Whoever acquires releases:

        await ledger.acquire(io)
        try:
            ...
        finally:
            ledger.release(io)
    """

    def __init__(self, max_active: int | None = None) -> None:
        self._active: dict[Any, None] = {}
        self._waiting: dict[Any, trio.lowlevel.Task] = {}  # oldest first
        self._max_active = checked_max_active(max_active)

    @property
    def active(self) -> KeysView[Any]:
        """Those in flight: a live, set-like view, oldest grant first."""
        return self._active.keys()

    @property
    def queued(self) -> int:
        """How many wait for a slot."""
        return len(self._waiting)

    @property
    def max_active(self) -> int | None:
        """The limit; None: none. Raising it wakes waiters in order, lowering it lets the running finish."""
        return self._max_active

    @max_active.setter
    def max_active(self, value: int | None) -> None:
        self._max_active = checked_max_active(value)
        self._grant()

    def acquire_nowait(self, io: Any) -> None:
        """Take a slot for *io*.

        Raises:
          trio.WouldBlock: none is free.
          trio.BusyResourceError: *io* holds a slot or waits for one already.
        """
        if io in self._active or io in self._waiting:
            raise trio.BusyResourceError("this IO is in the ledger already")
        if not self._has_room():  # else nobody waits: what becomes free is granted in the same moment
            raise trio.WouldBlock
        self._active[io] = None

    async def acquire(self, io: Any) -> None:
        """Take a slot for *io*, waiting for one behind all who came before.

        Raises:
          trio.BusyResourceError: *io* holds a slot or waits for one already.

        Cancellation: safe. No slot is held then. Always a checkpoint.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            self.acquire_nowait(io)
        except trio.WouldBlock:
            pass
        else:
            await trio.lowlevel.cancel_shielded_checkpoint()
            return

        def leave(_: object) -> trio.lowlevel.Abort:
            del self._waiting[io]
            return trio.lowlevel.Abort.SUCCEEDED

        self._waiting[io] = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(leave)

    def release(self, io: Any) -> None:
        """Give *io*'s slot to the first in the queue. ValueError: it holds none."""
        try:
            del self._active[io]
        except KeyError:
            raise ValueError(f"{io!r} holds no slot in the ledger") from None
        self._grant()

    def _has_room(self) -> bool:
        return self._max_active is None or len(self._active) < self._max_active

    def _grant(self) -> None:
        while self._waiting and self._has_room():
            io = next(iter(self._waiting))
            task = self._waiting.pop(io)
            self._active[io] = None
            trio.lowlevel.reschedule(task)


def checked_max_active(value: object) -> int | None:
    """Return *value* if it can be a limit. ValueError: it is neither None nor an int >= 1."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"max_active must be None or an int >= 1, not {value!r}")
    return value
