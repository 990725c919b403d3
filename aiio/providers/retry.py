"""How long to wait: reset times and retry delays, in every form that providers write them.

Pure functions over headers and bodies; the wall clock is an argument. Garbage is None, never an exception.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

MAX_DELAY_MS = 2_147_483_647.0
"""Longest delay that is passed on: what a 32-bit timer can hold."""

_EPOCH = 1e9  # smaller numbers are seconds from now
_EPOCH_MS = 1e11

_NUMBER = re.compile(r"\d+(?:\.\d*)?|\.\d+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|us|µs|ns|d|h|m|s)", re.IGNORECASE)
_UNIT_SECONDS = {
    "d": 86400.0,
    "h": 3600.0,
    "m": 60.0,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,
    "ns": 1e-9,
}
_PROSE = re.compile(
    r"(?:try again|retry|wait)[^\d.]{0,40}?"
    r"((?:\d+(?:\.\d+)?\s*(?:milliseconds?|seconds?|minutes?|hours?|ms|s|m|h)(?![a-z])\s*)+)",
    re.IGNORECASE,
)
_WORDS = (
    (re.compile(r"milliseconds?", re.IGNORECASE), "ms"),
    (re.compile(r"seconds?", re.IGNORECASE), "s"),
    (re.compile(r"minutes?", re.IGNORECASE), "m"),
    (re.compile(r"hours?", re.IGNORECASE), "h"),
)


def parse_reset(value: object, now: float) -> float | None:
    """Return the seconds from *now* until *value*, or None when it says nothing.

    Args:
      value: seconds, a Go duration (`6m0s`, `1h2m3s`, `12ms`), an RFC 3339 time, an HTTP date, or epoch
        seconds or milliseconds, as a number or as text.
      now: epoch seconds.

    Returns:
      Seconds, 0.0 for a moment that has passed; None for negative numbers and junk.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _from_number(value, now)
    if not isinstance(value, str):
        return None
    text = value.strip()
    if _NUMBER.fullmatch(text):
        return _from_number(float(text), now)
    seconds = _from_duration(text)
    return seconds if seconds is not None else _from_date(text, now)


def _from_number(value: float, now: float) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    if not math.isfinite(number) or number < 0:
        return None
    if number > _EPOCH_MS:
        return max(0.0, number / 1000 - now)
    return max(0.0, number - now) if number > _EPOCH else number


def _from_duration(text: str) -> float | None:
    total, position = 0.0, 0
    for part in _DURATION_PART.finditer(text):
        if part.start() != position:
            return None
        position = part.end()
        total += float(part[1]) * _UNIT_SECONDS[part[2].lower()]
    return total if position and position == len(text) and math.isfinite(total) else None


def _from_date(text: str, now: float) -> float | None:
    moment: datetime | None = None
    try:
        moment = datetime.fromisoformat(text) if len(text) > 10 else None  # a bare date is no reset time
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    if moment is None:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, moment.timestamp() - now)


def retry_delay_ms(headers: Mapping[str, str], body: object, message: str, now: float) -> float | None:
    """Return how long the provider asks us to wait, in milliseconds rounded up, or None when it does not say.

    The first that says something wins: `retry-after-ms`, `retry-after`, fields of the body, the words of
    *message*, and last the reset times of the quotas whose remaining count is 0 (the latest of them).

    Args:
      headers: response headers, names lower-cased.
      body: the parsed error body, or whatever else came.
      message: the provider's own sentence.
      now: epoch seconds.
    """
    for seconds in _delays(headers, body, message, now):
        if seconds is not None:
            return float(math.ceil(round(min(seconds * 1000, MAX_DELAY_MS), 3)))
    return None


def _delays(headers: Mapping[str, str], body: object, message: str, now: float) -> Iterator[float | None]:
    millis = headers.get("retry-after-ms", "").strip()
    yield float(millis) / 1000 if _NUMBER.fullmatch(millis) else None
    yield parse_reset(headers.get("retry-after"), now)
    yield from _body_delays(body, now)
    yield _from_prose(message)
    yield _exhausted(headers, now)


def _body_delays(body: object, now: float) -> Iterator[float | None]:
    error = body.get("error", body) if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return
    yield parse_reset(error.get("resets_in_seconds"), now)
    yield parse_reset(error.get("resets_at"), now)
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict):
            yield parse_reset(detail.get("retryDelay"), now)
    sent = _dict(_dict(error.get("metadata")).get("headers"))
    yield parse_reset(next((sent[key] for key in sent if key.lower() == "x-ratelimit-reset"), None), now)


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _from_prose(message: str) -> float | None:
    found = _PROSE.search(message)
    if found is None:
        return None
    text = found[1]
    for word, unit in _WORDS:
        text = word.sub(unit, text)
    return _from_duration("".join(text.split()))


_REMAINING = re.compile(r"(.*ratelimit-)remaining(.*)|(.*ratelimit-.*-)remaining")


def _exhausted(headers: Mapping[str, str], now: float) -> float | None:
    waits: list[float] = []
    for name, value in headers.items():
        found = _REMAINING.fullmatch(name)
        if found and value.strip() == "0":
            wait = parse_reset(headers.get(name.replace("remaining", "reset")), now)
            if wait is not None:
                waits.append(wait)
    return max(waits, default=None)
