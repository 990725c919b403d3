"""Frames of a Gemini answer, decoded.

The typed reader fits the commonest frame only: one candidate that goes on with one part of text. Everything
else is plain JSON data, read tolerantly, in a list: without `alt=sse` an answer is one array of messages.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

from .base import decode_json

Chunk: TypeAlias = dict[str, Any]
"""One native message, as JSON data."""

NO_USAGE = msgspec.Raw()
NULL_USAGE = msgspec.Raw(b"null")


class PlainPart(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Text and nothing else."""

    text: str
    thought: bool = False


class PlainContent(msgspec.Struct, gc=False):
    """One part."""

    parts: tuple[PlainPart]


class PlainCandidate(msgspec.Struct, gc=False):
    """A candidate that goes on and has nothing to note. Fields have the wire's names."""

    content: PlainContent
    index: Literal[0] = 0
    finishReason: None = None
    groundingMetadata: None = None
    citationMetadata: None = None
    urlContextMetadata: None = None


class Plain(msgspec.Struct, gc=False):
    """The commonest frame. A frame that is anything else does not fit."""

    candidates: tuple[PlainCandidate]
    usageMetadata: msgspec.Raw = NO_USAGE
    """Undecoded: it rides on every frame, and only the last one counts."""
    error: None = None
    promptFeedback: None = None


read_plain: Final = msgspec.json.Decoder(Plain).decode
"""Return the `Plain` message in a frame. ValueError: it is not that plain; `read_frame` knows what it is."""


def read_frame(frame: bytes) -> list[Chunk]:
    """Return the native messages in *frame*: one, or those of an array. ValueError: it is neither."""
    named_error = getattr(frame, "name", None) == "error"  # a proxy's; Gemini names no events
    try:
        value = decode_json(bytes(frame))
    except ValueError:
        if named_error:
            return [{"error": frame.decode("utf-8", "replace").strip()}]
        if frame.strip().startswith(b"[DONE]"):  # a proxy's, too
            return []
        raise
    if named_error and not (isinstance(value, dict) and value.get("error")):
        return [{"error": value}]
    chunks = value if isinstance(value, list) else [value]
    if not all(isinstance(chunk, dict) for chunk in chunks):
        raise ValueError(f"expected a JSON object, got {str(value)[:80]!r}")
    return chunks
