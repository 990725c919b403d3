"""Reading a context from text: a JSON list, JSON lines, or plain prose."""

from __future__ import annotations

from typing import Any

from .text import parse_json
from .types import user_message
from .validate import is_message


def parse_context(text: str) -> list[Any]:
    """Return the context written in *text*.

    A JSON list is returned as it is, its entries not validated. Anything else is read line by line,
    blank lines skipped: a message is taken, a list gives the messages in it, and every other line
    (prose, a number, a record) becomes a user message holding the line as it stands.

    TypeError: *text* is not a string.
    """
    if not isinstance(text, str):
        raise TypeError(f"a context is read from a string, not a {type(text).__name__}")
    whole = _json_or_none(text)
    if isinstance(whole, list):
        return whole
    context: list[Any] = []
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        if not line.strip():
            continue
        value = _json_or_none(line)
        if isinstance(value, list):
            context += filter(is_message, value)
        else:
            context.append(value if is_message(value) else user_message(line))
    return context


def _json_or_none(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return None
