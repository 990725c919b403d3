"""How late a timer is in the event loop that does the work.

A task keeps a timetable of ticks, and notes for each how late it came. A stall counts for every tick that
fell into it. Time in which the process did not run, because others had the processor, is no delay of ours: a
tick is at most as late as the CPU time since the one before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

TICK = 0.01
"""Seconds between two ticks."""


@dataclass(slots=True)
class Lateness:
    """How late each tick came, in seconds."""

    ours: list[float] = field(default_factory=list)
    """Because this process was busy."""
    clock: list[float] = field(default_factory=list)
    """On the clock, other processes' time included."""

    def figures(self) -> dict[str, float]:
        """Return the figures to report, in milliseconds."""
        return {
            "late_p99_ms": 1000 * percentile(self.ours, 0.99),
            "late_max_ms": 1000 * max(self.ours),
            "clock_late_p99_ms": 1000 * percentile(self.clock, 0.99),
        }


async def tick(late: Lateness, cpu: Callable[[], float] = time.process_time, *, period: float = TICK) -> None:
    """Note how late each tick is, until cancelled; *cpu* tells the seconds that the process has used."""
    due, used = trio.current_time() + period, cpu()
    while True:
        await trio.sleep_until(due)
        now, before, used = trio.current_time(), used, cpu()
        while due <= now:  # those it slept through, too
            late.clock.append(now - due)
            late.ours.append(min(now - due, used - before))
            due += period


def percentile(values: list[float], share: float) -> float:
    """Return the value that *share* of *values* do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
