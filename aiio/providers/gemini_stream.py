"""One Gemini answer: native chunks in, normalized events out.

The state of an answer is an `Answer`. Text comes in deltas, everything else as whole parts, in the order of
the answer; only the arguments of a call may come in pieces (Vertex). A signature belongs to the very part it
came with and must go back on it: a block keeps it as `thought_signature`, and where that was not all of it,
`thought_signature_span` says which characters it was. The terminal event is held back until the end.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, TypeAlias

from aiio.context.events import (
    Done,
    Error,
    FinishReason,
    Placed,
    TextEnd,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from aiio.context.types import ContentType, Usage

from .base import WORKING, Events, decode_json
from .chat_blocks import TEXT, THINKING, Audio, Out, Prose
from .chat_messages import arguments_text
from .faults import error_event
from .gemini_args import PartialArguments
from .gemini_wire import Chunk
from .narrow import dict_of, list_of, text_of

Clock: TypeAlias = Callable[[], float]

DIALECT = "gemini"
SIGNATURE = "thought_signature"
SPAN = "thought_signature_span"
THOUGHT = "thought"
"""Block key: a part of the model's thinking, as Gemini marks it."""

_REFUSED = (
    "SAFETY",
    "RECITATION",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
    "MODEL_ARMOR",
    "ESCALATION",
    "LANGUAGE",
)
FINISH: dict[str, FinishReason] = {
    "STOP": FinishReason.STOP,
    "MAX_TOKENS": FinishReason.LENGTH,
    "CONTINUATION": FinishReason.PAUSED,
    **dict.fromkeys(_REFUSED, FinishReason.REFUSAL),
}
"""The normalized word for each of Gemini's; what is neither here nor in `FAILED` is `OTHER`."""

FAILED: dict[str, bool] = {
    "MALFORMED_FUNCTION_CALL": True,
    "MALFORMED_RESPONSE": True,
    "UNEXPECTED_TOOL_CALL": False,
    "TOO_MANY_TOOL_CALLS": False,
    "MISSING_THOUGHT_SIGNATURE": False,
    "NO_IMAGE": False,
    "IMAGE_OTHER": False,
    "OTHER": False,
    "FINISH_REASON_UNSPECIFIED": False,
    "PUP_LIMITED_DISABLED": False,
}
"""Finish reasons that mean the answer failed, and whether asking again may help."""

_NOTES = (
    ("groundingMetadata", "grounding"),
    ("citationMetadata", "citations"),
    ("urlContextMetadata", "url_context"),
)
"""What a candidate says about its text, and the key of the block it goes under."""

_ENDING = (
    ("safetyRatings", "safety_ratings"),
    ("finishMessage", "finish_message"),
    ("continuationToken", "continuation_token"),
)
"""What it says about its end, and the name for that in `native`."""

_PLAIN = frozenset({"text", "thought", "thoughtSignature", "partMetadata"})


class _OpenCall:
    """A call whose arguments are coming."""

    __slots__ = ("arguments", "id", "index", "metadata")

    def __init__(self, index: int, call_id: str) -> None:
        self.index = index
        self.id = call_id
        self.arguments = PartialArguments()
        self.metadata: dict[str, Any] = {}


class Answer:
    """What is known of one answer so far. `take` each native message, then `finish` or `abandon`."""

    def __init__(self) -> None:
        self.ended: bool = False
        """The terminal event is out."""
        self.reason: str | None = None
        """The first finish reason."""
        self.fault: Chunk | None = None
        """The error object that ended the answer."""
        self.raw_usage: Any = None
        """The last report, as JSON data or undecoded."""
        self._facts: dict[str, Any] = {}
        self._next_index = 0
        self._prose: Prose | None = None
        self.open_at: int = -1
        """Index of the open block of prose while plain text may go straight into it, else -1."""
        self.open_thought: bool = False
        """Whether that block is thinking."""
        self.length: int = 0
        """Characters written into the open block."""
        self._signed: dict[str, Any] = {}  # its signature, and where that belongs
        self._notes: dict[str, Any] = {}  # for the text block that ends next
        self._call: _OpenCall | None = None
        self._call_ids: set[str] = set()
        self._audio: Audio | None = None

    @property
    def usage(self) -> Usage | None:
        """Usage known so far, in Gemini's terms."""
        if isinstance(self.raw_usage, dict | None):
            return self.raw_usage
        try:
            found = decode_json(bytes(self.raw_usage))
        except ValueError:  # no UTF-8; nobody has looked into it before
            return None
        return found if isinstance(found, dict) else None

    def take(self, native: list[Chunk], clock: Clock) -> Events:
        """Return the events that *native* stands for; none after the terminal one. *clock*: epoch seconds."""
        out: Out = []
        worked = False
        for chunk in native:
            if not self.ended:
                worked = self._chunk(chunk, out, clock) or worked
        return WORKING if worked and not out else out

    def finish(self) -> Events:
        """Return the last events at the end of the stream; no terminal one without a finish reason."""
        out: Out = []
        if not self.ended and self.reason is not None:
            self._close_all(out)
            self.ended = True
            finish = FINISH.get(self.reason, FinishReason.OTHER)
            if finish is FinishReason.STOP and self._call_ids:
                finish = FinishReason.TOOL_USE
            native = {**self._facts, **self._notes, "finish_reason": self.reason}
            out.append(Done(done_reason=self.reason, finish=finish, usage=self.usage, native=native))
        return out

    def abandon(self) -> Events:
        """Return the content that is held back, when the answer is cut short."""
        out: Out = []
        if self.ended:
            return out
        if (prose := self._prose) is not None:
            prose.release(out)
            if prose.kind == TEXT and self._signed:
                out.append(TextEnd(prose.index, metadata=self._signature()))
        self._close_audio(out)
        return out

    # -- one chunk

    def _chunk(self, chunk: Chunk, out: Out, clock: Clock) -> bool:
        """Take one chunk; tell whether it held work on the answer."""
        if usage := dict_of(chunk, "usageMetadata"):
            self.raw_usage = usage
        for key, name in (("responseId", "id"), ("modelVersion", "model")):
            if value := text_of(chunk, key):
                self._facts[name] = value
        if chunk.get("error"):
            self._fail(chunk, out, clock)
            return False
        worked = False
        candidates = [one for one in list_of(chunk, "candidates") if isinstance(one, dict)]
        for candidate in candidates:
            if not candidate.get("index"):
                worked = self._candidate(candidate, out) or worked
        feedback = dict_of(chunk, "promptFeedback")
        if text_of(feedback, "blockReason") and not candidates:
            self._block(feedback, out)
        elif self.reason in FAILED:
            self._failed(self.reason, out)
        return worked

    def _candidate(self, candidate: Chunk, out: Out) -> bool:
        worked = False
        for part in list_of(candidate.get("content"), "parts"):
            worked = (isinstance(part, dict) and self._part(part, out)) or worked
        for key, name in _NOTES:
            if noted := dict_of(candidate, key):
                self._notes[name] = {**self._notes.get(name, {}), **noted}
        reason = text_of(candidate, "finishReason")
        if reason and self.reason is None:
            self.reason = reason
            for key, name in _ENDING:
                if value := candidate.get(key):
                    self._facts[name] = value
            if reason not in FAILED:
                self._close_all(out, whole=reason == "STOP")
        return worked

    def _part(self, part: Chunk, out: Out) -> bool:
        """Take one part; tell whether there was anything in it."""
        if isinstance(call := part.get("functionCall"), dict):
            return self._function_call(call, part, out)
        if inline := dict_of(part, "inlineData"):
            return self._media(inline, part, out)
        if part.keys() - _PLAIN:
            self._place_item(part, out)
            return True
        kind, text = THINKING if part.get("thought") is True else TEXT, text_of(part, "text")
        if signature := text_of(part, "thoughtSignature"):
            self._signed_text(kind, text, signature, part, out)
            return True
        self._write(kind, text, out)
        return text != ""

    # -- prose

    def _write(self, kind: str, text: str, out: Out) -> None:
        if not text:
            return
        prose = self._prose
        if prose is None or prose.kind != kind:
            self._close_all(out)
            prose = self._prose = Prose(kind, self._take_index())
            self.open_thought = kind == THINKING
            out.append(prose.start())
        prose.write(text, out)
        self.length += len(text)
        self.open_at = -1 if prose.held else prose.index

    def _signed_text(self, kind: str, text: str, signature: str, part: Chunk, out: Out) -> None:
        """Take a part of text with a signature; one without text is signed with nothing before it."""
        prose = self._prose
        if prose is not None and (prose.kind != kind or self._signed):
            self._close_all(out)
            prose = None
        if prose is None and not text:
            self._place_item(part, out)
            return
        start = self.length
        self._write(kind, text, out)
        self._signed = {SIGNATURE: signature, SPAN: [start, self.length]}

    def _signature(self) -> dict[str, Any]:
        """Return the signature of the open block as metadata, with its place unless it is the whole block."""
        signed, self._signed = self._signed, {}
        if signed and signed[SPAN] == [0, self.length]:
            del signed[SPAN]
        return signed

    # -- everything that comes whole

    def _place_item(self, part: Chunk, out: Out) -> None:
        """Keep a part as it came, to be sent back so: what the server's own tools did, and the like."""
        self._close_all(out)
        out.append(Placed(self._take_index(), {"type": "server", "dialect": DIALECT, "item": part}))

    def _media(self, inline: Chunk, part: Chunk, out: Out) -> bool:
        mimetype = text_of(inline, "mimeType") or "application/octet-stream"
        data = text_of(inline, "data")
        facts: dict[str, Any] = {}
        if signature := text_of(part, "thoughtSignature"):
            facts[SIGNATURE] = signature
        if part.get("thought") is True:
            facts[THOUGHT] = True
        if mimetype.startswith("audio/"):
            if self._audio is None or self._audio.mimetype != mimetype:
                self._close_all(out)
                self._audio = Audio(mimetype)
                self._audio.index = self._take_index()
            self._audio.pieces.append(data)
            self._audio.facts.update(facts)
        elif data:
            self._close_all(out)
            block = {"type": ContentType.BINARY.value, "mimetype": mimetype, "content": data, **facts}
            out.append(Placed(self._take_index(), block))
        return data != ""

    # -- calls

    def _function_call(self, call: Chunk, part: Chunk, out: Out) -> bool:
        name, args, pieces = text_of(call, "name"), call.get("args"), list_of(call, "partialArgs")
        more = call.get("willContinue") is True
        call_id = text_of(call, "id")
        found: _OpenCall | None = self._call
        if found is None or ((name or args) and call_id != found.id):
            if not (name or args):
                return False  # the end of a call that was over
            found = self._start_call(name, call_id, out)
        if signature := text_of(part, "thoughtSignature"):
            found.metadata[SIGNATURE] = signature
        if args or not (more or pieces or found.arguments.value):
            self._end_whole(found, args or {}, out)
            return True
        for piece in pieces:
            if isinstance(piece, dict) and (text := found.arguments.add(piece)):
                out.append(ToolCallDelta(found.index, text))
        if not more:
            self._end_call(out, whole=True)
        return True

    def _start_call(self, name: str, call_id: str, out: Out) -> _OpenCall:
        self._close_all(out)
        if not call_id or call_id in self._call_ids:
            call_id = f"call_{uuid.uuid4().hex[:24]}"
        self._call_ids.add(call_id)
        call = self._call = _OpenCall(self._take_index(), call_id)
        if not name:
            call.metadata["partial"] = True  # nobody can make it
        out.append(ToolCallStart(call.index, call_id, name))
        return call

    def _end_whole(self, call: _OpenCall, args: Any, out: Out) -> None:
        self._call = None
        out.append(ToolCallDelta(call.index, args if isinstance(args, str) else arguments_text(args)))
        end = ToolCallEnd(call.index, metadata=call.metadata or None)
        if not isinstance(args, str):
            end.arguments = args
        out.append(end)

    def _end_call(self, out: Out, *, whole: bool) -> None:
        """Close the call that is open. One that is not *whole* keeps the text it has and must not be made."""
        call, self._call = self._call, None
        if call is None:
            return
        if not whole:
            out.append(ToolCallEnd(call.index, metadata={**call.metadata, "partial": True}))
            return
        if text := call.arguments.close():
            out.append(ToolCallDelta(call.index, text))
        out.append(ToolCallEnd(call.index, arguments=call.arguments.value, metadata=call.metadata or None))

    # -- the end

    def _take_index(self) -> int:
        index = self._next_index
        self._next_index = index + 1
        return index

    def _close_all(self, out: Out, *, whole: bool = True, cut: bool = False) -> None:
        """Close what is open. *whole*: a call without an end of its own is complete. *cut*: nothing is."""
        prose, self._prose, self.open_at = self._prose, None, -1
        if prose is not None:
            metadata = self._signature()
            if prose.kind == THINKING:
                metadata = {} if cut else {THOUGHT: True, **metadata}
            else:
                metadata, self._notes = {**self._notes, **metadata}, {}
            prose.end(metadata, out)
        self.length = 0
        self._end_call(out, whole=whole and not cut)
        self._close_audio(out)

    def _close_audio(self, out: Out) -> None:
        audio, self._audio = self._audio, None
        if audio is not None:
            audio.place(out)

    def _end_with(self, error: Error, out: Out) -> None:
        self._close_all(out, cut=True)
        self.ended = True
        native = {**self._facts, **(error.native or {})}
        if self.reason is not None:
            native["finish_reason"] = self.reason
        error.native = native or None
        error.usage = self.usage
        out.append(error)

    def _fail(self, chunk: Chunk, out: Out, clock: Clock) -> None:
        self.fault = chunk
        self._end_with(error_event(chunk, now=clock()), out)

    def _failed(self, reason: str, out: Out) -> None:
        said = (
            str(self._facts.get("finish_message") or "") or f"the provider ended the answer with {reason!r}"
        )
        self._end_with(Error(error=said, code=reason, retryable=FAILED[reason]), out)

    def _block(self, feedback: Chunk, out: Out) -> None:
        """End with the refusal to answer this prompt at all."""
        reason = text_of(feedback, "blockReason")
        said = text_of(feedback, "blockReasonMessage") or f"the prompt was blocked: {reason}"
        native = {"prompt_feedback": feedback}
        self._end_with(Error(error=said, code=reason, retryable=False, native=native), out)
