"""Sums of a run: tokens and money."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class TokenTotals:
    """Tokens of all model calls of a context and of those below it."""

    input: int = 0
    output: int = 0
    total: int = 0
    cached: int | None = None
    """Prompt tokens served from the provider's cache; None: no call reported a figure."""

    def copy(self) -> TokenTotals:
        """Return them as they are now."""
        return dataclasses.replace(self)

    def add(self, usage: Mapping[str, Any]) -> None:
        """Add one call's usage; a count that is missing adds nothing, and stays unknown."""
        self.input += usage.get("input_tokens") or 0
        self.output += usage.get("output_tokens") or 0
        self.total = self.input + self.output
        if (cached := usage.get("cached_tokens")) is not None:
            self.cached = (self.cached or 0) + cached


@dataclass(slots=True)
class Totals:
    """What a context and those below it have used."""

    tokens: TokenTotals
    cost: float = 0.0
    """USD, with what a checkpoint brought back."""
    billed_cost: float = 0.0
    """USD paid in this attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMeta:
    """What the last model or decide step of a context reported. None: not known, or not of that step."""

    tool_calls: tuple[dict[str, Any], ...] | None = None
    usage: dict[str, Any] | None = None
    """`input_tokens, output_tokens` and, when reported, `cached_tokens, cache_write_tokens`."""
    cost: float | None = None
    """USD."""
    billed_cost: float | None = None
    """USD paid in this attempt: 0 of a result that was handed back."""
    response_items: tuple[dict[str, Any], ...] | None = None
    decision: dict[str, Any] | None = None
    """`model_id, source, refused`."""
