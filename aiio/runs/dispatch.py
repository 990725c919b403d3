"""How a step is run: counted, handed back from the ledger or run, recorded, checkpointed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import trio

from aiio.context.text import compact_json

from .errors import RunError, RunErrorKind
from .frames import Frame, current_frame, frame_of
from .spans import Span

if TYPE_CHECKING:
    from .context import RunContext
    from .items import Item
    from .step import Step

MAX_DEPTH = 64
"""Contexts at this depth run no steps."""


async def execute(context: RunContext, step: Step, input: Any = None) -> Any:
    """Run *step* on *context* and return its output.

    A result that the ledger has for this place is returned, and nothing runs: only `step_replayed` is told.

    Raises:
      RunError: step_failed: nested too deep, or what the step says; cancelled: the context was stopped
        before, or while it ran.
      Exception: what the step raises, as it is.

    Cancellation: a step that had ended is recorded all the same. Always a checkpoint.
    """
    if context.depth >= MAX_DEPTH:
        text = f"step {step.id!r}: contexts are nested {MAX_DEPTH} deep"
        raise RunError(RunErrorKind.STEP_FAILED, text, step_id=step.id, retries_exhausted=False)
    context.check()
    context.step_count += 1
    place = frame_of(context)
    frame = Frame(context, place.next_path(step.id), step.id, input, recorded=place.recorded)
    execution = context._execution
    ask = getattr(step, "question", None)
    question: str | None = None if ask is None else await ask(context, input)
    entry = execution.ledger.find(frame.path, step.id, step.kind, question) if frame.recorded else None
    if entry is not None:
        entry.hand_back(context)
        execution.tell(context, "step_replayed", step_id=step.id, path=frame.path)
        await trio.lowlevel.checkpoint()
        return entry.output
    execution.tell(context, "step_started", step_id=step.id, path=frame.path)
    output = await _run(context, step, frame, question)
    execution.tell(context, "step_completed", step_id=step.id, path=frame.path)
    context.check()
    return output


async def _run(context: RunContext, step: Step, frame: Frame, question: str | None) -> Any:
    """Run the step, record its result and save a checkpoint. Raises what the step raises."""
    execution = context._execution
    records = execution.ledger.durable and frame.recorded
    begun, state = len(context.item_log), _fingerprint(context.state) if records else None
    span = Span(
        f"{step.kind} {step.id}",
        context.span,
        tracer_provider=context.harness.tracer_provider,
        run=context.id,
        path=frame.path,
    )
    execution.frontier[frame] = None
    token = current_frame.set(frame)
    outcome = "cancelled"
    try:
        with span.current():
            output = await step.run(context, frame.input)
        outcome = "done"
    except Exception as exc:
        outcome = f"raised {type(exc).__name__}"
        raise
    finally:
        current_frame.reset(token)
        del execution.frontier[frame]
        span.end(outcome)
    if records:
        changed = _fingerprint(context.state) != state
        with execution.saving():
            await execution.ledger.record(
                frame.path,
                step.id,
                step.kind,
                output,
                items=context.item_log.items[begun:],
                state={"value": context.state} if changed else None,
                question=question,
            )
    await execution.checkpoint()
    return output


async def remember(
    context: RunContext, name: str, kind: str, work: Callable[[], Awaitable[tuple[Any, Sequence[Item]]]]
) -> tuple[Any, bool]:
    """Do a part of a step that is no step of its own, or take its result from the ledger.

    Args:
      context: where it happens.
      name: of the part; its occurrences within the running step are counted.
      kind: as for steps.
      work: returns an output, and items for the log; they are appended once the result is recorded, so
        that no snapshot holds them without it. What it raises goes through.

    Returns:
      The output, and whether it came from the ledger.
    """
    place, ledger = frame_of(context), context._execution.ledger
    path = place.next_path(f"~{name}")
    entry = ledger.find(path, name, kind) if place.recorded else None
    if entry is not None:
        entry.hand_back(context)
        await trio.lowlevel.checkpoint()
        return entry.output, True
    output, items = await work()
    if place.recorded:
        with context._execution.saving():
            await ledger.record(path, name, kind, output, items=items)
    for item in items:
        context.item_log.append(item)
    return output, False


def _fingerprint(state: Any) -> str | None:
    """Return the state as text, to see whether a step changed it; None: it is no JSON."""
    try:
        return compact_json(state)
    except (TypeError, ValueError):
        return None
