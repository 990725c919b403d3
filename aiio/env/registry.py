"""What is plugged in: dialects by key, transports by URL scheme.

The built-in ones are named by import strings in two tables and imported when first asked for, so that
this room depends on none of them. What is not built in or registered is looked for in the entry
points `aiio.providers` and `aiio.transports` (tools: `aiio.tools`, see tools.py).
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any
from urllib.parse import urlsplit

import trio

from aiio.context.events import ErrorKind

from .errors import ProviderError

BUILTIN_PROVIDERS: dict[str, str] = {
    "openai_chat": "aiio.providers.openai_chat:OpenAIChat",
    "openai_responses": "aiio.providers.openai_responses:OpenAIResponses",
    "openai_responses_ws": "aiio.providers.openai_responses_ws:OpenAIResponsesWS",
    "openai_realtime": "aiio.providers.openai_realtime:OpenAIRealtime",
    "anthropic": "aiio.providers.anthropic:Anthropic",
    "gemini": "aiio.providers.gemini:Gemini",
    "gemini_live": "aiio.providers.gemini_live:GeminiLive",
    "ollama": "aiio.providers.ollama:Ollama",
}
BUILTIN_TRANSPORTS: dict[str, str] = {
    "http": "aiio.transports.http:HTTPTransport",
    "https": "aiio.transports.http:HTTPTransport",
    "ws": "aiio.transports.websocket:WebSocketTransport",
    "wss": "aiio.transports.websocket:WebSocketTransport",
}
PROVIDER_CONTRACT = "aiio.providers.base:check_provider"
"""A function that raises TypeError for a class that can't serve as a provider."""


class Registry:
    """Providers and transports of one Env.

    Args:
      env: transports are made with it.
      on_provider: told of every dialect that is not built in when it comes.
    """

    def __init__(self, env: Any, on_provider: Callable[[Any], None] = lambda cls: None) -> None:
        self._env = env
        self._on_provider = on_provider
        self._providers: dict[str, Any] = {}
        self._transports: dict[str, Any] = {}
        self._made: dict[type, Any] = {}  # one transport object per class, however many schemes it serves

    def provider_keys(self) -> list[str]:
        """The dialects known without looking at entry points."""
        return list(dict.fromkeys([*BUILTIN_PROVIDERS, *self._providers]))

    def register_provider(self, cls: Any) -> None:
        """Add a dialect under its own name; one of the same name is replaced, a built-in one too.

        TypeError: the class breaks the contract.
        """
        load_object(PROVIDER_CONTRACT)(cls)
        self._providers[cls.name] = cls
        self._on_provider(cls)

    def installed_provider(self, key: str) -> Any:
        """Return the dialect that is installed as *key*, None: there is none. ProviderError: it is broken."""
        if key not in self._providers and key not in BUILTIN_PROVIDERS:
            found = from_entry_points("aiio.providers", key)
            if found is None:
                return None
            _check_plugin(key, found)
            self._providers[key] = found
            self._on_provider(found)
        return self.provider(key)

    def provider(self, key: str) -> Any:
        """Return the class of dialect *key*. ProviderError: there is none, or it can't be imported."""
        if key not in self._providers:
            where = BUILTIN_PROVIDERS.get(key)
            if where is not None:
                self._providers[key] = load_object(where)
            elif self.installed_provider(key) is None:
                known = ", ".join(self.provider_keys())
                raise ProviderError(
                    ErrorKind.PROVIDER,
                    f"unknown provider {key!r}; known: {known}. Add one with env.register_provider(cls)",
                    code="unknown_provider",
                )
        return self._providers[key]

    def register_transport(self, scheme: str, transport: Any) -> None:
        """Add a transport (or its class, made with the Env when first used) for a URL scheme.

        The Env closes it. Raises TypeError: it has no `open`.
        """
        if not scheme:
            raise ValueError("a URL scheme can't be empty")
        if not callable(getattr(transport, "open", None)):
            raise TypeError(f"a transport has open(request, nursery), {transport!r} has not")
        self._transports[scheme.lower()] = transport

    def transport(self, url: str) -> Any:
        """Return the transport for *url*. ProviderError: no transport serves its scheme."""
        scheme = urlsplit(url).scheme
        found = self._transports.get(scheme)
        if found is None:
            where = BUILTIN_TRANSPORTS.get(scheme)
            found = load_object(where) if where else from_entry_points("aiio.transports", scheme)
        if found is None:
            known = ", ".join(dict.fromkeys([*BUILTIN_TRANSPORTS, *self._transports]))
            raise ProviderError(
                ErrorKind.PROVIDER,
                f"no transport for URLs that begin with {scheme!r}; known: {known}. "
                "Add one with env.register_transport(scheme, transport)",
                code="unknown_transport",
            )
        self._transports[scheme] = self._made_from(found) if inspect.isclass(found) else found
        return self._transports[scheme]

    def _made_from(self, cls: Any) -> Any:
        if cls not in self._made:
            self._made[cls] = cls(self._env)
        return self._made[cls]

    async def aclose(self) -> None:
        """Close every transport, once each; the first fault is raised when all have been tried."""
        opened = {id(item): item for item in [*self._transports.values(), *self._made.values()]}
        self._transports.clear()
        self._made.clear()
        fault: Exception | None = None
        for transport in opened.values():
            if inspect.isclass(transport):
                continue  # registered and never used
            try:
                await transport.aclose()
            except Exception as exc:  # noqa: BLE001  # a plug-in's; the first is raised below
                fault = fault or exc
        await trio.lowlevel.checkpoint()
        if fault is not None:
            raise fault


def _check_plugin(key: str, found: Any) -> None:
    """Raise ProviderError when the class that an entry point named breaks the contract; it says how."""
    try:
        load_object(PROVIDER_CONTRACT)(found)
    except TypeError as exc:
        text = f"plug-in {key!r} can't be used: {exc}"
        raise ProviderError(ErrorKind.PROVIDER, text, code="broken_plugin") from exc


def load_object(where: str) -> Any:
    """Return what the import string `"module:name"` stands for."""
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(module), name)


def from_entry_points(group: str, name: str) -> Any:
    """Return the installed plug-in *name*, or None. ProviderError: it is installed and broken."""
    for point in entry_points(group=group, name=name):
        try:
            return point.load()
        except Exception as exc:
            raise ProviderError(
                ErrorKind.PROVIDER,
                f"plug-in {name!r} ({point.value}) can't be loaded: {type(exc).__name__}: {exc}",
                code="broken_plugin",
            ) from exc
    return None
