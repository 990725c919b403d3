"""How hard a model is to think: what settings ask for, in one vocabulary, and the nearest a model knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")
"""From least to most."""

ON = "on"
"""Think, as much as the model does by itself."""

_WORDS: dict[str, str | None] = {"off": "none", "default": None, ON: ON, **{word: word for word in LEVELS}}


def thinking_level(settings: Mapping[str, Any]) -> str | None:
    """Return what `reasoning_effort`, else `think`, asks for: one of `LEVELS`, `ON`, or None: nothing.

    ValueError: it is no level; the text names the setting.
    """
    key = "reasoning_effort" if settings.get("reasoning_effort") is not None else "think"
    value = settings.get(key)
    if value is None or isinstance(value, bool):
        return None if value is None else ON if value else "none"
    word = value.strip().lower() if isinstance(value, str) else None
    if word not in _WORDS:
        raise ValueError(f"setting {key} must be a bool or one of {', '.join(_WORDS)}, not {value!r}")
    return _WORDS[word]


def nearest_level(level: str, supported: Sequence[str]) -> str:
    """Return the one of *supported* that is nearest to *level*; ties go upward. ValueError: no level is."""
    ranks = [LEVELS.index(one) for one in supported if one in LEVELS]
    if not ranks:
        raise ValueError(f"none of the levels {', '.join(LEVELS)} among {', '.join(supported)}")
    rank = LEVELS.index(level)
    return LEVELS[min(ranks, key=lambda one: (abs(one - rank), -one))]
