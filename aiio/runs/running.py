"""Running one context in its own scope: an abort is told apart from a cancellation from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from .dispatch import execute
from .errors import RunError, RunErrorKind

if TYPE_CHECKING:
    from .context import RunContext
    from .step import Step


async def run_within(context: RunContext, step: Step, input: Any) -> Any:
    """Run *step* in *context*'s own scope and return its output, or what `complete` was given.

    Raises:
      RunError: cancelled: the context was aborted.
      Exception: what the step raises.

    Cancellation: of whatever is around goes through; what `abort` and `complete` cancel ends here.
    """
    scope = trio.CancelScope()
    context._scopes.append(scope)
    try:
        with scope:
            return await _run(context, step, input)
    except RunError as exc:
        if exc.kind is not RunErrorKind.CANCELLED or not context.completed:
            raise
    finally:
        context._scopes.remove(scope)
    if not context.completed:
        context.check()  # what was cancelled was cancelled by `abort`
    await trio.lowlevel.checkpoint_if_cancelled()
    return context.completion_value


async def _run(context: RunContext, step: Step, input: Any) -> Any:
    output = await execute(context, step, input)
    context.check()
    return output
