"""Which models an endpoint has, and what its server says of each: asked, kept in memory and on the disk.

A list informs: `context_window` reads it, people read it. It refuses no request, because servers leave names
out that they serve (aliases, deployments, fine-tunes).
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import trio

from aiio.context.log import get_logger
from aiio.context.session_files import make_folder

from .access import Access, Models
from .errors import ProviderError

FRESH_FOR = 24 * 3600.0  # seconds a list counts as it is
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class ListingEnv(Protocol):
    """What is needed of an Env."""

    async def access(self, name: str) -> Access:
        """Return the way to the server of an endpoint."""
        ...

    def endpoint_settings(self, name: str) -> dict[str, Any]:
        """Return the settings of an endpoint."""
        ...


class ModelLists:
    """The lists of one Env.

    Args:
      env: asked for the way to servers.
      folder: where lists are kept between runs; None: nowhere.
      clock: epoch seconds.
    """

    def __init__(
        self, env: ListingEnv, folder: Path | None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._env = env
        self._folder = folder
        self._clock = clock
        self._lists: dict[str, tuple[float, Models]] = {}  # by endpoint: when it was fetched, the list
        self._looked: set[str] = set()  # whose file was read

    def cached(self, name: str) -> Mapping[str, Any]:
        """Return the list of endpoint *name* as far as it is known without asking; {} if it is not.

        Reads a file the first time.
        """
        if name not in self._looked:
            self._looked.add(name)
            kept = self._read(name)
            if kept is not None:
                self._lists.setdefault(name, kept)
        return self._lists[name][1] if name in self._lists else {}

    def put(self, name: str, models: Models) -> None:
        """Remember a list for as long as the Env lives."""
        self._lists[name] = (self._clock(), models)

    def forget(self, name: str) -> None:
        """Forget the list of endpoint *name*, the one on the disk too."""
        self._looked.add(name)
        self._lists.pop(name, None)
        path = self._file(name)
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    async def get(self, name: str, *, refresh: bool = False) -> Models:
        """Return the list of endpoint *name*, asked anew with *refresh* or when it is a day old.

        When that fails, the log says why, and the list is what it was: {} when it was never there.
        """
        self.cached(name)
        fetched, _ = self._lists.get(name, (None, None))
        if refresh or fetched is None or not 0 <= self._clock() - fetched < FRESH_FOR:
            try:
                return await self.fetch(name)
            except ProviderError as exc:
                get_logger().info("models.not_fetched", endpoint=name, kind=exc.kind.value, why=exc.message)
        await trio.lowlevel.checkpoint()
        return copy.deepcopy(dict(self.cached(name)))

    async def fetch(self, name: str) -> Models:
        """Ask the server of endpoint *name* for its list, keep it and return it.

        Raises:
          ValueError: unknown endpoint.
          ProviderError: no credential, no answer, no such list; the list known before stays.

        Cancellation: safe. Always a checkpoint.
        """
        access = await self._env.access(name)
        models = await access.models()
        self.put(name, models)
        if self._folder is not None:
            await trio.to_thread.run_sync(self._write, name, access.url, models, abandon_on_cancel=False)
        return copy.deepcopy(models)

    async def fetch_all(self, names: Iterable[str], limit: float) -> dict[str, Models]:
        """Ask for several lists side by side; return those that came within *limit* seconds."""
        found: dict[str, Models] = {}

        async def ask(name: str) -> None:
            try:
                found[name] = await self.fetch(name)
            except ProviderError as exc:
                get_logger().info("models.not_fetched", endpoint=name, kind=exc.kind.value, why=exc.message)

        with trio.move_on_after(limit):
            async with trio.open_nursery() as nursery:
                for name in names:
                    nursery.start_soon(ask, name)
        return found

    def _file(self, name: str) -> Path | None:
        if self._folder is None or not _PLAIN.fullmatch(name):
            return None
        return self._folder / f"{name}.json"

    def _read(self, name: str) -> tuple[float, Models] | None:
        """Return what the disk has; None: nothing, nothing of use, or of another server of that name."""
        path = self._file(name)
        if path is None:
            return None
        try:
            kept = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(kept, dict):
            return None
        models, fetched = kept.get("models"), kept.get("fetched")
        url = self._env.endpoint_settings(name).get("url")
        if (
            not isinstance(models, dict)
            or not isinstance(fetched, int | float)
            or kept.get("of") != _mark(url)
        ):
            return None
        return float(fetched), {key: facts for key, facts in models.items() if isinstance(facts, dict)}

    def _write(self, name: str, url: str, models: Models) -> None:
        """Keep the list for other runs; a disk that refuses is no reason to fail."""
        path = self._file(name)
        if path is None:
            return
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            make_folder(os.path.abspath(path.parent))
            text = json.dumps({"of": _mark(url), "fetched": self._clock(), "models": models})
            draft.unlink(missing_ok=True)
            # For the user alone: names of deployments and fine-tuned models may be private.
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
            os.replace(draft, path)


def _mark(url: object) -> str:
    """Return what tells the list of one server from another's; not the URL, which may hold a credential."""
    return hashlib.sha256(str(url).encode()).hexdigest()[:32]


def over(configured: object, fetched: Mapping[str, Any]) -> Models:
    """Return the *fetched* list laid over the *configured* one, model by model: a fresh dict."""
    merged: Models = {}
    for source in (configured if isinstance(configured, Mapping) else {}, fetched):
        for model, facts in source.items():
            merged.setdefault(model, {}).update(copy.deepcopy(facts) if isinstance(facts, Mapping) else {})
    return merged
