"""The entries of a session as text for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiio.context.text import compact_json
from aiio.context.types import ContentType, MessageType, mimetype_of
from aiio.context.validate import error_text, is_message

_SPEAKERS = {
    MessageType.SYSTEM: "system",
    MessageType.USER: "user",
    MessageType.ASSISTANT: "assistant",
    MessageType.TOOL_RESULT: "tool result",
}


def entry_text(index: int, entry: Any) -> str:
    """Return a message or record as lines of text, its number and speaker first, a blank line behind it."""
    lines = [f"[{index}] {_heading(entry)}"]
    lines += _blocks(entry["content"]) if is_message(entry) else [compact_json(entry)]
    return "\n".join(lines) + "\n\n"


def text_of(entry: Any) -> str:
    """Return the text of a message, its text blocks joined; empty for a record."""
    blocks = entry["content"] if is_message(entry) else []
    return "".join(
        block["text"]
        for block in blocks
        if isinstance(block, dict)
        and block.get("type") == ContentType.TEXT
        and isinstance(block.get("text"), str)
    )


def _heading(entry: Any) -> str:
    if not is_message(entry):
        return _one_line(f"record {entry['type']}")
    speaker = _SPEAKERS.get(entry["type"], f"message of type {entry['type']}")
    if entry["type"] == MessageType.TOOL_RESULT:
        failed = " (failed)" if entry.get("error") is True else ""
        return _one_line(
            f"{speaker} {entry.get('name') or ''} {entry.get('call_id') or ''}".rstrip() + failed
        )
    error = error_text(entry)
    return _one_line(f"{speaker} (error: {error})" if error else speaker)


def _one_line(text: str) -> str:
    """Return *text* on one line: nothing in it can pass for the heading of another message."""
    return " ".join(text.splitlines())


def _blocks(content: list[Any]) -> Iterator[str]:
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        match kind:
            case ContentType.TEXT:
                yield str(block.get("text"))
            case ContentType.THINKING:
                yield f"(thinking) {block.get('text')}"
            case ContentType.TOOL_CALL:
                arguments = block.get("arguments")
                shown = arguments if isinstance(arguments, str) else compact_json(arguments)
                yield _one_line(f"(call) {block.get('name')} {block.get('call_id')} {shown}")
            case ContentType.IMAGE | ContentType.BINARY:
                name = block.get("filename") or kind
                size = len(str(block.get("content") or "")) * 3 // 4
                yield f"({name}: {mimetype_of(block) or 'unknown type'}, about {size:,} bytes)"
            case _:
                yield compact_json(block)
