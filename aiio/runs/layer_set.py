"""The layers of one context at work: their states, their hooks, and what comes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import trio

from aiio.context.log import get_logger

from .calling import call
from .errors import RunConfigError
from .items import Item, create_message, estimate_item_tokens
from .layers import (
    ALLOW,
    ContextLayer,
    HookCall,
    HookContext,
    LayerStorage,
    Ruling,
    Scope,
    Verdict,
    scope_key,
)

if TYPE_CHECKING:
    from .context import RunContext

_STATE = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOutput:
    """What a layer recalled."""

    layer: ContextLayer
    items: tuple[Item, ...]
    tokens: int
    wrote_state: bool
    """A recall that changes its layer is different each time."""


class LayerSet:
    """The layers of one context.

    Args:
      context: whose.
      layers: in the order given; two of one id are misuse.

    Raises:
      ValueError: two layers have one id.
    """

    def __init__(self, context: RunContext, layers: Iterable[ContextLayer] = ()) -> None:
        self._context = context
        self._given: dict[str, ContextLayer] = {}
        self.states: dict[str, Any] = {}
        self._active: set[str] = set()
        """Initialised, not disabled. A cleared state does not take a layer out."""
        self._dirty: set[str] = set()
        self.returning = trio.Lock()
        """Held while a child's result is taken: siblings that end together do so one by one."""
        for layer in layers:
            if layer.id in self._given:
                raise ValueError(f"there are two layers {layer.id!r}")
            self._given[layer.id] = layer

    @property
    def ordered(self) -> list[ContextLayer]:
        """The layers at work, by slot."""
        active = [layer for layer in self._given.values() if layer.id in self._active]
        return sorted(active, key=lambda layer: layer.slot)

    @property
    def provided(self) -> Mapping[str, Any]:
        """What layers provide, by id: functions, called with the layer's state before their arguments."""
        return MappingProxyType(
            {layer.id: Provided(self, layer) for layer in self._given.values() if layer.id in self._active}
        )

    # -- begin and end ----------------------------------------------------------------------------

    async def begin(self, restored: Mapping[str, Any] | None = None) -> None:
        """Initialise what is not yet, in the order given; *restored* states come from a checkpoint.

        Raises:
          Exception: what an `init` raises whose layer does not say that it may be left out.
        """
        for layer in self._given.values():
            if layer.id in self._active:
                continue
            storage = self._storage(layer)
            try:
                if restored is not None and layer.id in restored:
                    self.states[layer.id] = restored[layer.id]
                elif layer.hooks.init is None:
                    self.states[layer.id] = await storage.get(_STATE)
                else:
                    with trio.fail_after(layer.timeout("init")):
                        given = await call(layer.hooks.init, self._call(layer, storage=storage))
                    self.states[layer.id] = given.get(_STATE) if isinstance(given, Mapping) else None
            except Exception as exc:
                if not layer.disable_on_init_error:
                    raise
                self._log(layer, "init", exc)
                continue
            self._active.add(layer.id)

    async def end(self, outcome: str) -> None:
        """Complete in the order given, then dispose in reverse; shielded, each hook under its own limit."""
        if not self._given:
            return
        layers = [layer for layer in self._given.values() if layer.id in self._active]
        for layer in layers:
            with trio.CancelScope(shield=True):
                await self._hook(layer, "on_complete", outcome=outcome)
        for layer in reversed(layers):
            with trio.CancelScope(shield=True):
                await self._hook(layer, "dispose")
        with trio.move_on_after(5, shield=True):
            await self._flush()
        self._active.clear()  # another run of this context initialises them anew

    async def add(self, layers: Sequence[ContextLayer]) -> dict[str, ContextLayer]:
        """Add *layers*, in place of those with their ids; return what there was, for `put_back`."""
        before = dict(self._given)
        for layer in layers:
            self._given[layer.id] = layer
            self._active.discard(layer.id)
        await self.begin()
        return before

    def put_back(self, before: dict[str, ContextLayer]) -> None:
        """Undo `add`: layers that were replaced are at work again, with the state of their successors."""
        self._given = before
        self._active &= before.keys()

    # -- around the log and the model -------------------------------------------------------------

    async def appended(self, items: Sequence[Item]) -> list[Item]:
        """Return what is to join the log for *items* of a user or a tool; ends early when nothing is left."""
        left = list(items)
        for layer in self.ordered:
            if not left:
                break
            found = await self._hook(layer, "on_item_append", items=tuple(left))
            if isinstance(found, Mapping) and "items" in found:
                left = list(found["items"])
        return left

    async def recall(self, query: str, budgets: Mapping[str, float]) -> list[LayerOutput]:
        """Return what the layers have to say, by slot. A layer that fails says nothing this time."""
        outputs: list[LayerOutput] = []
        for layer in self.ordered:
            found = await self._hook(layer, "recall", query=query, budget=budgets.get(layer.id))
            items: Sequence[Item] = ()
            tokens: int | None = None
            if isinstance(found, str) and found:
                # The id says what it is: the same text is the same item, whenever it is recalled.
                items = [{**create_message(found, "developer"), "id": f"layer:{layer.id}"}]
            elif isinstance(found, Mapping):
                items, tokens = found.get("items") or (), found.get("token_count")
            if items:
                outputs.append(
                    LayerOutput(
                        layer=layer,
                        items=tuple(items),
                        tokens=estimate_item_tokens(items) if tokens is None else tokens,
                        wrote_state=isinstance(found, Mapping) and _STATE in found,
                    )
                )
        return outputs

    async def projected(self, items: Sequence[Item]) -> list[Item]:
        """Return what of the log is shown."""
        shown = list(items)
        for layer in self.ordered:
            found = await self._hook(layer, "project_history", items=tuple(shown))
            if isinstance(found, Mapping) and "items" in found:
                shown = list(found["items"])
        return shown

    async def judge(self, response: Sequence[Item]) -> Verdict:
        """Return what the layers say about an answer: the first denial, or all guidance, or allow."""
        guides: list[str] = []
        for layer in self.ordered:
            verdict = _verdict(await self._hook(layer, "after_model_call", response=tuple(response)))
            if verdict.ruling is Ruling.DENY:
                return verdict
            if verdict.ruling is Ruling.GUIDE:
                guides.append(verdict.reason)
        return Verdict(Ruling.GUIDE, "\n\n".join(guides)) if guides else ALLOW

    async def gate(self, wanted: Mapping[str, Any]) -> Verdict:
        """Return what the layers say about a call: the first that does not allow it."""
        for layer in self.ordered:
            if layer.hooks.before_tool_call is None:
                continue
            found = await self._hook(layer, "before_tool_call", call=wanted)
            if found is _FAILED and layer.deny_on_error:
                return Verdict(Ruling.DENY, f"the gate {layer.id!r} failed")
            verdict = _verdict(found)
            if verdict.ruling is not Ruling.ALLOW:
                return verdict
        return ALLOW

    async def store(self, new: Sequence[Item], response: Sequence[Item]) -> None:
        """Let all layers take note of an answer, at the same time; then their states are stored."""
        async with trio.open_nursery() as nursery:
            for layer in self.ordered:
                if layer.hooks.store is not None:
                    nursery.start_soon(self._store_one, layer, tuple(new), tuple(response))
        await self._flush()

    async def _store_one(
        self, layer: ContextLayer, new: tuple[Item, ...], response: tuple[Item, ...]
    ) -> None:
        await self._hook(layer, "store", items=new, response=response)

    async def delta(self, layer: ContextLayer, previous: Sequence[Item], items: Sequence[Item]) -> str | None:
        """Return the layer's own words for a change of what was shown; None: it has none."""
        if layer.hooks.render_delta is None or layer.id not in self._active:
            return None
        found = await self._hook(layer, "render_delta", previous=tuple(previous), items=tuple(items))
        return found if isinstance(found, str) and found else None

    # -- children ---------------------------------------------------------------------------------

    async def enter(self, parent: LayerSet, *, items: bool) -> None:
        """Become a child's: what each layer of *parent* gives its child is here, by slot.

        Args:
          parent: the layers of the parent.
          items: whether what layers give the child to begin with joins its log.
        """
        for layer in parent.ordered:
            found = await parent._hook(layer, "on_spawn")
            if not isinstance(found, Mapping):
                continue
            if items:
                for item in found.get("items") or ():
                    self._context.item_log.append(item)
            if layer.id not in self._given and found.get("child_state") is not None:
                self._given[layer.id] = layer
                self._active.add(layer.id)
                self.states[layer.id] = found["child_state"]
        await self.begin()

    async def returned(self, child: LayerSet, result: Any) -> Any:
        """Return what a child's result is for the parent; one child at a time."""
        async with self.returning:
            for layer in self.ordered:
                state = child.states.get(layer.id)
                found = await self._hook(layer, "on_return", child_state=state, result=result)
                if isinstance(found, Mapping) and "result" in found:
                    result = found["result"]
        return result

    # -- one hook ---------------------------------------------------------------------------------

    async def _hook(self, layer: ContextLayer, hook: str, **given: Any) -> Any:
        """Return what a hook returns, None without one, `_FAILED` when it raised or took too long.

        RunConfigError: it says that the run is set up wrongly.
        """
        fn = getattr(layer.hooks, hook)
        if fn is None:
            return None
        try:
            with trio.fail_after(layer.timeout(hook)):
                found = await call(fn, self._call(layer, **given))
        except RunConfigError:
            raise
        except Exception as exc:  # noqa: BLE001  # a layer's failure is its own
            self._log(layer, hook, exc)
            return _FAILED
        if isinstance(found, Mapping) and _STATE in found:
            self.states[layer.id] = found[_STATE]
            self._dirty.add(layer.id)
        return found

    def _call(self, layer: ContextLayer, **given: Any) -> HookCall:
        context = self._context
        seen = HookContext(
            execution_id=context._execution.id,
            thread_id=context.thread_id,
            resource_id=context.resource_id,
            depth=context.depth,
            step_number=context.step_count,
            tokens=context.tokens.copy(),
            cost=context.cost,
            fs=context.fs,
            layer_states=MappingProxyType(dict(self.states)),
        )
        return HookCall(context=seen, state=self.states.get(layer.id), log=context.item_log.items, **given)

    async def _flush(self) -> None:
        """Store the states that changed; a store that fails is logged."""
        dirty, self._dirty = self._dirty, set()
        for layer in [self._given[id] for id in sorted(dirty) if id in self._given]:
            if layer.scope is Scope.EXECUTION:
                continue
            storage, state = self._storage(layer), self.states.get(layer.id)
            try:
                if state is None:
                    await storage.delete(_STATE)
                else:
                    await storage.put(_STATE, state)
            except (OSError, TypeError, ValueError) as exc:
                self._log(layer, "storing", exc)

    def _storage(self, layer: ContextLayer) -> LayerStorage:
        prefix = f"layers/{layer.id}/{scope_key(layer, self._context)}/"
        kept = None if layer.scope is Scope.EXECUTION else self._context.harness.store
        return LayerStorage(kept, prefix)

    def _log(self, layer: ContextLayer, hook: str, exc: Exception) -> None:
        get_logger().warning("run.layer_failed", layer=layer.id, hook=hook, error=type(exc).__name__)


class Provided:
    """What one layer provides: `context.context["notes"].count(...)` calls its function with its state."""

    def __init__(self, layers: LayerSet, layer: ContextLayer) -> None:
        self._layers = layers
        self._layer = layer

    def __getattr__(self, name: str) -> Any:
        try:
            fn = self._layer.provides[name]
        except KeyError:
            raise AttributeError(f"layer {self._layer.id!r} provides no {name!r}") from None
        layers, layer = self._layers, self._layer
        return lambda *args: fn(layers.states.get(layer.id), *args)


class _Failed:
    """What a hook gives that raised."""


_FAILED = _Failed()


def _verdict(found: Any) -> Verdict:
    if isinstance(found, Mapping):
        found = found.get("verdict")
    return found if isinstance(found, Verdict) else ALLOW
