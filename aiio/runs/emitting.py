"""What a model step puts into the streams of its run, as far as it is to be seen there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from .streams import StreamEvent

if TYPE_CHECKING:
    from .context import RunContext

Emit: TypeAlias = bool | Callable[[StreamEvent], object]
"""False: nothing is seen; a function: what it returns something true for."""


class Emitter:
    """Tells the events of one model step. Listeners of the harness hear them all, streams what passes *emit*.

    Args:
      context: whose.
      step_id: of the step.
      emit: what streams get. One that raises keeps its event out, which `stream_pipe_error` tells.
    """

    def __init__(self, context: RunContext, step_id: str, emit: Emit) -> None:
        self.facts: dict[str, str] = {"context_id": context.id, "step_id": step_id}
        """What the data of every event of the answer begins with."""
        self._context = context
        self._emit = emit

    @property
    def wanted(self) -> bool:
        """Whether anybody may see the events of an answer."""
        return self._emit is not False and self._context._execution.watched

    def tell(self, name: str, /, **data: Any) -> None:
        """Tell of something the step does."""
        facts = {"step_id": self.facts["step_id"], **data}
        self._context._execution.tell_by(self.publish, self._context, name, facts)

    def publish(self, event: StreamEvent) -> None:
        """Put *event* into the streams, if it may go there."""
        if self._passes(event):
            self._context._execution.publish(event)

    def _passes(self, event: StreamEvent) -> bool:
        if isinstance(self._emit, bool):
            return self._emit
        try:
            return bool(self._emit(event))
        except Exception as exc:  # noqa: BLE001  # the user's own function; the run goes on
            error = type(exc).__name__
            self._context._execution.tell(
                self._context, "stream_pipe_error", step_id=self.facts["step_id"], error=error
            )
            return False
