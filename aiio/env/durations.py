"""Durations: the one place that knows milliseconds.

At the public edge a duration is a bare number of milliseconds, a string with a unit, a `timedelta`,
or an explicit word for "no limit". Inside, everything is float seconds on trio's clock.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import TypeAlias

Duration: TypeAlias = int | float | str | timedelta
"""Milliseconds as a bare number, `"250ms" | "30s" | "17m" | "1.5h" | "never"`, a `timedelta`, `math.inf`."""

DEFAULT_TIMEOUT_MS = 1_048_575
"""Milliseconds from admission to the last byte, where nothing else is set."""
DEFAULT_CONNECT_TIMEOUT_MS = 30_000
"""Milliseconds to the response head, before 1 ms for each byte of the request body is added."""
DEFAULT_STUCK_TIMEOUT_MS = 120_000
"""Milliseconds between two pieces of message data."""

_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?\s*", re.IGNORECASE)
_MOST_BITS = 64  # far more milliseconds than anybody waits, and far fewer than overflow a float
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(value: Duration | None) -> float | None:
    """Return *value* in seconds; None means "not set here" and stays None, no limit is `math.inf`.

    Raises:
      ValueError: not positive, not a number, or text without meaning; the text quotes it.
      TypeError: not a duration at all (a bool, a list, ...).
    """
    if value is None:
        return None
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, str):
        if value.strip().lower() == "never":
            return math.inf
        found = _TEXT.fullmatch(value)
        if found is None:
            raise ValueError(f'not a duration: {value!r} (use e.g. "250ms", "30s", "17m", "1.5h" or "never")')
        seconds = float(found[1]) * _UNIT_SECONDS[(found[2] or "ms").lower()]
        if math.isinf(seconds):  # so many digits are a slip, and no limit needs the explicit word
            raise ValueError(f"not a duration: {value[:40]!r}...")
    elif isinstance(value, bool) or not _is_number(value):
        raise TypeError(f"not a duration: {value!r}")
    elif isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise ValueError("not a duration: a number of milliseconds with more digits than a clock has")
    else:
        seconds = value / 1000
    if not seconds > 0:
        raise ValueError(f"a duration must be positive, not {value!r}")
    return seconds


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def try_duration(value: object) -> float | None:
    """Return *value* in seconds, or None where `parse_duration` would raise."""
    try:
        return parse_duration(value)  # type: ignore[arg-type]  # anything may come in, that is the point
    except (TypeError, ValueError):
        return None
