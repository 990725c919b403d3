"""The layers of one context at work: their states, their hooks, and what comes of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import trio

from .calling import call
from .errors import RunConfigError, RunError
from .items import Item
from .layer_states import STATE, LayerStates, log_failure
from .layer_tools import NewState, Provided, takes_context
from .layers import (
    ALLOW,
    ContextLayer,
    HookCall,
    HookContext,
    RerenderTiming,
    Ruling,
    Verdict,
)
from .recall import Delta, LayerOutput, Recalls, Rerender, copied

if TYPE_CHECKING:
    from .context import RunContext


class LayerSet:
    """The layers of one context.

    Args:
      context: whose.
      layers: in the order given; two of one id are misuse.

    Raises:
      ValueError: two layers have one id.
    """

    __slots__ = (  # there may be many
        *("_active", "_given", "_returning", "_states", "_wishes"),
        *("context", "previews", "states"),
    )

    def __init__(self, context: RunContext, layers: Iterable[ContextLayer] = ()) -> None:
        self.context = context
        self._given: dict[str, ContextLayer] = {}
        self._states = LayerStates(context)
        self.states: dict[str, Any] = self._states.values
        """By layer id."""
        self._active: set[str] = set()
        """Initialised, not disabled. A cleared state does not take a layer out."""
        self._wishes: list[Rerender] = []
        self.previews = False
        """Whether this is a copy that nothing of the run may change by."""
        self._returning: trio.Lock | None = None
        """Held while a child's result is taken: siblings that end together do so one by one."""
        for layer in layers:
            if layer.id in self._given:
                raise ValueError(f"there are two layers {layer.id!r}")
            self._given[layer.id] = layer

    def copy(self) -> LayerSet:
        """Return layers with copies of the states, for a preview: what they write stays theirs."""
        other = LayerSet(self.context, self._given.values())
        other._active = set(self._active)
        other.states.update((id, copied(state)) for id, state in self.states.items())
        other._states.mirrored = False
        other.previews = True
        return other

    @property
    def recalls(self) -> Recalls:
        """What eventual layers recalled last."""
        return self.context.harness.recalls

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
            storage = self._states.storage(layer)
            try:
                if restored is not None and layer.id in restored:
                    self.states[layer.id] = restored[layer.id]
                elif layer.hooks.init is None:
                    self.states[layer.id] = await storage.get(STATE)
                else:
                    with trio.fail_after(layer.timeout("init")):
                        given = await call(layer.hooks.init, self._call(layer, storage=storage))
                    self.states[layer.id] = given.get(STATE) if isinstance(given, Mapping) else None
            except Exception as exc:
                if not layer.disable_on_init_error:
                    raise
                log_failure(layer, "init", exc)
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
            await self._states.flush()
        self._active.clear()  # another run of this context initialises them anew

    async def add(self, layers: Sequence[ContextLayer]) -> dict[str, ContextLayer]:
        """Add *layers*, in place of those with their ids; return what there was, for `put_back`."""
        before = dict(self._given)
        log = self.context.item_log
        for layer in layers:
            self._given[layer.id] = layer
            log.schemas = log.schemas.extended(layer.item_schemas)
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
            if isinstance(found, Mapping):
                self.wish(layer, found)
                if "items" in found and self.are_items(layer, found["items"]):
                    known = {item["id"] for item in left}
                    left = [item if item["id"] in known else owned(layer, item) for item in found["items"]]
        return left

    def are_items(self, layer: ContextLayer, items: Sequence[Any]) -> bool:
        """Tell whether what a hook returned are items; it is logged when not."""
        try:
            for item in items:
                self.context.item_log.schemas.check_shape(item)
        except (RunError, TypeError) as exc:
            log_failure(layer, "items", exc)
            return False
        return True

    def wish(self, layer: ContextLayer, found: Mapping[str, Any]) -> None:
        """Take note if a hook's result asks for layers to be recalled again."""
        if found.get("rerender"):
            try:
                self._wishes.append(Rerender.of(layer, found))
            except ValueError as exc:
                log_failure(layer, "rerender", exc)

    def take_wishes(self, due: Callable[[Rerender], bool]) -> list[Rerender]:
        """Return the wishes that are *due*; they are forgotten here."""
        taken = [wish for wish in self._wishes if due(wish)]
        self._wishes = [wish for wish in self._wishes if not due(wish)]
        return taken

    def is_wished(self, layer: ContextLayer) -> bool:
        """Tell whether *layer* is to be recalled again."""
        return any(wish.means(layer) for wish in self._wishes)

    @property
    def wants_new_view(self) -> bool:
        """Whether a layer wants layers recalled again before the next request."""
        return any(wish.timing is RerenderTiming.IMMEDIATE for wish in self._wishes)

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
        await self._states.flush()

    async def _store_one(
        self, layer: ContextLayer, new: tuple[Item, ...], response: tuple[Item, ...]
    ) -> None:
        found = await self._hook(layer, "store", items=new, response=response)
        if isinstance(found, Mapping) and STATE in found:
            self.recalls.outdate(self, layer)

    def delta(self, budgets: Mapping[str, float]) -> Delta:
        """Return what asks a layer for its own words about a change of what was shown; None: it has none."""

        async def ask(pinned: LayerOutput, now: LayerOutput) -> str | None:
            layer = now.layer
            if layer.hooks.render_delta is None or layer.id not in self._active:
                return None
            found = await self._hook(
                layer,
                "render_delta",
                previous=pinned.items,
                previous_state=pinned.state,
                items=now.items,
                budget=budgets.get(layer.id),
            )
            return found if isinstance(found, str) and found else None

        return ask

    # -- children ---------------------------------------------------------------------------------

    async def enter(self, parent: LayerSet, *, items: bool) -> None:
        """Become a child's: what each layer of *parent* gives its child is here, by slot.

        Args:
          parent: the layers of the parent.
          items: whether what layers give the child to begin with joins its log.
        """
        for layer in parent.ordered:
            found = await parent._hook(layer, "on_spawn", child_id=self.context.id)
            if not isinstance(found, Mapping):
                continue
            if items:
                for item in found.get("items") or ():
                    self.context.item_log.append(owned(layer, item))
            if layer.id not in self._given and found.get("child_state") is not None:
                self._given[layer.id] = layer
                self._active.add(layer.id)
                self.states[layer.id] = found["child_state"]
        await self.begin()

    async def returned(self, child: LayerSet, result: Any) -> Any:
        """Return what a child's result is for the parent; one child at a time."""
        if not self._given:
            return result
        if self._returning is None:
            self._returning = trio.Lock()
        async with self._returning:
            for layer in self.ordered:
                state = child.states.get(layer.id)
                found = await self._hook(
                    layer, "on_return", child_id=child.context.id, child_state=state, result=result
                )
                if isinstance(found, Mapping) and "result" in found:
                    result = found["result"]
            await self._states.flush()
        return result

    # -- one hook ---------------------------------------------------------------------------------

    async def run_hook(self, layer: ContextLayer, hook: str, **given: Any) -> tuple[Any, bool]:
        """Return what a hook returns, None without one, and whether it worked. RunConfigError: as `_hook`."""
        found = await self._hook(layer, hook, **given)
        return (None, False) if found is _FAILED else (found, True)

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
            log_failure(layer, hook, exc)
            return _FAILED
        if isinstance(found, Mapping) and STATE in found:
            self._write(layer, found[STATE])
        return found

    def use(self, layer: ContextLayer, fn: Callable[..., Any], /, *args: Any, **arguments: Any) -> Any:
        """Call a function that *layer* provides, with its state; an async one gives something to await."""
        if takes_context(fn):
            arguments["context"] = self._seen()
        found = fn(self.states.get(layer.id), *args, **arguments)
        return self._used_later(layer, found) if inspect.isawaitable(found) else self._used(layer, found)

    async def _used_later(self, layer: ContextLayer, found: Any) -> Any:
        return self._used(layer, await found)

    def _used(self, layer: ContextLayer, found: Any) -> Any:
        if not isinstance(found, NewState):
            return found
        self._write(layer, found.state)
        return found.result

    def _call(self, layer: ContextLayer, **given: Any) -> HookCall:
        state, log = self.states.get(layer.id), self.context.item_log.items
        return HookCall(context=self._seen(), state=state, log=log, **given)

    def _seen(self) -> HookContext:
        """Return what hooks and provided functions may know, as it is now."""
        # Here, not above: a model call needs a context, and a context its layers.
        from .layer_model import ask

        context = self.context
        return HookContext(
            execution_id=context._execution.id,
            thread_id=context.thread_id,
            resource_id=context.resource_id,
            depth=context.depth,
            step_number=context.step_count,
            tokens=context.tokens.copy(),
            cost=context.cost,
            fs=context.fs,
            layer_states=MappingProxyType(dict(self.states)),
            trace=context.span,
            call_model=partial(ask, context),
        )

    def _write(self, layer: ContextLayer, state: Any) -> None:
        if layer.id in self._active:
            self._states.write(layer, state)


def owned(layer: ContextLayer, item: Item) -> Item:
    """Return *item* with the mark of the layer that it is of: its tokens are not the history's."""
    return {**item, "origin": {**item.get("origin", {}), "layer": layer.id}}


class _Failed:
    """What a hook gives that raised."""


_FAILED = _Failed()


def _verdict(found: Any) -> Verdict:
    if isinstance(found, Mapping):
        found = found.get("verdict")
    return found if isinstance(found, Verdict) else ALLOW
