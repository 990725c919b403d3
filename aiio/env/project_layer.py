"""What a settings file in a project folder may say: a list of harmless things, and nothing else.

A folder that somebody cloned, unpacked or mounted must not decide what code runs, where a prompt or a
credential goes, whom we trust, or which files are read and written. So the list says what is allowed, and
a setting invented later is refused until somebody thought about it:

- `model`, if its endpoint is one that the user or the program knows;
- `max_active`;
- for any endpoint, limits and options of generation that stay between us and the same server
  (`POLICY`). Not among them: `url`, `provider`, `auth`, `env_keys`, `proxy`, `oauth`, `extra_headers`,
  `extra_body` and `server_tools` (they can send a conversation elsewhere), `store`, `service_tier` (cost);
- an endpoint that nobody else knows, with `url`, a built-in `provider` and `quirks`. It gets no credential
  from anywhere until the user sets one, which pins its URL in the user's own file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from .endpoints import DEFAULT_PROVIDER, KNOWN_ENDPOINTS, checked_name
from .registry import BUILTIN_PROVIDERS

PROJECT_FILE = "aiio.toml"

POLICY = frozenset(
    {
        "timeout",
        "connect_timeout",
        "stuck_timeout",
        "pings_are_progress",
        "context_window",
        "models",
        "max_tokens",
        "temperature",
        "top_p",
        "frequency_penalty",
        "presence_penalty",
        "seed",
        "stop",
        "verbosity",
        "think",
        "reasoning_effort",
        "response_format",
        "parallel_tool_calls",
    }
)
"""Settings of an endpoint that a project may make."""

_SELECTOR = re.compile(r"([^/\s]+)/\S.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectPart:
    """What is left of a project's file."""

    layer: dict[str, Any] = field(default_factory=dict)
    introduced: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The endpoints that only this file knows: their `url` and `provider`."""
    dropped: list[str] = field(default_factory=list)
    """What was not allowed, as dotted keys; never values."""


def allowed_part(layer: Mapping[str, Any], known: Collection[str]) -> ProjectPart:
    """Return what of *layer*, a project's file, counts.

    Args:
      layer: read, never changed.
      known: endpoints that somebody but the project knows: built in, configured, or with a credential.
    """
    part = ProjectPart()
    given = layer.get("providers")
    for name, policy in given.items() if isinstance(given, Mapping) else ():
        if isinstance(policy, Mapping):
            _take_policy(part, name, policy, known)
        else:
            part.dropped.append(f"providers.{name}")
    for key, value in layer.items():
        if (key == "model" and _is_ours(value, known)) or (key == "max_active" and _is_count(value)):
            part.layer[key] = value
        elif key != "providers" or not isinstance(value, Mapping):
            part.dropped.append(key)
    return part


def _take_policy(part: ProjectPart, name: str, policy: Mapping[str, Any], known: Collection[str]) -> None:
    allowed = {key: value for key, value in policy.items() if key in POLICY}
    if name in KNOWN_ENDPOINTS and KNOWN_ENDPOINTS[name].embedded:
        allowed.pop("context_window", None)  # there it is memory of this machine
    if name not in known:
        place = {"url": policy.get("url"), "provider": policy.get("provider", DEFAULT_PROVIDER)}
        if not _is_place(name, place):
            part.dropped.append(f"providers.{name}")
            return
        part.introduced[name] = place
        quirks = {"quirks": policy["quirks"]} if isinstance(policy.get("quirks"), Mapping) else {}
        allowed = {**allowed, **place, **quirks}
    part.dropped.extend(f"providers.{name}.{key}" for key in policy if key not in allowed)
    if allowed:
        part.layer.setdefault("providers", {})[name] = allowed


def _is_place(name: str, place: Mapping[str, Any]) -> bool:
    """Tell whether a project may add an endpoint like this."""
    url = place["url"]
    if place["provider"] not in BUILTIN_PROVIDERS or not isinstance(url, str):
        return False
    try:
        checked_name(name)
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc


def _is_ours(model: object, known: Collection[str]) -> bool:
    found = _SELECTOR.fullmatch(model) if isinstance(model, str) else None
    return found is not None and found[1] in known


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1
