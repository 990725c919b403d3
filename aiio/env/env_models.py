"""The part of an `Env` that reaches out: addresses, lists of models, windows, log-in, what runs here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import trio

from aiio.context.events import ErrorKind
from aiio.context.log import get_logger
from aiio.context.usage import estimate_context_tokens

from .access import Access, Models
from .auth import Secret
from .background import Background
from .config_files import cache_of_user
from .detect import Found, Search, detect
from .durations import Duration, parse_duration
from .embedded import embedded_model
from .endpoints import KnownEndpoint, split_selector
from .env_endpoints import EnvEndpoints
from .errors import ProviderError
from .fetch import without_secrets
from .ledger import Ledger
from .local import LocalModel
from .model_lists import ModelLists, over
from .prices import PriceList
from .scrub import Scrubber
from .windows import Windows


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a request goes, and with what."""

    url: str
    """Base URL of the endpoint."""
    credential: Secret | None = None
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Those of the endpoint that it was read from, secrets masked."""


class EnvModels(EnvEndpoints):
    """What is asked of servers beside requests, and what came back. Arguments as for `Env`."""

    def __init__(
        self,
        settings: Mapping[str, Any] | None,
        config: str | Path | Mapping[str, Any] | Literal[False] | None,
        environ: Mapping[str, str] | None,
    ) -> None:
        super().__init__(settings, config, environ)
        self.ledger: Ledger = Ledger()
        self.windows: Windows = Windows()
        folder = None
        if self.files.folder is not None:
            folder = cache_of_user(self._environ, own=self._environ_is_own)
        self.model_lists: ModelLists = ModelLists(self, folder)
        self.windows.sources.append(PriceList(self._in_thread))
        self._background = Background(partial(self._report, "env.task_crashed"))
        self._local: LocalModel | None = None

    async def resolve(self, name: str, overrides: Mapping[str, Any] | None = None) -> Address:
        """Return where a request to endpoint *name* goes; the embedded model's server is started if need be.

        Raises:
          ValueError: unknown endpoint.
          ProviderError: auth, the credential is missing or bad; provider, no URL, or the model's server
            did not start. The text says what to do.

        Cancellation: safe. Always a checkpoint.
        """
        self.scrubber.learn(overrides or {})
        endpoint, settings = self._directory.look_up(name, overrides)
        if endpoint.embedded:
            url, key = await self._embedded().address()
            self.scrubber.add(key)
            return Address(url=url, credential=key, settings=settings)
        await trio.lowlevel.checkpoint()
        url = self._directory.url(endpoint)
        self.scrubber.add_url(url)
        self.scrubber.learn(endpoint.policy)  # keys may hide in headers and overrides
        if not (overrides and overrides.get("auth")) and self.renewal.is_due(name):
            await self.renewal.renew(name, self.endpoint_settings(name).get("oauth"))
            endpoint, settings = self._directory.look_up(name, overrides)
        return Address(url=url, credential=self._credential(endpoint), settings=settings)

    async def access(self, name: str) -> Access:
        """Return the way to the server of endpoint *name*, for the hooks of its dialect. As `resolve`."""
        settings = self.endpoint_settings(name)
        provider = self.provider(str(settings["provider"]))
        address = await self.resolve(name)
        token = None if address.credential is None else address.credential.reveal()
        return Access(self, provider, endpoint_name=name, url=address.url, settings=settings, token=token)

    # --- credentials that are asked for, and tried ---

    async def login(self, name: str, given: Any, scope: str | None = None) -> None:
        """Turn what the user gave into credentials of endpoint *name*, by its dialect, and keep them.

        Args:
          name: the endpoint.
          given: an API key, or what the dialect asks for; see `Provider.login`.
          scope: as for `auth_set`, which keeps them.

        Raises:
          ValueError: unknown endpoint.
          ProviderError: the dialect made nothing of it, or its server refused; as `auth_set`.
          TypeError, ValueError, OSError: as `auth_set`.

        Cancellation: kept whole or not at all. Always a checkpoint.
        """
        settings = self.endpoint_settings(name)
        provider = self.provider(str(settings["provider"]))
        access = Access(
            self, provider, endpoint_name=name, url=str(settings["url"] or ""), settings=settings, token=None
        )
        record = await _answer_of(provider.login(given, access), name, self.scrubber)
        if not isinstance(record, str | Secret | Mapping) or record == {}:
            raise ProviderError(
                ErrorKind.PROVIDER,
                f"login of the dialect {provider.name!r} returned no credential but {type(record).__name__}",
                code="broken_plugin",
            )
        await self.auth_set(name, record, scope)

    async def test_connection(self, name: str) -> Models | None:
        """Ask the server of endpoint *name* whether it takes our credential, as its dialect does that.

        Returns:
          The models it lists; None: it answers, and its dialect has no list to tell more by.

        Raises:
          ValueError: unknown endpoint.
          ProviderError: what `resolve` raises; no answer, a refusal, something that is no list of models.

        Cancellation: safe. Always a checkpoint.
        """
        access = await self.access(name)
        provider = self.provider(self.endpoint(name).provider)
        found: Models | None = await _answer_of(provider.test_connection(access), name, self.scrubber)
        return found

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

        The embedded model is not started for it. Cancellation: safe. Always a checkpoint.
        """
        names = [name for name in self.endpoint_names(include_secret=True) if self._can_be_asked(name)]
        return await self.model_lists.fetch_all(names, parse_duration(timeout) or 0.0)

    async def detect_endpoints(self, timeout: Duration = "300ms") -> Found:
        """Return the local servers that run now, by endpoint: `{"provider", "url", "models"?}`.

        Every dialect looks for its own (built in: Ollama, llama.cpp, vLLM), side by side, *timeout* each;
        what fails or takes longer is not there. What is found stays in memory: a name that nobody knew is an
        endpoint until this Env ends (`is_dynamic`), below anything that is configured.

        Cancellation: safe. Always a checkpoint.
        """
        limit = parse_duration(timeout) or 0.0
        self.transport("http://localhost")  # to import and to make it takes longer than an answer
        found = await detect(self._searches(limit), limit)
        return {name: shown for name, facts in found.items() if (shown := self._take_found(name, facts))}

    def _searches(self, limit: float) -> Iterable[tuple[Any, Search]]:
        settings = {name: self.endpoint_settings(name) for name in self._directory.names()}
        for key in self._registry.provider_keys():
            theirs = {name: facts for name, facts in settings.items() if facts["provider"] == key}
            search = Search(
                self, settings=self.settings, endpoints=theirs, environ=self._environ, limit=limit
            )
            yield self.provider(key), search

    def _take_found(self, name: str, facts: Mapping[str, Any]) -> dict[str, Any] | None:
        """Remember what was found under *name*, and return it; None: that name stands for another server."""
        provider, url = str(facts["provider"]), str(facts["url"])
        if name not in self._directory.names():
            try:
                if facts.get("auth") is not None:
                    self.settings.set_auth(name, facts["auth"])
            except (TypeError, ProviderError) as exc:  # a plug-in's mistake, and it costs its own find only
                get_logger().debug("detect.failed", provider=provider, error=type(exc).__name__)
                return None
            known = KnownEndpoint(url=url, provider=provider, key_required=False)
            self.presets.add_found(name, known)
            self.scrubber.learn({"url": url, name: self.settings.record(name)})
        elif self.endpoint(name).url != url:
            return None
        shown: dict[str, Any] = {"provider": provider, "url": url}
        if isinstance(facts.get("models"), Mapping):
            shown["models"] = over({}, facts["models"])
            self.model_lists.put(name, over({}, facts["models"]))
        return shown

    async def remove_endpoint(self, name: str, scope: str | None = None) -> bool:
        """Forget endpoint *name*, credential and list of models too; see `EnvEndpoints.remove_endpoint`."""
        removed = await super().remove_endpoint(name, scope)
        self.model_lists.forget(name)
        return removed

    def context_window(self, selector: str) -> int | None:
        """Return how many tokens the model of `"endpoint/model"` takes; None when nobody knows.

        TypeError, ValueError: not a selector, or an unknown endpoint.
        """
        name, model = split_selector(selector)
        settings = self.endpoint_settings(name)
        known = over(settings.get("models"), self.model_lists.cached(name))
        return self.windows.lookup(name, model, {**settings, "models": known})

    def context_consumption(self, context: Iterable[Any], last_usage: Mapping[str, Any] | None = None) -> int:
        """Return how many tokens *context* takes: the input that was counted last, else an estimate.

        *last_usage* is that of the latest request; what has been appended since is not in it. Only a count
        of the provider's own is taken from it. TypeError: *context* is not iterable.
        """
        usage = last_usage or {}
        counted = usage.get("input_tokens")
        if usage.get("source") == "provider" and isinstance(counted, int) and not isinstance(counted, bool):
            return counted
        return estimate_context_tokens(context)

    # --- inside ---

    def _embedded(self) -> LocalModel:
        if self._local is None:
            self._local = embedded_model(
                lambda: self.endpoint_settings("local"),
                tasks=self._background,
                busy=lambda: bool(self.ledger.active),
            )
        return self._local

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


async def _answer_of(hook: Awaitable[Any], endpoint: str, scrubber: Scrubber) -> Any:
    """Return what a hook returns. ProviderError: whatever it raises, without credentials."""
    try:
        return await hook
    except ProviderError as exc:
        fault = without_secrets(exc, scrubber)
    except Exception as exc:  # noqa: BLE001  # a plug-in's
        fault = without_secrets(exc, scrubber, endpoint)
    raise fault
