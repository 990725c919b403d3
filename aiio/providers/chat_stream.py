"""One Chat Completions answer: native chunks in, normalized events out.

The state of an answer is an `Answer`. One block of prose (text, thinking, a refusal, a transcript) is open at
a time; tool calls stay open beside it until the finish reason, because their pieces may come interleaved. The
terminal event is held back until the stream's real end, since usage comes after the finish reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiio.context.events import Done, FinishReason, Placed, TextDelta, ThinkingDelta, ToolCallDelta
from aiio.context.types import Usage

from .base import WORKING, Events
from .chat_blocks import (
    REFUSAL,
    TEXT,
    THINKING,
    TRANSCRIPT,
    Audio,
    Calls,
    Details,
    Out,
    Prose,
    media_block,
)
from .chat_usage import FAILED, chat_usage, finish_of
from .chat_wire import Call, Choice, Chunk, Delta, End, Function, LooseChunk, read_plain
from .faults import error_event
from .narrow import text_of
from .quirks import Quirks
from .repeated import RepeatedFrames
from .think_tags import ThinkTags


class Answer:
    """What is known of one answer so far. `take` each native message, then `finish` or `abandon`.

    Args:
      quirks: the server's ways.
      audio_mimetype: what spoken output is, as the request asked.
    """

    def __init__(self, quirks: Quirks, audio_mimetype: str = "audio/wav") -> None:
        self._quirks = quirks
        self.ended: bool = False
        """The terminal event is out."""
        self.reason: str | None = None
        """The first finish reason; it decides."""
        self._last_reason: str | None = None
        self._whole = False
        self._raw_usage: dict[str, Any] | None = None
        self._facts: dict[str, Any] = {}
        self._loose = False  # the chunk in hand may hold halves of surrogate pairs
        self._unnoted = True  # until id and model are known; they ride on every chunk
        self._tier: str | None = None
        self._next_index = 0
        self._prose: Prose | None = None
        self._worked = False  # this chunk added to the answer, whether or not it made an event
        self.text_at: int = -1
        """Index of the open text block while plain text may go straight into it, else -1."""
        self.repeated: RepeatedFrames = RepeatedFrames("content", read_plain)
        """Frames that only add to that block."""
        self._details = Details()  # for the block that ends next
        self._calls = Calls()
        self._called = False
        self._refused = False
        self._audio = Audio(audio_mimetype)
        self._tags = ThinkTags() if quirks.think_tags else None
        self._marks: dict[str, Any] = {}  # annotations and citations for the text block that ends next

    @property
    def usage(self) -> Usage | None:
        """Usage known so far, in OpenAI's terms."""
        if self._raw_usage is None:
            return None
        return chat_usage(
            self._raw_usage,
            reasoning_included=self._quirks.reasoning_in_completion,
            service_tier=self._facts.get("service_tier"),
        )

    @property
    def complete(self) -> bool:
        """Whether a positive end signal came."""
        return self.reason is not None or self._whole

    def take(self, native: Chunk | End, clock: Callable[[], float]) -> Events:
        """Return the events that *native* stands for; none after the terminal one. *clock*: epoch seconds."""
        out: Out = []
        if self.ended:
            return out
        if isinstance(native, End):
            self._done(out)
            return out
        self._loose = type(native) is not Chunk
        self._worked = False
        if native.usage is not None:
            self._raw_usage = native.usage
        if (
            self._unnoted
            or native.citations is not None
            or native.x_groq is not None
            or native.service_tier != self._tier
        ):
            self._note(native)
        for choice in native.choices or ():
            if not choice.index:
                self._choice(choice, out)
        if self._loose:
            self._extra(native, out, clock)
        if self._last_reason in FAILED and not self.ended:
            self._fail({"error": {"code": self._last_reason}}, out, clock)
        if native.x_groq and native.x_groq.get("error") and not self.ended:
            self._fail({"error": native.x_groq["error"]}, out, clock)
        return WORKING if self._worked and not out else out

    def finish(self) -> Out:
        """Return the last events at the end of the stream; no terminal one without a finish reason."""
        out: Out = []
        optional = self._quirks.finish_optional and self._next_index > 0
        if not self.ended and (self.complete or optional):
            self._done(out)
        return out

    def abandon(self) -> Out:
        """Return the content that is held back, when the answer is cut short."""
        out: Out = []
        if self.ended:
            return out
        self._flush_tags(out)
        if self._prose is not None:
            self._prose.release(out)
        for call in self._calls.order:
            if call.index < 0 and call.said_something:
                call.start(self._take_index(), out)
            if call.index >= 0:
                call.release(out)
        self._audio.place(out)
        return out

    # -- one chunk

    def _choice(self, choice: Choice, out: Out) -> None:
        delta = choice.delta
        assert delta is not None  # a chunk without one is read loosely, and gets an empty one there
        if delta.reasoning_content or delta.reasoning or delta.reasoning_details:
            self._think(delta, out)
        content = delta.content
        if content:
            if content.__class__ is str and self.text_at >= 0 and not self._loose:
                out.append(TextDelta(self.text_at, content))
            else:
                self._content(content, out)
        if delta.refusal:
            self._refused = True
            self._write(REFUSAL, delta.refusal, out)
        if delta.tool_calls:
            self._call_pieces(delta.tool_calls, out)
        if delta.audio or delta.images or delta.annotations or delta.function_call:
            self._rarities(delta, out)
        if choice.usage is not None and self._raw_usage is None:
            self._raw_usage = choice.usage
        if choice.finish_reason:
            if self.reason is None:
                self.reason = choice.finish_reason
                if choice.finish_reason not in FAILED:
                    self._close_all(
                        out,
                        truncated=finish_of(self.reason, called=False, refused=False) is FinishReason.LENGTH,
                    )
            self._last_reason = choice.finish_reason

    def _note(self, chunk: Chunk) -> None:
        facts = self._facts
        for key, value in (("id", chunk.id), ("model", chunk.model), ("service_tier", chunk.service_tier)):
            if value:
                facts[key] = value
        self._unnoted = not ("id" in facts and "model" in facts)
        self._tier = chunk.service_tier
        if chunk.citations:
            self._marks["citations"] = chunk.citations
            if chunk.search_results:
                self._marks["search_results"] = chunk.search_results
        if chunk.x_groq:
            if request_id := text_of(chunk.x_groq, "id"):
                facts["request_id"] = request_id
            if self._raw_usage is None and isinstance(usage := chunk.x_groq.get("usage"), dict):
                self._raw_usage = usage

    def _extra(self, chunk: Chunk, out: Out, clock: Callable[[], float]) -> None:
        assert isinstance(chunk, LooseChunk)
        if chunk.whole:
            self._whole = True
        if chunk.fault is not None:
            self._fail(chunk.fault, out, clock)

    # -- prose

    def _content(self, content: str | list[Any], out: Out) -> None:
        if isinstance(content, list):
            for part in content:
                self._part(part, out)
        elif self._tags is not None and not self._tags.done:
            for thinking, text in self._tags.feed(content):
                self._write(THINKING if thinking else TEXT, text, out)
        else:
            self._write(TEXT, content, out)

    def _part(self, part: object, out: Out) -> None:
        if isinstance(part, str):
            self._write(TEXT, part, out)
        if not isinstance(part, dict):
            return
        kind = part.get("type")
        if kind == "thinking":
            inner = part.get("thinking")
            for piece in inner if isinstance(inner, list) else [inner]:
                text = piece.get("text") if isinstance(piece, dict) else piece
                if isinstance(text, str):
                    self._write(THINKING, text, out)
        elif kind == "image_url":
            self._image(part, out)
        elif isinstance(text := part.get("text"), str):
            self._write(TEXT, text, out)
        elif isinstance(refusal := part.get("refusal"), str) and refusal:
            self._refused = True
            self._write(REFUSAL, refusal, out)

    def _write(self, kind: str, text: str, out: Out) -> None:
        if not text:
            return
        prose = self._prose
        if prose is None or prose.kind != kind:
            prose = self._open(kind, out)
        prose.write(text, out)
        direct = (
            kind == TEXT and not (prose.held or self._unnoted) and (self._tags is None or self._tags.done)
        )
        self.text_at = prose.index if direct else -1

    def _open(self, kind: str, out: Out) -> Prose:
        self._close_prose(out)
        prose = self._prose = Prose(kind, self._take_index())
        out.append(prose.start())
        return prose

    def _think(self, delta: Delta, out: Out) -> None:
        text = delta.reasoning_content or delta.reasoning
        if text:
            prose = self._prose
            if prose is not None and prose.kind == THINKING and not (prose.held or self._loose):
                out.append(ThinkingDelta(prose.index, text))
            else:
                self._write(THINKING, text, out)
        for piece in delta.reasoning_details or ():
            if isinstance(piece, dict):
                self._detail(piece, out, silent=bool(text))

    def _detail(self, piece: dict[str, Any], out: Out, *, silent: bool) -> None:
        """Keep one piece of `reasoning_details`; its text is shown unless it came as a string, too."""
        shown = piece.get("text") or piece.get("summary")
        if isinstance(shown, str) and not silent:
            self._write(THINKING, shown, out)
        self._details.add(piece)
        self._worked = True

    # -- tool calls

    def _call_pieces(self, pieces: list[Call], out: Out) -> None:
        unkeyed = False
        for piece in pieces:
            self._call_piece(piece, piece.index, out, again=unkeyed)
            unkeyed = unkeyed or (piece.index is None and not piece.id)

    def _call_piece(self, piece: Call, key: int | str | None, out: Out, *, again: bool = False) -> None:
        function = piece.function or Function()
        call = self._calls.find(piece, function, again=again, key=key)
        if function.name and function.name != "null" and not call.name:
            call.name = function.name
        if isinstance(piece.extra_content, dict):
            call.metadata["extra_content"] = piece.extra_content
        if call.index < 0 and call.name:
            self._called = True
            self._flush_tags(out)
            self._close_prose(out)
            call.start(self._take_index(), out)
        arguments = function.arguments
        if arguments:
            self._worked = call.begun = True
        if isinstance(arguments, str):
            if call.index >= 0 and arguments and not (call.held or self._loose):
                out.append(ToolCallDelta(call.index, arguments))
            elif arguments:
                call.write(arguments, out)
        elif arguments is not None:
            call.arguments = arguments

    # -- audio, images, annotations, the old function_call

    def _rarities(self, delta: Delta, out: Out) -> None:
        if delta.function_call is not None:
            self._call_piece(Call(function=delta.function_call), "function_call", out)
        for image in delta.images or ():
            self._image(image, out)
        if delta.annotations:
            self._marks["annotations"] = [*self._marks.get("annotations", ()), *delta.annotations]
        if delta.audio:
            self._hear(delta.audio, out)

    def _image(self, image: object, out: Out) -> None:
        source = image.get("image_url") if isinstance(image, dict) else None
        url = source.get("url") if isinstance(source, dict) else source
        if isinstance(url, str) and url:
            self._close_prose(out)
            block = media_block(url) or {"type": "image_url", "url": url}
            out.append(Placed(self._take_index(), block))

    def _hear(self, audio: dict[str, Any], out: Out) -> None:
        for name, value in (("audio_id", audio.get("id")), ("expires_at", audio.get("expires_at"))):
            if value:
                self._audio.facts[name] = value
        if isinstance(transcript := audio.get("transcript"), str):
            self._write(TRANSCRIPT, transcript, out)
        if isinstance(data := audio.get("data"), str) and data:
            if self._audio.index < 0:
                self._audio.index = self._take_index()
            self._audio.pieces.append(data)
            self._worked = True

    # -- the end

    def _take_index(self) -> int:
        index = self._next_index
        self._next_index = index + 1
        return index

    def _flush_tags(self, out: Out) -> None:
        if self._tags is not None:
            for thinking, text in self._tags.flush():
                self._write(THINKING if thinking else TEXT, text, out)

    def _close_prose(self, out: Out, *, cut: bool = False) -> None:
        prose, self._prose, self.text_at = self._prose, None, -1
        if prose is not None:
            metadata = {} if cut else self._take_details()
            if prose.kind == TEXT and self._marks:
                metadata, self._marks = {**self._marks, **metadata}, {}
            prose.end(metadata, out)

    def _take_details(self) -> dict[str, Any]:
        """Return the replay data of reasoning as metadata, once. It need not come with text of its own."""
        details = self._details.take()
        return {"reasoning_details": details} if details else {}

    def _close_all(self, out: Out, *, cut: bool = False, truncated: bool = False) -> None:
        self._flush_tags(out)
        self._close_prose(out, cut=cut)
        for call in self._calls.order:
            if call.index < 0 and call.said_something:
                call.start(self._take_index(), out)
            if call.index >= 0:
                if not cut:
                    call.metadata.update(self._take_details())
                call.end(out, cut=cut or (truncated and not call.begun))
        self._calls = Calls()
        self._audio.place(out)

    def _done(self, out: Out) -> None:
        self._close_all(out)
        self.ended = True
        reason = self._last_reason
        native = {**self._facts, **self._marks, **self._take_details(), "finish_reason": reason}
        finish = finish_of(self.reason, called=self._called, refused=self._refused)
        out.append(Done(done_reason=reason, finish=finish, usage=self.usage, native=native))

    def _fail(self, fault: object, out: Out, clock: Callable[[], float]) -> None:
        self._close_all(out, cut=True)
        self.ended = True
        said = (
            f"the provider ended the answer with {self._last_reason!r}" if self._last_reason in FAILED else ""
        )
        event = error_event(fault, now=clock(), usage=self.usage, fallback=said)
        event.request_id = self._facts.get("request_id")
        facts = {**self._facts, "finish_reason": self._last_reason} if self._last_reason else self._facts
        event.native = {**facts, **(event.native or {})} or None
        out.append(event)
