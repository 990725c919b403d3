"""What was said, in the conventions' JSON form: for spans, on opt-in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiio.context.text import compact_json
from aiio.context.types import ContentType, Message, MessageType

from .otel_names import ROLES

Scrub = Callable[[str], str]


def messages_json(messages: Sequence[Message], scrub: Scrub, finish: str | None = None) -> str:
    """Return *messages* as the value of `gen_ai.input.messages`, credentials masked.

    Files are named by their kind and MIME type, not copied. *finish*, if given, makes it one of
    `gen_ai.output.messages`.
    """
    more = {} if finish is None else {"finish_reason": finish}
    return scrub(compact_json([{**_message(message), **more} for message in messages]))


def value_json(value: Any, scrub: Scrub) -> str:
    """Return any value as text, JSON if that can be, credentials masked."""
    if isinstance(value, str):
        return scrub(value)
    try:
        return scrub(compact_json(value))
    except (TypeError, ValueError):
        return scrub(str(value))


def _message(message: Message) -> dict[str, Any]:
    kind = message["type"]
    parts = [_part(block) for block in message["content"]]
    if kind == MessageType.TOOL_RESULT:
        response = [part.get("content", part) for part in parts]
        parts = [{"type": "tool_call_response", "id": message.get("call_id"), "response": response}]
    return {"role": ROLES.get(kind, str(kind)), "parts": parts}


def _part(block: Mapping[str, Any]) -> dict[str, Any]:
    match block.get("type"):
        case ContentType.TEXT:
            return {"type": "text", "content": block.get("text")}
        case ContentType.THINKING:
            return {"type": "reasoning", "content": block.get("text")}
        case ContentType.TOOL_CALL:
            call = {"id": block.get("call_id"), "name": block.get("name")}
            return {"type": "tool_call", **call, "arguments": block.get("arguments")}
        case kind:
            return {"type": str(kind), "mime_type": block.get("mimetype") or block.get("mime")}
