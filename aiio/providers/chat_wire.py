"""Frames of a Chat Completions answer, decoded.

Two readers give the same `Chunk`. The typed one serves nearly every frame: a prepared decoder that looks at
the few fields of use and skips the rest. What it refuses or can't judge (odd types, NaN, half a surrogate,
errors, whole messages) goes to the loose one, which decodes everything and keeps what makes sense.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from .base import decode_json


class Function(msgspec.Struct, gc=False):
    """Name and arguments of a call, or a piece of them."""

    name: str | None = None
    arguments: Any = None
    """A piece of JSON text; some servers send the whole value as an object."""


class Call(msgspec.Struct, gc=False):
    """One entry of `tool_calls`."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None
    extra_content: Any = None
    """Gemini's signatures, to be sent back."""


class Delta(msgspec.Struct, gc=False):
    """What one chunk adds, or a whole message."""

    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Call] | None = None
    refusal: str | None = None
    reasoning_details: list[Any] | None = None
    annotations: list[Any] | None = None
    images: list[Any] | None = None
    audio: dict[str, Any] | None = None
    function_call: Function | None = None


class Choice(msgspec.Struct, gc=False):
    """One alternative; only index 0 counts."""

    index: int | None = None
    delta: Delta | None = None
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


class Chunk(msgspec.Struct, gc=False):
    """One data object, typed reader."""

    choices: list[Choice] | None = None
    usage: dict[str, Any] | None = None
    id: str | None = None
    model: str | None = None
    service_tier: str | None = None
    error: Any = None
    citations: list[Any] | None = None
    search_results: list[Any] | None = None
    x_groq: dict[str, Any] | None = None


class LooseChunk(Chunk, gc=False):
    """One data object, loose reader. Strings may end with half a surrogate pair."""

    whole: bool = False
    """It held a complete message, not a delta."""
    fault: Any = None
    """The whole object, when it reports an error."""


class PlainDelta(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Text and nothing else; what servers write out although it is empty may stand beside it."""

    content: str
    role: str | None = None
    reasoning_content: None = None
    reasoning: None = None
    tool_calls: None = None
    function_call: None = None
    refusal: None = None
    audio: None = None


class PlainChoice(msgspec.Struct, gc=False):
    """A choice that goes on."""

    delta: PlainDelta
    index: Literal[0] = 0
    finish_reason: None = None
    usage: None = None
    error: None = None


class PlainChunk(msgspec.Struct, gc=False):
    """The commonest frame: one choice, more text. A frame that is anything else does not fit."""

    choices: tuple[PlainChoice]
    usage: None = None
    error: None = None
    citations: None = None
    x_groq: None = None


class End:
    """The `[DONE]` marker."""


END = End()
_typed = msgspec.json.Decoder(Chunk)
_plain = msgspec.json.Decoder(PlainChunk)
_BARE_KEEPALIVE = b"ping"  # some servers write it as data


def read_plain(frame: bytes) -> str:
    """Return the text in a `PlainChunk`. ValueError: it is not that plain; `read_frame` knows what it is."""
    return _plain.decode(frame).choices[0].delta.content


def read_frame(frame: bytes) -> Chunk | End:
    """Return the native message in *frame*. ValueError: it is no JSON object."""
    if type(frame) is bytes:
        try:
            chunk = _typed.decode(frame)
        except (msgspec.DecodeError, RecursionError):
            if frame.strip().startswith(b"[DONE]"):
                return END
            return read_loosely(frame)
        if chunk.error is None and (choices := chunk.choices) is not None:
            for choice in choices:
                if choice.delta is None or choice.error is not None:
                    return read_loosely(frame)
            return chunk
    return read_loosely(frame)


def read_loosely(frame: bytes) -> LooseChunk:
    """Return what can be made out of *frame*, whatever the types in it. ValueError: it is no JSON object."""
    named_error = getattr(frame, "name", None) == "error"
    try:
        value = decode_json(bytes(frame))
    except ValueError:
        if named_error:
            return LooseChunk(fault=frame.decode("utf-8", "replace").strip())
        if frame.strip() == _BARE_KEEPALIVE:
            return LooseChunk()
        raise
    if named_error or _is_fault(value):
        return _chunk(value[0] if isinstance(value, list) and value else value, fault=value)
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {str(value)[:80]!r}")  # noqa: TRY004  # bad bytes, not misuse
    return _chunk(value)


def _is_fault(value: object) -> bool:
    if isinstance(value, list):
        return bool(value) and isinstance(value[0], dict) and _is_fault(value[0])
    if not isinstance(value, dict):
        return False
    if value.get("error"):
        return True
    if isinstance(value.get("choices"), list):
        return any(isinstance(choice, dict) and choice.get("error") for choice in value["choices"])
    if value.get("object") == "error" or value.get("type") == "error" or value.get("detail"):
        return True
    return isinstance(value.get("message"), str) and ("code" in value or "status" in value)


def _chunk(value: object, fault: object = None) -> LooseChunk:
    if not isinstance(value, dict):
        return LooseChunk(fault=fault)
    chunk = LooseChunk(
        choices=[],
        usage=_mapping(value.get("usage")),
        id=_text(value.get("id")),
        model=_text(value.get("model")),
        service_tier=_text(value.get("service_tier")),
        citations=_list(value.get("citations")),
        search_results=_list(value.get("search_results")),
        x_groq=_mapping(value.get("x_groq")),
        fault=fault,
    )
    for entry in _list(value.get("choices")) or ():
        if not isinstance(entry, dict):
            continue
        whole = not isinstance(entry.get("delta"), dict) and isinstance(entry.get("message"), dict)
        chunk.whole = chunk.whole or whole
        chunk.choices.append(_choice(entry, entry["message"] if whole else entry.get("delta")))  # type: ignore[union-attr]  # made above
        if fault is not None and entry.get("error") and not value.get("error"):
            chunk.fault = entry  # the choice says why
    return chunk


def _choice(entry: Mapping[str, Any], delta: object) -> Choice:
    return Choice(
        index=_int(entry.get("index")),
        delta=_delta(delta) if isinstance(delta, dict) else Delta(),
        finish_reason=_text(entry.get("finish_reason")),
        usage=_mapping(entry.get("usage")),
    )


def _delta(value: Mapping[str, Any]) -> Delta:
    calls = _list(value.get("tool_calls"))
    content = value.get("content")
    return Delta(
        content=content if isinstance(content, str | list) else None,
        reasoning_content=_text(value.get("reasoning_content")),
        reasoning=_text(value.get("reasoning")),
        tool_calls=[_call(one) for one in calls if isinstance(one, dict)] if calls else None,
        refusal=_text(value.get("refusal")),
        reasoning_details=_list(value.get("reasoning_details")),
        annotations=_list(value.get("annotations")),
        images=_list(value.get("images")),
        audio=_mapping(value.get("audio")),
        function_call=_function(value.get("function_call")),
    )


def _call(value: Mapping[str, Any]) -> Call:
    return Call(
        index=_int(value.get("index")),
        id=_text(value.get("id")),
        function=_function(value.get("function")),
        extra_content=value.get("extra_content"),
    )


def _function(value: object) -> Function | None:
    if not isinstance(value, dict):
        return None
    return Function(name=_text(value.get("name")), arguments=value.get("arguments"))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _list(value: object) -> list[Any] | None:
    return value if isinstance(value, list) else None


def _mapping(value: object) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None
