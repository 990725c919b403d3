"""What a call costs: the provider's own figure, else the price list, else unknown. Unknown is never 0."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import trio

from aiio.context.log import get_logger

Pricer: TypeAlias = Callable[[str, str, Mapping[str, Any]], float | None]
"""(endpoint, model, usage) -> USD, None: not known."""

_PACKAGE = "genai_prices"
_PROVIDERS = {"gemini": "google", "xai": "x-ai"}  # where the list has another name than our endpoint


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
