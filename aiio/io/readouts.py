"""What a provider reports beside its answer: the context window in use, and the plan's allowances."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class ContextUsage:
    """Tokens used of the context window, as reported for the current or last request."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def report(self, used: Any = None, total: Any = None) -> None:
        """Merge a report: `used` finite and >= 0, `total` finite and > 0, both floored; else ignored."""
        if _finite(used) and used >= 0:
            self._known["used"] = math.floor(used)
        if _finite(total) and total > 0:
            self._known["total"] = math.floor(total)

    def reset(self) -> None:
        """Forget: a new attempt begins."""
        self._known.clear()

    def snapshot(self) -> dict[str, int]:
        """Return `{used?, total?}` in tokens; what was not reported is absent."""
        return dict(self._known)


class PlanUsage:
    """Rate limits and allowances, as last reported. Never reset: a quota outlives the request."""

    def __init__(self) -> None:
        self._label: str | None = None
        self._quotas: dict[str, dict[str, Any]] | None = None

    def report(self, label: Any = None, quotas: Any = None) -> None:
        """Merge a report, key by key; only finite numbers and non-empty strings are kept."""
        if self._quotas is None:
            self._quotas = {}
        if isinstance(label, str) and label:
            self._label = label
        if not isinstance(quotas, Mapping):
            return
        for name, fields in quotas.items():
            if not isinstance(fields, Mapping):
                continue
            kept = {str(key): value for key, value in fields.items() if _finite(value) or _text(value)}
            self._quotas.setdefault(str(name), {}).update(kept)

    def snapshot(self) -> dict[str, Any] | None:
        """Return a copy, `{label?, quotas: {name: {total?, remaining?, used?, reset?}}}`; None: never yet."""
        if self._quotas is None:
            return None
        copied: dict[str, Any] = {"quotas": {name: dict(fields) for name, fields in self._quotas.items()}}
        if self._label is not None:
            copied["label"] = self._label
        return copied


def _finite(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an int that no float can hold
        return False


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)
