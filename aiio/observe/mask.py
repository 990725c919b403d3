"""The last processor before a log line is written: nothing secret passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiio.env.scrub import Scrubber

from .encode import plain

Scrub = Callable[[str], str]
"""Returns its argument with every known credential replaced: `env.scrub`."""


class Masking:
    """Masks credentials in an event dict: by the name of their place, and by value with *scrub*.

    Everything is made plain data first, so that a credential inside some object's `repr` is seen too.
    Should *scrub* fail, the line shrinks to its time, level and name: a line less is better than a key
    too many.
    """

    def __init__(self, scrub: Scrub | None = None) -> None:
        self._named = Scrubber()
        self._scrub = scrub

    def __call__(self, logger: Any, method: str, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return *event* without credentials, as structlog calls a processor."""
        try:
            masked: dict[str, Any] = self._by_value(self._named.data(plain(event)))
        except Exception as exc:  # noqa: BLE001  # whatever it is, the write that logs must go on
            kept = {key: plain(event[key]) for key in ("timestamp", "level") if key in event}
            return {**kept, "event": "log.unmaskable", "error": type(exc).__name__}
        return masked

    def _by_value(self, value: Any) -> Any:
        if self._scrub is None:
            return value
        if isinstance(value, str):
            return self._scrub(value)
        if isinstance(value, dict):
            return {self._by_value(key): self._by_value(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._by_value(item) for item in value]
        return value
