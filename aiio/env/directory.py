"""Looking up endpoints: the known table, the settings and the environment read as one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiio.context.events import ErrorKind

from .auth import Secret, read_credential, record_token
from .endpoints import Endpoint, KnownEndpoint, environment_url
from .errors import ProviderError
from .presets import Presets
from .settings import Settings, introduces

_UNKNOWN = KnownEndpoint(key_required=False)


class Directory:
    """Endpoints as *settings*, *environ* and *presets* have them at the moment of each call; all are live."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], presets: Presets) -> None:
        self._settings = settings
        self._environ = environ
        self._presets = presets

    def names(self) -> list[str]:
        """All endpoints: the known ones, then those the settings add."""
        return list(dict.fromkeys([*self._presets.names(), *self._settings.endpoint_names()]))

    def shown_names(self) -> list[str]:
        """Those of `names` that are not secret."""
        return [name for name in self.names() if self.settings(name).get("secret") is not True]

    def configured(self, name: str) -> bool:
        """Tell whether the settings themselves introduce endpoint *name*."""
        return bool(self._settings.policy(name)) or introduces(self._settings.record(name))

    def settings(self, name: str, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the settings of endpoint *name*: a fresh dict, secrets masked. ValueError: unknown."""
        return self._settings_of(name, self._known(name), overrides)

    def _settings_of(
        self, name: str, known: KnownEndpoint, overrides: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        base = known.policy()
        url = environment_url(known, self._environ)
        if url is not None:
            base["url"] = url
        merged = self._settings.endpoint_settings(name, base, overrides)
        auth = merged.get("auth")
        if auth is None:
            if known.bearer_keys and self._variable(known.env_keys) in known.bearer_keys:
                merged.setdefault("auth_header", "bearer")
        elif isinstance(auth, str | Mapping):
            merged["auth"] = _held(auth)
        return merged

    def endpoint(self, name: str, overrides: Mapping[str, Any] | None = None) -> Endpoint:
        """Return endpoint *name*. ValueError: unknown; the text lists the known, and says how to add one."""
        return self.look_up(name, overrides)[0]

    def look_up(
        self, name: str, overrides: Mapping[str, Any] | None = None
    ) -> tuple[Endpoint, dict[str, Any]]:
        """Return endpoint *name*, and the settings that it was read from. ValueError: as `endpoint`."""
        known = self._known(name)
        settings = self._settings_of(name, known, overrides)
        merged = dict(settings)
        token = record_token(merged.pop("auth", None))
        models = merged.get("models")
        endpoint = Endpoint(
            name=name,
            provider=str(merged["provider"]),
            url=merged["url"],
            auth=token if isinstance(token, Secret) else None,
            env_keys=tuple(merged.get("env_keys") or known.env_keys),
            key_required=bool(merged.get("key_required", known.key_required)),
            embedded=known.embedded and merged["url"] is None,
            models=models if isinstance(models, Mapping) and models else None,
            policy=merged,
        )
        return endpoint, settings

    def credential(self, endpoint: Endpoint) -> Secret | None:
        """Return the credential for *endpoint*: its own (the overrides', the record's), or the environment's.

        None: it has none and needs none.

        Raises:
          ProviderError: kind auth; it needs one and has none (the text says where to put it), or the
            one it has can't be sent.
        """
        name, found = endpoint.name, self._found(endpoint)
        if found is not None:
            return read_credential(*found)
        if not endpoint.key_required:
            return None
        where = in_settings(name)
        auth = self._settings.record(name).get("auth")
        if isinstance(auth, Mapping) and auth.get("store") == "keyring":
            raise ProviderError(
                ErrorKind.AUTH,
                f"the API key of endpoint {name!r} is in the system's keyring, which did not hand it out: "
                f"unlock it, or run `aiio auth set {name}` again",
                code="locked_credential",
            )
        variables = " or ".join(endpoint.env_keys)
        places = f"{variables} in the environment, or {where}" if variables else where
        raise ProviderError(
            ErrorKind.AUTH, f"no API key for endpoint {name!r}: set {places}", code="no_credential"
        )

    def source(self, name: str, overrides: Mapping[str, Any] | None = None) -> str | None:
        """Return where the credential of endpoint *name* stands, unchecked; None: nowhere.

        `in_settings(name)`, or "the environment variable ...". ValueError: unknown endpoint.
        """
        found = self._found(self.endpoint(name, overrides))
        return None if found is None else found[1]

    def _found(self, endpoint: Endpoint) -> tuple[str | Secret, str] | None:
        """Return the credential to use, unchecked, and where it stands."""
        if endpoint.auth is not None:
            return endpoint.auth, in_settings(endpoint.name)
        variable = self._variable(endpoint.env_keys, blank=endpoint.key_required)
        return None if variable is None else (self._environ[variable], f"the environment variable {variable}")

    def _variable(self, names: tuple[str, ...], *, blank: bool = False) -> str | None:
        """Return the first of *names* that is in the environment; if none is, and *blank*, a blank one."""
        present = [name for name in names if name in self._environ]
        filled = [name for name in present if self._environ[name].strip()]
        return next(iter(filled or (present if blank else [])), None)

    def url(self, endpoint: Endpoint) -> str:
        """Return the base URL of *endpoint*. ProviderError (provider): none; says where to put it."""
        name = endpoint.name
        if endpoint.url:
            return str(endpoint.url)
        places = [f"{variable} in the environment" for variable in self._known(name).url_env]
        places.append(f"settings['providers'][{name!r}]['url']")
        raise ProviderError(
            ErrorKind.PROVIDER, f"endpoint {name!r} has no URL: set {', or '.join(places)}", code="no_url"
        )

    def _known(self, name: str) -> KnownEndpoint:
        configured = self.configured(name)
        known = self._presets.get(name, seek=not configured)
        if known is not None:
            return known
        if configured:
            return _UNKNOWN
        raise ValueError(
            f"unknown endpoint {name!r}; known: {', '.join(self.shown_names())}. "
            "Add one with env.register_endpoint(name, url=...) or in settings['providers']"
        )


def in_settings(name: str) -> str:
    """Return how the place of a credential in the settings is called."""
    return f"settings[{name!r}]['auth']"


def _held(auth: str | Mapping[str, Any]) -> Secret | dict[str, Any]:
    """Return an auth setting with its secrets in `Secret`s; bad ones too, they are judged when used."""
    if isinstance(auth, str):
        return Secret(auth)
    return {
        key: Secret(value) if isinstance(value, str) and key != "type" else value
        for key, value in auth.items()
    }
