"""Child contexts: how they are made, and run to their end inside their parent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .context import RunContext
from .frames import frame_of
from .items import Item
from .layers import ContextLayer
from .running import run_within

if TYPE_CHECKING:
    from .step import Step


def child_of(
    parent: RunContext,
    *,
    items: Iterable[Item] = (),
    branch: str = "",
    layers: Iterable[ContextLayer] = (),
) -> RunContext:
    """Return a child of *parent*, with a deep copy of its state; its steps stand under the running step.

    Args:
      parent: registers it; one that was stopped makes it aborted from the start.
      items: what its log begins with.
      branch: added to the path, for one of several children.
      layers: its own, in place of inherited ones of their ids.
    """
    place = frame_of(parent)
    return RunContext(
        parent.harness,
        execution=parent._execution,
        parent=parent,
        state=parent._copied_state(),
        items=items,
        ground=(place.path + branch, place.recorded),
        layers=layers,
    )


async def run_child(child: RunContext, step: Step, input: Any, *, isolated: bool) -> Any:
    """Run *step* on *child* to its end, with the layers its parent gives it; see `run_within`.

    Its parent forgets it then. Layers may change the result of a success; they are torn down however it ends.

    Args:
      child: made by `child_of`.
      step: what to do.
      input: given to it.
      isolated: whether the items that layers give a child join its log.
    """
    parent = child.parent
    assert parent is not None  # it is a child
    outcome = "cancelled"
    try:
        await child.layers.enter(parent.layers, items=isolated)
        output = await run_within(child, step, input)
        output = await parent.layers.returned(child.layers, output)
        outcome = "done"
        return output
    except Exception as exc:
        outcome = f"raised {type(exc).__name__}"
        raise
    finally:
        try:
            await child.layers.end(ending(child, outcome))
        finally:
            child._settled()
            child.span.end(outcome)


def ending(context: RunContext, outcome: str) -> str:
    """Return a context's end in the word that layers hear."""
    if context.aborted or outcome == "cancelled":
        return "aborted"
    return "success" if outcome == "done" else "failure"
