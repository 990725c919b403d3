"""How a model call used its context window: what each layer put in, and the state of anchoring behind it."""

from __future__ import annotations

from dataclasses import dataclass

from .items import Item
from .layers import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerUsageEntry:
    """A layer's part in an assembly."""

    layer_id: str
    token_count: int
    """As the layer counts."""
    items: tuple[Item, ...]
    """As served: the pin's, when it was pinned."""
    placement: str = Placement.ANCHOR.value
    served: str = "fresh"
    """`fresh`, or `pinned`: as it was when the epoch began."""
    changed: bool = False
    """Whether it says something else now than what is pinned."""
    churn_rate: float = 0.0
    """Share of the assemblies in which it had changed, 0 to 1; earlier epochs weigh less."""
    rebill_tokens: float = 0.0
    """Tokens of the prefix that would have been paid anew without the pin, summed likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochUsage:
    """The state of anchoring behind an assembly."""

    id: str
    age: int
    """Assemblies of this epoch, this one included."""
    anchor_tokens: int
    live_tokens: int
    delta_tokens: int
    reanchor_reason: str | None
    """Only on the assembly that began the epoch."""


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
