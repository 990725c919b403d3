"""Env: what the process knows, in one place. Everything is registered here and looked up here.

An Env owns what requests share: settings, credentials, one TLS context, the ledger of requests in
flight, the transports, the embedded model's server, and a nursery for tasks that outlive a call. Using it
without entering it works for all that needs no such task.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, KeysView, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import trio

from aiio.context.log import get_logger

from . import local_state
from .auth import Secret
from .background import Background
from .directory import Directory
from .durations import parse_duration
from .endpoints import DEFAULT_PROVIDER, Endpoint, checked_name, split_selector
from .ledger import Ledger
from .listeners import Listener, ListenerHandle, Listeners
from .local import DEFAULT_IDLE_AFTER, LocalModel
from .local_process import ModelServer, require_runtime, server_spec, start_server
from .proxies import proxy_from_environment, with_scheme
from .registry import Registry
from .scrub import Scrubber, is_secret_name
from .settings import Settings, read_layer
from .tls import make_ssl_context
from .tools import Tool, ToolCatalog
from .weights import find_weights
from .windows import Windows

_CLOSE_LIMIT = 5.0  # seconds for transports to close
_SCOPES = (None, "local", "package")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a request goes, and with what."""

    url: str
    """Base URL of the endpoint."""
    credential: Secret | None = None


class Env:
    """The registry of endpoints, providers, transports and tools, and what requests share.

    Args:
      settings: the top layer of the settings; copied.
      config: a settings file below it (TOML, or JSON by its suffix), or an object.
      http_client: an object with the face of `httpx.AsyncClient.stream` to send requests through; stays the
        caller's, who closes it.
      max_active: limit on requests in flight, over `settings["max_active"]`; None: as configured, else none.
      environ: environment variables; by default the process's own, read when they are needed.

    Raises:
      TypeError, ValueError: settings of the wrong shape, an unreadable file, a limit that is none.
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        config: str | Path | Mapping[str, Any] | None = None,
        http_client: Any = None,
        max_active: int | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.ledger = Ledger()
        self.settings = Settings(
            read_layer(config), {} if settings is None else settings, on_change=self._setting_changed
        )
        self.http_client = http_client
        self.scrubber = Scrubber()
        self.tools = ToolCatalog()
        self.windows = Windows()
        self._environ: Mapping[str, str] = os.environ if environ is None else environ
        self._directory = Directory(self.settings, self._environ)
        self._registry = Registry(self)
        self._listeners = Listeners(partial(self._report, "env.listener_failed"))
        self._background = Background(partial(self._report, "env.task_crashed"))
        self._local: LocalModel | None = None
        self._ssl_context: ssl.SSLContext | None = None
        self._entered = False
        self.ledger.max_active = self.settings.get("max_active") if max_active is None else max_active
        self._learn(self.settings)

    # --- life ---

    async def __aenter__(self) -> Env:
        if self._entered:
            raise RuntimeError("an Env is entered once; open another one")
        self._entered = True
        await self._background.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close. What the body raised leaves as itself, never in a group."""
        try:
            with trio.CancelScope(shield=True):
                await self.aclose()
        finally:
            await self._background.aclose()

    async def aclose(self) -> None:
        """Cancel the background tasks, stop the embedded model, close the transports. Idempotent.

        What a transport raises while closing is logged. Bounded: 5 s for the transports, 3 s for the model.
        Cancellation: the rest stays open; call again.
        """
        await self._background.cancel()
        if self._local is not None:
            await self._local.aclose()
        with trio.move_on_after(_CLOSE_LIMIT):
            try:
                await self._registry.aclose()
            except Exception as exc:  # noqa: BLE001  # a plug-in's, and the body's own error matters more
                self._report("env.close_failed", "transports", exc)

    @property
    def nursery(self) -> Background:
        """Runs tasks beside the body of `async with`: `start_soon`, `start`. They are cancelled at its end.

        A child that crashes is logged and harms nobody. RuntimeError: the Env is not entered.
        """
        self._background.check_open()
        return self._background

    # --- the ledger ---

    @property
    def active_io(self) -> KeysView[Any]:
        """The IOs whose request is in flight: a live, set-like view."""
        return self.ledger.active

    @property
    def queued(self) -> int:
        """How many requests wait for a slot."""
        return self.ledger.queued

    @property
    def max_active(self) -> int | None:
        """Limit on requests in flight; None: none. May be set at any time. ValueError: not an int >= 1."""
        return self.ledger.max_active

    @max_active.setter
    def max_active(self, value: int | None) -> None:
        self.settings["max_active"] = value

    # --- endpoints and credentials ---

    def endpoint(self, name: str) -> Endpoint:
        """Return endpoint *name* as configured now. ValueError: unknown; the text lists the known ones."""
        return self._directory.endpoint(name)

    def endpoint_names(self) -> list[str]:
        """Names of all endpoints, the ones known without configuration first."""
        return self._directory.names()

    def register_endpoint(
        self,
        name: str,
        *,
        provider: str | None = None,
        url: str | None = None,
        auth: str | Secret | Mapping[str, Any] | None = None,
        models: Mapping[str, Any] | None = None,
        **policy: Any,
    ) -> Endpoint:
        """Add an endpoint, or lay this over one that is there; returns it.

        Args:
          name: what stands before the slash of a selector.
          provider: its dialect; None: as known, else Chat Completions.
          url: base URL.
          auth: a key, or an auth record.
          models: model ids and what is known about each.
          policy: limits, `quirks`, `context_window`, `proxy`, whatever else its settings hold.

        Raises:
          TypeError, ValueError: a name or URL that can't be used, quoted.
          ProviderError: kind auth, for a key no request could carry.
        """
        checked_name(name)
        if url is not None and "://" not in str(url):
            raise ValueError(f"the URL of endpoint {name!r} must be absolute, not {url!r}")
        if provider is None and name not in self.endpoint_names():
            provider = DEFAULT_PROVIDER
        given = {"provider": provider, "url": url, "models": models, **policy}
        self.settings.set_policy(name, {key: value for key, value in given.items() if value is not None})
        if auth is not None:
            self.settings.set_auth(name, auth)
        self._learn({"url": url, name: self.settings.record(name)})
        return self.endpoint(name)

    def endpoint_settings(self, name: str, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return what holds for endpoint *name*, *overrides* on top: a fresh dict, secrets masked.

        ValueError: unknown endpoint.
        """
        return self._directory.settings(name, overrides)

    def credential(self, name: str, overrides: Mapping[str, Any] | None = None) -> Secret | None:
        """Return the credential for endpoint *name*; None: it needs none. The scrubber knows it from then on.

        Raises:
          ValueError: unknown endpoint.
          ProviderError: kind auth; it is missing or can't be sent, and the text says which setting to change.
        """
        secret = self._directory.credential(name, overrides)
        if secret is not None:
            self.scrubber.add(secret)
        return secret

    async def resolve(self, name: str, overrides: Mapping[str, Any] | None = None) -> Address:
        """Return where a request to endpoint *name* goes; the embedded model's server is started if need be.

        Raises:
          ValueError: unknown endpoint.
          ProviderError: auth, the credential is missing or bad; provider, no URL, or the model's server
            did not start. The text says what to do.

        Cancellation: safe. Always a checkpoint.
        """
        if self._directory.endpoint(name, overrides).embedded:
            url, key = await self._local_model().address()
            self.scrubber.add(key)
            return Address(url=url, credential=key)
        await trio.lowlevel.checkpoint()
        url = self._directory.url(name, overrides)
        self.scrubber.add_url(url)
        return Address(url=url, credential=self.credential(name, overrides))

    async def auth_set(
        self, endpoint: str, auth: str | Secret | Mapping[str, Any], scope: str | None = None
    ) -> None:
        """Change the credentials of *endpoint*, in memory; the next request uses them.

        Args:
          endpoint: its name.
          auth: a key, or an object: credential keys (`type token access refresh expires`) and an `auth`
            object go into the record's `auth`, other keys beside it; None deletes a key, `models` replaces.
          scope: `"local"` or `"package"`; None: where the endpoint lives.

        Raises:
          TypeError, ValueError: not a name, not a credential, not a scope.
          ProviderError: kind auth, for a credential no request could carry.
        """
        checked_name(endpoint)
        if scope not in _SCOPES:
            raise ValueError(f"a scope is 'local' or 'package', not {scope!r}")
        await trio.lowlevel.checkpoint()
        self.settings.set_auth(endpoint, auth)
        self._learn(self.settings.record(endpoint))

    def context_window(self, selector: str) -> int | None:
        """Return how many tokens the model of `"endpoint/model"` takes; None when nobody knows.

        TypeError, ValueError: not a selector, or an unknown endpoint.
        """
        name, model = split_selector(selector)
        return self.windows.lookup(name, model, self.endpoint_settings(name))

    # --- plug-ins ---

    def register_provider(self, cls: Any) -> None:
        """Add a dialect under its own name (`define_provider`). TypeError: it breaks the contract."""
        self._registry.register_provider(cls)

    def provider(self, key: str) -> Any:
        """Return the class of dialect *key*. ProviderError: there is none."""
        return self._registry.provider(key)

    def register_transport(self, scheme: str, transport: Any) -> None:
        """Add a transport, or its class, for a URL scheme; the Env closes it. TypeError: it has no `open`."""
        self._registry.register_transport(scheme, transport)

    def transport(self, url: str) -> Any:
        """Return the transport for *url*, made when first needed. ProviderError: none serves its scheme."""
        return self._registry.transport(url)

    def register_tool(
        self,
        fn: Callable[..., Any],
        schema: Mapping[str, Any] | None = None,
        available: Callable[[Any], object] | None = None,
        *,
        name: str | None = None,
        **metadata: Any,
    ) -> Tool:
        """Add a tool; see `ToolCatalog.register`. With *available*, it is offered after a refresh said so."""
        return self.tools.register(fn, schema=schema, name=name, available=available, **metadata)

    def tool(self, name: str) -> Tool | None:
        """Return the entry of tool *name*, or None."""
        return self.tools.get(name)

    def tool_schemas(self, names: object = None) -> list[dict[str, Any]]:
        """Return the descriptions to publish; *names*: None or `["*"]` all, `[]` none, a list those of it."""
        return self.tools.schemas(names)

    def refresh_tool_availability(self) -> None:
        """Ask the tools that have `available` anew; before every request."""
        self.tools.refresh_availability(self)

    # --- the network ---

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The TLS context all connections share, made when first needed; setting `ca_file` adds trust."""
        if self._ssl_context is None:
            self._ssl_context = make_ssl_context(self.settings.get("ca_file"))
        return self._ssl_context

    def proxy_for(self, url: str, settings: Mapping[str, Any] | None = None) -> str | None:
        """Return the proxy for *url*; None: direct.

        `proxy` in *settings* (those of the endpoint; a URL, or False or `"direct"` for none), else `proxy` in
        the settings of all, else `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`.
        """
        setting = (settings or {}).get("proxy")
        if setting is None:
            setting = self.settings.get("proxy")
        if setting is None:
            proxy = proxy_from_environment(url, self._environ)
        else:
            proxy = None if setting in (False, "", "direct") else with_scheme(str(setting))
        if proxy is not None:
            self.scrubber.add_url(proxy)
        return proxy

    # --- what is said about it ---

    def scrub(self, text: str) -> str:
        """Return *text* with every credential masked."""
        return self.scrubber.text(text)

    def on_event(self, fn: Listener) -> ListenerHandle:
        """Call *fn* with every `EnvEvent`; return what `off_event` takes. TypeError: not a plain function."""
        return self._listeners.add(fn)

    def off_event(self, handle: object) -> bool:
        """Stop calling a listener. False: it was not there."""
        return self._listeners.remove(handle)

    def emit(self, name: str, **data: Any) -> None:
        """Tell the listeners. What one raises is logged, and harms nobody."""
        self._listeners.emit(name, data)

    # --- inside ---

    def _local_model(self) -> LocalModel:
        if self._local is None:
            record = self.settings.record("local")
            idle_after = parse_duration(record.get("idle_after"))
            self._local = LocalModel(
                start=self._start_local,
                adopt=partial(local_state.adopt, record.get("cache_dir")),
                tasks=self._background,
                busy=lambda: bool(self.ledger.active),
                idle_after=DEFAULT_IDLE_AFTER if idle_after is None else idle_after,
            )
        return self._local

    async def _start_local(self) -> ModelServer:
        require_runtime()
        settings = self.endpoint_settings("local")
        weights = find_weights(settings.get("weights"), cache=settings.get("cache_dir"))
        return await start_server(server_spec(settings, weights))

    def _setting_changed(self, key: str, value: Any) -> None:
        if key == "max_active":
            self.ledger.max_active = value

    def _learn(self, tree: Mapping[str, Any]) -> None:
        """Tell the scrubber of the credentials in a settings tree."""
        for key, value in tree.items():
            if isinstance(value, Mapping):
                self._learn(value)
            elif isinstance(value, Secret) or (
                isinstance(value, str) and (is_secret_name(key) or key == "auth")
            ):
                self.scrubber.add(value)
            elif isinstance(value, str) and "://" in value:
                self.scrubber.add_url(value)

    def _report(self, event: str, what: str, error: Exception) -> None:
        get_logger().error(event, what=what, error=self.scrub(f"{type(error).__name__}: {error}"))


def open_env(
    settings: Mapping[str, Any] | None = None,
    *,
    config: str | Path | Mapping[str, Any] | None = None,
    http_client: Any = None,
    max_active: int | None = None,
) -> Env:
    """Return an Env, to be entered: `async with aiio.open_env() as env:`. Arguments as for `Env`."""
    return Env(settings, config=config, http_client=http_client, max_active=max_active)
