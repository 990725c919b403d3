"""What the price list `genai-prices` (extra `prices`) knows, if it is installed: context windows, and costs.

Importing it takes half a second, so that happens in a thread: for a window at the first model nobody else
knows, and until then it knows none. Its rules match prefixes, which may be another model's; here an id has a
window only if it is the list's own, or that with a date behind it.

What a call costs is the provider's own figure, else the list's, else unknown. Unknown is never 0.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import trio

from aiio.context.log import get_logger

Table = dict[tuple[str, str], int]
"""Windows by (provider of the list, model)."""

Pricer: TypeAlias = Callable[[str, str, Mapping[str, Any]], float | None]
"""(endpoint, model, usage) -> USD, None: not known."""

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


async def price(pricer: Pricer | None, endpoint: str, model: str, usage: Mapping[str, Any]) -> float | None:
    """Return what *usage* costs in USD; None: nobody knows.

    Args:
      pricer: the user's own; None: `genai-prices` (extra `prices`), in a thread, if it is installed.
      endpoint, model: what was called.
      usage: counts; a figure of the provider's own under `cost` wins.
    """
    own = usage.get("cost")
    if isinstance(own, int | float) and not isinstance(own, bool):
        return float(own)
    if "input_tokens" not in usage or "output_tokens" not in usage:
        return None
    if pricer is None:
        if importlib.util.find_spec(_PACKAGE) is None:
            return None
        found = await trio.to_thread.run_sync(_from_list, endpoint, model, usage)
    else:
        found = pricer(endpoint, model, usage)
    return found if found is None or (math.isfinite(found) and found >= 0) else None


def _from_list(endpoint: str, model: str, usage: Mapping[str, Any]) -> float | None:
    """Look it up. Runs in a thread: the import takes half a second."""
    try:
        package = importlib.import_module(_PACKAGE)
        counted = package.Usage(
            input_tokens=usage["input_tokens"],
            output_tokens=usage["output_tokens"],
            cache_read_tokens=usage.get("cached_tokens"),
            cache_write_tokens=usage.get("cache_write_tokens"),
        )
        found = package.calc_price(counted, model_ref=model, provider_id=_PROVIDERS.get(endpoint, endpoint))
        return float(found.total_price)
    except LookupError:
        return None
    except Exception as exc:  # noqa: BLE001  # somebody else's package; an unknown price is an answer
        get_logger().info("prices.unreadable", why=type(exc).__name__)
        return None
