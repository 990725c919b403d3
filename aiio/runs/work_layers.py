"""Layers for work that goes on for long: the state of a task, observations, and what tools remember."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from aiio.context.text import compact_json

from .calling import call as call_function
from .items import item_text
from .layer_states import STATE
from .layer_tools import NewState
from .layers import ContextLayer, HookCall, Hooks, LayerBudget, Scope, Slot

F = TypeVar("F", bound=Callable[..., Any])

TASK_SLOT = 110
CHECKPOINTS = 50
"""Newest checkpoints that a task keeps."""

OBSERVER = (
    "Note what is worth remembering of this conversation: facts, wishes, decisions. One per line, without "
    "bullets; nothing else. No line if there is nothing."
)
"""Instructions for the model that makes observations."""


def within(lines: Sequence[str], budget: float | None) -> list[str]:
    """Return the newest of *lines* (the last ones) that *budget* tokens hold, in their order."""
    left = float("inf") if budget is None else budget * 4  # characters
    start = len(lines)
    while start and len(lines[start - 1]) + 1 <= left:
        start -= 1
        left -= len(lines[start]) + 1
    return list(lines[start:])


def _tagged(tag: str, lines: Sequence[str], budget: float | None) -> str | None:
    """Return the newest of *lines* that *budget* holds, between tags; None when there are none."""
    shown = within(lines, budget)
    return "\n".join([f"<{tag}>", *shown, f"</{tag}>"]) if shown else None


async def stored_state(call: HookCall, empty: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `init` gives: the stored state as far as it has the keys of *empty*, else those."""
    stored = None if call.storage is None else await call.storage.get(STATE)
    known = stored if isinstance(stored, Mapping) else {}
    return {STATE: {key: known.get(key, copy.deepcopy(value)) for key, value in empty.items()}}


def _joined(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    """Return *one*, and what *other* has besides, each entry once."""
    joined = list(one)
    for entry in other:
        if entry not in joined:
            joined.append(entry)
    return joined


# -- a task -----------------------------------------------------------------------------------------

_TASK: Mapping[str, Any] = {"files": [], "data": {}, "checkpoints": [], "outcome": None}


def task_state_layer(
    *,
    id: str = "task-state",
    scope: Scope = Scope.THREAD,
    budget: float | LayerBudget | None = None,
    namespaced: bool = False,
    now: Callable[[], float] = time.time,
) -> ContextLayer:
    """Return a layer that keeps what a task has produced: files, data, and when it came how far.

    The model adds by its tools `task-state/record_artifact` and `task-state/set_task_data`, code by
    `context.context["task-state"]`, which also has `files`, `data`, `outcome` (of the last execution) and
    `checkpoints`: `{"at", "depth"}`, wall-clock seconds, one for each step that asked a model. Files and data
    are shown. A child has a copy; what it adds comes back when it succeeds.

    Args:
      id: of the layer.
      scope: what it is kept for.
      budget: None: 100 to 800 tokens.
      namespaced: whether the data of a child come back under its id, in place of among the others.
      now: wall-clock seconds.
    """

    hooks = Hooks(
        init=lambda call: stored_state(call, _TASK),
        recall=_show_task,
        store=lambda call: {STATE: _checkpointed(call, now())},
        on_spawn=_give_task,
        on_return=lambda call: _take_task(call, namespaced=namespaced),
        on_complete=lambda call: {STATE: {**_checkpointed(call, now()), "outcome": call.outcome}},
    )
    readable = {key: property(_reader(key)) for key in _TASK}
    return ContextLayer(
        id=id,
        slot=TASK_SLOT,
        scope=scope,
        budget=LayerBudget(min=100, max=800) if budget is None else budget,
        hooks=hooks,
        provides={**readable, "record_artifact": _record_artifact, "set_task_data": _set_task_data},
    )


def _reader(key: str) -> Callable[[Any], Any]:
    return lambda state: copy.deepcopy(state[key])


def _show_task(call: HookCall) -> str | None:
    lines = [f"{key}: {compact_json(value)}" for key, value in call.state["data"].items()]
    lines += [f"file: {path}" for path in call.state["files"]]
    return _tagged("task_state", lines, call.budget)


def _checkpointed(call: HookCall, at: float) -> dict[str, Any]:
    point = {"at": at, "depth": call.context.depth}
    return {**call.state, "checkpoints": [*call.state["checkpoints"], point][-CHECKPOINTS:]}


def _give_task(call: HookCall) -> dict[str, Any]:
    state = copy.deepcopy({key: call.state[key] for key in _TASK})
    return {"child_state": {**state, "given": copy.deepcopy(state["data"])}}


def _take_task(call: HookCall, *, namespaced: bool) -> dict[str, Any] | None:
    """Add what a child added; what it only was given is not laid over what siblings wrote meanwhile."""
    child, state = call.child_state, call.state
    if child is None:
        return None
    given, data = child.get("given", {}), child["data"]
    added = {key: value for key, value in data.items() if key not in given or given[key] != value}
    merged = {
        "files": _joined(state["files"], child["files"]),
        "data": {**state["data"], **({call.child_id: added} if namespaced else added)},
        "checkpoints": _joined(state["checkpoints"], child["checkpoints"])[-CHECKPOINTS:],
    }
    return {STATE: {**state, **merged}}


def _record_artifact(state: Any, path: str) -> NewState:
    """Record a file that this task produced.

    Args:
      path: of the file.
    """
    return NewState({**state, "files": _joined(state["files"], [path])}, "recorded")


def _set_task_data(state: Any, key: str, value: Any) -> NewState:
    """Keep a value of this task under a key.

    Args:
      key: a name for it.
      value: any JSON.
    """
    return NewState({**state, "data": {**state["data"], key: value}}, "kept")


# -- observations -----------------------------------------------------------------------------------

Observer = Callable[[Sequence[str]], Any]
"""(texts) -> observations, a list of texts; plain or async."""

_OBSERVED: Mapping[str, Any] = {"observations": [], "buffer": [], "version": 0}


def observations_layer(
    observe: Observer | None = None,
    *,
    id: str = "observations",
    scope: Scope = Scope.RESOURCE,
    budget: float | LayerBudget | None = None,
    threshold: int = 2000,
    max_observations: int = 50,
    model: str | None = None,
) -> ContextLayer:
    """Return a layer that distils a conversation into observations, and shows those.

    What is said gathers in a buffer; when an answer has made it *threshold* tokens, it is distilled. When
    that fails the buffer stays, up to four times the threshold. The list is
    `context.context["observations"].observations`.

    Args:
      observe: distils; None: a model is asked, which is a paid call of the run.
      id: of the layer.
      scope: what they are kept for.
      budget: None: 500 to 2500 tokens.
      threshold: estimated tokens.
      max_observations: that are kept, the newest.
      model: a selector for the model that is asked; None: the harness's.
    """

    layer = _Observations(observe, threshold, max_observations, model)
    hooks = Hooks(
        init=lambda call: stored_state(call, _OBSERVED),
        on_item_append=lambda call: {STATE: layer.gathered(call, call.items)},
        recall=lambda call: _tagged(
            "observations", [f"- {line}" for line in call.state["observations"]], call.budget
        ),
        store=layer.store,
        on_spawn=lambda call: {"child_state": {**copy.deepcopy(call.state), "buffer": []}},
        on_return=layer.take,
    )
    return ContextLayer(
        id=id,
        slot=Slot.OBSERVATIONS,
        scope=scope,
        budget=LayerBudget(min=500, max=2500) if budget is None else budget,
        hooks=hooks,
        timeouts={"store": "60s"},
        provides={"observations": property(lambda state: list(state["observations"]))},
    )


@dataclass(frozen=True, slots=True)
class _Observations:
    """What one observations layer does."""

    observe: Observer | None
    threshold: int
    most: int
    model: str | None

    def gathered(self, call: HookCall, items: Iterable[Any]) -> dict[str, Any]:
        """Return the state with what *items* say in the buffer."""
        texts = [item_text(item) or str(item.get("output") or "") for item in items]
        return {
            **call.state,
            "buffer": within([*call.state["buffer"], *filter(None, texts)], 4 * self.threshold),
        }

    async def store(self, call: HookCall) -> dict[str, Any]:
        """Gather the answer, and distil if there is enough."""
        answers = (item for item in call.response if item["type"] == "message")
        state = self.gathered(call, answers)  # results of tools were gathered when they joined the log
        if sum(map(call.context.tokenize, state["buffer"])) < self.threshold:
            return {STATE: state}
        found = await self._distilled(call, tuple(state["buffer"]))
        return {STATE: {**self._with(state, found), "buffer": [], "version": state["version"] + 1}}

    def take(self, call: HookCall) -> dict[str, Any] | None:
        """Add what a child observed."""
        if call.child_state is None:
            return None
        return {STATE: self._with(call.state, call.child_state["observations"])}

    def _with(self, state: Mapping[str, Any], found: Sequence[str]) -> dict[str, Any]:
        return {**state, "observations": _joined(state["observations"], found)[-self.most :]}

    async def _distilled(self, call: HookCall, texts: Sequence[str]) -> list[str]:
        if self.observe is not None:
            return [str(line) for line in await call_function(self.observe, texts)]
        said = await call.context.call_model("\n\n".join(texts), instructions=OBSERVER, model=self.model)
        return [line.strip() for line in said.splitlines() if line.strip()]


# -- what tools remember ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolState:
    """What a tool keeps during a run, and shows to the model. Tools that share an id share the state."""

    id: str
    init: Callable[[], Any]
    """Makes the first state."""
    recall: Callable[[Any], str | None]
    """Returns what the model sees of the state; None: nothing."""


def with_tool_state(state: ToolState) -> Callable[[F], F]:
    """Return a decorator that says that a tool keeps *state*; see `tool_calls_layers`."""

    def declare(fn: F) -> F:
        fn.tool_state = state  # type: ignore[attr-defined]  # functions take attributes
        return fn

    return declare


def tool_calls_layers(tools: Iterable[Any], *, slot: float = Slot.SCRATCHPAD) -> list[ContextLayer]:
    """Return the layers for the states that *tools* keep, one for each id.

    A tool (a function with a parameter `context`, the run's) reads its state by `context.context[id].state`
    and writes it by `context.context[id].set(state)`. A child has a copy, and its last state comes back.

    ValueError: two different states have one id.
    """
    states: dict[str, ToolState] = {}
    for tool in tools:
        state = getattr(tool, "tool_state", None)
        if isinstance(state, ToolState) and states.setdefault(state.id, state) != state:
            raise ValueError(f"tools keep two different states {state.id!r}")
    return [_tool_layer(state, slot) for state in states.values()]


def _tool_layer(state: ToolState, slot: float) -> ContextLayer:
    def set_state(old: Any, state: Any) -> NewState:
        return NewState(state)

    set_state.aiio_tool = {"secret": True}  # type: ignore[attr-defined]  # it is for tools, not for models
    hooks = Hooks(
        init=lambda call: {STATE: state.init()},
        recall=lambda call: state.recall(call.state),
        on_spawn=lambda call: {"child_state": copy.deepcopy(call.state)},
        on_return=lambda call: None if call.child_state is None else {STATE: call.child_state},
    )
    return ContextLayer(
        id=state.id,
        slot=slot,
        scope=Scope.EXECUTION,
        hooks=hooks,
        provides={"state": property(lambda state: state), "set": set_state},
    )
