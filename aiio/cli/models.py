"""Which model is meant: the one named, the one configured, or the embedded one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypedDict

from aiio.env.endpoints import Endpoint, split_selector
from aiio.env.env import Env
from aiio.env.local_process import MODEL_ALIAS
from aiio.io import IO

from .exits import CliFault
from .output import say


class LimitOptions(TypedDict):
    """Limits of a request, as given on the command line."""

    timeout: str | None
    connect_timeout: str | None
    stuck_timeout: str | None


NO_LIMITS = LimitOptions(timeout=None, connect_timeout=None, stuck_timeout=None)
"""Every limit as configured."""

EMBEDDED = f"local/{MODEL_ALIAS}"


def chosen_model(env: Env, named: str | None) -> str:
    """Return the selector to use: *named*, else setting `model`, else the embedded model, which is said."""
    if named is not None:
        return named
    configured = env.settings.get("model")
    if isinstance(configured, str) and configured:
        return configured
    say(f"no model is configured: using {EMBEDDED}, a small demo model on this machine (choose with --model)")
    return EMBEDDED


def check_model(env: Env, selector: str, settings: dict[str, Any] | None = None) -> None:
    """Refuse a selector that no request could use, before anything is sent.

    Raises:
      ValueError: malformed, an unknown endpoint or model.
      ProviderError: no such dialect, or the endpoint's credential is missing.
    """
    IO(env=env, model=selector)
    env.credential(split_selector(selector)[0], settings)


def make_io(env: Env, selector: str, **options: Any) -> IO:
    """Return `IO(env=env, model=selector, **options)`. `CliFault`: says what is wrong with the arguments."""
    try:
        return IO(env=env, model=selector, **options)
    except (TypeError, ValueError) as exc:
        raise CliFault(str(exc)) from exc


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Return `["temperature=0.2", ...]` as settings; a value that is not JSON is text. `CliFault`: no `=`."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise CliFault(f"--set takes KEY=VALUE, not {pair!r}")
        try:
            settings[key.strip()] = json.loads(value)
        except ValueError:
            settings[key.strip()] = value
    return settings


def endpoint_of(env: Env, selector: str) -> Endpoint:
    """Return the endpoint of a selector that was checked before."""
    return env.endpoint(split_selector(selector)[0])
