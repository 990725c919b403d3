"""One Ollama answer: lines in, normalized events out.

The state of an answer is an `Answer`. A line adds to the thinking, to the text, or brings whole calls, in
that order; the last one (`done`) has the usage, so it is the terminal event at once.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import Any, TypeAlias

from aiio.context.events import (
    Done,
    ErrorKind,
    FinishReason,
    Placed,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from aiio.context.types import ContentType, Usage

from .base import Events
from .chat_blocks import TEXT, THINKING, Out, Prose
from .chat_messages import arguments_text
from .faults import error_event
from .ollama_wire import Line

Clock: TypeAlias = Callable[[], float]

OWN = "ollama"
"""Block key of thinking that this dialect made: only that goes back to it."""

FINISH: dict[str, FinishReason] = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}
"""The normalized word for each `done_reason`; `load` and `unload` answer no prompt and are `OTHER`."""

USAGE = (
    "prompt_eval_count",
    "eval_count",
    "total_duration",
    "load_duration",
    "prompt_eval_duration",
    "eval_duration",
)
_FACTS = ("model", "remote_model", "remote_host")

_CRASHED = re.compile(r"running the model|runner|unexpected EOF|connection|out of memory", re.IGNORECASE)
"""What a server says whose model process broke down: with a status, it would be 500."""

_IMAGES = {"/9j/": "image/jpeg", "UklGR": "image/webp", "R0lGOD": "image/gif"}
_PNG = "image/png"


class Answer:
    """What is known of one answer so far. `take` each line, then `finish`, or `abandon` if it was cut."""

    def __init__(self) -> None:
        self.ended: bool = False
        """The terminal event is out."""
        self.usage: Usage | None = None
        """Usage known so far, in Ollama's terms."""
        self._facts: dict[str, Any] = {}
        self._next_index = 0
        self._prose: Prose | None = None
        self.open_at: int = -1
        """Index of the open block of prose while plain pieces may go straight into it, else -1."""
        self.open_thinking: bool = False
        """Whether that block is thinking."""
        self._call_ids: set[str] = set()

    def take(self, line: Line, clock: Clock) -> Events:
        """Return the events that *line* stands for; none after the terminal one. *clock*: epoch seconds."""
        out: Out = []
        if self.ended:
            return out
        for key in _FACTS:
            if isinstance(value := line.get(key), str) and value:
                self._facts[key] = value
        if usage := {key: line[key] for key in USAGE if line.get(key) is not None}:
            self.usage = usage
        if line.get("error"):
            self._fail(line, out, clock)
            return out
        message = line.get("message")
        if isinstance(message, dict):
            self._message(message, out)
        if line.get("done") is True:
            self._done(line.get("done_reason"), out)
        return out

    complete = False
    """Nothing follows the line that ends an answer, so there is nothing to wait for."""

    def finish(self) -> Events:
        """Return nothing: an answer ends with a line that says so, or it was cut."""
        return ()

    def abandon(self) -> Events:
        """Return the content that is held back, when the answer is cut short."""
        out: Out = []
        if not self.ended and self._prose is not None:
            self._prose.release(out)
        return out

    # -- one line

    def _message(self, message: Line, out: Out) -> None:
        for kind, key in ((THINKING, "thinking"), (TEXT, "content")):
            if isinstance(text := message.get(key), str) and text:
                self._write(kind, text, out)
        images, calls = message.get("images"), message.get("tool_calls")
        for image in images if isinstance(images, list) else ():
            if isinstance(image, str) and image:
                self._close_prose(out)
                out.append(Placed(self._take_index(), image_block(image)))
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._call(call, out)

    def _write(self, kind: str, text: str, out: Out) -> None:
        prose = self._prose
        if prose is None or prose.kind != kind:
            self._close_prose(out)
            prose = self._prose = Prose(kind, self._take_index())
            self.open_thinking = kind == THINKING
            out.append(prose.start())
        prose.write(text, out)
        self.open_at = -1 if prose.held else prose.index

    def _call(self, call: Line, out: Out) -> None:
        """Take a call, which comes whole. Its `index` says nothing, and its id may be missing or repeated."""
        self._close_prose(out)
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        name, arguments, call_id = function.get("name"), function.get("arguments"), call.get("id")
        if not isinstance(call_id, str) or not call_id or call_id in self._call_ids:
            call_id = f"call_{uuid.uuid4().hex[:24]}"
        self._call_ids.add(call_id)
        named = isinstance(name, str) and name != ""
        index = self._take_index()
        out.append(ToolCallStart(index, call_id, str(name) if named else ""))
        end = ToolCallEnd(index, metadata=None if named else {"partial": True})  # nobody can make it
        if isinstance(arguments, str):
            text = arguments
        else:
            end.arguments = {} if arguments is None else arguments
            text = arguments_text(end.arguments)
        if text:
            out.append(ToolCallDelta(index, text))
        out.append(end)

    # -- the end

    def _take_index(self) -> int:
        index = self._next_index
        self._next_index = index + 1
        return index

    def _close_prose(self, out: Out, *, cut: bool = False) -> None:
        prose, self._prose, self.open_at = self._prose, None, -1
        if prose is not None:
            prose.end({OWN: True} if prose.kind == THINKING and not cut else {}, out)

    def _done(self, reason: object, out: Out) -> None:
        self._close_prose(out)
        self.ended = True
        word = reason if isinstance(reason, str) and reason else None
        finish = FinishReason.STOP if word is None else FINISH.get(word, FinishReason.OTHER)
        if finish is FinishReason.STOP and self._call_ids:
            finish = FinishReason.TOOL_USE
        native = {**self._facts, "finish_reason": word}
        out.append(Done(done_reason=word, finish=finish, usage=self.usage, native=native))

    def _fail(self, line: Line, out: Out, clock: Clock) -> None:
        self._close_prose(out, cut=True)
        self.ended = True
        error = error_event(line, now=clock(), usage=self.usage)
        if "signin_url" in line:  # of Ollama's cloud
            error.kind, error.retryable = ErrorKind.AUTH, False
        elif error.status is None and _CRASHED.search(error.error):
            error.retryable = True
        error.native = {**self._facts, **(error.native or {})}
        out.append(error)


def image_block(data: str) -> dict[str, Any]:
    """Return the block for an image, given as base64 without a word on its type."""
    mimetype = next((kind for head, kind in _IMAGES.items() if data.startswith(head)), _PNG)
    return {"type": ContentType.BINARY.value, "mimetype": mimetype, "content": data}
