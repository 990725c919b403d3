"""What a step is: something with an id that a context can execute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .context import RunContext


class Step(Protocol):
    """One step of a workflow. Made by `run_code`, `spawn`, ...; any object of this shape will do.

    A step is a description: it keeps nothing between two runs, and may be run by many contexts at a time.
    """

    @property
    def id(self) -> str:
        """Its name: unique among its siblings, the same in every version of the workflow that may resume."""

    @property
    def kind(self) -> str:
        """What it does, in a word; a recorded result of another kind is not handed back."""

    async def run(self, context: RunContext, input: Any) -> Any:
        """Do it, and return the output. Steps inside are run by `context.execute`.

        What it raises fails the step. `trio.Cancelled` must go through: the context was stopped, or somebody
        cancelled what is around it; nothing is recorded then, and a resumed run does the step again.
        """


def check_id(step_id: object) -> str:
    """Return *step_id* if it can name a step. ValueError: it can't be part of a path."""
    if not isinstance(step_id, str) or not step_id or any(mark in step_id for mark in "/#[]~"):
        raise ValueError(f"a step's id is a text without / # [ ] and ~, not {step_id!r}")
    return step_id
