"""Stopping a task at its n-th checkpoint, and running tasks in an order that a seed decides.

for step in count(1):
    stepper = Stepper(step, action)
    trio.run(main, stepper, instruments=[stepper])     # main calls stepper.watch() in its task
    if not stepper.reached:
        break                                          # the task ended before
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import trio


class Stepper(trio.abc.Instrument):
    """Calls *action* when the watched task has come to its *step*-th checkpoint and waits there.

    Args:
      step: counted from 1, from the moment that the task is watched.
      action: plain function; what it cancels is delivered at that very checkpoint, where it can be.
    """

    def __init__(self, step: int, action: Callable[[], object]) -> None:
        self.action = action
        self.reached = False
        self._step = step
        self._count = 0
        self._task: trio.lowlevel.Task | None = None

    def watch(self) -> None:
        """Watch the current task."""
        self._task = trio.lowlevel.current_task()

    def unwatch(self) -> None:
        """Watch no task."""
        self._task = None

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """See `trio.abc.Instrument`."""
        if task is not self._task:
            return
        self._count += 1
        if self._count == self._step:
            self.reached = True
            self.action()


@contextmanager
def order(seed: int) -> Iterator[None]:
    """Have trio run the tasks that are ready in an order that *seed* decides, for the length of the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
        patch.setattr(trio._core._run, "_r", random.Random(seed))
        yield
