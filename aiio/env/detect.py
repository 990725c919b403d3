"""Which of the usual local servers run here: each is asked once, side by side, in a moment.

Only this machine is asked. An endpoint that was configured to lie elsewhere is left alone.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import trio

from .errors import ProviderError
from .fetch import Network, fetch_json


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServer:
    """How a kind of server is told from whatever else may listen on its port."""

    endpoint: str
    """The known endpoint it stands for."""
    path: str
    """Asked with GET, from the root of its URL."""
    models: Callable[[Any], dict[str, dict[str, Any]] | None]
    """Given the JSON answer, returns its models; None: it is another server."""


def _ollama(data: Any) -> dict[str, dict[str, Any]] | None:
    entries = data.get("models") if isinstance(data, Mapping) else None
    if not isinstance(entries, list):
        return None
    return _named(entries, "name")


def _owned_by(owner: str) -> Callable[[Any], dict[str, dict[str, Any]] | None]:
    def models(data: Any) -> dict[str, dict[str, Any]] | None:
        entries = data.get("data") if isinstance(data, Mapping) else None
        ours = [entry for entry in entries if _is_owned(entry, owner)] if isinstance(entries, list) else []
        return _named(ours, "id") if ours else None

    return models


def _is_owned(entry: Any, owner: str) -> bool:
    return isinstance(entry, Mapping) and str(entry.get("owned_by", "")).lower() == owner


def _named(entries: list[Any], key: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if isinstance(entry, Mapping) and isinstance(entry.get(key), str):
            length = entry.get("max_model_len")
            found[entry[key]] = {"context_window": length} if type(length) is int and length > 0 else {}
    return found


# Source: the servers' own API pages, read 2026-11-30. All three answer these without a key.
LOCAL_SERVERS = (
    LocalServer(endpoint="ollama", path="/api/tags", models=_ollama),
    LocalServer(endpoint="llamacpp", path="/v1/models", models=_owned_by("llamacpp")),
    LocalServer(endpoint="vllm", path="/v1/models", models=_owned_by("vllm")),
)


async def detect(
    network: Network, urls: Mapping[str, str], limit: float
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the models of the servers that answer, by endpoint.

    Args:
      urls: base URLs of the endpoints to look for.
      limit: seconds for all of them together.

    Cancellation: safe. Always a checkpoint.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}

    async def ask(server: LocalServer, url: str) -> None:
        parts = urlsplit(url)
        place = urlunsplit((parts.scheme, parts.netloc, server.path, "", ""))
        try:
            data = await fetch_json(network, place, {}, endpoint=server.endpoint, limit=limit)
        except ProviderError:
            return  # nobody, or somebody else
        models = server.models(data)
        if models is not None:
            found[server.endpoint] = models

    with trio.move_on_after(limit):
        async with trio.open_nursery() as nursery:
            for server in LOCAL_SERVERS:
                url = urls.get(server.endpoint)
                if url is not None and is_loopback(url):
                    nursery.start_soon(ask, server, url)
    return {server.endpoint: found[server.endpoint] for server in LOCAL_SERVERS if server.endpoint in found}


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
