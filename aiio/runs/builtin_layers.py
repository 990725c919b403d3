"""Layers that most runs want: instructions, a scratchpad, steering, the time, a window on the history."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .items import Item, strip_unresolved_tool_calls
from .layer_tools import NewState
from .layers import ContextLayer, HookCall, Hooks, LayerBudget, Placement, Scope, Slot, Verdict

HISTORY_SLOT = 275
HISTORY_ITEMS = 40
HISTORY_GROWTH = 4
"""Times its size that a window may grow to hold a question and an answer."""


def instructions_layer(text: str, *, id: str = "instructions", slot: float = Slot.REMINDER) -> ContextLayer:
    """Return a layer that always says *text*, in the anchored prefix; its children say it too."""
    hooks = Hooks(recall=lambda call: text, on_spawn=lambda call: {"child_state": text})
    return ContextLayer(id=id, slot=slot, scope=Scope.EXECUTION, hooks=hooks, placement=Placement.ANCHOR)


def temporal_layer(
    now: Callable[[], float] = time.time, *, id: str = "temporal", slot: float = Slot.REMINDER
) -> ContextLayer:
    """Return a layer that tells the date and time (UTC), after the history: it is never the same.

    Args:
      now: wall-clock seconds.
      id, slot: of the layer.
    """

    def recall(call: HookCall) -> str:
        return time.strftime("It is %A, %Y-%m-%d, %H:%M UTC.", time.gmtime(now()))

    hooks = Hooks(recall=recall, on_spawn=lambda call: {"child_state": True})
    return ContextLayer(id=id, slot=slot, scope=Scope.EXECUTION, hooks=hooks, placement=Placement.LIVE)


def scratchpad_layer(
    *, id: str = "scratchpad", scope: Scope = Scope.THREAD, budget: float | LayerBudget | None = None
) -> ContextLayer:
    """Return a layer that shows notes, `{name: text}`; a child has a copy, and what it noted comes back.

    The model writes them by its tool `scratchpad/write`, code by `context.context["scratchpad"].write(name,
    text)`, and reads them by `.notes`. They are kept by *scope*.
    """

    def recall(call: HookCall) -> str | None:
        notes = call.state or {}
        lines = [f"- {name}: {text}" for name, text in notes.items()]
        return "\n".join(["Notes:", *lines]) if lines else None

    def write(notes: dict[str, str], name: str, text: str) -> NewState:
        """Write a note that stays in view, in place of an earlier one of its name.

        Args:
          name: of the note.
          text: what to remember; an empty one removes the note.
        """
        others = {other: said for other, said in (notes or {}).items() if other != name}
        return NewState({**others, name: text} if text else others, "noted" if text else "removed")

    hooks = Hooks(
        init=_load,
        recall=recall,
        on_spawn=lambda call: {"child_state": dict(call.state or {})},
        on_return=lambda call: None if call.child_state is None else {"state": call.child_state},
    )
    return ContextLayer(
        id=id,
        slot=Slot.SCRATCHPAD,
        scope=scope,
        budget=budget,
        hooks=hooks,
        provides={"notes": property(lambda notes: dict(notes or {})), "write": write},
    )


async def _load(call: HookCall) -> dict[str, Any]:
    stored = None if call.storage is None else await call.storage.get("state")
    return {"state": dict(stored) if isinstance(stored, Mapping) else {}}


def steering_layer(
    *,
    judge: Callable[[Sequence[Item]], Verdict] | None = None,
    gate: Callable[[Mapping[str, Any]], Verdict] | None = None,
    id: str = "steering",
) -> ContextLayer:
    """Return a layer that rules over answers and calls; a failed gate denies. Children are steered too.

    Args:
      judge: of the items of an answer.
      gate: of a tool call block.
      id: of the layer.
    """
    hooks = Hooks(
        after_model_call=None if judge is None else lambda call: judge(call.response),
        before_tool_call=None if gate is None else lambda call: gate(call.call or {}),
        on_spawn=lambda call: {"child_state": True},
    )
    return ContextLayer(
        id=id,
        slot=Slot.STEERING,
        scope=Scope.EXECUTION,
        hooks=hooks,
        placement=Placement.LIVE,
        deny_on_error=True,
    )


def history_layer(max_items: int = HISTORY_ITEMS, *, id: str = "history") -> ContextLayer:
    """Return a layer that shows the newest *max_items* of the log.

    The window grows (to four times its size) until a user's and an assistant's message are in it; a system
    message at the beginning stays; calls without outputs, and outputs without calls, are left out.

    ValueError: *max_items* is not above 0.
    """
    if type(max_items) is not int or max_items < 1:
        raise ValueError(f"max_items must be an int >= 1, not {max_items!r}")

    def project(call: HookCall) -> dict[str, Any]:
        items = list(call.items)
        head = items[:1] if items and items[0].get("role") in ("system", "developer") else []
        size = max_items
        most = min(len(items), max_items * HISTORY_GROWTH)
        while size < most and not {"user", "assistant"} <= {item.get("role") for item in items[-size:]}:
            size += 1
        shown = items[-size:]
        kept = shown if not head or shown[:1] == head else [*head, *shown]
        return {"items": strip_unresolved_tool_calls(kept)}

    hooks = Hooks(project_history=project, on_spawn=lambda call: {"child_state": True})
    return ContextLayer(id=id, slot=HISTORY_SLOT, scope=Scope.EXECUTION, hooks=hooks)
