"""One turn of a Live session: native messages in, normalized events out.

The parts of the model's turn go the way of `gemini_stream.py`. Sound and the transcript of it come side by
side in pieces; they are kept open beside each other until the turn is over.
"""

from __future__ import annotations

from typing import Any

from aiio.context.events import Done, Error, FinishReason

from .base import WORKING, Events
from .chat_blocks import TRANSCRIPT, Audio, Out, Prose
from .gemini_stream import Answer, Clock
from .gemini_wire import Chunk
from .narrow import dict_of, list_of, text_of

COMPLETE, CALLS, INTERRUPTED = "turnComplete", "toolCall", "interrupted"

_FINISH = {COMPLETE: FinishReason.STOP, CALLS: FinishReason.TOOL_USE}


class LiveAnswer(Answer):
    """What is known of one turn so far. `hear` each native message."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = False
        """The context was sent."""
        self._sound: Audio | None = None
        self._transcript: Prose | None = None

    def hear(self, native: list[Chunk], clock: Clock) -> Events:
        """Return the events that *native* stands for; none after the terminal one. *clock*: epoch seconds."""
        out: Out = []
        worked = False
        for message in native:
            if not self.ended:
                worked = self._message(message, out, clock) or worked
        return WORKING if worked and not out else out

    def _message(self, message: Chunk, out: Out, clock: Clock) -> bool:
        """Take one message; tell whether it held work on the answer."""
        content = dict_of(message, "serverContent")
        parts = [part for part in list_of(dict_of(content, "modelTurn"), "parts") if isinstance(part, dict)]
        heard = [part for part in parts if self._is_sound(part)]
        calls = [{"functionCall": call} for call in list_of(dict_of(message, CALLS), "functionCalls")]
        said = [part for part in parts if part not in heard] + calls
        chunk: Chunk = {key: message[key] for key in ("usageMetadata", "error") if key in message}
        if said:
            chunk["candidates"] = [{"content": {"parts": said}, **_notes(content)}]
        worked = self._chunk(chunk, out, clock)
        for part in heard:
            worked = self._listen(dict_of(part, "inlineData")) or worked
        if text := text_of(dict_of(content, "outputTranscription"), "text"):
            self._transcribe(text, out)
        if not self.ended:
            self._end_if_over(content, out, called=bool(calls))
        return worked

    @staticmethod
    def _is_sound(part: dict[str, Any]) -> bool:
        return text_of(dict_of(part, "inlineData"), "mimeType").startswith("audio/")

    def _listen(self, inline: Chunk) -> bool:
        mimetype, data = text_of(inline, "mimeType"), text_of(inline, "data")
        if data:
            if self._sound is None:
                self._sound = Audio(mimetype)
                self._sound.index = self._take_index()
            self._sound.pieces.append(data)
        return data != ""

    def _transcribe(self, text: str, out: Out) -> None:
        if self._transcript is None:
            self._transcript = Prose(TRANSCRIPT, self._take_index())
            out.append(self._transcript.start())
        self._transcript.write(text, out)

    def _end_if_over(self, content: Chunk, out: Out, *, called: bool) -> None:
        if content.get(INTERRUPTED) is True:
            said = "the turn was interrupted before it was over"
            self._end_with(Error(error=said, code=INTERRUPTED, retryable=True), out)
        elif called or content.get(COMPLETE) is True:
            if why := text_of(content, "turnCompleteReason"):
                self._facts["turn_complete_reason"] = why
            self.reason: str | None = CALLS if called else COMPLETE
            for event in self.finish():
                if isinstance(event, Done):
                    event.finish = _FINISH[self.reason]
                out.append(event)  # type: ignore[arg-type]  # `finish` makes events and blocks only

    def abandon(self) -> Events:
        """Return the content that is held back, when the turn is cut short."""
        out: Out = [*super().abandon()]  # type: ignore[list-item]  # events and blocks only
        if not self.ended:
            self._close_sound(out, cut=True)
        return out

    def _close_all(self, out: Out, *, whole: bool = True, cut: bool = False) -> None:
        super()._close_all(out, whole=whole, cut=cut)
        if cut or self.reason is not None:
            self._close_sound(out, cut=False)

    def _close_sound(self, out: Out, *, cut: bool) -> None:
        """Close what was heard and its transcript; of a turn that was *cut*, IO closes the transcript."""
        transcript, self._transcript = self._transcript, None
        if transcript is not None:
            if cut:
                transcript.release(out)
            else:
                transcript.end({}, out)
        sound, self._sound = self._sound, None
        if sound is not None:
            sound.place(out)


def _notes(content: Chunk) -> dict[str, Any]:
    return {key: content[key] for key in ("groundingMetadata", "urlContextMetadata") if key in content}
