"""Where in a run a step stands: its path, which is also its address in the step ledger.

A path is a chain of `/<step id>#<occurrence>`, counted among the steps dispatched in the same place. A child
context has a prefix of its own (a spawn's path; `[index]` for a parallel path), so that neither the order in
which siblings settle nor what they do decides about a path.
"""

from __future__ import annotations

from collections import Counter
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .context import RunContext


class Frame:
    """One step in progress, or the ground that a context stands on."""

    __slots__ = ("_counts", "context", "input", "path", "recorded", "step_id")

    def __init__(
        self,
        context: RunContext,
        path: str,
        step_id: str = "",
        input: Any = None,
        *,
        recorded: bool = True,
    ) -> None:
        self.context: RunContext = context
        self.path: str = path
        self.step_id: str = step_id
        self.input: Any = input
        self.recorded: bool = recorded
        """Whether the results of steps in here go to the ledger."""
        self._counts: Counter[str] = Counter()

    def next_path(self, step_id: str) -> str:
        """Return the path of the next step *step_id* in here; each call is one occurrence."""
        number = self._counts[step_id]
        self._counts[step_id] += 1
        return f"{self.path}/{step_id}#{number}"


current_frame: ContextVar[Frame | None] = ContextVar("aiio.runs.frame", default=None)
"""The step that the running task is in. Tasks inherit it: steps begun from a nursery know where they are."""


def frame_of(context: RunContext) -> Frame:
    """Return the innermost step of *context* that the running task is in, else the context's ground."""
    frame = current_frame.get()
    return frame if frame is not None and frame.context is context else context._ground
