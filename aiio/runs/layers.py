"""Context layers: what keeps a run's knowledge, and puts it before its model.

A layer is an id, a slot and hooks. A hook is a function of one `HookCall`, plain or async; what it does not
return is not changed. One that fails or takes too long is cancelled and logged, and its layer is passed over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

from aiio.context.text import compact_json, parse_json
from aiio.env.durations import Duration, parse_duration

from .item_schemas import ItemCategory, ItemSchema
from .items import Item
from .layer_tools import check_provided
from .totals import TokenTotals

if TYPE_CHECKING:
    from .context import RunContext
    from .fs import FsAdapter
    from .spans import Span
    from .stores import CheckpointStore

Hook: TypeAlias = "Callable[[HookCall], Any]"


class Slot:
    """Where layers usually stand; lower comes first."""

    REMINDER = 80
    STEERING = 90
    SCRATCHPAD = 100
    ENTITY = 150
    OBSERVATIONS = 200
    PROCEDURAL = 250
    EPISODIC = 300
    RAG = 350
    SEMANTIC = 400


class Scope(StrEnum):
    """What a layer's stored state belongs to."""

    THREAD = "thread"
    RESOURCE = "resource"
    GLOBAL = "global"
    EXECUTION = "execution"
    """To one execution; it is not stored but in its checkpoints."""


class Placement(StrEnum):
    """Where a layer's output is rendered."""

    ANCHOR = "anchor"
    """Before the history, in the prefix that providers cache."""
    LIVE = "live"
    """After the history."""
    AUTO = "auto"
    """By how often it changes."""


class RecallMode(StrEnum):
    """Whether a model call waits for what a layer recalls."""

    ATOMIC = "atomic"
    """It does: each view has the newest."""
    EVENTUAL = "eventual"
    """It does not: a view has what was recalled last, and a recall that is due runs beside the model call,
    for the next view. One is due at first, and when the layer's `store` has written its state."""


class RerenderScope(StrEnum):
    """Which layers are recalled again when a layer asks for it."""

    SELF = "self"
    SLOT_AFTER = "slot_after"
    """The layer, and those with higher slots."""
    ALL = "all"


class RerenderTiming(StrEnum):
    """When layers are recalled again."""

    IMMEDIATE = "immediate"
    """Before the next request, also in the middle of a step."""
    BATCHED = "batched"
    """With the next view, so with the next step that asks a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBudget:
    """Tokens a layer may use."""

    min: float = 0
    """Tokens it gets before anything is shared."""
    max: float | None = None
    """Tokens at most; None: no limit of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What a layer does, and when. Each may be missing.

    A mapping with `state` writes the layer's state; None in it clears the state.
    """

    init: Hook | None = None
    """The run begins: `{state}`."""
    on_item_append: Hook | None = None
    """Items of a user or tool are about to join the log: `{items, state?, rerender?, timing?, scope?}`. A
    true `rerender` has layers recalled again (`RerenderScope`, by default `slot_after`)."""
    recall: Hook | None = None
    """A model is about to be asked: `{items, token_count?, state?, rerender?, scope?}`, a text, or None."""
    project_history: Hook | None = None
    """The log is about to be shown: `{items}`; the log itself is not changed."""
    after_model_call: Hook | None = None
    """An answer came: a `Verdict`, or `{verdict, state?}`."""
    before_tool_call: Hook | None = None
    """A call is about to be made: a `Verdict`, or `{verdict, state?}`."""
    store: Hook | None = None
    """The answer was taken: `{state}`. Layers do this at the same time."""
    on_spawn: Hook | None = None
    """A child begins: `{child_state, items?}`; None: the layer is not in the child."""
    on_return: Hook | None = None
    """A child succeeded: `{state?, result?}`."""
    on_complete: Hook | None = None
    """The context ended; `outcome` says how."""
    dispose: Hook | None = None
    """Last of all."""
    render_delta: Hook | None = None
    """What was shown is stale: a text that says what changed, or None."""


HOOK_TIMEOUTS: Mapping[str, float] = {
    "init": 10,
    "on_item_append": 5,
    "recall": 5,
    "project_history": 5,
    "after_model_call": 10,
    "before_tool_call": 5,
    "store": 30,
    "on_spawn": 10,
    "on_return": 10,
    "on_complete": 30,
    "dispose": 5,
    "render_delta": 5,
}
"""Seconds. `render_delta` has what the layer's `recall` has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextLayer:
    """One layer.

    Raises:
      TypeError: it provides something that is neither a property nor a function whose arguments can be
        described.
      ValueError: a hook's timeout that makes no sense, or is for no hook.
    """

    id: str
    slot: float = Slot.SCRATCHPAD
    """Layers act in ascending order; ties in the order they were given."""
    scope: Scope = Scope.THREAD
    budget: float | LayerBudget | None = None
    """A number is a maximum; None: no limit of its own."""
    hooks: Hooks = field(default_factory=Hooks)
    timeouts: Mapping[str, Duration] = field(default_factory=dict)
    """By hook, in place of `HOOK_TIMEOUTS`."""
    disable_on_init_error: bool = False
    """Whether a failed `init` leaves the layer out, instead of failing the run."""
    deny_on_error: bool = False
    """Whether a failed `before_tool_call` denies the call: the layer is a gate."""
    placement: Placement = Placement.AUTO
    recall_mode: RecallMode = RecallMode.ATOMIC
    rerender_timing: RerenderTiming = RerenderTiming.IMMEDIATE
    """Of requests to recall again that do not say when."""
    item_schemas: Mapping[ItemCategory, Sequence[ItemSchema]] = field(default_factory=dict)
    """What logs with this layer take besides; see `ItemSchemaRegistry`."""
    provides: Mapping[str, Any] = field(default_factory=dict)
    """Names for `context.context[id]`. A `property` of the layer's state is read: `provides={"size":
    property(len)}`. A function, plain or async, is called with the state before its arguments, and with a
    `HookContext` if it has a parameter `context`; returning a `NewState` writes the state. It is also a tool
    of the model, `<layer id>/<name>`, described by its signature and docstring."""

    def __post_init__(self) -> None:
        for hook, duration in self.timeouts.items():
            if hook not in HOOK_TIMEOUTS:
                raise ValueError(f"layer {self.id!r}: no hook {hook!r}")
            parse_duration(duration)
        for name, given in self.provides.items():
            check_provided(self.id, name, given)

    @property
    def limits(self) -> LayerBudget:
        """The budget in its long form."""
        return self.budget if isinstance(self.budget, LayerBudget) else LayerBudget(max=self.budget)

    def timeout(self, hook: str) -> float:
        """Return the seconds that *hook* may take."""
        own = parse_duration(self.timeouts.get(hook))
        if own is None and hook == "render_delta":
            return self.timeout("recall")
        return HOOK_TIMEOUTS[hook] if own is None else own


class Ruling(StrEnum):
    """What a layer says about an answer or a call."""

    ALLOW = "allow"
    DENY = "deny"
    GUIDE = "guide"
    """Ask again, with the reason before the model's eyes. Of a call: the reason is its result."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A ruling and its reason."""

    ruling: Ruling
    reason: str = ""


ALLOW = Verdict(Ruling.ALLOW)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookContext:
    """What a hook may know of its run, as it was when the hook began."""

    execution_id: str
    thread_id: str
    resource_id: str | None
    depth: int
    """How many contexts are above; 0: it is the root."""
    step_number: int
    """Steps that the context has begun."""
    tokens: TokenTotals
    cost: float
    """USD of the context and those below it."""
    fs: FsAdapter
    layer_states: Mapping[str, Any]
    """Of all layers of the context, by id; to be read only."""
    trace: Span
    """For `set_attribute` and `add_event`."""
    call_model: Callable[..., Awaitable[str]]
    """`await call_model(text, *, instructions="", model=None)` asks a model and returns its text; see
    `layer_model.ask`. A hook that does so wants a longer timeout."""

    def tokenize(self, text: str) -> int:
        """Return an estimate of the tokens of *text*: its characters / 4, rounded up."""
        return -(-len(text) // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """What a hook is given. What is not for it is None."""

    context: HookContext
    state: Any = None
    storage: LayerStorage | None = None
    items: tuple[Item, ...] = ()
    """Of `on_item_append`, `project_history`; of `store`: the new ones."""
    log: tuple[Item, ...] = ()
    query: str = ""
    """Of `recall`: what the user said last."""
    budget: float | None = None
    """Of `recall` and `render_delta`: tokens."""
    response: Any = None
    """Of `after_model_call` and `store`: the items of the answer."""
    call: Mapping[str, Any] | None = None
    """Of `before_tool_call`: the tool call block."""
    child_id: str = ""
    """Of `on_spawn` and `on_return`."""
    child_state: Any = None
    """Of `on_return`."""
    result: Any = None
    """Of `on_return`: what the child returned."""
    outcome: str = ""
    """Of `on_complete`: `success`, `failure` or `aborted`."""
    previous: tuple[Item, ...] = ()
    """Of `render_delta`: what was shown; `items` is what would be now."""
    previous_state: Any = None
    """Of `render_delta`: the layer's when that was shown; None where it can't be copied."""


class LayerStorage:
    """Values that a layer keeps between executions, as JSON. Without a store it forgets.

    Cancellation: as for the store's own methods, an operation may have been done.

    Args:
      store: the harness's.
      prefix: what its keys begin with: `layers/<layer id>/<scope key>/`.
    """

    def __init__(self, store: CheckpointStore | None, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    async def get(self, key: str) -> Any:
        """Return the value of *key*, None when there is none. OSError: it can't be read."""
        raw = None if self._store is None else await self._store.get(self._prefix + key)
        return None if raw is None else parse_json(raw.decode())

    async def put(self, key: str, value: Any) -> None:
        """Store a value. OSError: it can't be. TypeError, ValueError: it is no JSON."""
        encoded = compact_json(value).encode(errors="replace")
        if self._store is not None:
            await self._store.put(self._prefix + key, encoded)

    async def delete(self, key: str) -> None:
        """Remove a value, if it is there. OSError: it can't be."""
        if self._store is not None:
            await self._store.delete([self._prefix + key])


def scope_key(layer: ContextLayer, context: RunContext) -> str:
    """Return what the stored state of *layer* belongs to, in *context*."""
    match layer.scope:
        case Scope.THREAD:
            return context.thread_id
        case Scope.RESOURCE:
            return context.resource_id or context.thread_id
        case Scope.GLOBAL:
            return "__global__"
        case Scope.EXECUTION:
            return context._execution.id
        case never:
            assert_never(never)
