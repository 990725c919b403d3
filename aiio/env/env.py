"""Env: what the process knows, in one place. Everything is registered here and looked up here.

An Env owns what requests share: settings, credentials, one TLS context, the ledger of requests in
flight, the transports, the embedded model's server, and a nursery for tasks that outlive a call. Using it
without entering it works for all that needs no such task.

Its parts, each a class below the next: what is plugged in (pluggable.py), settings, endpoints and credentials
(env_endpoints.py), what is asked of servers (env_models.py), and here its life and the ledger.
"""

from __future__ import annotations

from collections.abc import KeysView, Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import trio

from .background import Background
from .env_models import Address, EnvModels
from .http_logs import mask_http_logs
from .safe import SafeEnv

__all__ = ["Address", "Env", "open_env"]

_CLOSE_LIMIT = 5.0  # seconds for transports to close


class Env(EnvModels):
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
        super().__init__(settings, config, environ)
        self.http_client = http_client
        self._entered = False
        self.ledger.max_active = self.settings.get("max_active") if max_active is None else max_active
        mask_http_logs(self.scrubber)

    @cached_property
    def safe(self) -> SafeEnv:
        """This Env with no tools but those marked `safe`: a view, always the same one."""
        return SafeEnv(self)

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

    # --- inside ---

    def _setting_changed(self, key: str, value: Any) -> None:
        if key == "max_active":
            self.ledger.max_active = value
        super()._setting_changed(key, value)

    async def _load_credentials(self) -> None:
        """Read what the keyring holds."""
        await self._credentials.load()
        self.scrubber.learn(self.settings)


def open_env(
    settings: Mapping[str, Any] | None = None,
    *,
    config: str | Path | Mapping[str, Any] | Literal[False] | None = None,
    http_client: Any = None,
    max_active: int | None = None,
) -> Env:
    """Return an Env, to be entered: `async with aiio.open_env() as env:`. Arguments as for `Env`."""
    return Env(settings, config=config, http_client=http_client, max_active=max_active)
