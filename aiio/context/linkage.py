"""Calls and their results, kept in pairs: ids made unique, a stored history repaired.

The answer window of a call reaches from its assistant message to the next user or assistant message;
system messages and records may stand inside. Stored messages are replaced, never changed: they may be shared.
(What a provider accepts is a stricter matter, settled on a copy for each request by its dialect.)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable
from itertools import count
from typing import Any

from .text import compact_json
from .types import (
    Block,
    ContentType,
    Message,
    MessageType,
    Record,
    system_message,
    tool_result_message,
)
from .validate import is_message

NO_RESULT = "no result: this call was not completed"

_TURNS = (MessageType.USER, MessageType.ASSISTANT)


def tool_calls(message: Message | None) -> list[Block]:
    """Return the tool call blocks of *message*, in order."""
    content = () if message is None else message["content"]
    return [block for block in content if _is_call(block)]


def call_ids(context: Iterable[Message | Record]) -> set[str]:
    """Return the ids of all calls and results in *context*."""
    messages = list(filter(is_message, context))
    found: list[Any] = [message.get("call_id") for message in messages]
    found += [block.get("call_id") for message in messages for block in tool_calls(message)]
    return {call_id for call_id in found if _usable(call_id)}


def with_unique_calls(
    message: Message, taken: Collection[str] = (), *, prefix: str = "agent", avoid: Collection[str] = ()
) -> Message:
    """Return *message* with a unique id for each of its calls, itself when they had one.

    An id that is missing, in *taken*, or another call's becomes `<prefix>-N`, which is not in *avoid* either.
    """
    seen = set(taken)
    content: list[Any] = []
    for block in message["content"]:
        if _is_call(block):
            call_id = block.get("call_id")
            if not _usable(call_id) or call_id in seen:
                names = (f"{prefix}-{n}" for n in count(1))
                call_id = next(name for name in names if name not in seen and name not in avoid)
                block = {**block, "call_id": call_id}
            seen.add(call_id)
        content.append(block)
    changed = any(map(operator.is_not, content, message["content"]))
    return {**message, "content": content} if changed else message


def repair_linkage(context: list[Any]) -> int:
    """Pair calls and results in *context*, in place; return how many repairs it took.

    - A call without an id, or with the id of another call of its message, gets the id `repair-N`.
    - A call without a result gets an error result at the end of its window.
    - A result without an unanswered call in its window becomes a system message holding its JSON.
    - A result without an id answers the first call without one that has its name.

    Idempotent. Everything sound is kept as the very object it was.
    """
    repair = _Repair(call_ids(context))
    for entry in context:
        repair.take(entry)
    repair.end_window()
    if repair.count:
        context[:] = repair.repaired
    return repair.count


class _Repair:
    """Walks over a context and builds its repaired copy."""

    def __init__(self, taken: set[str]) -> None:
        self.repaired: list[Any] = []
        self.count = 0
        self._taken = taken
        self._unanswered: list[tuple[Any, Block]] = []
        """(the id the call came with, the call as it is kept), in order."""

    def take(self, entry: Any) -> None:
        if not is_message(entry):
            self.repaired.append(entry)
        elif entry["type"] == MessageType.TOOL_RESULT:
            self._take_result(entry)
        else:
            if entry["type"] in _TURNS:
                self.end_window()
            self.repaired.append(self._opened(entry) if entry["type"] == MessageType.ASSISTANT else entry)

    def end_window(self) -> None:
        """Answer what is unanswered; a user or assistant message follows, or nothing."""
        for _, call in self._unanswered:
            name = call.get("name")
            self.repaired.append(tool_result_message(call["call_id"], str(name or ""), NO_RESULT, error=True))
            self.count += 1
        self._unanswered.clear()

    def _opened(self, message: Message) -> Message:
        """Open the window of an assistant message; return it with an id for every call."""
        came_with = [call.get("call_id") for call in tool_calls(message)]
        message = with_unique_calls(message, prefix="repair", avoid=self._taken)
        calls = tool_calls(message)
        self._taken.update(call["call_id"] for call in calls)
        self._unanswered = list(zip(came_with, calls, strict=True))
        self.count += sum(call["call_id"] != before for before, call in self._unanswered)
        return message

    def _take_result(self, result: Message) -> None:
        call_id = result.get("call_id")
        if _usable(call_id):
            position = self._position(lambda came_with, call: came_with == call_id)
        else:
            name = result.get("name")
            position = self._position(
                lambda came_with, call: not _usable(came_with) and name in (None, "", call.get("name"))
            )
        if position is None:
            self.repaired.append(system_message(_as_text(result)))
            self.count += 1
            return
        _, call = self._unanswered.pop(position)
        if call["call_id"] != call_id:
            result = {**result, "call_id": call["call_id"]}
            self.count += 1
        self.repaired.append(result)

    def _position(self, fits: Callable[[Any, Block], bool]) -> int | None:
        return next((at for at, pair in enumerate(self._unanswered) if fits(*pair)), None)


def _is_call(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == ContentType.TOOL_CALL


def _usable(call_id: object) -> bool:
    return isinstance(call_id, str) and call_id.strip() != ""


def _as_text(message: Message) -> str:
    try:
        return compact_json(message)
    except (TypeError, ValueError):
        return str(message)
