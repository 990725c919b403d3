"""A valid copy of a context up to a message."""

from __future__ import annotations

import copy
from typing import Any

from .types import ContentType, Message, MessageType, tool_result_message
from .validate import is_message

NO_RESULT = "no result: this call was not completed"


def forked_entries(entries: list[Any], upto: int | None) -> list[Any]:
    """Return a deep copy of *entries* as far as index *upto*, that one included; None: all of them.

    What the cut breaks is mended: tool calls whose results lie behind it get an error result, so that the
    copy can be sent as it is. What was broken before stays as it is.
    """
    kept = copy.deepcopy(entries if upto is None else entries[: upto + 1])
    return kept + [
        tool_result_message(call["call_id"], str(call.get("name") or ""), NO_RESULT, error=True)
        for call in _unanswered(kept)
    ]


def _unanswered(entries: list[Any]) -> list[dict[str, Any]]:
    """Return the calls of the last assistant message without a result; none if a user has spoken since."""
    answered: set[Any] = set()
    for entry in reversed(entries):
        kind = entry["type"] if is_message(entry) else None
        if kind == MessageType.USER:
            break
        if kind == MessageType.TOOL_RESULT:
            answered.add(entry.get("call_id"))
        elif kind == MessageType.ASSISTANT:
            return [call for call in _calls(entry) if call["call_id"] not in answered]
    return []


def _calls(message: Message) -> list[dict[str, Any]]:
    """Return the calls that can be answered: those with an id."""
    return [
        block
        for block in message["content"]
        if isinstance(block, dict)
        and block.get("type") == ContentType.TOOL_CALL
        and isinstance(block.get("call_id"), str)
        and block["call_id"]
    ]
