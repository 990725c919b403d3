"""The context guard: how full the model's window is, and when that calls for a warning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from aiio.context.types import Usage
from aiio.context.usage import estimate_context_tokens


class Full(StrEnum):
    """What called for a warning."""

    OVERALL = "overall"
    GROWTH = "growth"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextGuard:
    """When an agent's context is too full for its model, and what to do then.

    Before each request the guard compares what will be sent (what the provider counted last, and an estimate
    of what has been said since) with `env.context_window`. It says nothing where the window is unknown, or
    the model has not answered yet. At a threshold it warns, in the log (`agent.context_full`) and by the Env
    event `context_full`; then the model is asked for a summary, which takes the place of what was said
    (`compact`).

    Shares are of the window; a number above 1 is percent.

    Raises:
      TypeError, ValueError: a share that is none.
    """

    overall: float = 0.9
    """Warn when the context takes this much."""
    growth: float = 0.4
    """Warn when it has grown by this much during one run (a tool has returned very much, say)."""
    compact: bool = True
    """Whether to go on with a summary: one request more, and its usage counts. False: only warn."""

    def __post_init__(self) -> None:
        for name, value in (("overall", self.overall), ("growth", self.growth)):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name} is a share of the window, not {value!r}")
            if not 0 < value <= 100:
                raise ValueError(f"{name} is a share above 0, or percent up to 100, not {value!r}")

    def looks_full(self, used: int, began: int, window: int) -> Full | None:
        """Return what is too much for a *window*; None: nothing is.

        Args:
          used, began: tokens that the context takes now, and took when the run began.
        """
        if used >= window * _share(self.overall):
            return Full.OVERALL
        return Full.GROWTH if used - began >= window * _share(self.growth) else None


class Gauge:
    """Measures one context while it grows, from run to run."""

    def __init__(self) -> None:
        self._counted = 0
        self._covers = 0
        self._first = 0
        self._counted_first = (0, 0)
        self._began: int | None = 0

    def begin(self, entries: Sequence[Any]) -> None:
        """Take note of what a run begins with. Costs nothing: it is measured when somebody asks."""
        self._first, self._counted_first = len(entries), (self._counted, self._covers)
        self._began = None

    def began(self, entries: Sequence[Any]) -> int:
        """Return how many tokens the context took when the run began; *entries* are there now."""
        if self._began is None:
            counted, covers = self._counted_first
            self._began = counted + estimate_context_tokens(entries[covers : self._first])
        return self._began

    def note(self, usage: Usage | None, entries: Sequence[Any]) -> None:
        """Take note of what a provider has counted for a request and its answer, the last of *entries* now.

        An estimate of ours is no news.
        """
        if usage is None or usage.get("source") != "provider":
            return
        self._counted, self._covers = int(usage.get("total_tokens") or 0), len(entries)
        if self._began is None and self._counted_first == (0, 0):
            # Better than our estimate, which knows nothing of tools and templates, and makes them growth.
            self._began = int(usage.get("input_tokens") or 0)

    def restart(self, entries: Sequence[Any]) -> None:
        """Begin anew with another context."""
        self._counted = self._covers = 0
        self.begin(entries)

    def tokens(self, entries: Sequence[Any]) -> int:
        """Return how many tokens *entries* take: counted as far as they were, estimated beyond."""
        if len(entries) < self._covers:
            self._counted = self._covers = 0  # somebody has taken entries away
        return self._counted + estimate_context_tokens(entries[self._covers :])


def _share(value: float) -> float:
    return value / 100 if value > 1 else value
