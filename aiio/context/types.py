"""Messages, content blocks and records: the shapes a context is made of.

All three are plain dicts. They cross files and wires, keep keys that nobody here knows, and keep the
caller's object identity; the `TypedDict`s below describe them and enforce nothing at run time
(`validate.py` does, where it matters).
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Any, NotRequired, TypeAlias, TypedDict


class MessageType(IntEnum):
    """The numeric `type` of a message. 0 is reserved."""

    RESERVED = 0
    SYSTEM = 1
    USER = 2
    ASSISTANT = 3
    TOOL_RESULT = 4


class ContentType(StrEnum):
    """The string `type` of a content block."""

    TEXT = "text"
    IMAGE = "image"
    BINARY = "binary"
    THINKING = "thinking"
    TOOL_CALL = "tool_call"


class TextBlock(TypedDict):
    """Text. Keys beyond these two are metadata, kept, and keep the block from merging."""

    type: str
    text: str


class ThinkingBlock(TypedDict):
    """Reasoning, with whatever its dialect needs to replay it (a signature, encrypted content)."""

    type: str
    text: str
    signature: NotRequired[str]


class ImageBlock(TypedDict):
    """An image as base64."""

    type: str
    content: str
    mimetype: NotRequired[str]
    mime: NotRequired[str]


class BinaryBlock(TypedDict):
    """Any other file as base64; `filename` is a basename, never a path."""

    type: str
    content: str
    mimetype: NotRequired[str]
    mime: NotRequired[str]
    filename: NotRequired[str]


class ToolCallBlock(TypedDict):
    """A call the model wants made. `partial: True` marks one that must not be made."""

    type: str
    call_id: str
    name: str
    arguments: Any
    """A string while it streams, parsed JSON after; the raw string when it did not parse."""
    partial: NotRequired[bool]


Block: TypeAlias = dict[str, Any]
"""Any content block, also one of a type unknown here."""

Message: TypeAlias = dict[str, Any]
"""`{"type": MessageType, "content": [Block, ...], ...metadata}`."""

Record: TypeAlias = dict[str, Any]
"""A dict whose `type` is a string: owner data that rides in a context and is never sent."""

Usage: TypeAlias = dict[str, Any]
"""Token counts: `input_tokens, output_tokens, total_tokens, source` always, the rest when known."""


REFUSED = "refused"
"""The key of an assistant message that marks an answer refused or filtered: `True`. It is kept and shown, but
not sent again."""


def text_content(value: object) -> Block:
    """Return a text block holding `str(value)`; what `str` raises, propagates."""
    return {"type": ContentType.TEXT.value, "text": str(value)}


def user_message(value: object, metadata: dict[str, Any] | None = None) -> Message:
    """Return a user message: a list is its content as it is, anything else becomes one text block.

    *metadata* is laid over the message last, so it may replace `type` and `content`.
    """
    content = value if isinstance(value, list) else [text_content(value)]
    return {"type": MessageType.USER.value, "content": content, **(metadata or {})}


def system_message(value: object) -> Message:
    """Return a system message with one text block of `str(value)`."""
    return {"type": MessageType.SYSTEM.value, "content": [text_content(value)]}


def assistant_message(content: list[Block] | None = None) -> Message:
    """Return an assistant message holding *content* itself (not a copy, not validated)."""
    return {"type": MessageType.ASSISTANT.value, "content": [] if content is None else content}


def tool_result_message(call_id: str, name: str, value: object, *, error: bool = False) -> Message:
    """Return the answer to the tool call *call_id*; `error` marks the tool's own failure.

    A list is the content as it is, anything else becomes one text block.
    """
    content = value if isinstance(value, list) else [text_content(value)]
    message: Message = {
        "type": MessageType.TOOL_RESULT.value,
        "content": content,
        "call_id": call_id,
        "name": name,
    }
    if error:
        message["error"] = True
    return message


def mimetype_of(block: Block | None) -> str | None:
    """Return a block's media type: a non-empty string `mimetype`, else `mime`, else None."""
    for key in ("mimetype", "mime"):
        value = (block or {}).get(key)
        if isinstance(value, str) and value:
            return value
    return None
