"""Prompt-cache anchoring: what stands before the history stays byte for byte the same while it can.

    epoch    assemblies in a row that share one frozen prefix
    pin      what a layer had rendered when its epoch began; served again until the epoch ends
    lineage  whose prefix it is: a thread at depth 0, an execution below

A pinned layer that changes is told about after the history, in one message of updates; when those become too
much, the epoch ends and everything is pinned anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any
from xml.sax.saxutils import quoteattr

from aiio.context.text import compact_json

from .items import Item, create_message, estimate_item_tokens, item_text
from .layer_usage import EpochUsage, LayerUsageEntry
from .layers import Placement
from .recall import Delta, LayerOutput

PRESSURE_FLOOR = 256
"""Tokens of updates that never end an epoch."""

MISSES_TO_BLIND = 3


class Reanchor(StrEnum):
    """Why an epoch began."""

    COLD_START = "cold-start"
    INSTRUCTIONS = "instructions-changed"
    CACHE_MISS = "cache-miss"
    MAX_AGE = "max-age"
    PRESSURE = "delta-pressure"
    OVERFLOW = "delta-overflow"
    """A change could not be described."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePolicy:
    """When a prefix is kept and when it is made anew.

    Churn is the share of assemblies, from 0 to 1, in which a layer said something else than before.
    """

    enabled: bool = True
    """False: nothing is pinned, and all layers stand before the history."""
    min_cached_tokens: float = 100
    """Tokens, or half of the prefix if that is less, that the provider must have cached: else it missed."""
    min_epoch_assemblies: int = 2
    """Assemblies of an epoch before a miss is judged."""
    max_epoch_assemblies: int = 50
    """Assemblies after which a new epoch begins."""
    delta_budget_fraction: float = 0.15
    """Share of the prefix's tokens that updates may take, 256 tokens at least; then a new epoch begins."""
    auto_demote_churn: float = 0.5
    """Churn from which a layer that may go either way stands after the history, from the next epoch on."""
    auto_promote_churn: float = 0.2
    """Churn up to which it stands in the prefix."""
    min_churn_samples: float = 3
    """Assemblies in which it was watched, before it is moved."""
    churn_decay: float = 0.5
    """What is left of the counts of earlier epochs when another begins: 0 to 1."""


@dataclass(slots=True)
class _Churn:
    """How often a layer changed while it was watched."""

    observed: float = 0.0
    changed: float = 0.0
    rebilled: float = 0.0

    @property
    def rate(self) -> float:
        return self.changed / self.observed if self.observed else 0.0


@dataclass(frozen=True, slots=True)
class _Pin:
    output: LayerOutput
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """What stands before and after the history."""

    anchor: tuple[Item, ...]
    live: tuple[Item, ...]
    update: Item | None
    entries: tuple[LayerUsageEntry, ...]
    epoch: EpochUsage | None
    """None: caching is off."""


@dataclass(slots=True)
class Lineage:
    """The epochs of one lineage.

    Args:
      name: of the lineage.
      policy: limits.
    """

    name: str
    policy: CachePolicy
    generation: int = 0
    age: int = 0
    misses: int = 0
    blind: bool = False
    """Whether the provider tells nothing that could be judged."""
    _instructions: str | None = None
    _pins: dict[str, _Pin] = field(default_factory=dict)
    _bands: dict[str, Placement] = field(default_factory=dict)
    _churn: dict[str, _Churn] = field(default_factory=dict)
    _scheduled: bool = False
    _anchor_tokens: int = 0
    _judged: bool = True

    @property
    def epoch_id(self) -> str:
        """The name of the running epoch."""
        return f"{self.name}#{self.generation}"

    async def assemble(
        self,
        outputs: Sequence[LayerOutput],
        instructions: str,
        delta: Delta,
        *,
        present: Collection[str] | None = None,
    ) -> Bands:
        """Place *outputs* around the history; once per assembly, and on a `copy` for a preview.

        Args:
          outputs: what layers recalled, by slot.
          instructions: of the model; another text begins another epoch.
          delta: asks a layer for its own words about a change.
          present: ids of the layers at work, also of silent ones; None: all that ever were.
        """
        digest = _digest_text(instructions)
        reason = self._due(digest)
        if reason is None:
            bands = await self._served(outputs, delta, present)
            if isinstance(bands, Bands):
                return bands
            reason = bands
        self._reanchor(digest)
        return self._fresh(outputs, reason)

    def copy(self) -> Lineage:
        """Return a lineage that goes on from here by itself, for a preview."""
        return replace(
            self,
            _pins=dict(self._pins),
            _bands=dict(self._bands),
            _churn={id: replace(churn) for id, churn in self._churn.items()},
        )

    def judge(self, usage: Mapping[str, Any]) -> None:
        """Take note of what the provider says about its cache, once for each assembly."""
        if self._judged:
            return
        self._judged = True
        read, written = usage.get("cached_tokens"), usage.get("cache_write_tokens")
        if read is None:
            self.blind = True
            return
        if (written and not read) or self.age < self.policy.min_epoch_assemblies:
            return
        if read >= min(self.policy.min_cached_tokens, self._anchor_tokens / 2):
            self.misses, self.blind = 0, False
            return
        self.misses += 1
        if self.misses >= MISSES_TO_BLIND:
            self.blind = True
        if not self.blind:
            self._scheduled = True

    def _due(self, instructions: str) -> Reanchor | None:
        if self.generation == 0:
            return Reanchor.COLD_START
        if instructions != self._instructions:
            return Reanchor.INSTRUCTIONS
        if self._scheduled:
            return Reanchor.CACHE_MISS
        return Reanchor.MAX_AGE if self.age >= self.policy.max_epoch_assemblies else None

    def _reanchor(self, instructions: str) -> None:
        """Begin an epoch: nothing is pinned; layers that may go either way are placed by their churn."""
        policy = self.policy
        for id, churn in self._churn.items():
            if churn.observed >= policy.min_churn_samples:
                if churn.rate >= policy.auto_demote_churn:
                    self._bands[id] = Placement.LIVE
                elif churn.rate <= policy.auto_promote_churn:
                    self._bands[id] = Placement.ANCHOR
            churn.observed *= policy.churn_decay
            churn.changed *= policy.churn_decay
            churn.rebilled *= policy.churn_decay
        self.generation += 1
        self.age = 0
        self._pins = {}
        self._scheduled = False
        self._instructions = instructions

    def _band(self, output: LayerOutput) -> Placement:
        if output.wrote_state:
            return Placement.LIVE
        if output.layer.placement is not Placement.AUTO:
            return output.layer.placement
        return self._bands.get(output.layer.id, Placement.ANCHOR)

    def _fresh(self, outputs: Sequence[LayerOutput], reason: Reanchor) -> Bands:
        """The first assembly of an epoch: what is anchored is pinned."""
        anchored = [output for output in outputs if self._band(output) is Placement.ANCHOR]
        self._pins = {output.layer.id: _Pin(output, _digest(output.items)) for output in anchored}
        return self._bands_of(outputs, None, set(), reason, None)

    async def _served(
        self, outputs: Sequence[LayerOutput], delta: Delta, present: Collection[str] | None
    ) -> Bands | Reanchor:
        """A later assembly: pins as they were, and what has changed since; or why that will not do."""
        fresh = {output.layer.id: output for output in outputs if self._band(output) is Placement.ANCHOR}
        blocks: list[str] = []
        changed: set[str] = set()
        described = True
        for id, pin in self._pins.items():
            now = fresh.get(id)
            if now is not None and _digest(now.items) == pin.digest:
                continue
            changed.add(id)
            if now is None:
                blocks.append(_block(id, "retract", "What this said above holds no longer."))
            elif body := await delta(pin.output, now) or _texts(now.items):
                blocks.append(_block(id, "replace", body))
            else:
                described = False
        for id, output in fresh.items():
            if id not in self._pins:
                changed.add(id)
                if body := _texts(output.items):
                    blocks.append(_block(id, "add", body))
                else:
                    described = False
        self._count(changed)
        update = self._update(blocks)
        allowed = max(PRESSURE_FLOOR, self.policy.delta_budget_fraction * self._anchor_tokens)
        if update is not None and estimate_item_tokens([update]) > allowed:
            return Reanchor.PRESSURE
        if not described:
            return Reanchor.OVERFLOW
        return self._bands_of(outputs, update, changed, None, present)

    def _update(self, blocks: Sequence[str]) -> Item | None:
        if not blocks:
            return None
        body = "\n".join(blocks)
        text = f"<context_updates epoch={quoteattr(self.epoch_id)}>\n{body}\n</context_updates>"
        return {**create_message(text, "developer"), "id": f"updates:{self.epoch_id}:{self.age + 1}"}

    def _count(self, changed: set[str]) -> None:
        for id in (*self._pins, *sorted(changed - self._pins.keys())):
            churn = self._churn.setdefault(id, _Churn())
            churn.observed += 1
            if id in changed:
                churn.changed += 1
                churn.rebilled += self._anchor_tokens if id in self._pins else 0

    def _bands_of(
        self,
        outputs: Sequence[LayerOutput],
        update: Item | None,
        changed: set[str],
        reason: Reanchor | None,
        present: Collection[str] | None,
    ) -> Bands:
        self.age += 1
        self._judged = False
        live = [output for output in outputs if self._band(output) is Placement.LIVE]
        anchor = tuple(item for pin in self._pins.values() for item in pin.output.items)
        self._anchor_tokens = estimate_item_tokens(anchor)
        served = "fresh" if reason is not None else "pinned"
        entries = [
            self._entry(pin.output, Placement.ANCHOR, served, id in changed)
            if present is None or id in present
            else plain_entry(pin.output)
            for id, pin in self._pins.items()
        ]
        entries += [
            self._entry(output, Placement.LIVE, "fresh", False)
            for output in live
            if output.layer.id not in self._pins
        ]
        live_items = tuple(item for output in live for item in output.items)
        return Bands(
            anchor=anchor,
            live=live_items,
            update=update,
            entries=tuple(sorted(entries, key=lambda entry: entry.layer_id)),
            epoch=EpochUsage(
                id=self.epoch_id,
                age=self.age,
                anchor_tokens=self._anchor_tokens,
                live_tokens=estimate_item_tokens(live_items),
                delta_tokens=0 if update is None else estimate_item_tokens([update]),
                reanchor_reason=None if reason is None else reason.value,
            ),
        )

    def _entry(
        self, output: LayerOutput, placement: Placement, served: str, changed: bool
    ) -> LayerUsageEntry:
        churn = self._churn.get(output.layer.id, _Churn())
        return replace(
            plain_entry(output),
            placement=placement.value,
            served=served,
            changed=changed,
            churn_rate=churn.rate,
            rebill_tokens=churn.rebilled,
        )


def plain_entry(output: LayerOutput) -> LayerUsageEntry:
    """Return a layer's part in an assembly, without anything of epochs."""
    return LayerUsageEntry(layer_id=output.layer.id, token_count=output.tokens, items=output.items)


def unanchored(outputs: Sequence[LayerOutput]) -> Bands:
    """Return the bands when caching is off: everything stands before the history."""
    return Bands(
        anchor=tuple(item for output in outputs for item in output.items),
        live=(),
        update=None,
        entries=tuple(sorted(map(plain_entry, outputs), key=lambda entry: entry.layer_id)),
        epoch=None,
    )


def _digest(items: Sequence[Item]) -> str:
    """Return a hash of what *items* say: ids and statuses do not count, nor the order of keys."""
    bare = [
        {key: value for key, value in sorted(item.items()) if key not in ("id", "status")} for item in items
    ]
    return _digest_text(compact_json(_sorted(bare)))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(entry) for entry in value] if isinstance(value, list) else value


def _digest_text(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _texts(items: Sequence[Item]) -> str:
    return "\n".join(filter(None, map(item_text, items)))


def _block(layer: str, action: str, body: str) -> str:
    return f"<update layer={quoteattr(layer)} action={quoteattr(action)}>\n{body}\n</update>"
