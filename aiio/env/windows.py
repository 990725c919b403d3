"""How large a model's context window is: sources, ranked.

The number informs; no request is ever refused because of it. Unknown stays unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from aiio.context.usage import fallback_context_window

Source = Callable[[str, str], int | None]
"""(endpoint, model) -> window, or None; must not block."""

_EXPLICIT_KEYS = ("context_window", "num_ctx")
"""Settings that say it: the second is what Ollama is told to serve with every request."""
_DESCRIPTOR_KEYS = (
    "context_window",
    "context_length",
    "max_model_len",
    "max_context_length",
    "max_input_tokens",
    "trained_window",
)
"""In a model's description, best first. The last is an upper bound, where a server tells no more."""


class Windows:
    """Context windows by endpoint and model.

    Explicit setting > reported by the provider > cached model descriptor > added sources > the curated
    table > unknown.
    """

    def __init__(self) -> None:
        self._reported: dict[tuple[str, str], int] = {}
        self.sources: list[Source] = []
        """Further registries, best first (a price list, a fetched table)."""

    def report(self, endpoint: str, model: str, tokens: object) -> None:
        """Remember what the provider itself said; anything but a positive finite number is ignored."""
        window = positive_tokens(tokens)
        if window is not None:
            self._reported[endpoint, model] = window

    def lookup(self, endpoint: str, model: str, settings: Mapping[str, Any]) -> int | None:
        """Return the window in tokens, or None when nobody knows."""
        explicit = _first(settings, _EXPLICIT_KEYS)
        if explicit is not None:
            return explicit
        if (endpoint, model) in self._reported:
            return self._reported[endpoint, model]
        cached = _described(settings.get("models"), model)
        if cached is not None:
            return cached
        for source in self.sources:
            found = positive_tokens(source(endpoint, model))
            if found is not None:
                return found
        return _from_table(model)


def positive_tokens(value: object) -> int | None:
    """Return *value* as a count above 0, or None: bools, text, NaN and infinity are not counts."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 1:
        return None
    return int(value)


def _from_table(model: str) -> int | None:
    """Return the curated window of *model*: as written, in lower case, or without its vendor's prefix."""
    lower = model.lower()
    found = (fallback_context_window(name) for name in (model, lower, lower.rpartition("/")[2]))
    return next((window for window in found if window is not None), None)


def _described(models: object, model: str) -> int | None:
    """Return the window in a model map's entry for *model*: exact id only, a prefix may be another model."""
    entry = models.get(model) if isinstance(models, Mapping) else None
    return _first(entry, _DESCRIPTOR_KEYS) if isinstance(entry, Mapping) else None


def _first(facts: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    windows = (positive_tokens(facts.get(key)) for key in keys)
    return next((window for window in windows if window is not None), None)
