"""The part of an `Env` that knows endpoints and their credentials: settings, files, the environment."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from .auth import Secret
from .config_files import ConfigFiles, read_config_files, user_folder
from .credentials import SCOPES, CredentialKeeper
from .detect import is_loopback
from .directory import Directory, in_settings
from .endpoints import DEFAULT_PROVIDER, Endpoint, KnownEndpoint, checked_name
from .file_changes import FileChanges
from .oauth import Refresh, TokenRenewal
from .pluggable import Pluggable
from .proxies import choose_proxy
from .settings import Settings, read_layer
from .tls import make_ssl_context

AccessKind = Literal["local", "remote", "all"]
"""Which endpoints: those whose server runs on this machine, the others, or both."""


class EnvEndpoints(Pluggable):
    """Settings, endpoints, credentials, and how a connection to them is made. Arguments as for `Env`."""

    def __init__(
        self,
        settings: Mapping[str, Any] | None,
        config: str | Path | Mapping[str, Any] | Literal[False] | None,
        environ: Mapping[str, str] | None,
    ) -> None:
        super().__init__()
        self._environ: Mapping[str, str] = os.environ if environ is None else environ
        self._environ_is_own = environ is None
        upper = (read_layer(config or None), {} if settings is None else settings)
        folder = None if config is False else user_folder(self._environ, own=self._environ_is_own)
        self.files: ConfigFiles = read_config_files(folder, upper)
        """The settings files, as they were read."""
        self.settings: Settings = Settings(*self.files.layers, *upper, on_change=self._setting_changed)
        self.presets.refused = frozenset(self.files.introduced)
        self._directory = Directory(self.settings, self._environ, self.presets)
        given = {name for layer in upper for name in layer if _has_auth(layer[name])}
        self._credentials = CredentialKeeper(self.settings, self.files, given=given)
        self.renewal: TokenRenewal = TokenRenewal(
            self, lambda name: self.settings.record(name).get("auth"), self.auth_set
        )
        self._changes = FileChanges(self.files, self.settings)
        self._ssl_context: ssl.SSLContext | None = None
        self.scrubber.learn(self.settings)

    def _setting_changed(self, key: str, value: Any) -> None:
        self.scrubber.learn({key: value})

    # --- endpoints ---

    def endpoint(self, name: str) -> Endpoint:
        """Return endpoint *name* as configured now. ValueError: unknown; the text lists the known ones."""
        return self._directory.endpoint(name)

    def endpoint_names(self, *, include_secret: bool = False, access: AccessKind = "all") -> list[str]:
        """Return the names of all endpoints, the ones known without configuration first.

        Args:
          include_secret: also those whose settings say `secret`.
          access: `"local"` for those whose server runs on this machine, `"remote"` for the others.

        ValueError: another *access*.
        """
        if access not in ("local", "remote", "all"):
            raise ValueError(f"access is 'local', 'remote' or 'all', not {access!r}")
        names = self._directory.names() if include_secret else self._directory.shown_names()
        return [name for name in names if access == "all" or self.endpoint_local(name) is (access == "local")]

    def known_endpoints(self) -> dict[str, KnownEndpoint]:
        """Return the endpoints that need no configuration but a credential, by name: what one can log in to.

        The built-in ones, those of registered dialects, and servers that were found to run; secret ones are
        left out.
        """
        known = {name: self.presets.get(name) for name in self.presets.names()}
        return {name: one for name, one in known.items() if one is not None and not one.more.get("secret")}

    def endpoint_local(self, name: str) -> bool:
        """Tell whether the server of endpoint *name* runs on this machine.

        `local` or `remote` in its settings says so; else it is embedded, or its URL names this machine.
        ValueError: unknown endpoint.
        """
        endpoint = self.endpoint(name)
        if endpoint.policy.get("local") is True or endpoint.policy.get("remote") is True:
            return endpoint.policy.get("local") is True
        return endpoint.embedded or (endpoint.url is not None and is_loopback(str(endpoint.url)))

    def endpoint_scope(self, name: str) -> str:
        """Return where endpoint *name* lives: `"local"` (this working directory only) or `"package"`.

        ValueError: unknown endpoint.
        """
        self.endpoint(name)
        return "local" if name in self.files.introduced else self._credentials.scope_of(name)

    def is_dynamic(self, name: str) -> bool:
        """Tell whether endpoint *name* is known only because `detect_endpoints` found it."""
        return self.presets.was_found(name) and not self._directory.configured(name)

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
        given = self._given(name, provider=provider, url=url, models=models, **policy)
        self.settings.set_policy(name, given)
        if auth is not None:
            self.settings.set_auth(name, auth)
            self._credentials.given.add(name)
        self.scrubber.learn({"url": url, name: self.settings.record(name)})
        return self.endpoint(name)

    async def save_endpoint(
        self,
        name: str,
        *,
        provider: str | None = None,
        url: str | None = None,
        auth: str | Secret | Mapping[str, Any] | None = None,
        models: Mapping[str, Any] | None = None,
        scope: str | None = None,
        **policy: Any,
    ) -> Endpoint:
        """Add an endpoint, or change one, for this run and for later ones; returns it.

        It is kept beside the credentials, in the file that programs write; what people wrote in their
        config.toml goes before it. In memory only when files are off. Arguments as for `register_endpoint`,
        *scope* as for `auth_set`.

        Raises:
          TypeError, ValueError, ProviderError: as `register_endpoint` and `auth_set`.
          OSError: the disk refused.

        Cancellation: whole or not at all. Always a checkpoint.
        """
        given = self._given(name, provider=provider, url=url, models=models, **policy)
        if self.presets.get(name) is None or self.presets.was_found(name):
            if url is None and name not in self._directory.names():
                raise ValueError(f"endpoint {name!r} needs a url: nobody knows it yet")
            if url is None:  # later runs know it by what is kept, and by nothing else
                present = self.endpoint(name)
                given = {"url": present.url, **given, "provider": given.get("provider", present.provider)}
        await self.auth_set(name, {**given, **({} if auth is None else {"auth": auth})}, scope)
        return self.endpoint(name)

    async def remove_endpoint(self, name: str, scope: str | None = None) -> bool:
        """Forget endpoint *name*, its credential with it; False: nothing was kept of it.

        One that is known without configuration stays known. *scope*: None is both.

        Raises:
          ValueError: it stands in a settings file that people write; the text names it. Bad *scope*.
          OSError: the disk refused.

        Cancellation: as `auth_remove`. Always a checkpoint.
        """
        _check_place(name, scope)
        people = [layer.get("providers", {}) for layer in (*self.files.layers[:1], *self.files.layers[2:])]
        if any(name in policies for policies in people):
            raise ValueError(f"endpoint {name!r} stands in a settings file: take it out there")
        removed = [
            await self._credentials.remove(name, scope, whole=True),
            self.settings.drop(name),
            self.presets.forget(name),
        ]
        return any(removed)

    def endpoint_settings(self, name: str, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return what holds for endpoint *name*, *overrides* on top: a fresh dict, secrets masked.

        ValueError: unknown endpoint.
        """
        return self._directory.settings(name, overrides)

    async def refresh_endpoint_settings(self, name: str) -> bool:
        """Read anew what the user's files say of endpoint *name*; True: another process has changed it.

        What the program set itself stays. Never fails; a broken file is logged.
        Cancellation: safe. Always a checkpoint.
        """
        policy, beside = await self._changes.of(name)
        if policy:
            self.settings.set_policy(name, policy)
        if beside:
            self.settings.set_auth(name, beside)
        self.scrubber.learn({"policy": policy, "record": beside})
        return await self.refresh_credentials(name) or bool(policy or beside)

    def _given(self, name: str, **policy: Any) -> dict[str, Any]:
        """Return the checked *policy* of an endpoint to be added or changed. As `register_endpoint`."""
        checked_name(name)
        url = policy.get("url")
        if url is not None and "://" not in str(url):
            shown = str(url).partition("?")[0].rpartition("@")[2]  # a credential may stand in the rest
            raise ValueError(f"the URL of endpoint {name!r} must be absolute, not {shown!r}")
        if policy.get("provider") is None and name not in self._directory.names():
            policy["provider"] = DEFAULT_PROVIDER
        return {key: value for key, value in policy.items() if value is not None}

    # --- credentials ---

    def credential(self, name: str, overrides: Mapping[str, Any] | None = None) -> Secret | None:
        """Return the credential for endpoint *name*; None: it needs none. The scrubber knows it from then on.

        Raises:
          ValueError: unknown endpoint.
          ProviderError: kind auth; it is missing or can't be sent, and the text says which setting to change.
        """
        return self._credential(self._directory.endpoint(name, overrides))

    def _credential(self, endpoint: Endpoint) -> Secret | None:
        secret = self._directory.credential(endpoint)
        if secret is not None:
            self.scrubber.add(secret)
        return secret

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


def _has_auth(record: object) -> bool:
    return isinstance(record, Mapping) and record.get("auth") is not None


def _check_place(endpoint: object, scope: object) -> None:
    checked_name(endpoint)
    if scope is not None and scope not in SCOPES:
        raise ValueError(f"a scope is 'local' or 'package', not {scope!r}")
