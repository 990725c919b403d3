"""What runs on this machine: every dialect looks for its servers, side by side, in a moment.

What a dialect may look for it says itself (`detect_endpoints`); here are the limits. Only this machine is
asked, without credentials: whoever listens there may be anybody.
"""

from __future__ import annotations

import contextlib
import ipaddress
import math
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import trio

from aiio.context.log import get_logger

from .endpoints import checked_name
from .errors import ProviderError
from .fetch import Network, fetch_json

_FOR_ANSWERS = 0.9  # of the time for a search: the rest is for making something of them

Found = dict[str, dict[str, Any]]
"""By name of an endpoint: `{provider, url, auth?, models?, dynamic?}`."""


class Search:
    """What `detect_endpoints` of a dialect may look at.

    Args:
      network: carries requests.
      settings: the whole settings tree; read, never changed.
      endpoints: the settings of the endpoints that speak the dialect, by name, secrets masked.
      environ: environment variables.
      limit: seconds for the whole search.
    """

    def __init__(
        self,
        network: Network,
        *,
        settings: Mapping[str, Any],
        endpoints: Mapping[str, Mapping[str, Any]],
        environ: Mapping[str, str],
        limit: float,
    ) -> None:
        self._network = network
        self._limit = limit * _FOR_ANSWERS
        self.settings = settings
        self.endpoints = endpoints
        self.environ = environ

    async def ask(self, urls: Iterable[str]) -> dict[str, Any]:
        """GET all *urls* side by side, and return the JSON values of the answers, by URL.

        A URL that does not name this machine is not asked. Who does not answer in time, or with something
        else than JSON, is missing. Always a checkpoint.
        """
        answers: dict[str, Any] = {}

        async def fetch(url: str) -> None:
            with contextlib.suppress(ProviderError):  # nobody, or somebody else
                answers[url] = await fetch_json(
                    self._network, url, {}, endpoint="local servers", limit=math.inf
                )

        with trio.move_on_after(self._limit):
            async with trio.open_nursery() as nursery:
                for url in filter(is_loopback, dict.fromkeys(urls)):
                    nursery.start_soon(fetch, url, name="aiio.detect")
        return answers


async def detect(searches: Iterable[tuple[Any, Search]], limit: float) -> Found:
    """Return what the dialects find; of one name the first dialect's.

    Args:
      searches: dialects and what each may look at.
      limit: seconds each may take; they look side by side. One that fails or takes longer finds nothing.

    Cancellation: safe. Always a checkpoint.
    """
    found: dict[int, Found] = {}

    async def look(place: int, provider: Any, search: Search) -> None:
        try:
            with trio.move_on_after(limit):
                found[place] = _checked(await provider.detect_endpoints(search), provider.name)
        except Exception as exc:  # noqa: BLE001  # a plug-in's, and nobody asked for this one in particular
            get_logger().debug("detect.failed", provider=provider.name, error=type(exc).__name__)

    async with trio.open_nursery() as nursery:
        for place, (provider, search) in enumerate(searches):
            nursery.start_soon(look, place, provider, search, name="aiio.detect")
    merged: Found = {}
    for _, endpoints in sorted(found.items()):
        for name, facts in endpoints.items():
            merged.setdefault(name, facts)
    return merged


def _checked(given: Any, provider: str) -> Found:
    """Return the usable part of what a hook returned."""
    found: Found = {}
    for name, facts in given.items():
        url = facts.get("url")
        if not isinstance(url, str) or not urlsplit(url).netloc:
            raise ValueError(f"the URL of {name!r} is not absolute")
        found[checked_name(name)] = {**facts, "provider": facts.get("provider") or provider}
    return found


def is_loopback(url: str) -> bool:
    """Tell whether *url* names this machine by a loopback address or as localhost."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
