"""The line by which a person knows a session again: what its first user message is about."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .types import ContentType, Message

LENGTH = 72

_EMPTY = re.compile(r"```.*|~~~.*|<[^<>]*>|[-=_*#\s>]*")  # fences, lone tags, rules
_MARKERS = re.compile(r"(?:[>\s]+|#{1,6}\s+|[-*+\u2022]\s+|\d+[.)]\s+)+")  # quote, heading, list
_COURTESIES = re.compile(
    r"(?:(?:hi|hello|hey|please|kindly|good (?:morning|afternoon|evening)|i(?:'d| would) like you to"
    r"|(?:can|could|would|will) you(?: please)?)(?: there)?\b[\s,.!:]*)+",
    re.IGNORECASE,
)


def message_preview(message: Message) -> str:
    """Return the first meaningful line of *message*, at most 72 characters; an empty string if it has none.

    Fences, lone tags and rules are passed over, list, quote and heading marks and leading courtesies taken
    off. A line that ends with a colon introduces the next; it is taken when nothing follows.
    """
    deferred = ""
    for line in _lines(message):
        if _EMPTY.fullmatch(line):
            continue
        text = " ".join(_stripped(line).split())
        if not text.endswith(":"):
            return _shortened(text)
        deferred = deferred or text
    return _shortened(deferred)


def _lines(message: Message) -> Iterator[str]:
    block: Any
    for block in message["content"]:
        if isinstance(block, dict) and block.get("type") == ContentType.TEXT:
            text = block.get("text")
            if isinstance(text, str):
                yield from map(str.strip, text.splitlines())


def _stripped(line: str) -> str:
    """Return *line* without marks and courtesies; a line of courtesies only is kept."""
    bare = _MARKERS.sub("", line, count=1) if _MARKERS.match(line) else line
    match = _COURTESIES.match(bare)
    return (bare[match.end() :] if match else bare) or bare


def _shortened(text: str) -> str:
    return text if len(text) <= LENGTH else text[: LENGTH - 1].rstrip() + "\u2026"
