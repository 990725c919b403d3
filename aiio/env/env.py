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
from typing import Any, Literal

import trio

from .auth import Secret
from .background import Background
from .config_files import cache_of_user, read_config_files, user_folder
from .credentials import SCOPES, CredentialKeeper
from .detect import LOCAL_SERVERS, detect
from .directory import Directory, in_settings
from .durations import Duration, parse_duration
from .embedded import embedded_model
from .endpoints import DEFAULT_PROVIDER, Endpoint, checked_name, split_selector
from .errors import ProviderError
from .ledger import Ledger
from .local import LocalModel
from .model_lists import ModelLists, Models, over
from .oauth import Refresh, TokenRenewal
from .pluggable import Pluggable
from .prices import PriceList
from .proxies import choose_proxy
from .settings import Settings, read_layer
from .tls import make_ssl_context
from .windows import Windows

_CLOSE_LIMIT = 5.0  # seconds for transports to close


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a request goes, and with what."""

    url: str
    """Base URL of the endpoint."""
    credential: Secret | None = None


class Env(Pluggable):
    """The registry of endpoints, providers, transports and tools, and what requests share.

    Args:
      settings: the top layer of the settings; copied.
      config: a settings file below it (TOML, or JSON by its suffix), or an object; below that lie the
        project's and the user's files (config_files.py). False: no files at all.
      http_client: an object with the face of `httpx.AsyncClient.stream` to send requests through; stays the
        caller's, who closes it.
      max_active: limit on requests in flight, over `settings["max_active"]`; None: as configured, else none.
      environ: environment variables; by default the process's own, read when they are needed. With others
        no files are read or written, unless they name a folder in `AIIO_CONFIG_DIR`.

    Raises:
      TypeError, ValueError: settings of the wrong shape, *config* or the user's config.toml unreadable (the
        text names the file), a limit that is none.
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        config: str | Path | Mapping[str, Any] | Literal[False] | None = None,
        http_client: Any = None,
        max_active: int | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.ledger = Ledger()
        self._environ: Mapping[str, str] = os.environ if environ is None else environ
        upper = (read_layer(config or None), {} if settings is None else settings)
        folder = None if config is False else user_folder(self._environ, own=environ is None)
        self.files = read_config_files(folder, upper)
        """The settings files, as they were read."""
        self.settings = Settings(*self.files.layers, *upper, on_change=self._setting_changed)
        self.http_client = http_client
        self.windows = Windows()
        self._directory = Directory(self.settings, self._environ)
        self._background = Background(partial(self._report, "env.task_crashed"))
        given = {name for layer in upper for name in layer if _has_auth(layer[name])}
        self._credentials = CredentialKeeper(self.settings, self.files, given=given)
        self.renewal = TokenRenewal(self, lambda name: self.settings.record(name).get("auth"), self.auth_set)
        self.model_lists = ModelLists(
            self, None if folder is None else cache_of_user(self._environ, own=environ is None)
        )
        self.windows.sources.append(PriceList(self._in_thread))
        self._local: LocalModel | None = None
        self._ssl_context: ssl.SSLContext | None = None
        self._entered = False
        self.ledger.max_active = self.settings.get("max_active") if max_active is None else max_active
        self.scrubber.learn(self.settings)

    # --- life ---

    async def __aenter__(self) -> Env:
        if self._entered:
            raise RuntimeError("an Env is entered once; open another one")
        self._entered = True
        await self._background.open()
        try:
            await self._load_credentials()
        except BaseException:
            await self._background.aclose()
            raise
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
            shown = str(url).partition("?")[0].rpartition("@")[2]  # a credential may stand in the rest
            raise ValueError(f"the URL of endpoint {name!r} must be absolute, not {shown!r}")
        if provider is None and name not in self.endpoint_names():
            provider = DEFAULT_PROVIDER
        given = {"provider": provider, "url": url, "models": models, **policy}
        self.settings.set_policy(name, {key: value for key, value in given.items() if value is not None})
        if auth is not None:
            self.settings.set_auth(name, auth)
            self._credentials.given.add(name)
        self.scrubber.learn({"url": url, name: self.settings.record(name)})
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
        self.scrubber.learn(overrides or {})
        if self._directory.endpoint(name, overrides).embedded:
            url, key = await self._embedded().address()
            self.scrubber.add(key)
            return Address(url=url, credential=key)
        await trio.lowlevel.checkpoint()
        url = self._directory.url(name, overrides)
        self.scrubber.add_url(url)
        self.scrubber.learn(self.endpoint_settings(name, overrides))  # keys may hide in headers and overrides
        if not (overrides and overrides.get("auth")) and self.renewal.is_due(name):
            await self.renewal.renew(name, self.endpoint_settings(name).get("oauth"))
        return Address(url=url, credential=self.credential(name, overrides))

    def credential_source(self, name: str) -> str | None:
        """Return where the credential of endpoint *name* stands, in words; None: nowhere."""
        source = self._directory.source(name)
        return self._credentials.place_of(name) if source == in_settings(name) else source

    async def auth_set(
        self, endpoint: str, auth: str | Secret | Mapping[str, Any], scope: str | None = None
    ) -> None:
        """Change the credentials of *endpoint*; the next request uses them, and later runs too.

        They are kept in the user's credentials.toml, or with the extra `keyring` in the system's keyring if
        that works (setting `credential_store`: "keyring" or "file" for one of them only); in memory only when
        files are off.

        Args:
          endpoint: its name.
          auth: a key, or an object: credential keys (`type token access refresh expires`) and an `auth`
            object go into the record's `auth`, other keys beside it; None deletes a key, `models` replaces.
          scope: `"package"`, for every folder, or `"local"`, for the working directory only; the user's
            folder has both. None: where the endpoint lives.

        Raises:
          TypeError, ValueError: not a name, not a credential, not a scope; a file that is there is broken.
          ProviderError: kind auth, for a credential no request could carry, or no working keyring.
          OSError: the disk refused.

        Cancellation: whole or not at all. Always a checkpoint.
        """
        _check_place(endpoint, scope)
        await self._credentials.set(endpoint, auth, scope)
        self.scrubber.learn(self.settings.record(endpoint))

    async def auth_remove(self, endpoint: str, scope: str | None = None) -> bool:
        """Forget the credentials of *endpoint*, also those kept for later runs; False: there were none.

        One in the environment stays. *scope*: None is both. Raises as `auth_set`.
        """
        _check_place(endpoint, scope)
        return await self._credentials.remove(endpoint, scope)

    async def refresh_credentials(self, endpoint: str) -> bool:
        """Read anew what is kept of *endpoint*: another process may have changed it. True: it has.

        Never fails; a broken file is logged. Cancellation: safe. Always a checkpoint.
        """
        changed = await self._credentials.reread(endpoint)
        self.scrubber.learn(self.settings.record(endpoint))
        return changed

    def register_refresh(self, endpoint: str, refresh: Refresh) -> None:
        """Renew the OAuth token of *endpoint* by `await refresh(record)`, 30 s before it ends.

        It gets the auth record, with `Secret`s, and returns what changes: `{"access", "expires", ...}`, the
        time as epoch seconds. Without one, setting `oauth` `{token_url, client_id}` of the endpoint is used.
        It runs inside the request that needs it: killable, limited to 15 s, and its failure stops nothing.
        """
        self.renewal.own[checked_name(endpoint)] = refresh

    # --- models ---

    async def models(self, endpoint: str, refresh: bool = False) -> Models:
        """Return what is known of the models of *endpoint*, by id: its server's list over the settings.

        The list is asked for when there is none from the last 24 hours, or with *refresh*; a server that
        does not answer (20 s) leaves what was known. Returns a fresh dict, {} when nothing is known.

        ValueError: unknown endpoint. Cancellation: safe. Always a checkpoint.
        """
        configured = self.endpoint(endpoint).models
        return over(configured, await self.model_lists.get(endpoint, refresh=refresh))

    async def refresh_models(self, timeout: Duration = "2s") -> dict[str, Models]:
        """Ask all endpoints for their models, side by side; return those that answer in time.

        The embedded model is not started for it.
        """
        names = [name for name in self.endpoint_names() if self._can_be_asked(name)]
        return await self.model_lists.fetch_all(names, parse_duration(timeout) or 0.0)

    async def detect_endpoints(self, timeout: Duration = "300ms") -> dict[str, Models]:
        """Return the local servers that run now (Ollama, llama.cpp, vLLM) and their models, by endpoint.

        Asks their loopback addresses, side by side; who does not answer in time is not there.
        What is found stays in memory.
        """
        urls = {
            server.endpoint: str(self.endpoint(server.endpoint).url)
            for server in LOCAL_SERVERS
            if server.endpoint in self.endpoint_names()
        }
        found = await detect(self, urls, parse_duration(timeout) or 0.0)
        for name, models in found.items():
            self.model_lists.put(name, models)
        return found

    def context_window(self, selector: str) -> int | None:
        """Return how many tokens the model of `"endpoint/model"` takes; None when nobody knows.

        TypeError, ValueError: not a selector, or an unknown endpoint.
        """
        name, model = split_selector(selector)
        settings = self.endpoint_settings(name)
        known = over(settings.get("models"), self.model_lists.cached(name))
        return self.windows.lookup(name, model, {**settings, "models": known})

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
        given = ((settings or {}).get("proxy"), self.settings.get("proxy"))
        proxy = choose_proxy(url, given, self._environ)
        if proxy is not None:
            self.scrubber.add_url(proxy)
        return proxy

    # --- inside ---

    def _embedded(self) -> LocalModel:
        if self._local is None:
            self._local = embedded_model(
                lambda: self.endpoint_settings("local"),
                tasks=self._background,
                busy=lambda: bool(self.ledger.active),
            )
        return self._local

    def _setting_changed(self, key: str, value: Any) -> None:
        if key == "max_active":
            self.ledger.max_active = value
        self.scrubber.learn({key: value})

    async def _load_credentials(self) -> None:
        """Read what the keyring holds."""
        await self._credentials.load()
        self.scrubber.learn(self.settings)

    def _in_thread(self, work: Callable[[], None]) -> bool:
        """Run *work* in a thread beside everything else; False: the Env is not entered."""
        try:
            self._background.start_soon(partial(trio.to_thread.run_sync, work, abandon_on_cancel=True))
        except RuntimeError:
            return False
        return True

    def _can_be_asked(self, name: str) -> bool:
        try:
            endpoint = self.endpoint(name)
            self.credential(name)
        except ProviderError:
            return False
        return bool(endpoint.url)


def open_env(
    settings: Mapping[str, Any] | None = None,
    *,
    config: str | Path | Mapping[str, Any] | Literal[False] | None = None,
    http_client: Any = None,
    max_active: int | None = None,
) -> Env:
    """Return an Env, to be entered: `async with aiio.open_env() as env:`. Arguments as for `Env`."""
    return Env(settings, config=config, http_client=http_client, max_active=max_active)


def _has_auth(record: object) -> bool:
    return isinstance(record, Mapping) and record.get("auth") is not None


def _check_place(endpoint: object, scope: object) -> None:
    checked_name(endpoint)
    if scope is not None and scope not in SCOPES:
        raise ValueError(f"a scope is 'local' or 'package', not {scope!r}")
