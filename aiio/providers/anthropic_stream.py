"""One Anthropic answer: native messages in, normalized events out.

The state of an answer is an `Answer`. Blocks are found by the wire's index, several may be open at once, and
an index may be used again. The answer is complete with a stop reason, and ends with `message_stop`, or where
that never comes with the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiio.context.events import Done, FinishReason, Start
from aiio.context.types import Usage, assistant_message

from .anthropic_blocks import CallBlock, OpenBlock, ServerBlock, TextBlock, ThinkingBlock, open_block
from .anthropic_wire import BlockDelta, End, Event, JsonPiece, Native, Piece, ThinkingPiece, read_piece
from .base import WORKING, Events
from .chat_blocks import Out
from .faults import error_event
from .narrow import dict_of, list_of, text_of

FINISH: dict[str, FinishReason] = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "tool_use": FinishReason.TOOL_USE,
    "pause_turn": FinishReason.PAUSED,
    "compaction": FinishReason.PAUSED,
    "refusal": FinishReason.REFUSAL,
}
"""The normalized word for each stop reason."""

_FACTS = (
    "id",
    "model",
    "stop_sequence",
    "stop_details",
    "container",
    "context_management",
    "input_transformations",
    "diagnostics",
)
"""What a message says about itself, and what `Done.native` keeps of it."""


def finish_of(reason: str | None, *, called: bool) -> FinishReason:
    """Return the normalized finish for a stop *reason*; None: there was none. *called*: a tool was called."""
    found = FinishReason.STOP if not reason else FINISH.get(reason, FinishReason.OTHER)
    return FinishReason.TOOL_USE if called and found is FinishReason.STOP else found


class Answer:
    """What is known of one answer so far. `take` each native message, then `finish` or `abandon`."""

    def __init__(self) -> None:
        self.ended: bool = False
        """The terminal event is out."""
        self.reason: str | None = None
        """The first stop reason; it decides."""
        self._usage: Usage | None = None  # of each field the last report that is not null
        self.open: dict[object, OpenBlock] = {}
        """Blocks that were started and not stopped, by the wire's index."""
        self._whole = False
        self._begun = False
        self._facts: dict[str, Any] = {}
        self._last: object = None  # index of the block that was started last, for servers that leave it out
        self._calls: dict[str, CallBlock] = {}
        self._called = False
        self._next_index = 0

    @property
    def usage(self) -> Usage | None:
        """Usage known so far, in Anthropic's terms. What a stream begins with is no count of the output."""
        if self._usage is None or self.complete:
            return self._usage
        return {key: count for key, count in self._usage.items() if key != "output_tokens"}

    @property
    def complete(self) -> bool:
        """Whether a positive end signal came."""
        return self.reason is not None or self._whole

    def take(self, native: Native, clock: Callable[[], float]) -> Events:
        """Return the events that *native* stands for; none after the terminal one. *clock*: epoch seconds."""
        if self.ended:
            return ()
        if type(native) is BlockDelta:
            return self._piece(native.index, native.delta)
        if isinstance(native, End):
            return self.finish()
        assert isinstance(native, Event)
        return self._event(native, clock)

    def finish(self) -> Out:
        """Return the last events at the end of the stream; no terminal one without a stop reason."""
        out: Out = []
        if not self.ended and self.complete:
            self._done(out)
        return out

    def abandon(self) -> Out:
        """Return the content that is held back, when the answer is cut short."""
        out: Out = []
        if not self.ended:
            for block in self._distinct():
                block.release(out)
        return out

    # -- events

    def _event(self, native: Event, clock: Callable[[], float]) -> Events:
        value, out = native.value, list[Any]()
        if native.fault is not None:
            self._note(value)
            self._fail(native.fault, out, clock)
            return out
        match value.get("type"):
            case "content_block_delta":
                return self._delta(value.get("index"), dict_of(value, "delta"))
            case "content_block_start":
                self._start(value.get("index"), dict_of(value, "content_block"), out)
                return out or WORKING
            case "content_block_stop":
                return (out or WORKING) if self._stop(self._key(value.get("index")), out) else ()
            case "message_start":
                self._begin(dict_of(value, "message"), out)
            case "message_delta":
                self._note({**dict_of(value, "delta"), **value})
            case "message_stop":
                self._done(out)
            case "message":  # the whole answer at once: the server did not stream
                self._begin(value, out)
                self._whole = True
        return out

    def _begin(self, message: dict[str, Any], out: Out) -> None:
        """Take the head of a message. One of another id means that the answer was begun anew."""
        found, known = message.get("id"), self._facts.get("id")
        if self._begun:
            if not found or not known or found == known or self.complete:
                return  # it came twice
            self._restart(out)
        self._begun = True
        for place, block in enumerate(list_of(message, "content")):
            if isinstance(block, dict):
                self._start(place, block, out)
                self._stop(place, out)
        self._note(message)

    def _restart(self, out: Out) -> None:
        for block in self._distinct():
            block.stop(out, cut=True)
        self.open.clear()
        self._calls.clear()
        self._called, self._facts, self._usage = False, {}, None
        if self._next_index:
            self._next_index = 0
            out.append(Start(assistant_message()))

    def _note(self, value: dict[str, Any]) -> None:
        """Keep what *value* says about the message: usage, facts, the stop reason."""
        self._facts.update((key, value[key]) for key in _FACTS if value.get(key) is not None)
        if reported := dict_of(value, "usage"):
            known = {key: item for key, item in reported.items() if item is not None}
            self._usage = {**(self._usage or {}), **known}
        if self.reason is None:
            self.reason = text_of(value, "stop_reason") or None

    # -- blocks

    def _key(self, index: object) -> object:
        return self._last if index is None else index if isinstance(index, int) else str(index)

    def _take_index(self) -> int:
        index = self._next_index
        self._next_index = index + 1
        return index

    def _start(self, index: object, block: dict[str, Any], out: Out) -> None:
        key = object() if index is None else self._key(index)
        self._last = key
        call_id = text_of(block, "id")
        again = self._calls.get(call_id)
        if again is not None and again in self.open.values():
            self.open[key] = again  # the same call once more, perhaps under another index
            return
        self._stop(key, out)
        for other in self._distinct():
            other.appear(out)
        started = self.open[key] = open_block(self._take_index, block, out)
        if isinstance(started, CallBlock):
            self._called = True
            if call_id:
                self._calls[call_id] = started

    def _stop(self, key: object, out: Out) -> bool:
        """Close the block at *key*, whatever other index it is known under; tell whether there was one."""
        block = self.open.get(key)
        if block is None:
            return False
        self.open = {at: other for at, other in self.open.items() if other is not block}
        block.stop(out)
        return True

    def _delta(self, index: object, delta: dict[str, Any]) -> Events:
        key = self._key(index)
        if (piece := read_piece(delta)) is not None:
            return self._piece(key, piece)
        block = self.open.get(key)
        return WORKING if block is not None and block.add(delta) else ()

    def _piece(self, key: object, piece: Piece) -> Events:
        """Return the events of *piece*, which goes into the block at *key*."""
        block, out = self.open.get(key), list[Any]()
        if block is None or block.takes is not piece.__class__:
            if not piece.text or isinstance(block, CallBlock | ServerBlock) or isinstance(piece, JsonPiece):
                return ()  # it belongs to nothing that is known
            self._stop(key, out)
            kind = ThinkingBlock if isinstance(piece, ThinkingPiece) else TextBlock
            block = self.open[key] = kind(self._take_index, {}, out)
        block.write(piece.text, out)
        return out or _work(piece)

    # -- the end

    def _distinct(self) -> list[OpenBlock]:
        return list(dict.fromkeys(self.open.values()))

    def _close_all(self, out: Out, *, cut: bool = False) -> None:
        for block in self._distinct():
            block.stop(out, cut=cut)
        self.open.clear()

    def _done(self, out: Out) -> None:
        finish = finish_of(self.reason, called=self._called)
        # What is still open when the limit was reached is not whole, whatever its text looks like.
        self._close_all(out, cut=finish is FinishReason.LENGTH)
        self.ended = True
        out.append(
            Done(done_reason=self.reason, finish=finish, usage=self._usage, native={**self._facts} or None)
        )

    def _fail(self, fault: object, out: Out, clock: Callable[[], float]) -> None:
        self._close_all(out, cut=True)
        self.ended = True
        event = error_event(fault, now=clock(), usage=self._usage)
        event.request_id = text_of(fault, "request_id") or None
        event.native = {**self._facts, **(event.native or {})} or None
        out.append(event)


def _work(piece: Piece) -> Events:
    """Return what a piece without an event says: nothing, or that work goes on out of sight."""
    return WORKING if piece.text or getattr(piece, "estimated_tokens", None) else ()
