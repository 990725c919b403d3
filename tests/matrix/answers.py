"""One answer in eight dialects, cut at a place, and what of it had been said by then.

What was said is read here from the frames' own fields, as the formats have them, not by the dialects' code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tests.providers.wires import INPUT, OUTPUT, Call, Part, Text, Thinking, wire

from .cells import Place

WORDS = "Grüße aus 東京, wo der 🦅 kreist."
THOUGHT = "The eagle first."
CALL = Call("call-1", "look", {"at": "the eagle", "twice": True})

NDJSON = ("ollama",)
WHOLE_CALLS = ("gemini", "ollama", "gemini_live")
"""Dialects that send a tool call in one frame."""


@dataclass
class Said:
    """What the frames so far have said."""

    text: str = ""
    thinking: str = ""
    called: bool = False
    arguments: str = ""
    """Raw, as far as they came."""
    call_ended: bool = False

    @property
    def anything(self) -> bool:
        """Whether there is any content."""
        return bool(self.text or self.thinking or self.called)


@dataclass(frozen=True)
class Cut:
    """An answer, cut."""

    frames: list[bytes]
    """Whole ones: with their separators, or WebSocket messages."""
    part: bytes
    """What of the next one comes; empty between frames."""
    rest: bytes
    """What of it does not come."""
    said: Said = field(default_factory=Said)


@cache
def frames_of(dialect: str) -> tuple[bytes, ...]:
    """Return the whole answer in *dialect*, frame by frame; on a WebSocket without what sets a session up."""
    answer: list[Part] = [Thinking(THOUGHT), Text(WORDS), CALL]
    if dialect == "gemini_live":
        return tuple(map(_compact, _live()))
    if dialect == "realtime":
        return tuple(map(_compact, _realtime(_messages(wire("responses", answer[1:])))))
    if dialect == "responses_ws":
        return tuple(map(_compact, _messages(wire("responses", answer))))
    return tuple(wire(dialect, answer))


@cache
def cut_at(dialect: str, place: Place) -> Cut:
    """Return the answer in *dialect* as far as *place*."""
    frames = frames_of(dialect)
    at, within = _position(dialect, place)
    broken = frames[at] if within else b""
    whole = list(frames[:at])
    return Cut(whole, broken[:within], broken[within:], said_in(dialect, whole))


def _position(dialect: str, place: Place) -> tuple[int, int]:
    """Return how many frames are whole, and how many bytes come of the next."""
    frames = frames_of(dialect)
    prose = _growing(dialect, lambda said: said.text)
    match place:
        case Place.BEFORE_HEAD | Place.AFTER_HEAD:
            return 0, 0
        case Place.BETWEEN_FRAMES:
            return prose[1] + 1, 0
        case Place.IN_FRAME:
            return prose[2], len(frames[prose[2]]) // 2
        case Place.IN_CHARACTER:
            eagle = next(at for at in prose if "🦅".encode() in frames[at])
            return eagle, frames[eagle].index("🦅".encode()) + 2
        case Place.IN_ARGUMENTS if dialect in WHOLE_CALLS:
            called = _growing(dialect, lambda said: said.arguments)[0]
            return called, frames[called].index(b"the eagle") + 3
        case Place.IN_ARGUMENTS:
            pieces = _growing(dialect, lambda said: said.arguments)
            return pieces[3], len(frames[pieces[3]]) - 5
        case Place.AFTER_FINISH:
            marks = (b'"finish_reason":"', b'"stop_reason":"', b'"finishReason":"')
            return next(at for at, one in enumerate(frames, 1) if any(mark in one for mark in marks)), 0
        case Place.AFTER_TERMINAL:
            return len(frames), 0


def _growing(dialect: str, what: Callable[[Said], str]) -> list[int]:
    """Return the frames that make *what* longer."""
    frames = frames_of(dialect)
    lengths = [len(what(said_in(dialect, frames[:at]))) for at in range(len(frames) + 1)]
    return [at for at in range(len(frames)) if lengths[at + 1] > lengths[at]]


# -- what was said


def said_in(dialect: str, frames: Iterable[bytes]) -> Said:
    """Return what *frames*, all of them whole, have said."""
    said = Said()
    family = {"responses_ws": "responses", "realtime": "responses"}.get(dialect, dialect)
    for one in _messages(frames):
        _READERS[family](one, said)
    return said


def _messages(frames: Iterable[bytes]) -> list[Any]:
    """Return the JSON values in *frames*, with or without the framing of server-sent events."""
    lines = (line.removeprefix(b"data: ") for frame in frames for line in frame.split(b"\n"))
    return [json.loads(line) for line in lines if line.startswith(b"{")]


def _chat(chunk: Any, said: Said) -> None:
    for choice in chunk["choices"]:
        delta = choice["delta"]
        said.text += delta.get("content", "")
        said.thinking += delta.get("reasoning_content", "")
        for call in delta.get("tool_calls", ()):
            said.called = True
            said.arguments += call["function"].get("arguments", "")
        said.call_ended = said.call_ended or choice["finish_reason"] is not None


def _responses(event: Any, said: Said) -> None:
    match event["type"]:
        case "response.output_text.delta":
            said.text += event["delta"]
        case "response.reasoning_summary_text.delta":
            said.thinking += event["delta"]
        case "response.output_item.added" if event["item"]["type"] == "function_call":
            said.called = True
        case "response.function_call_arguments.delta":
            said.arguments += event["delta"]
        case "response.function_call_arguments.done":
            said.call_ended = True


def _anthropic(event: Any, said: Said) -> None:
    match event:
        case {"delta": {"type": "text_delta", "text": text}}:
            said.text += text
        case {"delta": {"type": "thinking_delta", "thinking": text}}:
            said.thinking += text
        case {"content_block": {"type": "tool_use"}}:
            said.called = True
        case {"delta": {"type": "input_json_delta", "partial_json": piece}}:
            said.arguments += piece
        case {"type": "content_block_stop"}:
            said.call_ended = said.called


def _parts(parts: Iterable[Any], said: Said) -> None:
    for part in parts:
        if "functionCall" in part:
            _whole_call(part["functionCall"]["args"], said)
        elif part.get("thought"):
            said.thinking += part["text"]
        else:
            said.text += part["text"]


def _whole_call(arguments: Any, said: Said) -> None:
    said.called = said.call_ended = True
    said.arguments = json.dumps(arguments)


def _gemini(chunk: Any, said: Said) -> None:
    for candidate in chunk["candidates"]:
        _parts(candidate.get("content", {}).get("parts", ()), said)


def _live_said(message: Any, said: Said) -> None:
    _parts(message.get("serverContent", {}).get("modelTurn", {}).get("parts", ()), said)
    for call in message.get("toolCall", {}).get("functionCalls", ()):
        _whole_call(call["args"], said)


def _ollama(line: Any, said: Said) -> None:
    message = line["message"]
    said.text += message.get("content", "")
    said.thinking += message.get("thinking", "")
    for call in message.get("tool_calls", ()):
        _whole_call(call["function"]["arguments"], said)


_READERS: dict[str, Callable[[Any, Said], None]] = {
    "chat": _chat,
    "responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "gemini_live": _live_said,
    "ollama": _ollama,
}


# -- the two dialects that only a WebSocket carries


def _compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _realtime(events: Sequence[Any]) -> list[Any]:
    """Return events of Responses as a Realtime session has them."""
    last = events[-1]["response"]
    usage = {"total_tokens": INPUT + OUTPUT, "input_tokens": INPUT, "output_tokens": OUTPUT}
    done = {"type": "response.done", "response": {**last, "status": "completed", "usage": usage}}
    return [*events[:-1], done]


def _live() -> list[Any]:
    """Return a turn of a Live session: the call ends it."""
    thought: list[dict[str, Any]] = [{"text": THOUGHT, "thought": True}]
    parts = thought + [{"text": WORDS[at : at + 3]} for at in range(0, len(WORDS), 3)]
    call = {"id": CALL.call_id, "name": CALL.name, "args": CALL.arguments}
    usage = {"promptTokenCount": INPUT, "responseTokenCount": OUTPUT, "totalTokenCount": INPUT + OUTPUT}
    said = [{"serverContent": {"modelTurn": {"parts": [part]}}} for part in parts]
    return [*said, {"toolCall": {"functionCalls": [call]}, "usageMetadata": usage}]
