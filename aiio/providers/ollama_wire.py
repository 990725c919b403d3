"""Lines of an Ollama answer, decoded: a typed reader for the commonest, plain JSON data for all others."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from .base import decode_json

Line: TypeAlias = dict[str, Any]
"""One native message, as JSON data."""


class PlainMessage(msgspec.Struct, gc=False):
    """Text or thinking, and nothing else that is read. In the order of the wire, which msgspec expects.

    What is not read is not checked either: a role in broken UTF-8 damages nothing that counts.
    """

    content: str = ""
    thinking: str = ""
    images: None = None
    tool_calls: None = None


class Plain(msgspec.Struct, gc=False):
    """A line of an answer that goes on."""

    message: PlainMessage
    done: bool = False
    error: None = None
    prompt_eval_count: None = None
    eval_count: None = None


read_plain: Final = msgspec.json.Decoder(Plain).decode
"""Return the `Plain` message in a line. ValueError: it is not that plain; `read_line` knows what it is."""


def read_line(frame: bytes) -> Line:
    """Return the native message in *frame*. ValueError: it is no JSON object."""
    value = decode_json(bytes(frame))
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {str(value)[:80]!r}")  # noqa: TRY004  # bad bytes, not misuse
    return value
