"""Context windows from the price list `genai-prices` (extra `prices`), if it is installed.

Importing it takes half a second, so that happens in a thread, at the first model nobody else knows; until
then, and without it, it knows nothing. Its rules match prefixes, which may be another model's; here an id
counts only if it is the list's own, or that with a date behind it.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable

from aiio.context.log import get_logger

Table = dict[tuple[str, str], int]
"""Windows by (provider of the list, model)."""

_PACKAGE = "genai_prices"
_PROVIDERS = {"gemini": "google", "xai": "x-ai"}  # where the list has another name than our endpoint
_DATED = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2})$")


class PriceList:
    """A source for `Windows`: (endpoint, model) -> window, or None.

    Args:
      start: runs a function in a thread beside everything else; False: it can't now.
    """

    def __init__(self, start: Callable[[Callable[[], None]], bool]) -> None:
        self._start = start
        self._table: Table | None = None
        self._begun = False

    def __call__(self, endpoint: str, model: str) -> int | None:
        """Return the window of *model*, None: not in the list, or the list is not there (yet)."""
        if self._table is None:
            if not self._begun:
                self._begun = importlib.util.find_spec(_PACKAGE) is None or self._start(self._load)
            return None
        provider, name = _PROVIDERS.get(endpoint, endpoint), model.lower()
        for key in (name, _DATED.sub("", name)):
            window = self._table.get((provider, key))
            if window is not None:
                return window
        return None

    def _load(self) -> None:
        """Read the list. Runs in a thread; a list of another shape than we know is none."""
        try:
            snapshot = importlib.import_module(f"{_PACKAGE}.data_snapshot").get_snapshot()
            table = {
                (str(provider.id), str(model.id).lower()): int(model.context_window)
                for provider in snapshot.providers
                for model in provider.models
                if model.context_window
            }
        except Exception as exc:  # noqa: BLE001  # somebody else's package, and nobody waits for it
            get_logger().info("prices.unreadable", why=type(exc).__name__)
            return
        self._table = table
