"""Frames of a Responses answer, decoded: as server-sent events, over a WebSocket, or as one JSON body.

Two readers, as for Chat Completions. The typed one serves the frames there are many of, pieces of text,
thinking and arguments, and looks at the few fields that say where a piece belongs. Everything else, and what
the typed one refuses (half a surrogate, odd types), is decoded as it is.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeAlias

import msgspec

from .base import decode_json
from .chat_wire import END, End

Event: TypeAlias = dict[str, Any]
"""An event, untyped. Only that it is an object with string keys is known."""

TEXT_DELTA = "response.output_text.delta"
REFUSAL_DELTA = "response.refusal.delta"
SUMMARY_DELTA = "response.reasoning_summary_text.delta"
REASONING_DELTA = "response.reasoning_text.delta"
ARGUMENTS_DELTA = "response.function_call_arguments.delta"
INPUT_DELTA = "response.custom_tool_call_input.delta"
TRANSCRIPT_DELTA = "response.output_audio_transcript.delta"
AUDIO_DELTA = "response.output_audio.delta"

PIECES = frozenset(
    {
        TEXT_DELTA,
        REFUSAL_DELTA,
        SUMMARY_DELTA,
        REASONING_DELTA,
        ARGUMENTS_DELTA,
        INPUT_DELTA,
        TRANSCRIPT_DELTA,
    }
)
"""Events that bring a piece of a block."""

_ALIASES = {
    "response.text.delta": TEXT_DELTA,
    "response.text.done": "response.output_text.done",
    "response.audio.delta": AUDIO_DELTA,
    "response.audio.done": "response.output_audio.done",
    "response.audio.transcript.delta": TRANSCRIPT_DELTA,
    "response.audio.transcript.done": "response.output_audio_transcript.done",
    "response.audio_transcript.delta": TRANSCRIPT_DELTA,
    "response.audio_transcript.done": "response.output_audio_transcript.done",
}
"""Other names of the same events: the first Realtime protocol's, and those of the SSE type definitions."""


class Delta(msgspec.Struct, gc=False):
    """An event out of `PIECES` with a piece in it, or what looked like one to the decoder."""

    type: str | None = None
    delta: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None


_typed = msgspec.json.Decoder(Delta)


def read_frame(frame: bytes) -> Delta | Event | End:
    """Return the native message in *frame*. ValueError: it is no JSON object."""
    if type(frame) is bytes:
        try:
            event = _typed.decode(frame)
        except (msgspec.DecodeError, RecursionError):
            if frame.strip().startswith(b"[DONE]"):
                return END
            return read_loosely(frame)
        if event.type in PIECES and event.delta is not None and event.output_index is not None:
            return event
    return read_loosely(frame)


def read_loosely(frame: bytes) -> Event:
    """Return the object in *frame*, under its current name. ValueError: it is none.

    What came as an SSE event named `error` has that type, whatever is in it.
    """
    named_error = getattr(frame, "name", None) == "error"
    try:
        value = decode_json(bytes(frame))
    except ValueError:
        if named_error:
            return {"type": "error", "message": frame.decode("utf-8", "replace").strip()}
        raise
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {str(value)[:80]!r}")  # noqa: TRY004  # bad bytes, not misuse
    kind = value.get("type")
    if not isinstance(kind, str):
        _name(value, error=named_error)
    elif named_error and kind != "error" and not kind.startswith("response."):
        return {"type": "error", "error": value}
    elif kind in _ALIASES:
        value["type"] = _ALIASES[kind]
    return value


def _name(value: Event, *, error: bool) -> None:
    """Give an object without a type one: a whole response, which is its own terminal event, or an error."""
    whole = value.get("object") == "response" or isinstance(value.get("output"), list)
    if whole and not error:
        value["response"] = {**value}
        value["type"] = f"response.{value.get('status') or 'completed'}"
        return
    flat = isinstance(value.get("message"), str) and ("code" in value or "status" in value)
    value["type"] = "error" if error or flat or value.get("error") or value.get("detail") else ""


def item_key(event: Event) -> Hashable:
    """Return what identifies the item of *event*: its place, since proxies change ids on the way.

    A server that does not count is taken at its ids.
    """
    place = event.get("output_index")
    if isinstance(place, int):
        return place
    item = event.get("item")
    found = event.get("item_id") or (item.get("id") if isinstance(item, dict) else None)
    return found if isinstance(found, str) else None


def part_of(event: Event, name: str = "content_index") -> int:
    """Return the index of the part that *event* is about; 0 when it does not say."""
    index = event.get(name)
    return index if isinstance(index, int) else 0
