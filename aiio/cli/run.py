"""`aiio run`: many prompts, N agents at a time, one result line each as it ends.

Nothing received is lost, whatever happens: a stopped request's partial message is in its line; a line that
the results file does not take goes to a rescue file, or to stderr; and the same command, run again,
does what is left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

import msgspec
import trio

from aiio.agents import Fleet, FleetResult, open_fleet
from aiio.context.events import Error, ErrorKind
from aiio.observe import encode_line
from aiio.scale import Ended, Job, Recipe, Timings
from aiio.scale.jobs import make_agent, terminal_of

from .allowance import Allowance
from .begun import Begun, opened
from .exits import BAD_INPUT, DONE, OUT_OF_BUDGET, exit_code_of, explain
from .models import NO_LIMITS, LimitOptions, check_model, chosen_model, endpoint_of, make_io
from .output import say
from .progress import Display, Tally, clock
from .prompts import Prompt, read_prompts
from .ray import spread_on_ray
from .results import Rescue, ResultsFile, open_results
from .session import Session

DEFAULT_AGENTS = 8
EMBEDDED_AGENTS = 4
"""As many as its server has slots; more would wait there, where the connect limit runs."""

NO_ROOM = "the results can't be written"
"""Why requests are stopped when they can't."""

RECORDED_PER_START = 4
"""Results recorded before one more agent is started: results come first, and all agents get started."""

_UNAUTHORIZED = 401

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What `aiio run` was asked to do."""

    prompts: str
    out: str
    model: str | None = None
    agents: int | None = None
    """Requests at a time; None: `DEFAULT_AGENTS`, or what the embedded model can do."""
    system: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    limits: LimitOptions = field(default_factory=lambda: NO_LIMITS)
    max_cost: float | None = None
    """USD, of all prompts together; then no more are started."""
    max_tokens: int | None = None
    """Input and output, likewise."""
    max_time: str | None = None
    """Then what is in flight is cut."""
    engine: Literal["local", "ray"] = "local"
    workers: int | None = None
    """Processes of the engine; None: by the number of agents."""
    ray_address: str | None = None
    """Of a cluster; None: Ray is started here."""
    progress: bool = True
    skip_bad: bool = False
    keep_failed: bool = False


async def run(session: Session, options: RunOptions) -> int:
    """Run all prompts that have no result yet, and return the exit code.

    Raises:
      CliFault: a broken prompts file, an output that can't be used, an unknown model, a bad limit. Nothing
        was sent.
      ProviderError: a credential is missing. Nothing was sent.
    """
    env = session.env
    allowance = Allowance(cost=options.max_cost, tokens=options.max_tokens, time=options.max_time)
    checked: set[str] = set()

    def check(selector: str) -> None:
        if selector not in checked:
            check_model(env, selector, options.settings)
            checked.add(selector)

    prompts, faults = read_prompts(options.prompts, check, skip_bad=options.skip_bad)
    selector = ""
    if any(prompt.model is None for prompt in prompts):
        selector = chosen_model(env, options.model)
        make_io(env, selector, settings=options.settings, **options.limits)
        check(selector)
    results = open_results(options.out)
    try:
        left = _left(prompts, results, options)
        _say_beginning(prompts, left, faults, results)
        if not left:
            return DONE
        selectors = {prompt.model or selector for prompt in left}
        await allowance.say_what_it_cannot_see(selectors)
        if options.engine == "local":
            await _start_embedded(session, selectors)
        batch = Batch(session, options, selector, left, results, allowance)
        await batch.run()
    finally:
        results.close()
    return batch.report()


async def _start_embedded(session: Session, selectors: Iterable[str]) -> None:
    """Start the embedded model if one of *selectors* needs it: better one failure now than one per prompt."""
    names = {
        endpoint.name for selector in selectors if (endpoint := endpoint_of(session.env, selector)).embedded
    }
    with trio.CancelScope() as scope:
        session.on_stop = scope.cancel
        for name in names:
            await session.env.resolve(name)


def _left(prompts: Iterable[Prompt], results: ResultsFile, options: RunOptions) -> list[Prompt]:
    """Return the prompts that have no result that counts."""
    settled = results.done | results.failed if options.keep_failed else results.done
    return [prompt for prompt in prompts if str(prompt.key) not in settled]


def _say_beginning(
    prompts: list[Prompt], left: list[Prompt], faults: list[str], results: ResultsFile
) -> None:
    for fault in faults:
        say(f"left out: {fault}")
    if results.repaired:
        say(f"{results.path} ended in a torn line, which was cut off; its prompt runs again")
    if len(left) < len(prompts):
        say(f"{len(prompts) - len(left)} of {len(prompts)} have a result in {results.path} already")


class Batch:
    """The prompts of one run, from the first start to the summary."""

    def __init__(
        self,
        session: Session,
        options: RunOptions,
        selector: str,
        prompts: list[Prompt],
        results: ResultsFile,
        allowance: Allowance,
    ) -> None:
        self._session = session
        self._env = session.env
        self._options = options
        self._selector = selector
        self._waiting = deque(prompts)
        self._results = results
        self._allowance = allowance
        self._recipe = Recipe(settings=options.settings, budget=allowance.budget, **options.limits)
        self._rescue = Rescue()
        self._flying: dict[str, tuple[Prompt, str]] = {}
        """With the selector of each."""
        self._timings: dict[str, Timings] = {}
        """Of those that run here."""
        self._tally = Tally(total=len(prompts))
        self._first_errors: dict[ErrorKind, tuple[str | int, str]] = {}
        self._refused: set[str] = set()  # endpoints that refused our key: asking again is pointless
        self._no_room: str | None = None  # why the results file takes nothing more
        self._unknown_billed = 0

    async def run(self) -> None:
        """Run them. Returns when all have ended, or were stopped."""
        display = Display(self._tally)
        if self._options.progress:
            await self._env.nursery.start(display.run)
        self._allowance.start()
        try:
            await (self._run_here() if self._options.engine == "local" else self._run_on_ray())
        finally:
            self._rescue.close()
            if self._options.progress:
                await display.stop()

    async def _run_here(self) -> None:
        """Run them in this process."""
        async with open_fleet(self._env, max_active=self._agents) as fleet:
            stop = partial(fleet.kill_nowait, None)
            self._session.on_stop = partial(stop, "Ctrl-C")
            for _ in range(min(self._agents, len(self._waiting))):
                self._start_next(fleet)
                await self._take_ended(fleet)
            while (ended := await self._next_ended(fleet.results(), stop)) is not None:
                await self._take(fleet, ended)

    async def _run_on_ray(self) -> None:
        """Run them on a Ray cluster."""
        agents = min(self._agents, len(self._waiting))
        with (
            opened(self._results.path if self._results.regular else None, self._results.done) as begun,
            trio.CancelScope() as connecting,
        ):
            self._session.on_stop = connecting.cancel
            jobs = self._jobs(begun)
            async with spread_on_ray(jobs, self._recipe, agents, self._options) as spread:
                self._session.on_stop = partial(spread.stop_nowait, "Ctrl-C")
                while (ended := await self._next_ended(spread, spread.stop_nowait)) is not None:
                    await self._record(begun.counted(ended))
                    begun.end(ended.key)
                    if self._no_room is not None:
                        spread.stop_nowait(NO_ROOM)
                    elif self._allowance.used_up is not None:
                        spread.drain_nowait()

    async def _take_ended(self, fleet: Fleet) -> None:
        """Record a few of those that have ended already. A step each: all at once would stop the others."""
        results = fleet.results()
        with suppress(trio.WouldBlock):
            for _ in range(RECORDED_PER_START):
                await trio.lowlevel.checkpoint()
                await self._take(fleet, results.next_nowait())

    async def _take(self, fleet: Fleet, ended: FleetResult) -> None:
        """Record a prompt that has ended, and start another one in its place."""
        await self._record(
            Ended(
                key=ended.key,
                worker="here",
                terminal=terminal_of(ended),
                result=ended.result,
                timings=self._timings.pop(ended.key).so_far(),
            )
        )
        if self._no_room is not None:
            fleet.kill_nowait(reason=NO_ROOM)
        self._start_next(fleet)

    async def _next_ended(self, results: AsyncIterator[_T], stop: Callable[[str], object]) -> _T | None:
        """Wait for the next prompt to end; when the time is up, stop them all first. None: none is left."""
        with trio.move_on_at(self._allowance.deadline):
            return await anext(results, None)
        self._allowance.stop()
        stop(f"{self._allowance.used_up} is over")
        return await anext(results, None)

    @property
    def _agents(self) -> int:
        """How many requests run at a time."""
        if self._options.agents is not None:
            return self._options.agents
        embedded = self._selector and endpoint_of(self._env, self._selector).embedded
        return EMBEDDED_AGENTS if embedded else DEFAULT_AGENTS

    def _next_job(self) -> Job | None:
        """Return the next prompt to ask, which is in flight now; None: there is none, or no point in it."""
        stopping = self._session.stopping or self._no_room is not None
        while self._waiting and not stopping and self._allowance.used_up is None:
            prompt = self._waiting.popleft()
            selector = prompt.model or self._selector
            if endpoint_of(self._env, selector).name in self._refused:
                continue
            key = str(prompt.key)
            self._flying[key] = (prompt, selector)
            self._tally.began_one()
            system = prompt.system or self._options.system
            return Job(key=key, model=selector, text=prompt.text, context=prompt.context, system=system)
        return None

    def _jobs(self, begun: Begun) -> Iterator[Job]:
        """Yield prompts to ask as long as there are any, each noted on the disk before it goes out."""
        while (job := self._next_job()) is not None:
            begun.begin(job.key)
            yield job

    def _start_next(self, fleet: Fleet) -> None:
        """Start the next prompt here, unless there is none, or no point in it."""
        job = self._next_job()
        if job is not None:
            timings = self._timings[job.key] = Timings()
            fleet.start(make_agent(self._env, job, self._recipe, timings), job.text, key=job.key)

    async def _record(self, ended: Ended) -> None:
        """Write the result line of a prompt that has ended."""
        prompt, selector = self._flying.pop(ended.key)
        terminal = ended.terminal
        self._tally.ended_one(terminal)
        if ended.result is not None:
            self._allowance.count(ended.result)
            self._tally.cost = self._allowance.cost
        line: dict[str, Any] = {
            "key": prompt.key,
            "terminal": msgspec.structs.replace(terminal, message=None, usage=None),
            "message": terminal.message,
            "usage": terminal.usage,
            "timings": ended.timings,
        }
        if ended.unknown_billed:
            line["unknown_billed"] = ended.unknown_billed
            self._unknown_billed += ended.unknown_billed
        await self._save(encode_line(line))
        if isinstance(terminal, Error):
            endpoint = endpoint_of(self._env, selector)
            sentence = self._env.scrub(explain(terminal, endpoint))
            self._first_errors.setdefault(terminal.kind, (prompt.key, sentence))
            if terminal.status == _UNAUTHORIZED:
                self._refused.add(endpoint.name)

    async def _save(self, line: bytes) -> None:
        if self._no_room is None:
            try:
                if self._results.regular:
                    self._results.append(line)
                else:  # the reader of a pipe may be slow
                    await trio.to_thread.run_sync(self._results.append, line)
            except OSError as exc:
                self._no_room = exc.strerror or str(exc)
            else:
                return
        self._rescue.append(line)

    def report(self) -> int:
        """Say how it went, and return the exit code."""
        tally = self._tally
        unsent = tally.queued
        parts = [f"{tally.done} of {tally.total} done", tally.failures()]
        parts += [f"{unsent} not sent"] if unsent else []
        cost = self._allowance.words()
        say(
            f"{', '.join(parts)}; {tally.output_tokens} output tokens{cost and ', '}{cost} "
            f"in {clock(tally.elapsed)}; results in {self._results.path}"
        )
        for kind, (key, sentence) in self._first_errors.items():
            if kind is not ErrorKind.CANCELLED:
                more = tally.failed[kind] - 1
                say(f"{kind}: {sentence} (key {key!r}{f' and {more} more' if more else ''})")
        if self._unknown_billed:
            say(
                f"{self._unknown_billed} requests were lost on their way, with a worker or an earlier run: "
                "whether they are billed nobody knows (`unknown_billed` in the results)"
            )
        if self._no_room is not None:
            where = f"in {self._rescue.path}" if self._rescue.path else "above, on stderr"
            say(
                f"{self._results.path} can't be written ({self._no_room}): {self._rescue.lines} results are "
                f"{where} instead; make room, append them to it, and run the same command again"
            )
            return BAD_INPUT
        if self._session.stopping:
            say("stopped; what had arrived is in the results, and the same command run again does the rest")
            return self._session.signal_code
        return self._code()

    def _code(self) -> int:
        """Return the exit code for how the prompts ended; says so when a budget was in the way."""
        failed, used_up = self._tally.failed, self._allowance.used_up
        if used_up is None or not (self._tally.queued or failed[ErrorKind.CANCELLED]):
            return exit_code_of(failed)
        say(f"stopped by {used_up}; the same command run again does the rest, with a budget of its own")
        return exit_code_of(kind for kind in failed if kind is not ErrorKind.CANCELLED) or OUT_OF_BUDGET
