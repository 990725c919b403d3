"""Steps around plain code: `run_code` and `conditional`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias, assert_never

import trio

from aiio.env.durations import Duration, parse_duration

from .calling import call
from .context import RunContext
from .errors import RunError, RunErrorKind, error_kind
from .step import Step, check_id

Code: TypeAlias = Callable[[Any, RunContext], Any]
"""`(input, context) -> output`, plain or async."""

Route: TypeAlias = Callable[[Any, RunContext], "Step | Awaitable[Step | None] | None"]


class Backoff(StrEnum):
    """How the wait between two attempts grows."""

    FIXED = "fixed"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """When to try again. ValueError, TypeError: a value that makes no sense."""

    max_attempts: int = 1
    """Attempts in all."""
    backoff: Backoff | str = Backoff.FIXED
    initial_delay: Duration = "1s"
    max_delay: Duration = "30s"

    def __post_init__(self) -> None:
        if type(self.max_attempts) is not int or self.max_attempts < 1:
            raise ValueError(f"max_attempts must be an int >= 1, not {self.max_attempts!r}")
        self.delay(1)

    def delay(self, attempt: int) -> float:
        """Return the seconds to wait after *attempt* (from 1) failed."""
        first, most = parse_duration(self.initial_delay), parse_duration(self.max_delay)
        assert first is not None  # only None comes back as None
        assert most is not None
        match Backoff(self.backoff):
            case Backoff.FIXED:
                delay = first
            case Backoff.LINEAR:
                delay = first * attempt
            case Backoff.EXPONENTIAL:
                delay = first * 2.0 ** min(attempt - 1, 64)
            case never:
                assert_never(never)
        return min(delay, most)


@dataclass(frozen=True, slots=True)
class RunCode:
    """See `run_code`."""

    id: str
    fn: Code
    retry: Retry = field(default_factory=Retry)
    kind: str = "run_code"

    async def run(self, context: RunContext, input: Any) -> Any:
        """Call the function until it succeeds, or there are no attempts left."""
        attempts = self.retry.max_attempts
        attempt = 0
        while True:
            attempt += 1
            context.check()
            try:
                return await call(self.fn, input, context)
            except Exception as exc:
                if error_kind(exc) == RunErrorKind.CANCELLED:
                    raise
                if attempt == attempts:
                    text = f"step {self.id!r} failed: {type(exc).__name__}: {exc}"
                    raise RunError(
                        RunErrorKind.STEP_FAILED,
                        text,
                        step_id=self.id,
                        retries_exhausted=attempts > 1,
                        cause_kind=error_kind(exc),
                    ) from exc
            await trio.sleep(self.retry.delay(attempt))


def run_code(id: str, fn: Code, *, retry: Retry | None = None) -> RunCode:
    """Return a step that calls `fn(input, context)`.

    Args:
      id: of the step.
      fn: plain or async. A plain one runs in trio's thread and must not block.
      retry: None: it is tried once.

    The step raises `RunError` (step_failed) whose cause is what *fn* raised, but `cancelled` as it is.
    """
    return RunCode(check_id(id), fn, retry or Retry())


@dataclass(frozen=True, slots=True)
class Conditional:
    """See `conditional`."""

    id: str
    route: Route
    kind: str = "conditional"

    async def run(self, context: RunContext, input: Any) -> Any:
        """Run the step that the route leads to."""
        chosen: Step | None = await call(self.route, input, context)
        if chosen is None:
            await trio.lowlevel.checkpoint()
            return input
        return await context.execute(chosen, input)


def conditional(id: str, route: Route) -> Conditional:
    """Return a step that runs the step `route(input, context)` returns; for None the input passes through."""
    return Conditional(check_id(id), route)
