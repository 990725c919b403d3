"""Steps that repeat: `loop` until a predicate says so, `schedule` until it is stopped."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

import trio

from aiio.context.log import get_logger
from aiio.context.text import compact_json
from aiio.env.durations import Duration, parse_duration

from .calling import call
from .channels import Channel
from .context import RunContext
from .errors import RunError, RunErrorKind, error_kind
from .frames import Frame, current_frame, frame_of
from .items import create_message
from .step import Step, check_id
from .until import LoopSnapshot, Until

MAX_ITERATIONS = 1000
HISTORY = 100
"""Outputs that a loop keeps for its predicates."""


class OnError(StrEnum):
    """What a loop does about a failed iteration."""

    RETRY = "retry"
    """The same input again; counts as an iteration."""
    SKIP = "skip"
    """Go on with the last output."""
    ABORT = "abort"


ErrorPolicy: TypeAlias = Callable[[Exception, int], "OnError | str | Awaitable[OnError | str]"]
"""`(error, iteration) -> OnError`, plain or async."""


@dataclass(frozen=True, slots=True)
class Loop:
    """See `loop`."""

    id: str
    body: tuple[Step, ...]
    until: Until
    max_iterations: int
    on_error: ErrorPolicy | None
    inbox: Channel[Any] | None
    park: float
    """Seconds."""
    kind: str = "loop"

    async def run(self, context: RunContext, input: Any) -> Any:
        """Repeat the body."""
        began, spent = trio.current_time(), context.cost
        history: deque[Any] = deque(maxlen=HISTORY)
        value = input
        iteration = -1
        while True:
            iteration += 1
            context.check()
            if iteration >= self.max_iterations:
                text = f"loop {self.id!r}: {self.max_iterations} iterations did not end it"
                raise RunError(RunErrorKind.STEP_FAILED, text, step_id=self.id, retries_exhausted=False)
            try:
                value = await self._iterate(context, value)
            except Exception as exc:
                if await self._decide(exc, iteration) is OnError.ABORT:
                    raise
                continue
            history.append(value)
            snapshot = LoopSnapshot(
                context=context,
                iteration=iteration,
                output=value,
                history=tuple(history),
                elapsed_ms=(trio.current_time() - began) * 1000,
                cost=context.cost - spent,
            )
            if await self._ends(snapshot) and not await self._told_more(context):
                return value

    async def _iterate(self, context: RunContext, value: Any) -> Any:
        for step in self.body:
            value = await context.execute(step, value)
        return value

    async def _decide(self, error: Exception, iteration: int) -> OnError:
        """Return what is to be done about *error*; a cancellation is nobody's to decide about."""
        if self.on_error is None or error_kind(error) == RunErrorKind.CANCELLED:
            return OnError.ABORT
        return OnError(await call(self.on_error, error, iteration))

    async def _ends(self, snapshot: LoopSnapshot) -> bool:
        """Ask the predicate; one that raises ends the loop."""
        try:
            return bool(await call(self.until, snapshot))
        except Exception as exc:
            if error_kind(exc) == RunErrorKind.CANCELLED:
                raise
            get_logger().warning("run.until_failed", loop=self.id, error=type(exc).__name__)
            return True

    async def _told_more(self, context: RunContext) -> bool:
        """Take what the inbox brings, waiting for it; it joins the log, and the loop goes on."""
        if self.inbox is None:
            return False
        told = context.try_recv(self.inbox)
        if told is None and self.park > 0:
            try:
                told = await context.recv(self.inbox, timeout=self.park * 1000)
            except RunError as exc:
                if exc.kind is not RunErrorKind.CHANNEL_TIMEOUT:
                    raise
        if told is None:
            return False
        text = told if isinstance(told, str) else compact_json(told)
        context.item_log.append(create_message(text, "developer"))
        context._execution.tell(context, "inbox_injected", step_id=self.id)
        return True


def loop(
    id: str,
    body: Step | Sequence[Step],
    until: Until,
    *,
    max_iterations: int = MAX_ITERATIONS,
    on_error: ErrorPolicy | None = None,
    inbox: Channel[Any] | None = None,
    park_timeout: Duration | int = 0,
) -> Loop:
    """Return a step that runs *body* (each step gets the output of the one before) until *until* says so.

    Args:
      id: of the step.
      body: one step or several.
      until: asked after each iteration; see `until.py`. One that raises ends the loop.
      max_iterations: after these the step raises `RunError` (step_failed); failed iterations count.
      on_error: what to do about a failed iteration; None: it fails the loop. Not asked about `cancelled`.
      inbox: what arrives here keeps the loop going when it would end, as a developer's message in the log.
      park_timeout: how long to wait for that; 0: only what is there.

    Raises:
      ValueError: an id that can't name a step, or a number of iterations that is none.
      TypeError, ValueError: *park_timeout* is no duration.
    """
    if type(max_iterations) is not int or max_iterations < 1:
        raise ValueError(f"max_iterations must be an int >= 1, not {max_iterations!r}")
    steps = tuple(body) if isinstance(body, Sequence) else (body,)
    park = 0.0 if park_timeout == 0 else parse_duration(park_timeout)
    assert park is not None  # only None comes back as None
    return Loop(check_id(id), steps, until, max_iterations, on_error, inbox, park)


@dataclass(frozen=True, slots=True)
class Schedule:
    """See `schedule`."""

    id: str
    step: Step
    interval: float
    """Seconds, as `jitter`."""
    jitter: float
    inbox: Channel[Any] | None
    fail: bool
    max_runs: float
    kind: str = "schedule"

    async def run(self, context: RunContext, input: Any) -> Any:
        """Repeat the step."""
        place = frame_of(context)
        # What a timer did is no result to hand back: a resumed schedule begins anew.
        token = current_frame.set(Frame(context, place.path, self.id, input, recorded=False))
        try:
            return await self._repeat(context, input)
        finally:
            current_frame.reset(token)

    async def _repeat(self, context: RunContext, input: Any) -> Any:
        output: Any = None
        number = 0
        while True:
            number += 1
            context.check()
            try:
                output = await context.execute(self.step, input)
            except Exception as exc:
                if self.fail or error_kind(exc) == RunErrorKind.CANCELLED:
                    raise
                context.span.add_event("schedule.failed", step=self.step.id, error=type(exc).__name__)
            if number >= self.max_runs:
                return output
            await self._park(context)

    async def _park(self, context: RunContext) -> None:
        """Let the interval pass, or less when something arrives in the inbox; it stays there."""
        woken = trio.Event()
        forget = None
        if self.inbox is not None:
            forget = context.harness.channels.state(self.inbox).on_wake(woken.set)
        try:
            with trio.move_on_after(max(0.0, self.interval + random.uniform(-self.jitter, self.jitter))):
                await woken.wait()
        finally:
            if forget is not None:
                forget()


def schedule(
    id: str,
    step: Step,
    interval: Duration,
    *,
    jitter: Duration | int = 0,
    inbox: Channel[Any] | None = None,
    on_error: str = "continue",
    max_runs: int | None = None,
) -> Schedule:
    """Return a step that runs *step* again and again, until the context is stopped.

    Args:
      id: of the step.
      step: what to do, with the same input each time.
      interval: from the end of one run to the begin of the next.
      jitter: the interval is longer or shorter by at most this.
      inbox: a value that arrives here begins the next run at once; the run finds it there.
      on_error: `continue` notes a failure on the span, `fail` raises it.
      max_runs: return the last output after so many runs; None: no end.

    Raises:
      ValueError: an id that can't name a step, or another *on_error*.
      TypeError, ValueError: *interval* or *jitter* is no duration.
    """
    if on_error not in ("continue", "fail"):
        raise ValueError(f'on_error must be "continue" or "fail", not {on_error!r}')
    seconds = parse_duration(interval)
    spread = 0.0 if jitter == 0 else parse_duration(jitter)
    assert seconds is not None  # only None comes back as None
    assert spread is not None
    runs = math.inf if max_runs is None else max_runs
    return Schedule(check_id(id), step, seconds, spread, inbox, on_error == "fail", runs)
