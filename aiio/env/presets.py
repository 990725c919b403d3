"""Endpoints that are known without configuration: the built-in table, what dialects bring, what was found.

The one place that answers "who is called that?" before any settings are read. Names are given once: a dialect
that comes later can't take a name over, because a credential may belong to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from .endpoints import KNOWN_ENDPOINTS, KnownEndpoint


class Presets:
    """The known endpoints of one Env.

    Args:
      find: given a name nobody knows, loads the installed dialect of that name, or returns None.
    """

    def __init__(self, find: Callable[[str], Any] = lambda name: None) -> None:
        self.refused: Collection[str] = ()
        """Names a project's file has introduced: no dialect may give them a credential (project_layer.py)."""
        self._find = find
        self._sought: set[str] = set()
        self._known = dict(KNOWN_ENDPOINTS)
        self._owners: dict[str, str] = {}  # of names that dialects brought: the dialect
        self._found: dict[str, KnownEndpoint] = {}

    def take(self, cls: Any) -> None:
        """Add the endpoints of the dialect *cls*. Names that are taken stay what they are."""
        for name, known in cls.known_endpoints().items():
            if name in self._known and self._owners.get(name) != cls.name:
                continue
            more = {**known.more, "secret": True} if cls.secret else known.more
            self._known[name] = replace(known, provider=cls.name, more=more)
            self._owners[name] = cls.name

    def add_found(self, name: str, known: KnownEndpoint) -> None:
        """Add an endpoint that was found to run, until this Env ends."""
        self._found[name] = known

    def was_found(self, name: str) -> bool:
        """Tell whether *name* is known because it was found to run."""
        return name in self._found

    def forget(self, name: str) -> bool:
        """Forget what was found under *name*; False: nothing was."""
        return self._found.pop(name, None) is not None

    def names(self) -> list[str]:
        """All names, built-in ones first."""
        return [name for name in dict.fromkeys([*self._known, *self._found]) if name not in self.refused]

    def get(self, name: str, *, seek: bool = True) -> KnownEndpoint | None:
        """Return what is known of *name*; None: nothing.

        With *seek*, an installed dialect of that name is loaded for it; ProviderError: it is broken.
        """
        if name in self.refused:
            return None
        if name not in self._known and seek and name not in self._sought:
            self._sought.add(name)
            cls = self._find(name)
            if cls is not None:
                self.take(cls)
        return self._known.get(name) or self._found.get(name)
