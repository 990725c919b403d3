"""Frames of an Anthropic Messages answer, decoded.

Nearly every frame adds a piece to a block, and is decoded as a `BlockDelta` that holds nothing else. All
other frames, and deltas that the typed reader refuses (half a surrogate pair, an index that is no number),
come as an `Event`: the whole object. Both lead to the same events.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from .base import decode_json


class TextPiece(msgspec.Struct, gc=False, tag_field="type", tag="text_delta"):
    """More text."""

    text: str


class ThinkingPiece(msgspec.Struct, gc=False, tag_field="type", tag="thinking_delta"):
    """More thinking."""

    text: str = msgspec.field(name="thinking")
    estimated_tokens: int | None = None
    """How much was thought meanwhile, where the thoughts themselves are not shown."""


class JsonPiece(msgspec.Struct, gc=False, tag_field="type", tag="input_json_delta"):
    """More of a tool's input, as JSON text."""

    text: str = msgspec.field(name="partial_json")


Piece: TypeAlias = TextPiece | ThinkingPiece | JsonPiece


class BlockDelta(msgspec.Struct, gc=False, tag_field="type", tag="content_block_delta"):
    """One more piece of one block."""

    index: int
    delta: Piece


class Event:
    """Any other data object; `{}`: nothing of interest."""

    __slots__ = ("fault", "value")

    def __init__(self, value: dict[str, Any], fault: Any = None) -> None:
        self.value: dict[str, Any] = value
        self.fault: Any = fault
        """The object, or what else came under the name of an error."""


class End:
    """The `[DONE]` marker that some proxies add."""


END = End()
Native: TypeAlias = BlockDelta | Event | End

_typed = msgspec.json.Decoder(BlockDelta)
_BARE_KEEPALIVE = b"ping"  # some proxies write it as data


def read_frame(frame: bytes) -> Native:
    """Return the native message in *frame*. ValueError: it is no JSON object."""
    if type(frame) is bytes:
        try:
            return _typed.decode(frame)
        except (msgspec.DecodeError, RecursionError):
            pass
    return read_loosely(frame)


def read_loosely(frame: bytes) -> Event | End:
    """Return what can be made out of *frame*, whatever the types in it. ValueError: it is no JSON object."""
    if frame.strip().startswith(b"[DONE]"):
        return END
    named_error = getattr(frame, "name", None) == "error"
    try:
        value = decode_json(bytes(frame))
    except ValueError:
        if named_error:
            return Event({}, fault=frame.decode("utf-8", "replace").strip())
        if frame.strip() == _BARE_KEEPALIVE:
            return Event({})
        raise
    if named_error:
        return Event({}, fault=value)
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {str(value)[:80]!r}")  # noqa: TRY004  # bad bytes, not misuse
    return Event(value, fault=value if _is_fault(value) else None)


def _is_fault(value: dict[str, Any]) -> bool:
    """Tell whether *value* reports an error: in the dialect's form, or in one that proxies use."""
    if value.get("type") == "error" or value.get("error"):
        return True
    return "type" not in value and bool(value.get("detail") or isinstance(value.get("message"), str))


def read_piece(delta: dict[str, Any]) -> Piece | None:
    """Return the piece in *delta*, read loosely; None: it is none of the three kinds, or has no text."""
    kind = delta.get("type")
    if kind == "text_delta" and isinstance(text := delta.get("text"), str):
        return TextPiece(text)
    if kind == "thinking_delta" and isinstance(text := delta.get("thinking"), str):
        estimate = delta.get("estimated_tokens")
        return ThinkingPiece(text, estimate if type(estimate) is int else None)
    if kind == "input_json_delta" and isinstance(text := delta.get("partial_json"), str):
        return JsonPiece(text)
    return None
