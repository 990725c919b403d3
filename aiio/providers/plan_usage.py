"""Rate limits from response headers, as quotas: `{name: {total, remaining, used, reset}}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .retry import parse_reset

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_RESOURCE = re.compile(
    r"x-ratelimit-(limit|remaining|reset)"
    r"(?:-(requests|tokens|project-tokens|input-images|(?:req|tokens)-(?:minute|month)))?"
)
_ANTHROPIC = re.compile(
    r"anthropic-(?:ratelimit-|(priority-|fast-))((?:input-|output-)?(?:requests|tokens))-(limit|remaining|reset)"
)
_UNIFIED = re.compile(r".*ratelimit-unified-(.+)-utilization")
_WINDOW = re.compile(r"(\d+)([mhd])(?:_.*)?")  # `7d_opus` is a window of seven days, too
_WINDOW_SECONDS = {"m": 60, "h": 3600, "d": 86400}


def quotas_of(headers: Mapping[str, str], now: float) -> dict[str, dict[str, Any]]:
    """Return the quotas that *headers* (names lower-cased) report; {} when there are none.

    `reset` is epoch seconds; a window whose name says its length has `window_seconds`. A value that is
    negative or junk is absent.

    Args:
      now: epoch seconds.
    """
    quotas: dict[str, dict[str, Any]] = {}
    bare: dict[str, Any] = {}
    for name, value in headers.items():
        if "ratelimit" not in name and not name.startswith("anthropic-"):  # as nearly all
            continue
        if found := _RESOURCE.fullmatch(name):
            target = quotas.setdefault(found[2].replace("-", "_"), {}) if found[2] else bare
            _put(target, found[1], value, now)
        elif found := _ANTHROPIC.fullmatch(name):
            named = f"{found[1] or ''}{found[2]}".replace("-", "_")
            _put(quotas.setdefault(named, {}), found[3], value, now)
        elif (found := _UNIFIED.fullmatch(name)) and _NUMBER.fullmatch(value.strip()):
            used = float(value) * 100
            quotas.setdefault(found[1], {}).update(total=100, used=used, remaining=100 - used)
            _put(quotas[found[1]], "reset", headers.get(name.replace("utilization", "reset"), ""), now)
            if length := _WINDOW.fullmatch(found[1]):
                quotas[found[1]]["window_seconds"] = int(length[1]) * _WINDOW_SECONDS[length[2]]
    if bare and "requests" not in quotas:
        quotas["requests"] = bare
    for quota in quotas.values():
        if "total" in quota and "remaining" in quota:
            quota.setdefault("used", quota["total"] - quota["remaining"])
    return {name: quota for name, quota in quotas.items() if quota}


def _put(quota: dict[str, Any], what: str, value: str, now: float) -> None:
    if what == "reset":
        if (seconds := parse_reset(value, now)) is not None:
            quota["reset"] = now + seconds
    elif _NUMBER.fullmatch(value.strip()):
        quota["total" if what == "limit" else what] = float(value)
