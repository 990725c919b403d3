"""Allowances of a ChatGPT plan, which that backend reports beside or instead of rate limits."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from .retry import parse_reset

_WINDOW = re.compile(r"x-codex-(.+)-used-percent")


def plan_of(headers: Mapping[str, str], now: float) -> tuple[str | None, dict[str, dict[str, Any]]]:
    """Return the plan's name and its quotas from *headers* (names lower-cased); (None, {}): there are none.

    Args:
      now: epoch seconds.
    """
    quotas: dict[str, dict[str, Any]] = {}
    for name, value in headers.items():
        if found := _WINDOW.fullmatch(name):
            prefix = f"x-codex-{found[1]}-"
            window = {
                "used_percent": value,
                "window_minutes": headers.get(f"{prefix}window-minutes"),
                "reset_at": headers.get(f"{prefix}reset-at"),
                "reset_after_seconds": headers.get(f"{prefix}reset-after-seconds"),
            }
            if quota := quota_of(window, now):
                quotas[found[1]] = quota
    return headers.get("x-codex-plan-type"), quotas


def quota_of(window: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return one window of a plan as a quota in per cent; {} when it says nothing.

    Args:
      window: `used_percent`, `window_minutes`, `reset_at` or `reset_after_seconds`, as texts or numbers.
      now: epoch seconds.
    """
    used = _number(window.get("used_percent"))
    if used is None:
        return {}
    quota: dict[str, Any] = {"total": 100, "used": used, "remaining": max(0.0, 100 - used)}
    reset = parse_reset(window.get("reset_at"), now)
    if reset is None:
        reset = parse_reset(window.get("reset_after_seconds"), now)
    if reset is not None:
        quota["reset"] = now + reset
    if (minutes := _number(window.get("window_minutes"))) is not None:
        quota["window_seconds"] = minutes * 60
    return quota


def _number(value: object) -> float | None:
    try:
        number = float(value)  # type: ignore[arg-type]  # what is no number raises
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None
