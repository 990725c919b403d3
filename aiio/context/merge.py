"""Appending to a context, where neighbours of one kind become one.

Queued user input, repeated system texts, a cut answer and what follows it: providers want one message
a turn, and a person reads one text. Merging loses no character; it only adds blank lines between.
"""

from __future__ import annotations

from typing import Any

from .log import get_logger
from .types import Block, ContentType, Message, MessageType, Record
from .validate import has_content, has_error, is_message, is_record, validate_context, validate_message

_FOLDED = (ContentType.TEXT.value, ContentType.THINKING.value)


def append_message(
    context: list[Any], message: Message | Record, *, merge: bool = True
) -> Message | Record | None:
    """Append *message* to *context* in place, merging it into the last message when they belong together.

    They do when both have the same `type`, are no tool results, and carry equal metadata. A message's
    own adjacent text (or thinking) blocks without metadata are folded into one. Records are appended
    untouched.

    Args:
      context: messages and records, oldest first.
      message: read, never changed; what is stored is a copy of it that shares its unmerged blocks.
      merge: False keeps it a message of its own.

    Returns:
      The stored message: the one merged into, the copy appended, or the record itself. None when *message*
      was empty (no content, no error) and nothing was there to absorb it: a warning is logged and the
      context stays as it was.

    Raises:
      TypeError: *context* or *message* is invalid.
    """
    validate_context(context)
    if not is_record(message):
        validate_message(message)
    return append_valid(context, message, merge=merge)


def append_valid(
    context: list[Any], message: Message | Record, *, merge: bool = True
) -> Message | Record | None:
    """Do what `append_message` does, for an owner who knows both to be valid: walks over no context."""
    if is_record(message):
        context.append(message)
        return message
    last = context[-1] if context and merge else None
    target = last if is_message(last) and _mergeable(last, message) else None
    if not has_content(message) and not has_error(message):
        if target is None:
            get_logger().warning("context.empty_message_dropped", type=message["type"])
        return target
    if target is not None:
        target["content"] = fold([*target["content"], *message["content"]])
        return target
    stored = {**message, "content": fold(message["content"])}
    context.append(stored)
    return stored


def fold(content: list[Any]) -> list[Any]:
    """Return *content* with adjacent text (and thinking) made one block, where neither has metadata."""
    folded: list[Any] = []
    run: list[Block] = []  # plain blocks of one kind, not yet in *folded*
    for block in content:
        if run and _plain(block) and block["type"] == run[0]["type"]:
            run.append(block)
            continue
        folded += _joined(run)
        if _plain(block):
            run = [block]
        else:
            run = []
            folded.append(block)
    return folded + _joined(run)


def join_texts(texts: list[str]) -> str:
    """Return *texts* as one: a blank line between two, none after a line end or beside an empty text."""
    pieces: list[str] = []
    for text in filter(None, texts):
        if pieces and not pieces[-1].endswith("\n"):
            pieces.append("\n\n")
        pieces.append(text)
    return "".join(pieces)


def _joined(run: list[Block]) -> list[Block]:
    if len(run) < 2:
        return run
    return [{"type": run[0]["type"], "text": join_texts([block["text"] for block in run])}]


def _plain(block: Any) -> bool:
    return (
        isinstance(block, dict)
        and len(block) == 2
        and block.get("type") in _FOLDED
        and isinstance(block.get("text"), str)
    )


def _mergeable(last: Message, message: Message) -> bool:
    return (
        last["type"] == message["type"]
        and message["type"] != MessageType.TOOL_RESULT
        and _metadata(last) == _metadata(message)
    )


def _metadata(message: Message) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key not in ("type", "content")}
