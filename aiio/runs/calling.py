"""Calling a function of the user's, plain or async."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


async def call(fn: Callable[..., Any], *args: Any) -> Any:
    """Return what *fn* returns, awaited if need be."""
    found = fn(*args)
    return await found if inspect.isawaitable(found) else found
