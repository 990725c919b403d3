"""What counts as a message, a record, a context; and whether a message holds anything.

Readers are tolerant: only the core shape is looked at, unknown keys and block types never invalidate.
"""

from __future__ import annotations

from typing import Any, TypeGuard, TypeVar

from .types import Block, ContentType, Message, Record

_T = TypeVar("_T")


def is_message(value: object) -> TypeGuard[Message]:
    """Tell whether *value* has a message's core shape: a dict with an int `type` and a list `content`."""
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    return isinstance(kind, int) and not isinstance(kind, bool) and isinstance(value.get("content"), list)


def is_record(value: object) -> TypeGuard[Record]:
    """Tell whether *value* is owner data riding in a context: a dict whose `type` is a string."""
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def is_context(value: object) -> bool:
    """Tell whether *value* is a list of messages and records only; an empty one is."""
    return isinstance(value, list) and all(is_message(entry) or is_record(entry) for entry in value)


def validate_message(value: _T, at: str = "message") -> _T:
    """Return *value* itself if it has a message's core shape. It need not have content.

    TypeError: it has not; the text starts with *at* and says what is missing and what was found.
    """
    if not isinstance(value, dict):
        raise TypeError(f"{at}: a message is a dict, not {_found(value)}")
    kind = value.get("type")
    if not isinstance(kind, int) or isinstance(kind, bool):
        raise TypeError(f"{at}: a message has a numeric `type`, not {_found(kind)}")
    if not isinstance(value.get("content"), list):
        raise TypeError(f"{at}: a message has a `content` list, not {_found(value.get('content'))}")
    return value


def validate_context(value: _T) -> _T:
    """Return *value* itself if it is a list of messages and records.

    TypeError: it is not; a bad entry is named by its place, `context[2]`.
    """
    if not isinstance(value, list):
        raise TypeError(f"a context is a list, not {_found(value)}")
    for index, entry in enumerate(value):
        if not is_message(entry) and not is_record(entry):
            validate_message(entry, f"context[{index}]")
    return value


def has_content(message: object) -> bool:
    """Tell whether *message* holds anything a provider can consume.

    Text and thinking count when their text is not empty, any other block counts by being there.
    """
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, list) and any(map(block_has_content, content))


def block_has_content(block: Block | Any) -> bool:
    """Tell whether one block counts as content: see `has_content`."""
    if not isinstance(block, dict):
        return False
    if block.get("type") in (ContentType.TEXT, ContentType.THINKING):
        text = block.get("text")
        return isinstance(text, str) and text != ""
    return True


def has_replay_data(message: object) -> bool:
    """Tell whether *message* holds thinking that came with more than a text: a signature, ciphertext.

    Without text it is no content by itself, yet its dialect wants it back before the calls it led to.
    """
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, list) and any(
        isinstance(block, dict)
        and block.get("type") == ContentType.THINKING
        and not block.keys() <= {"type", "text"}
        for block in content
    )


def has_error(message: object) -> bool:
    """Tell whether *message* reports a failed response. A tool result's `error: True` does not."""
    return error_text(message) != ""


def error_text(message: object) -> str:
    """Return the text of a failed response: a string `error`, or its `message`; else an empty string."""
    error = message.get("error") if isinstance(message, dict) else None
    if isinstance(error, dict):
        error = error.get("message")
    return error if isinstance(error, str) else ""


def _found(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
