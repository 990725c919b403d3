"""`aiio run`: many prompts, N agents at a time, one result line each as it ends.

Nothing received is lost, whatever happens: a stopped request's partial message is in its line; a line that
the results file does not take goes to a rescue file, or to stderr; and the same command, run again,
does what is left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import trio

from aiio.agents import Agent, Fleet, FleetResult, open_fleet
from aiio.context.events import Done, Error, ErrorKind, Terminal
from aiio.observe import encode_line

from .exits import BAD_INPUT, DONE, exit_code_of, explain
from .models import NO_LIMITS, LimitOptions, check_model, chosen_model, endpoint_of, make_io
from .output import say
from .progress import Display, Tally, clock
from .prompts import Prompt, read_prompts
from .results import Rescue, ResultsFile, open_results
from .session import Session

DEFAULT_AGENTS = 8
EMBEDDED_AGENTS = 4
"""As many as its server has slots; more would wait there, where the connect limit runs."""

_UNAUTHORIZED = 401


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
        await _start_embedded(session, {prompt.model or selector for prompt in left})
        batch = Batch(session, options, selector, left, results)
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


@dataclass(slots=True, kw_only=True)
class _InFlight:
    """A prompt that runs, and when what happened, on trio's clock."""

    prompt: Prompt
    selector: str
    started_at: str
    began: float
    first_event: float | None = None

    def note_event(self, event: object) -> None:
        """Note the first piece of an answer."""
        if self.first_event is None:
            self.first_event = trio.current_time()

    def timings(self) -> dict[str, Any]:
        """Return `{started_at, first_event_ms?, total_ms}` as of now; queueing is part of them."""
        timings: dict[str, Any] = {"started_at": self.started_at}
        if self.first_event is not None:
            timings["first_event_ms"] = _ms(self.first_event - self.began)
        return timings | {"total_ms": _ms(trio.current_time() - self.began)}


class Batch:
    """The prompts of one run, from the first start to the summary."""

    def __init__(
        self,
        session: Session,
        options: RunOptions,
        selector: str,
        prompts: list[Prompt],
        results: ResultsFile,
    ) -> None:
        self._session = session
        self._env = session.env
        self._options = options
        self._selector = selector
        self._waiting = deque(prompts)
        self._results = results
        self._rescue = Rescue()
        self._flying: dict[str, _InFlight] = {}
        self._tally = Tally(total=len(prompts))
        self._first_errors: dict[ErrorKind, tuple[str | int, str]] = {}
        self._refused: set[str] = set()  # endpoints that refused our key: asking again is pointless
        self._no_room: str | None = None  # why the results file takes nothing more

    async def run(self) -> None:
        """Run them. Returns when all have ended, or were stopped."""
        display = Display(self._tally)
        if self._options.progress:
            await self._env.nursery.start(display.run)
        try:
            async with open_fleet(self._env, max_active=self._agents) as fleet:
                self._session.on_stop = partial(fleet.kill_nowait, reason="Ctrl-C")
                for _ in range(self._agents):
                    self._start_next(fleet)
                async for ended in fleet.results():
                    await self._record(ended)
                    if self._no_room is not None:
                        fleet.kill_nowait(reason="the results can't be written")
                    self._start_next(fleet)
        finally:
            self._rescue.close()
            if self._options.progress:
                await display.stop()

    @property
    def _agents(self) -> int:
        """How many requests run at a time."""
        if self._options.agents is not None:
            return self._options.agents
        embedded = self._selector and endpoint_of(self._env, self._selector).embedded
        return EMBEDDED_AGENTS if embedded else DEFAULT_AGENTS

    def _start_next(self, fleet: Fleet) -> None:
        """Start the next prompt, unless there is none, or no point in it."""
        while self._waiting and not self._session.stopping and self._no_room is None:
            prompt = self._waiting.popleft()
            selector = prompt.model or self._selector
            if endpoint_of(self._env, selector).name in self._refused:
                continue
            flying = _InFlight(
                prompt=prompt,
                selector=selector,
                started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
                began=trio.current_time(),
            )
            key = str(prompt.key)
            agent = Agent(
                env=self._env,
                model=selector,
                name=key,
                system=prompt.system or self._options.system,
                context=list(prompt.context),
                settings=self._options.settings,
                callbacks={
                    f"on_{kind}_delta": flying.note_event for kind in ("text", "thinking", "tool_call")
                },
                **self._options.limits,
            )
            self._flying[key] = flying
            self._tally.began_one()
            fleet.start(agent, prompt.text, key=key)
            return

    async def _record(self, ended: FleetResult) -> None:
        """Write the result line of a prompt that has ended."""
        flying = self._flying.pop(ended.key)
        terminal = _terminal_of(ended)
        self._tally.ended_one(terminal)
        line = encode_line(
            {
                "key": flying.prompt.key,
                "terminal": msgspec.structs.replace(terminal, message=None, usage=None),
                "message": terminal.message,
                "usage": terminal.usage,
                "timings": flying.timings(),
            }
        )
        await self._save(line)
        if isinstance(terminal, Error):
            endpoint = endpoint_of(self._env, flying.selector)
            sentence = self._env.scrub(explain(terminal, endpoint))
            self._first_errors.setdefault(terminal.kind, (flying.prompt.key, sentence))
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
        say(
            f"{', '.join(parts)}; {tally.output_tokens} output tokens in {clock(tally.elapsed)}; "
            f"results in {self._results.path}"
        )
        for kind, (key, sentence) in self._first_errors.items():
            if kind is not ErrorKind.CANCELLED:
                more = tally.failed[kind] - 1
                say(f"{kind}: {sentence} (key {key!r}{f' and {more} more' if more else ''})")
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
        return exit_code_of(tally.failed)


def _terminal_of(ended: FleetResult) -> Terminal:
    """Return how an agent's run ended; one that crashed (a bug of ours or a plug-in's) is an error too."""
    if ended.result is not None and isinstance(ended.result.terminal, Done | Error):
        return ended.result.terminal
    exc = ended.exception
    return Error(error=f"unexpected {type(exc).__name__}: {exc}", kind=ErrorKind.MALFORMED)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
