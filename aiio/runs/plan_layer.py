"""The plan layer: plan first, with tools that only look; then do it, with the plan in view."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from .calling import call as call_function
from .layer_states import STATE
from .layer_tools import NewState
from .layers import ALLOW, ContextLayer, HookCall, Hooks, LayerBudget, Ruling, Scope, Slot, Verdict
from .work_layers import stored_state

PLAN_SLOT = Slot.PROCEDURAL - 10


class PlanPhase(StrEnum):
    """How far a plan is."""

    IDLE = "idle"
    PLANNING = "planning"
    EXECUTING = "executing"
    COMPLETED = "completed"
    """The execution that carried it out succeeded."""
    FAILED = "failed"


_PLAN: Mapping[str, Any] = {"phase": PlanPhase.IDLE.value, "goal": "", "text": "", "steps": []}


def plan_layer(
    *,
    allowed: Collection[str] = (),
    approve: Callable[[Mapping[str, Any]], Any] | None = None,
    id: str = "plan",
    scope: Scope = Scope.THREAD,
    budget: float | LayerBudget | None = None,
) -> ContextLayer:
    """Return a layer with a plan, which the model makes and carries out.

    Its tools: `plan/enter`, then `plan/write`, `plan/exit`, and `plan/mark` for each step that is done. From
    entering to leaving, only those and the *allowed* ones may be called. `context.context["plan"].status` is
    `{"phase", "goal", "text", "steps": [{"text", "done"}]}`.

    Args:
      allowed: names of the tools that may be called while planning: those that only look.
      approve: given the status when the model wants to begin, plain or async; a false value sends it back to
        its plan. None: nobody is asked.
      id: of the layer.
      scope: what the plan is kept for.
      budget: None: 100 to 3000 tokens.
    """
    plan = _Plan(id, ", ".join([f"{id}/*", *sorted(allowed)]), frozenset(allowed), approve)
    hooks = Hooks(
        init=lambda call: stored_state(call, _PLAN),
        recall=plan.recall,
        before_tool_call=plan.gate,
        on_spawn=lambda call: {"child_state": copy.deepcopy(call.state)},
        on_return=_take_marks,
        on_complete=_complete,
    )
    return ContextLayer(
        id=id,
        slot=PLAN_SLOT,
        scope=scope,
        budget=LayerBudget(min=100, max=3000) if budget is None else budget,
        hooks=hooks,
        deny_on_error=True,
        provides={
            "status": property(copy.deepcopy),
            "enter": plan.enter,
            "write": plan.write,
            "exit": plan.leave,
            "mark": plan.mark,
        },
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one plan layer does. The plan itself is the layer's state."""

    id: str
    usable: str
    """The tools that may be called while planning, for the model to read."""
    allowed: frozenset[str]
    approve: Callable[[Mapping[str, Any]], Any] | None

    # -- functions of the layer, so tools of the model

    def enter(self, state: Any, goal: str = "") -> NewState:
        """Begin to plan. Until the plan is left, only tools that look can be called.

        Args:
          goal: what the plan is for.
        """
        return NewState({**_empty(), "phase": PlanPhase.PLANNING.value, "goal": goal}, "planning")

    def write(self, state: Any, text: str, steps: list[str]) -> NewState | str:
        """Write the plan, in place of what there was.

        Args:
          text: what is to be done, and why so.
          steps: one line for each.
        """
        if state["phase"] != PlanPhase.PLANNING:
            return f"not written: call {self.id}/enter first"
        made = [{"text": step, "done": False} for step in steps]
        return NewState({**state, "text": text, "steps": made}, f"written, {len(made)} steps")

    async def leave(self, state: Any, action: Literal["execute", "cancel"]) -> NewState | str:
        """Leave planning: carry the plan out, or give it up.

        Args:
          action: which of both.
        """
        if state["phase"] != PlanPhase.PLANNING:
            return "there is no plan in the making"
        if action == "cancel":
            return NewState(_empty(), "given up")
        if not state["text"] and not state["steps"]:
            return f"the plan is empty: call {self.id}/write first"
        if self.approve is not None and not await call_function(self.approve, copy.deepcopy(state)):
            return f"not approved: change the plan, then call {self.id}/exit again"
        return NewState({**state, "phase": PlanPhase.EXECUTING.value}, "carry it out now")

    def mark(self, state: Any, step: int) -> NewState | str:
        """Mark a step of the plan as done.

        Args:
          step: its number, from 1.
        """
        if state["phase"] != PlanPhase.EXECUTING or not 1 <= step <= len(state["steps"]):
            return f"no plan that is carried out has a step {step}"
        steps = [{**one, "done": one["done"] or at == step} for at, one in enumerate(state["steps"], 1)]
        return NewState({**state, "steps": steps}, "marked")

    # -- hooks

    def gate(self, call: HookCall) -> Verdict:
        """Allow the layer's own tools and those that only look, while planning."""
        name = str((call.call or {}).get("name"))
        planning = call.state["phase"] == PlanPhase.PLANNING
        if not planning or name.startswith(f"{self.id}/") or name in self.allowed:
            return ALLOW
        return Verdict(Ruling.DENY, f"no other tools than {self.usable} while planning")

    def recall(self, call: HookCall) -> str | None:
        """Show the plan while it is made or carried out."""
        state = call.state
        match state["phase"]:
            case PlanPhase.PLANNING:
                rule = f"You are planning. You may call {self.usable}; {self.id}/exit begins the work."
            case PlanPhase.EXECUTING:
                rule = f"Carry this plan out. Call {self.id}/mark for each step that is done."
            case _:
                return None
        goal = [f"Goal: {state['goal']}"] if state["goal"] else []
        marks = [
            f"[{'x' if one['done'] else ' '}] {at}. {one['text']}" for at, one in enumerate(state["steps"], 1)
        ]
        text = _shortened(state["text"], [rule, *goal, *marks], call.budget)
        return "\n".join(["<plan>", rule, *goal, *text, *marks, "</plan>"])


def _shortened(text: str, others: Sequence[str], budget: float | None) -> list[str]:
    """Return the text of a plan as a line, cut where *others* leave no room: rules and steps matter more."""
    if budget is not None and budget != float("inf"):
        around = sum(len(line) + 1 for line in others) + len("<plan>\n\n</plan>")
        left = int(budget * 4) - around  # characters
        if len(text) > left:
            text = text[: left - 1] + "…" if left > 1 else ""
    return [text] if text else []


def _complete(call: HookCall) -> dict[str, Any] | None:
    """The end of the execution is the end of a plan that was carried out."""
    if call.context.depth or call.state["phase"] != PlanPhase.EXECUTING:
        return None
    phase = PlanPhase.COMPLETED if call.outcome == "success" else PlanPhase.FAILED
    return {STATE: {**call.state, "phase": phase.value}}


def _take_marks(call: HookCall) -> dict[str, Any] | None:
    """A child's marks come back, if it had the same plan."""
    steps, others = call.state["steps"], (call.child_state or {}).get("steps", [])
    if not steps or [one["text"] for one in steps] != [one["text"] for one in others]:
        return None
    done = [{**one, "done": one["done"] or other["done"]} for one, other in zip(steps, others, strict=True)]
    return {STATE: {**call.state, "steps": done}}


def _empty() -> dict[str, Any]:
    return copy.deepcopy(dict(_PLAN))
