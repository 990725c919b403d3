"""What a model sees of a run: instructions, layers, the log; within its budget.

    system | anchor | history | live | updates | tail

The assembly is made once for a step. Its rounds see the log grow in the middle; what stands around stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import trio

from aiio.context.text import compact_json
from aiio.context.types import Message, system_message

from .adapters import items_to_messages
from .anchoring import Bands, EpochUsage, LayerUsageEntry, unanchored
from .budgets import Shares, share
from .items import Item, create_message, estimate_item_tokens, item_text, strip_unresolved_tool_calls

if TYPE_CHECKING:
    from .context import RunContext


@dataclass(frozen=True, slots=True, kw_only=True)
class LastLayerUsage:
    """How the context window was used by the last accepted model call."""

    execution_id: str
    model_id: str
    layers: tuple[LayerUsageEntry, ...]
    system_prompt_tokens: int
    tools_tokens: int
    history_tokens: int
    """Of items that no layer owns."""
    total_used_tokens: int
    epoch: EpochUsage | None


@dataclass(slots=True)
class Assembly:
    """What stands around the log, for one step of a context."""

    context: RunContext
    instructions: str
    bands: Bands
    shares: Shares
    tail: list[Item] = field(default_factory=list)
    """Guidance, at the very end."""

    async def messages(self) -> list[Message]:
        """Return what is sent now. Always a checkpoint."""
        await trio.lowlevel.checkpoint()
        context = self.context
        items = await context.layers.projected(context.item_log.items)
        guides = {item["id"] for item in self.tail}
        history = [item for item in items if not _is_system(item) and item["id"] not in guides]
        system = "\n\n".join(filter(None, [self.instructions, *map(item_text, filter(_is_system, items))]))
        kept = self._within_cap(system, history)
        messages = items_to_messages(kept)
        return [system_message(system), *messages] if system else messages

    def _within_cap(self, system: str, history: Sequence[Item]) -> list[Item]:
        """Return the items that fit: the ends always, then anchor and live, then the newest history."""
        policy = self.context.harness.projection
        left = policy.cap - _text_tokens(system)
        ends = [*([self.bands.update] if self.bands.update is not None else []), *self.tail]
        left -= estimate_item_tokens(ends)
        anchor, left = _fitting(self.bands.anchor, left)
        live, left = _fitting(self.bands.live, left)
        shown = list(history[-policy.max_items :] if policy.max_items is not None else history)
        start = len(shown)
        while start and (cost := estimate_item_tokens([shown[start - 1]])) <= left:
            left -= cost
            start -= 1
        return [*anchor, *strip_unresolved_tool_calls(shown[start:]), *live, *ends]

    def guide(self, reason: str) -> None:
        """Put guidance into the log, and at the end of what is shown."""
        item = create_message(reason, "developer")
        self.tail.append(item)
        self.context.item_log.append(item)

    def usage(self, model: str, tools: Sequence[Any]) -> LastLayerUsage:
        """Return how the window is used, with the log as it is now."""
        counts = (
            _text_tokens(self.instructions),
            _text_tokens(compact_json(list(tools))) if tools else 0,
            estimate_item_tokens(self.context.item_log.items),
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


async def assemble(context: RunContext, instructions: str) -> Assembly:
    """Ask the layers of *context*, and place what they say. RunConfigError: INVALID_BUDGET_INPUT."""
    layers, harness = context.layers, context.harness
    budgets = {layer.id: layer.limits for layer in layers.ordered}
    shares = share(budgets, harness.projection, _text_tokens(instructions))
    outputs = await layers.recall(_query(context.item_log.items), shares.layers)
    if harness.cache.enabled:
        bands = await harness.lineage(context).assemble(outputs, instructions, layers.delta)
    else:
        bands = unanchored(outputs)
    return Assembly(context, instructions, bands, shares)


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
