"""`open_spread`: many prompts over many workers, a global limit on those in flight, and no prompt lost.

A prompt is at one worker at a time, and given to it only when one of the worker's slots is free. So a slow
worker gets less, a worker that dies takes at most its slots with it, and what it had goes to the others.
Whether the provider had answered those (and bills them) nobody can know: each is counted in its result.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass, field, replace
from types import TracebackType

import trio

from aiio.context.events import Error, ErrorKind
from aiio.context.log import get_logger

from .engine import Engine
from .jobs import Ended, Job, Joined, Lost, Report

MOST_LOSSES = 3
"""Workers that one prompt may take with it."""
MOST_FRUITLESS = 5
"""Workers that one place may lose in a row without a result from there."""


@dataclass(slots=True, kw_only=True)
class _Place:
    """Where one worker works; another one takes the place of a worker that is lost."""

    share: int
    """How many prompts may be there at a time."""
    worker: str = ""
    joined: bool = False
    flying: dict[str, Job] = field(default_factory=dict)
    fruitless: int = 0
    """Workers lost here since the last result came from here."""


class Spread:
    """Iterates over results, each as it ends. Made by `open_spread`; entered once."""

    def __init__(self, engine: Engine, jobs: Iterable[Job], workers: int, max_active: int) -> None:
        for name, number in (("workers", workers), ("max_active", max_active)):
            if isinstance(number, bool) or not isinstance(number, int):
                raise TypeError(f"{name} is a whole number, not {number!r}")
            if number < 1:
                raise ValueError(f"{name} is at least 1, not {number}")
        if isinstance(jobs, Sized):
            max_active = max(1, min(max_active, len(jobs)))
        self._engine = engine
        self._jobs: Iterator[Job] = iter(jobs)
        self._no_more_jobs = False
        self._returned: deque[Job] = deque()
        """Those whose worker was lost: they go first."""
        self._vacant = deque(_Place(share=share) for share in _shares(max_active, min(workers, max_active)))
        self._places: dict[str, _Place] = {}
        """By the name of the worker in it."""
        self._ended: deque[Ended] = deque()
        self._losses: defaultdict[str, list[str]] = defaultdict(list)
        """The workers that each prompt which has not ended was lost with."""
        self._numbers = 0
        self._waiting = trio.CancelScope()
        self._draining = self._stopped = False
        self._last_reason = ""
        self.lost_workers: int = 0
        """Workers that were lost so far."""
        self.unknown_billed: int = 0
        """Requests that were in flight at a worker that was lost: whether they were billed nobody knows."""

    async def __aenter__(self) -> Spread:
        """Open the engine, and bring its workers up."""
        await self._engine.__aenter__()
        try:
            await self._fill_places()
        except BaseException as exc:
            await self._engine.__aexit__(type(exc), exc, exc.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the engine: what is in flight ends, and its results are dropped (see `stop_nowait`)."""
        await self._engine.__aexit__(kind, exc, trace)

    @property
    def in_flight(self) -> int:
        """How many prompts are at workers."""
        return sum(len(place.flying) for place in self._places.values())

    @property
    def shares(self) -> dict[str, int]:
        """How many prompts each worker may have at a time."""
        return {name: place.share for name, place in self._places.items()}

    def drain_nowait(self) -> None:
        """Start no more prompts; those in flight go on, and the iteration ends with the last of them."""
        self._draining = True
        if not self.in_flight:  # no report may ever come
            self._waiting.cancel()

    def stop_nowait(self, reason: str | None = None) -> None:
        """End every request in flight, and start no more. Each still comes as a result, with its partial."""
        self._stopped = True
        self._engine.stop(reason)
        self.drain_nowait()

    def __aiter__(self) -> Spread:
        return self

    async def __anext__(self) -> Ended:
        """Return the next result. Prompts are handed out when all results that have come were taken.

        So what a result says (that it was too dear, say) counts for the prompts that go out after it.

        Raises:
          StopAsyncIteration: every prompt has ended, or was not started.
          trio.BrokenResourceError: no worker can be kept alive; the prompts that are left did not run.
          Anything the iterable of jobs raises.

        Cancellation: safe, no result is lost. Always a checkpoint.
        """
        await trio.lowlevel.checkpoint()
        while not self._ended:
            await self._hand_out()
            if self._ended:  # given up
                break
            if self._over or not (self._places or self._has_work()):
                raise StopAsyncIteration
            if not self._places:
                raise trio.BrokenResourceError(f"no worker can be kept alive: {self._last_reason}")
            with trio.CancelScope() as self._waiting:
                for report in await self._engine.results():
                    self._take(report)
        return self._ended.popleft()

    # -- inside -----------------------------------------------------------------------------------

    @property
    def _over(self) -> bool:
        return not self.in_flight and (self._draining or (self._no_more_jobs and not self._returned))

    def _has_work(self) -> bool:
        """Tell whether there is a prompt to hand out; looks at the next one, which stays the next."""
        job = self._next_job()
        if job is not None:
            self._returned.appendleft(job)
        return job is not None

    async def _hand_out(self) -> None:
        """Give prompts to every worker that has room for some; first put workers where there are none."""
        if self._draining:
            for returned in self._returned:
                if returned.key in self._losses:
                    self._give_up(returned)
            self._returned.clear()
        if self._draining or (self._no_more_jobs and not self._returned):
            return
        await self._fill_places()
        for name, place in list(self._places.items()):
            room = place.share - len(place.flying) if place.joined else 0
            jobs = [job for _ in range(room) if (job := self._next_job()) is not None]
            if not jobs:
                continue
            try:
                await self._engine.start(name, jobs)
            except BaseException:
                self._returned.extendleft(reversed(jobs))
                raise
            place.flying |= {job.key: job for job in jobs}

    def _next_job(self) -> Job | None:
        if self._returned:
            return self._returned.popleft()
        job = None if self._no_more_jobs or self._draining else next(self._jobs, None)
        self._no_more_jobs = self._no_more_jobs or job is None
        return job

    async def _fill_places(self) -> None:
        while self._vacant:
            name = f"worker-{self._numbers + 1}"
            await self._engine.start(name, ())
            self._numbers += 1
            place = self._places[name] = self._vacant.popleft()
            place.worker = name

    def _take(self, report: Report) -> None:
        place = self._places.get(report.worker)
        if place is None:
            return
        match report:
            case Joined():
                place.joined = True
            case Ended():
                if place.flying.pop(report.key, None) is not None:
                    place.fruitless = 0
                    losses = self._losses.pop(report.key, ())
                    self._ended.append(replace(report, unknown_billed=len(losses)))
            case Lost():
                self._lose(place, report.reason)

    def _lose(self, place: _Place, reason: str) -> None:
        """Take back what a lost worker had, and free its place for another one."""
        get_logger().warning(
            "scale.worker_lost", worker=place.worker, reason=reason, in_flight=len(place.flying)
        )
        del self._places[place.worker]
        self.lost_workers += 1
        self._last_reason = reason
        self.unknown_billed += len(place.flying)
        for job in place.flying.values():
            self._losses[job.key].append(place.worker)
            if self._draining or len(self._losses[job.key]) >= MOST_LOSSES:
                self._give_up(job)
            else:
                self._returned.append(job)
        place.flying, place.joined = {}, False
        place.fruitless += 1
        if place.fruitless < MOST_FRUITLESS:
            self._vacant.append(place)
        elif self._places or self._vacant:
            self._hand_share_over(place.share)

    def _give_up(self, job: Job) -> None:
        """Let *job*, which was lost with a worker, end without an answer."""
        workers = self._losses.pop(job.key)
        error = Error(
            error=f"its worker was lost ({self._last_reason})",
            kind=ErrorKind.CANCELLED if self._stopped else ErrorKind.NETWORK,
        )
        self._ended.append(
            Ended(key=job.key, worker=workers[-1], terminal=error, unknown_billed=len(workers))
        )

    def _hand_share_over(self, share: int) -> None:
        """Give the share of a place that can't be filled to the others, so that the global figure stays."""
        others = [*self._places.values(), *self._vacant]
        for number, more in enumerate(_shares(share, len(others))):
            others[number].share += more


def open_spread(engine: Engine, jobs: Iterable[Job], *, workers: int = 1, max_active: int) -> Spread:
    """Return a spread, to be entered: `async with open_spread(...) as spread: async for ended in spread:`.

    Args:
      engine: runs the workers; entered and left by the spread.
      jobs: taken one by one, as there is room for them; an iterator may end early. Keys are one of a kind.
      workers: how many; no more than *max_active*.
      max_active: prompts in flight at a time, all workers together; each gets its share.

    Raises:
      TypeError, ValueError: not whole numbers from 1 on.
    """
    return Spread(engine, jobs, workers, max_active)


def _shares(whole: int, parts: int) -> list[int]:
    """Return *whole* in *parts* whole numbers that differ by 1 at most."""
    each, rest = divmod(whole, parts)
    return [each + (number < rest) for number in range(parts)]
