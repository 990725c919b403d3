"""Rebuilding a message from its known fields, which sheds stale provider and cache identifiers.

Kept: what the schema names. Thinking and tool calls keep all their metadata too, because replaying
them needs it; blocks of unknown types are kept as they are.
"""

from __future__ import annotations

from typing import Any

from .types import Block, ContentType, Message, MessageType
from .validate import has_error, validate_message

_BLOCK_FIELDS: dict[str, tuple[str, ...]] = {
    ContentType.TEXT.value: ("type", "text"),
    ContentType.IMAGE.value: ("type", "mimetype", "mime", "content"),
    ContentType.BINARY.value: ("type", "mimetype", "mime", "filename", "content"),
}


def rebuild_message(message: Message) -> Message:
    """Return a new message with the recognized fields of *message* only.

    The copy is one level deep: parsed tool arguments and the like are shared with *message*.

    Raises:
      TypeError: *message* is not a message, or a block of it is not a dict.
    """
    validate_message(message)
    kind = message["type"]
    rebuilt: Message = {"type": kind, "content": [_rebuild_block(block) for block in message["content"]]}
    if kind == MessageType.TOOL_RESULT:
        rebuilt |= {key: message[key] for key in ("call_id", "name", "error") if key in message}
    elif kind == MessageType.ASSISTANT:
        if has_error(message):
            rebuilt["error"] = message["error"]
        draft = message.get("draft")
        if isinstance(draft, str) and draft:
            rebuilt["draft"] = draft
    return rebuilt


def _rebuild_block(block: Any) -> Block:
    if not isinstance(block, dict):
        raise TypeError(f"a content block is a dict, not a {type(block).__name__}")
    kind = block.get("type")
    fields = _BLOCK_FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        return dict(block)
    return {key: block[key] for key in fields if key in block}
