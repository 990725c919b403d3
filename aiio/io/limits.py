"""The three limits of a request: where each comes from, and what the connect budget adds to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from aiio.context.log import get_logger
from aiio.env.durations import (
    DEFAULT_CONNECT_TIMEOUT_MS,
    DEFAULT_STUCK_TIMEOUT_MS,
    DEFAULT_TIMEOUT_MS,
    Duration,
    parse_duration,
    try_duration,
)
from aiio.env.endpoints import split_selector

if TYPE_CHECKING:
    from aiio.env.env import Env

DEFAULTS = {
    "timeout": DEFAULT_TIMEOUT_MS / 1000,
    "connect_timeout": DEFAULT_CONNECT_TIMEOUT_MS / 1000,
    "stuck_timeout": DEFAULT_STUCK_TIMEOUT_MS / 1000,
}
"""Seconds, by option name."""

SMALLEST_PLAUSIBLE_MS = 1000
"""A bare number below this is more often seconds meant than milliseconds."""

_warned: set[str] = set()


class Limits(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The limits of one request, in seconds; `math.inf` is none."""

    overall: float
    """From admission to the last byte."""
    connect: float
    """From the first byte sent to the response head, before the body's share is added."""
    stuck: float
    """Between two pieces of message data."""


def check_duration(option: str, value: Duration | None) -> float | None:
    """Return an option that a caller gave explicitly, in seconds.

    Raises:
      ValueError, TypeError: as `parse_duration`, naming *option*.
    """
    try:
        seconds = parse_duration(value)
    except (ValueError, TypeError) as exc:
        raise type(exc)(f"{option}: {exc}") from None
    bare = isinstance(value, int | float) and value < SMALLEST_PLAUSIBLE_MS
    if bare and option not in _warned:
        _warned.add(option)
        get_logger().warning(
            "limit.small",
            option=option,
            value=value,
            hint=f'{value} is {value} ms; for seconds write "{value}s"',
        )
    return seconds


def resolve_limit(
    option: str, explicit: tuple[float | None, ...], settings: Mapping[str, Any], provider: Any
) -> float:
    """Return one limit in seconds: the first of *explicit*, settings, provider and default that is set.

    In settings and provider metadata a value that does not parse counts as not set.
    """
    levels = (*explicit, try_duration(settings.get(option)), try_duration(getattr(provider, option, None)))
    return next((seconds for seconds in levels if seconds is not None), DEFAULTS[option])


def resolve_timeout(
    *,
    env: Env,
    model: str,
    timeout: Duration | None = None,
    settings: Mapping[str, Any] | None = None,
) -> float:
    """Return the overall limit, in milliseconds, that an IO made with the same arguments would use.

    Explicit > endpoint settings (with *settings* laid over) > provider metadata > 1,048,575. A value that
    does not parse is skipped. `math.inf` is no limit.

    Raises:
      TypeError, ValueError: no env, a malformed selector, an unknown endpoint.
    """
    if env is None:
        raise TypeError("resolve_timeout needs an env")
    name, _ = split_selector(model)
    endpoint = env.endpoint(name)
    merged = env.endpoint_settings(name, settings)
    seconds = resolve_limit("timeout", (try_duration(timeout),), merged, env.provider(endpoint.provider))
    return seconds * 1000


def connect_budget(base_ms: float, nbytes: float | None) -> float:
    """Return the connect budget in milliseconds: *base_ms* plus 1 ms for each byte of the body."""
    return base_ms + max(0, math.floor(nbytes or 0))


def as_words(seconds: float) -> str:
    """Return a duration for people: `250 ms`, `30 s`, `no limit`."""
    if math.isinf(seconds):
        return "no limit"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s".replace(".0 s", " s")
