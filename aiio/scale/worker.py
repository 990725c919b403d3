"""One worker: a nursery, an Env, and the jobs that it was given. The same whichever engine runs it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio

from aiio.agents import Fleet, FleetResult, open_fleet
from aiio.context.events import Error, ErrorKind

from .jobs import Ended, Job, Joined, Recipe, Report, Timings, crash, make_agent, terminal_of

if TYPE_CHECKING:
    from aiio.env.env import Env


class Worker:
    """Runs every job as soon as it is given: how many at a time is for whoever gives them to know.

    Args:
      name: stands for it in reports.
      env: entered, or it need not be.
      recipe: how jobs are asked.
      report: a plain function, called in the trio run of `run`.
    """

    def __init__(self, name: str, env: Env, recipe: Recipe, report: Callable[[Report], None]) -> None:
        self.name = name
        self._env, self._recipe, self._report = env, recipe, report
        self._scope = trio.CancelScope()
        self._give, self._given = trio.open_memory_channel[Job](math.inf)  # the giver counts them
        self._timings: dict[str, Timings] = {}
        self._more = trio.Event()
        self._fleet: Fleet | None = None
        self._stopped: str | None = None

    async def run(self) -> None:
        """Say `Joined`, and work until `close`. Raises a bug of ours only, maybe in a group."""
        with self._scope:
            async with open_fleet(self._env) as self._fleet, trio.open_nursery() as nursery:
                nursery.start_soon(self._collect, self._fleet)
                self._report(Joined(worker=self.name))
                async for job in self._given:  # a step each: hundreds in one would stop everything else
                    self._begin(self._fleet, job)
                    await trio.lowlevel.checkpoint()

    def give(self, jobs: Sequence[Job]) -> None:
        """Run *jobs*, too."""
        for job in jobs:
            self._give.send_nowait(job)

    def stop(self, reason: str | None = None) -> None:
        """Kill what is in flight, and send nothing any more; all of it is reported as ended."""
        self._stopped = reason or "stopped"
        if self._fleet is not None:
            self._fleet.kill_nowait(reason=reason)

    def close(self) -> None:
        """End `run`, with all that is in flight; nothing more is reported."""
        self._scope.cancel()

    def _begin(self, fleet: Fleet, job: Job) -> None:
        timings = Timings()
        if self._stopped is not None:
            self._end(job.key, timings, Error(error=f"not sent: {self._stopped}", kind=ErrorKind.CANCELLED))
            return
        try:
            agent = make_agent(self._env, job, self._recipe, timings)
            fleet.start(agent, job.text, key=job.key)
        except Exception as exc:  # noqa: BLE001  # not configured here, say; the others must not suffer
            self._end(job.key, timings, crash(exc))
            return
        self._timings[job.key] = timings
        self._more.set()

    def _end(self, key: str, timings: Timings, error: Error) -> None:
        self._report(Ended(key=key, worker=self.name, terminal=error, timings=timings.so_far()))

    async def _collect(self, fleet: Fleet) -> None:
        """Report what ends, as it ends."""
        while True:
            async for ended in fleet.results():
                self._report(self._ended(ended))
            self._more = trio.Event()
            await self._more.wait()

    def _ended(self, ended: FleetResult) -> Ended:
        return Ended(
            key=ended.key,
            worker=self.name,
            terminal=terminal_of(ended),
            result=ended.result,
            timings=self._timings.pop(ended.key).so_far(),
        )
