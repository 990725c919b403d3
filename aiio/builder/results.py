"""What a builder returns. All of it is frozen, and made anew by every call."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from aiio.context.types import Message

from .explain import usage_table
from .fragments import ContextFragment, Lifetime, Trust


class TokenSource(StrEnum):
    """Where a number of tokens comes from."""

    ESTIMATE = "estimate"
    COUNTER = "counter"
    """The counter that the caller gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentChange:
    """What one transform did to the size of one fragment."""

    id: str
    transform: str
    before: int
    """Characters; 0 also when it was not there."""
    after: int | None
    """Characters; None: the transform took the fragment away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPlan:
    """What would be assembled. The budget of the whole has not been looked at."""

    fragments: tuple[ContextFragment, ...]
    """In the order in which they will be sent."""
    max_input_chars: float
    max_input_tokens: float
    additional_messages: tuple[Message, ...]
    original_fragments: tuple[ContextFragment, ...] | None
    """None: no audit."""
    mutable_fragment_ids: frozenset[str]
    changes: tuple[FragmentChange, ...]
    """By the transforms, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentUsage:
    """What one fragment takes."""

    id: str
    source_id: str
    trust: Trust
    lifetime: Lifetime
    chars: int
    """Of its own text in the builder's `CharUnit`, without the blank line that may stand before it."""
    max_chars: float
    """Likewise: what it may have."""
    message_count: int
    """Messages that begin with it: 0 for a text that joined the one before."""
    tokens: int | None
    """None: tokens were not counted."""

    @property
    def omitted(self) -> str:
        """Why nothing of it is sent; empty: something is."""
        return "" if self.chars or self.message_count else "empty, not sent"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltContext:
    """Messages within their budget, and who takes how much of it."""

    messages: list[Message]
    """Ready for `IO.write` and `Agent`; the caller's own, nobody else holds them."""
    fragment_usage: tuple[FragmentUsage, ...]
    """For every fragment, empty ones too, in their order."""
    input_chars: int
    """Of all text in the messages: fragments, blank lines between them, additional messages."""
    separator_chars: int
    additional_chars: int
    max_input_chars: float
    """Infinity: unbounded."""
    input_tokens: int | None
    """None: not counted, as there was neither a budget nor a counter. Files count nothing."""
    max_input_tokens: float
    token_source: TokenSource | None
    """None: not counted."""
    changes: tuple[FragmentChange, ...]
    """By the transforms, in their order."""

    def explain(self) -> str:
        """Return a table for people: each fragment, its share of the budget, what was cut off and why."""
        return usage_table(self)
