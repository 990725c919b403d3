"""Messages as they are handed in (ours, or `{role, content}`), made into copies of ours, and counted.

What is checked here is checked on the copy, which nobody else holds: what was looked at is what is sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

from aiio.context.text import MAX_DEPTH, compact_json
from aiio.context.types import Block, ContentType, Message, MessageType, text_content
from aiio.context.validate import has_content


class Role(StrEnum):
    """Who speaks in a message."""

    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"


class CharUnit(StrEnum):
    """What one character of a budget is."""

    CODE_POINTS = "code_points"
    UTF16 = "utf16"
    """UTF-16 code units, as JavaScript counts."""


MESSAGE_TYPES: Mapping[str, MessageType] = {
    Role.SYSTEM.value: MessageType.SYSTEM,
    Role.DEVELOPER.value: MessageType.SYSTEM,
    Role.USER.value: MessageType.USER,
    Role.ASSISTANT.value: MessageType.ASSISTANT,
    "tool": MessageType.TOOL_RESULT,
}

USER_BLOCKS = frozenset({ContentType.TEXT.value, ContentType.IMAGE.value, ContentType.BINARY.value})
"""What a user can send."""

KNOWN_BLOCKS = frozenset(kind.value for kind in ContentType)
"""Blocks that every dialect puts into the message they are in."""

_ROLE_KEYS = frozenset({"role", "content"})
_RESULT_KEYS = _ROLE_KEYS | {"call_id", "name", "error"}
_PAYLOAD = {ContentType.TEXT: "text", ContentType.IMAGE: "content", ContentType.BINARY: "content"}


def read_messages(values: object, what: str) -> list[Message]:
    """Return copies of the messages in *values*, as ours; records and empty messages are left out.

    Args:
      values: a list or tuple of messages, each ours or `{"role", "content"}` (a tool's with `call_id` and, if
        known, `name` and `error`), whose content is text or a list of our blocks.
      what: what they are, for the text of an exception.

    Raises:
      TypeError, ValueError: *values* is no list, or one of them is no such message; the text says which.
    """
    if not isinstance(values, list | tuple):
        raise TypeError(f"{what} must be a list, not {_found(values)}")
    messages = [read_message(value, f"{what}[{at}]") for at, value in enumerate(values)]
    return [message for message in messages if message is not None and _sent(message)]


def read_message(value: object, at: str) -> Message | None:
    """Return a copy of one message, as ours; None: it is a record, which is never sent. Raises as above."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{at}: a message is a dict, not {_found(value)}")
    message: dict[str, Any] = _plain(value, at)
    if "role" in message:
        message = _from_role(message, at)
    kind = message.get("type")
    if isinstance(kind, str):
        return None
    if not isinstance(kind, int) or isinstance(kind, bool) or kind not in MESSAGE_TYPES.values():
        raise ValueError(f"{at}: a message has a `role` or a `type` from 1 to 4, not {kind!r}")
    if not isinstance(message.get("content"), list):
        raise TypeError(f"{at}: content is a list of blocks, not {_found(message.get('content'))}")
    message["type"] = int(kind)
    for index, block in enumerate(message["content"]):
        _check_block(block, f"{at}.content[{index}]")
    if kind == MessageType.TOOL_RESULT:
        call_id = message.get("call_id")
        if not isinstance(call_id, str) or not call_id.strip():
            raise ValueError(f"{at}: a tool's message needs the `call_id` that it answers")
    return message


def foreign_block(message: Message, known: frozenset[str] = KNOWN_BLOCKS) -> str | None:
    """Return what is wrong with a block in *message* that may leave it; None: all stay where they are.

    A block that is not *known*, or has a native `item`, may be sent by its dialect as that item is, which can
    be a whole message with a role of its own. So may other data that a dialect keeps at a block.
    """
    for block in message["content"]:
        if block["type"] not in known:
            return f"a block of type {block['type']!r}"
        if "item" in block:
            return f"a {block['type']} block with a native item"
        if _names_a_role(block):
            return f"a {block['type']} block with a role in its data"
    return None


def _names_a_role(block: Block) -> bool:
    """Tell whether there is a `role` in what a dialect keeps at *block*; arguments of a call are data."""
    pending: list[Any] = [{key: value for key, value in block.items() if key != "arguments"}]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if "role" in value:
                return True
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return False


def unasked_result(messages: Iterable[Message]) -> str | None:
    """Return the id of the first tool result in *messages* that answers no call before it; None: all do.

    A call waits for its one result until the next message that is none. (A system message would not end
    that, but where this is asked there are none.)
    """
    waiting: Counter[str] = Counter()
    for message in messages:
        if message["type"] != MessageType.TOOL_RESULT:
            # a model's only: whatever a user's message holds, it is no call
            blocks = message["content"] if message["type"] == MessageType.ASSISTANT else ()
            calls = (block for block in blocks if block["type"] == ContentType.TOOL_CALL)
            waiting = Counter(filter(_is_text, (block.get("call_id") for block in calls)))
        elif waiting[message["call_id"]]:
            waiting[message["call_id"]] -= 1
        else:
            return str(message["call_id"])
    return None


def texts_of(message: Message) -> list[str]:
    """Return all text of *message* that a model reads: of its blocks, and the arguments of its calls."""
    texts: list[str] = []
    for block in message["content"]:
        text, arguments = block.get("text"), block.get("arguments", "")
        if isinstance(text, str):
            texts.append(text)
        texts.append(arguments if isinstance(arguments, str) else compact_json(arguments))
    return texts


def counter_of(unit: CharUnit) -> Callable[[str], int]:
    """Return what counts the characters of a text in *unit*."""
    return len if unit is CharUnit.CODE_POINTS else _utf16_units


def message_chars(messages: Iterable[Message], count: Callable[[str], int]) -> int:
    """Return the characters of all text in *messages*; files count nothing."""
    return sum(count(text) for message in messages for text in texts_of(message))


def _utf16_units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _sent(message: Message) -> bool:
    """Tell whether there is something to send; a tool may have answered nothing, but it answered."""
    return has_content(message) or message["type"] == MessageType.TOOL_RESULT


def _from_role(message: dict[str, Any], at: str) -> dict[str, Any]:
    """Return a `{role, content}` dict as a message. ValueError: it is none, or its role is open to doubt."""
    role, content = message["role"], message.get("content")
    if "type" in message:
        raise ValueError(f"{at}: a message has a `role` or a `type`, not both")
    kind = MESSAGE_TYPES.get(role) if isinstance(role, str) else None
    if kind is None:
        raise ValueError(f"{at}: a role is one of {', '.join(MESSAGE_TYPES)}, not {role!r}")
    # A key that is not known could hold what its writer wants sent (calls, say): it is never just left out.
    allowed = _RESULT_KEYS if kind is MessageType.TOOL_RESULT else _ROLE_KEYS
    if unknown := message.keys() - allowed:
        raise ValueError(f"{at}: unknown keys beside role and content: {', '.join(sorted(unknown))}")
    if isinstance(content, str):
        content = [text_content(content)]
    ours: dict[str, Any] = {"type": kind.value, "content": content}
    if kind is MessageType.TOOL_RESULT:
        ours |= {"name": ""} | {key: message[key] for key in ("call_id", "name", "error") if key in message}
    return ours


def _check_block(block: Block | Any, at: str) -> None:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        raise TypeError(f"{at}: a block is a dict with a string `type`, not {block!r:.80}")
    needed = _PAYLOAD.get(ContentType(kind)) if kind in KNOWN_BLOCKS else None
    if needed is not None and not isinstance(block.get(needed), str):
        raise ValueError(f"{at}: a block of type {kind!r} has a string `{needed}`")


def _plain(value: object, at: str, depth: int = 0) -> Any:
    """Return a deep copy of *value* in dicts and lists. Raises: it is no JSON data, or nested too deep."""
    if value is None or isinstance(value, str | int | float):
        return value
    if depth > MAX_DEPTH:
        raise ValueError(f"{at}: data nested deeper than {MAX_DEPTH}")
    copied: dict[str, Any] | list[Any]
    if isinstance(value, Mapping):
        copied = {}
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{at}: the key {key!r} is no string")
            copied[key] = _plain(inner, at, depth + 1)
        return copied
    if isinstance(value, list | tuple):
        copied = []
        for inner in value:
            copied.append(_plain(inner, at, depth + 1))  # in a loop: one frame a level of nesting
        return copied
    raise TypeError(f"{at}: {_found(value)} is no JSON data")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _found(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
