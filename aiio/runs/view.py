"""What a model sees of a run: instructions, layers, the log; within its budget.

    system | anchor | history | live | updates | tail

The assembly is made once for a step. Its rounds see the log grow in the middle; what stands around stays,
unless a layer wants layers recalled again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import trio

from aiio.context.text import compact_json
from aiio.context.types import Message, system_message

from .adapters import items_to_messages
from .anchoring import Bands, Lineage, unanchored
from .budgets import ProjectionPolicy, Shares, share
from .items import Item, create_message, estimate_item_tokens, item_text, strip_unresolved_tool_calls
from .layer_usage import LastLayerUsage
from .layers import RerenderTiming
from .recall import LayerOutput, recall, recall_again

if TYPE_CHECKING:
    from .context import RunContext
    from .layer_set import LayerSet


@dataclass(slots=True)
class Assembly:
    """What stands around the log, for one step of a context."""

    context: RunContext
    layers: LayerSet
    lineage: Lineage | None
    """None: caching is off."""
    instructions: str
    policy: ProjectionPolicy
    shares: Shares
    outputs: list[LayerOutput]
    bands: Bands
    tail: list[Item] = field(default_factory=list)
    """Guidance, at the very end."""

    async def messages(self) -> list[Message]:
        """Return what is sent now. Always a checkpoint.

        With caching on, the last message of the anchored prefix and the last one of the history carry
        `cache_point`: up to there the next request will be the same. What a provider makes of it is its own.
        """
        await trio.lowlevel.checkpoint()
        items = await self.layers.projected(self.context.item_log.items)
        guides = {item["id"] for item in self.tail}
        history = [item for item in items if not _is_system(item) and item["id"] not in guides]
        system = "\n\n".join(filter(None, [self.instructions, *map(item_text, filter(_is_system, items))]))
        anchor, shown, rest = self._within_cap(system, history)
        prefix = [*([system_message(system)] if system else []), *items_to_messages(anchor)]
        middle = items_to_messages(shown)
        if self.lineage is not None:
            for part in (prefix, middle):
                if part:
                    part[-1] = {**part[-1], "cache_point": True}
        return [*prefix, *middle, *items_to_messages(rest)]

    def _within_cap(self, system: str, history: Sequence[Item]) -> tuple[list[Item], list[Item], list[Item]]:
        """Return the items that fit, before, in and after the history.

        Anchor and live are kept in order, what follows them always; the history gets what is left then, the
        newest of it. So no anchored item is left out because of something that comes and goes.
        """
        anchor, left = _fitting(self.bands.anchor, self.policy.cap - _text_tokens(system))
        live, left = _fitting(self.bands.live, left)
        ends = [*([self.bands.update] if self.bands.update is not None else []), *self.tail]
        left -= estimate_item_tokens(ends)
        most = self.policy.max_items
        shown = list(history if most is None else history[len(history) - min(most, len(history)) :])
        start = len(shown)
        while start and (cost := estimate_item_tokens([shown[start - 1]])) <= left:
            left -= cost
            start -= 1
        return anchor, strip_unresolved_tool_calls(shown[start:]), [*live, *ends]

    def guide(self, reason: str) -> None:
        """Put guidance into the log, and at the end of what is shown."""
        item = {**create_message(reason, "developer"), "origin": {"layer": "*"}}
        self.tail.append(item)
        self.context.item_log.append(item)

    async def refresh(self) -> None:
        """Recall again what layers want recalled before the next request, and place everything anew."""
        if self.layers.wants_new_view:
            due = RerenderTiming.IMMEDIATE
            query = _query(self.context.item_log.items)
            self.outputs = await recall_again(
                self.layers, self.outputs, query, self.shares.layers, lambda wish: wish.timing is due
            )
            self.bands = await _placed(
                self.layers, self.lineage, self.instructions, self.shares, self.outputs
            )

    def usage(self, model: str, tools: Sequence[Any]) -> LastLayerUsage:
        """Return how the window is used, with the log as it is now."""
        log = self.context.item_log.items
        counts = (
            _text_tokens(self.instructions),
            _text_tokens(compact_json(list(tools))) if tools else 0,
            estimate_item_tokens(item for item in log if "layer" not in item.get("origin", {})),
        )
        layers = sum(entry.token_count for entry in self.bands.entries)
        return LastLayerUsage(
            execution_id=self.context.id,
            model_id=model,
            layers=self.bands.entries,
            system_prompt_tokens=counts[0],
            tools_tokens=counts[1],
            history_tokens=counts[2],
            total_used_tokens=sum(counts) + layers,
            epoch=self.bands.epoch,
        )


async def assemble(
    context: RunContext, instructions: str, policy: ProjectionPolicy | None = None
) -> Assembly:
    """Ask the layers of *context*, and place what they say. RunConfigError: INVALID_BUDGET_INPUT.

    Args:
      context: whose model is about to be asked.
      instructions: what the system message begins with.
      policy: how much is shown; None: as the harness says.
    """
    harness = context.harness
    lineage = harness.lineage(context) if harness.cache.enabled else None
    return await _assembled(context, context.layers, lineage, instructions, policy)


async def preview(
    context: RunContext, instructions: str = "", *, policy: ProjectionPolicy | None = None
) -> list[Message]:
    """Return what a model of *context* would be shown now; nothing of the run changes by it.

    Layers are recalled on copies of their states, eventual ones not at all. A `recall` that does more than
    return something does it here, too: one that asks a model pays for it.

    Args, raises: as `assemble`. Always a checkpoint.
    """
    harness = context.harness
    lineage = harness.lineage(context).copy() if harness.cache.enabled else None
    assembly = await _assembled(context, context.layers.copy(), lineage, instructions, policy)
    return await assembly.messages()


async def _assembled(
    context: RunContext,
    layers: LayerSet,
    lineage: Lineage | None,
    instructions: str,
    policy: ProjectionPolicy | None,
) -> Assembly:
    policy = policy or context.harness.projection
    budgets = {layer.id: layer.limits for layer in layers.ordered}
    shares = share(budgets, policy, _text_tokens(instructions))
    query = _query(context.item_log.items)
    outputs = await recall(layers, query, shares.layers)
    outputs = await recall_again(layers, outputs, query, shares.layers)
    bands = await _placed(layers, lineage, instructions, shares, outputs)
    return Assembly(context, layers, lineage, instructions, policy, shares, outputs, bands)


async def _placed(
    layers: LayerSet,
    lineage: Lineage | None,
    instructions: str,
    shares: Shares,
    outputs: Sequence[LayerOutput],
) -> Bands:
    if lineage is None:
        return unanchored(outputs)
    present = {layer.id for layer in layers.ordered}
    return await lineage.assemble(outputs, instructions, layers.delta(shares.layers), present=present)


def _query(items: Sequence[Item]) -> str:
    """Return what the user said last."""
    said = (item for item in reversed(items) if item["type"] == "message" and item["role"] == "user")
    return item_text(next(said, {"type": "message"}))


def _is_system(item: Item) -> bool:
    return bool(item["type"] == "message" and item["role"] == "system")


def _fitting(items: Sequence[Item], left: float) -> tuple[list[Item], float]:
    """Return the items that fit one by one (one that does not is left out alone), and what is left then."""
    kept: list[Item] = []
    for item in items:
        cost = estimate_item_tokens([item])
        if cost <= left:
            kept.append(item)
            left -= cost
    return kept, left


def _text_tokens(text: str) -> int:
    return -(-len(text) // 4)
