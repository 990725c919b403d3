"""Looking into JSON that a server sent: what is there, if it has the form expected, else an empty value."""

from __future__ import annotations

from typing import Any


def dict_of(value: object, key: str) -> dict[str, Any]:
    """Return the object under *key* of a JSON object; {} when there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def list_of(value: object, key: str) -> list[Any]:
    """Return the list under *key* of a JSON object; [] when there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def text_of(value: object, key: str) -> str:
    """Return the text under *key* of a JSON object; "" when there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""
