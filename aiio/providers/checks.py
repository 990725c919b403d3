"""Settings of a request, checked: what may be sent is told from what can't be before anything is sent."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Check: TypeAlias = "tuple[Callable[[object], bool], str]"
"""A test of a value, and the words for what it asks for."""


def is_number(value: object) -> bool:
    """Tell whether *value* is a finite number, no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_integer(value: object) -> bool:
    """Tell whether *value* is a whole number, no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_count(value: object) -> bool:
    """Tell whether *value* is a whole number above 0."""
    return is_integer(value) and value > 0  # type: ignore[operator]  # checked


def is_text(value: object) -> bool:
    """Tell whether *value* is a string with something in it."""
    return isinstance(value, str) and value != ""


def is_texts(value: object) -> bool:
    """Tell whether *value* is a list of strings with something in each."""
    return isinstance(value, list | tuple) and bool(value) and all(map(is_text, value))


def is_mapping(value: object) -> bool:
    """Tell whether *value* is a mapping."""
    return isinstance(value, Mapping)


NUMBER: Check = (is_number, "a number")
INTEGER: Check = (is_integer, "a whole number")
COUNT: Check = (is_count, "a whole number above 0")
TEXT: Check = (is_text, "a text")
TEXTS: Check = (is_texts, "a list of texts")
TEXT_OR_TEXTS: Check = (lambda value: is_text(value) or is_texts(value), "a text or a list of texts")
MAPPING: Check = (is_mapping, "a mapping")
BOOL: Check = (lambda value: isinstance(value, bool), "a bool")


def checked(settings: Mapping[str, Any], key: str, check: Check) -> Any:
    """Return `settings[key]`, None when it is not set. ValueError: it can't be sent; the text names it."""
    value = settings.get(key)
    if value is not None and not check[0](value):
        raise ValueError(f"setting {key} must be {check[1]}, not {value!r}")
    return value
