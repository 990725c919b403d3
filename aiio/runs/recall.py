"""What the layers of a context have to say before a model is asked: recalled now, kept, or recalled again."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from .items import Item, create_message, estimate_item_tokens
from .layers import ContextLayer, RecallMode, RerenderScope, RerenderTiming, scope_key

if TYPE_CHECKING:
    from .layer_set import LayerSet

RERENDER_DEPTH = 3
"""Times that layers are recalled again for one view, when recalling has layers ask for it once more."""

KEPT = 1024
"""Recalls that one harness keeps for eventual layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOutput:
    """What a layer recalled."""

    layer: ContextLayer
    items: tuple[Item, ...]
    tokens: int
    wrote_state: bool
    """A recall that changes its layer is different each time."""
    state: Any = None
    """A copy of the layer's state, for a `render_delta` to compare with."""


Delta: TypeAlias = Callable[[LayerOutput, LayerOutput], Awaitable[str | None]]
"""(what was shown, what would be now) -> the layer's own words for the change; None: it has none."""


@dataclass(slots=True)
class Recalled:
    """What an eventual layer recalled last."""

    layer: ContextLayer
    output: LayerOutput | None = None
    fresh: bool = False
    running: bool = False
    """Whether a recall is under way."""
    version: int = 0
    """Of the layer's state; a recall of an older one is not fresh when it ends."""

    def take(self, output: LayerOutput | None, version: int) -> None:
        """Keep what a recall that began at *version* found."""
        self.output, self.fresh = output, version == self.version


class Recalls:
    """What eventual layers of one harness recalled last, by scope key and layer; bounded.

    Args:
      forced: whether every layer is recalled for every view, whatever its mode.
    """

    def __init__(self, *, forced: bool = False) -> None:
        self.forced = forced
        self._kept: OrderedDict[tuple[str, str], Recalled] = OrderedDict()

    def of(self, layers: LayerSet, layer: ContextLayer) -> Recalled:
        """Return what is kept of *layer*: nothing yet, if it is another one than before."""
        key = (scope_key(layer, layers.context), layer.id)
        found = self._kept.pop(key, None)
        if found is None or found.layer is not layer:
            found = Recalled(layer)
        self._kept[key] = found
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return found

    def outdate(self, layers: LayerSet, layer: ContextLayer) -> None:
        """Note that `store` wrote the state of *layer*: the next view has it recalled."""
        if layer.recall_mode is RecallMode.EVENTUAL:
            kept = self.of(layers, layer)
            kept.version += 1
            kept.fresh = False


@dataclass(frozen=True, slots=True)
class Rerender:
    """A layer's wish that layers are recalled again."""

    layer: ContextLayer
    scope: RerenderScope
    timing: RerenderTiming

    @classmethod
    def of(cls, layer: ContextLayer, found: Mapping[str, Any]) -> Rerender:
        """Return what a hook's result asks for. ValueError: an unknown scope or timing."""
        scope, timing = found.get("scope"), found.get("timing")
        return cls(
            layer,
            RerenderScope.SLOT_AFTER if scope is None else RerenderScope(scope),
            layer.rerender_timing if timing is None else RerenderTiming(timing),
        )

    def means(self, layer: ContextLayer) -> bool:
        """Tell whether *layer* is to be recalled again."""
        if self.scope is RerenderScope.ALL or layer.id == self.layer.id:
            return True
        return self.scope is RerenderScope.SLOT_AFTER and layer.slot > self.layer.slot


async def recall(layers: LayerSet, query: str, budgets: Mapping[str, float]) -> list[LayerOutput]:
    """Return what the layers have to say, by slot. A layer that fails says nothing this time.

    Args:
      layers: of the context whose model is about to be asked.
      query: what the user said last.
      budgets: tokens by layer id.
    """
    outputs: list[LayerOutput] = []
    for layer in layers.ordered:
        if layer.recall_mode is RecallMode.EVENTUAL and not layers.recalls.forced:
            output = await _kept(layers, layer, query, budgets.get(layer.id))
        else:
            output, _ = await _ask(layers, layer, query, budgets.get(layer.id))
        if output is not None:
            outputs.append(output)
    return outputs


async def recall_again(
    layers: LayerSet,
    outputs: Sequence[LayerOutput],
    query: str,
    budgets: Mapping[str, float],
    due: Callable[[Rerender], bool] = lambda wish: True,
) -> list[LayerOutput]:
    """Return *outputs* with those laid over them that layers asked for, by slot.

    Args:
      layers: as for `recall`.
      outputs: what was recalled before.
      query: what the user said last.
      budgets: tokens by layer id.
      due: says which wishes are granted now; others stay.

    A layer that fails keeps what it said before.
    """
    said: dict[str, LayerOutput | None] = {output.layer.id: output for output in outputs}
    for _ in range(RERENDER_DEPTH):
        wishes = layers.take_wishes(due)
        if not wishes:
            break
        for layer in layers.ordered:
            if any(wish.means(layer) for wish in wishes):
                output, worked = await _ask_and_keep(layers, layer, query, budgets.get(layer.id))
                if worked:
                    said[layer.id] = output
    layers.take_wishes(due)  # what is asked for deeper than that is not done
    found = [said.get(layer.id) for layer in layers.ordered]
    return [output for output in found if output is not None]


async def _kept(
    layers: LayerSet, layer: ContextLayer, query: str, budget: float | None
) -> LayerOutput | None:
    """Return what an eventual layer recalled last; see to it that what is due is recalled meanwhile."""
    kept = layers.recalls.of(layers, layer)
    if kept.fresh or kept.running or layers.previews or layers.is_wished(layer):
        return kept.output
    nursery = layers.context._execution.nursery
    if nursery is None:  # nothing that could run beside the request
        output, _ = await _ask_and_keep(layers, layer, query, budget)
        return output
    kept.running = True

    async def run() -> None:
        version = kept.version
        try:
            output, worked = await _ask(layers, layer, query, budget)
        finally:
            kept.running = False
        if worked:
            kept.take(output, version)

    nursery.start_soon(run, name=f"aiio.recall {layer.id}")
    return kept.output


async def _ask_and_keep(
    layers: LayerSet, layer: ContextLayer, query: str, budget: float | None
) -> tuple[LayerOutput | None, bool]:
    kept = layers.recalls.of(layers, layer) if layer.recall_mode is RecallMode.EVENTUAL else None
    version = 0 if kept is None else kept.version
    output, worked = await _ask(layers, layer, query, budget)
    if kept is not None and worked:
        kept.take(output, version)
    return output, worked


async def _ask(
    layers: LayerSet, layer: ContextLayer, query: str, budget: float | None
) -> tuple[LayerOutput | None, bool]:
    """Return what a layer says now, None: nothing; and whether its hook worked."""
    found, worked = await layers.run_hook(layer, "recall", query=query, budget=budget)
    items: Sequence[Item] = ()
    tokens: int | None = None
    if isinstance(found, str) and found:
        # The id says what it is: the same text is the same item, whenever it is recalled.
        items = [{**create_message(found, "developer"), "id": f"layer:{layer.id}"}]
    elif isinstance(found, Mapping):
        items, tokens = found.get("items") or (), found.get("token_count")
        layers.wish(layer, found)
    if not items:
        return None, worked
    if not layers.are_items(layer, items):
        return None, False
    return (
        LayerOutput(
            layer=layer,
            items=tuple(items),
            tokens=estimate_item_tokens(items) if tokens is None else tokens,
            wrote_state=isinstance(found, Mapping) and "state" in found,
            state=None if layer.hooks.render_delta is None else copied(layers.states.get(layer.id)),
        ),
        worked,
    )


def copied(state: Any) -> Any:
    """Return a deep copy of a layer's state; None where there can be none."""
    try:
        return copy.deepcopy(state)
    except TypeError:  # a lock, a socket
        return None
