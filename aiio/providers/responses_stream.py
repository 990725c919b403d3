"""One Responses answer: native events in, normalized events out, whatever carried them.

The state of an answer is an `Answer`. Items are told apart by their place in the output (`output_index`),
since ids change on the way through some proxies; several may be open at once. The terminal event of the
wire carries usage, so it is passed on at once; an `error` event waits for the `response.failed` that may
follow it, and the two become one error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias, TypeVar

from aiio.context.events import Done, Error, FinishReason, TextDelta, ThinkingDelta, ToolCallDelta
from aiio.context.types import Usage

from .base import WORKING, Events
from .chat_blocks import REFUSAL, TEXT, TRANSCRIPT, Audio, Out
from .chat_wire import End
from .faults import error_event, read_fault
from .narrow import dict_of, list_of, text_of
from .responses_blocks import (
    REASONING,
    SUMMARY,
    CallItem,
    Item,
    MessageItem,
    ReasoningItem,
    ServerItem,
    read_part,
)
from .responses_wire import (
    AUDIO_DELTA,
    INPUT_DELTA,
    PIECES,
    REASONING_DELTA,
    REFUSAL_DELTA,
    SUMMARY_DELTA,
    TEXT_DELTA,
    TRANSCRIPT_DELTA,
    Delta,
    Event,
    item_key,
    part_of,
)

Clock: TypeAlias = Callable[[], float]

FINISH: dict[str, FinishReason] = {
    "max_output_tokens": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "max_messages": FinishReason.LENGTH,
    "content_filter": FinishReason.REFUSAL,
}
"""The normalized word for each reason why a response is incomplete."""

_ENDS = ("completed", "incomplete", "failed", "cancelled")
_PROSE = {TEXT_DELTA: TEXT, REFUSAL_DELTA: REFUSAL, TRANSCRIPT_DELTA: TRANSCRIPT}
_THOUGHTS = {SUMMARY_DELTA: (SUMMARY, "summary_index"), REASONING_DELTA: (REASONING, "content_index")}
_CALLS = {"function_call": False, "custom_tool_call": True}  # whether it is a custom tool's
_WAITING = "mcp_approval_request"  # the item that asks for an answer which no tool gives
_WORK = re.compile(
    r"response\.(?:\w+_call(?:_\w+)?|mcp_\w+|compaction|content_part|reasoning_summary_part)\.\w+"
)

_I = TypeVar("_I", bound=Item)


class Answer:
    """What is known of one answer so far. `take` each native message, then `finish` or `abandon`.

    Args:
      audio_mimetype: what spoken output is, as the request asked.
    """

    def __init__(self, audio_mimetype: str = "audio/wav") -> None:
        self.ended: bool = False
        """The terminal event is out."""
        self.facts: dict[str, Any] = {}
        """What the provider said about the response: id, model, service tier."""
        self._raw_usage: dict[str, Any] | None = None
        self._fault: Event | None = None  # an `error` event that may still be followed by `response.failed`
        self._next_index = 0
        self._items: dict[Hashable, Item] = {}
        self._order: list[Item] = []
        self._waits = False  # the answer asks for something that no tool gives
        self._audio = Audio(audio_mimetype)
        # Where plain deltas may go straight in: their type, item, and parts; the event they make, its index.
        self._hot_type: str | None = None
        self._hot_item: int | None = None
        self._hot_content: int | None = None
        self._hot_summary: int | None = None
        self._hot_event: type[TextDelta | ThinkingDelta | ToolCallDelta] = TextDelta
        self._hot_index = 0

    @property
    def usage(self) -> Usage | None:
        """Usage known so far, in OpenAI's terms."""
        if self._raw_usage is None:
            return None
        usage = dict(self._raw_usage)
        for name in ("service_tier", "tool_usage"):
            if name in self.facts:
                usage.setdefault(name, self.facts[name])
        return usage

    @property
    def complete(self) -> bool:
        """Whether only the other half of an error may follow."""
        return self._fault is not None

    def take(self, native: Delta | Event | End, clock: Clock) -> Events:
        """Return the events that *native* stands for; none after the terminal one. *clock*: epoch seconds."""
        if type(native) is Delta:
            if (
                native.output_index == self._hot_item
                and native.type == self._hot_type
                and native.content_index == self._hot_content
                and native.summary_index == self._hot_summary
            ):
                return [self._hot_event(self._hot_index, native.delta)] if native.delta else ()
            return self._typed_piece(native)
        if self.ended or isinstance(native, End):
            return ()
        assert isinstance(native, dict)
        kind: str = native["type"]
        out: Out = []
        if kind in PIECES:
            self._piece(kind, item_key(native), native, out)
            return out
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, native, out, clock)
            if out:
                return out
        return WORKING if kind in _WORKING or _WORK.fullmatch(kind) else out

    def finish(self, clock: Clock) -> Events:
        """Return the last events at the end of the stream; no terminal one when it was cut."""
        out: Out = []
        if not self.ended and self._fault is not None:
            self._fail(self._fault, out, clock)
        return out

    def abandon(self) -> Events:
        """Return the content that is held back, when the answer is cut short."""
        out: Out = []
        if not self.ended:
            for item in self._open_items():
                item.release(out)
            self._audio.place(out)
        return out

    # -- pieces

    def _typed_piece(self, native: Delta) -> Out:
        out: Out = []
        if self.ended or not native.delta:
            return out
        assert native.type is not None  # checked by the reader
        event: Event = {
            "delta": native.delta,
            "content_index": native.content_index,
            "summary_index": native.summary_index,
        }
        found = self._piece(native.type, native.output_index, event, out)
        if found is not None:
            self._hot_event, self._hot_index = found
            self._hot_type, self._hot_item = native.type, native.output_index
            self._hot_content, self._hot_summary = native.content_index, native.summary_index
        return out

    def _piece(
        self, kind: str, key: Hashable, event: Event, out: Out
    ) -> tuple[type[TextDelta | ThinkingDelta | ToolCallDelta], int] | None:
        """Append one piece; return what its plain successors become, None while anything is held back."""
        self._hot_type = None
        text = text_of(event, "delta")
        if not text:
            return None
        if kind in _PROSE:
            part = self._message(key).write(_PROSE[kind], part_of(event), text, out)
            return None if part.held else (TextDelta, part.index)
        if kind in _THOUGHTS:
            thoughts, place = _THOUGHTS[kind]
            reasoning = self._reasoning(key, out)
            reasoning.write(thoughts, part_of(event, place), text, out)
            return None if reasoning.holds else (ThinkingDelta, reasoning.index)
        found = self._call(key, event, custom=kind == INPUT_DELTA, out=out)
        found.write(text, out)
        return None if found.call.held or found.call.index < 0 else (ToolCallDelta, found.call.index)

    # -- items

    def _take_index(self) -> int:
        index = self._next_index
        self._next_index = index + 1
        return index

    def _open_items(self) -> list[Item]:
        return [item for item in self._order if not item.closed]

    def _find(self, key: Hashable, cls: type[_I]) -> _I | None:
        found = self._items.get(key)
        return found if isinstance(found, cls) and not found.closed else None

    def _settled(self, key: Hashable) -> bool:
        """Tell whether the item at *key* is closed: what is said of it again says nothing new."""
        self._hot_type = None
        known = self._items.get(key)
        return known is not None and known.closed

    def _keep(self, key: Hashable, item: _I) -> _I:
        self._items[key] = item
        self._order.append(item)
        return item

    def _message(self, key: Hashable) -> MessageItem:
        return self._find(key, MessageItem) or self._keep(key, MessageItem(self._take_index))

    def _reasoning(self, key: Hashable, out: Out) -> ReasoningItem:
        return self._find(key, ReasoningItem) or self._keep(key, ReasoningItem(self._take_index, out))

    def _call(self, key: Hashable, item: Event, *, custom: bool, out: Out) -> CallItem:
        found = self._find(key, CallItem)
        return found or self._keep(key, CallItem(self._take_index, item, custom=custom, out=out))

    def _item(self, key: Hashable, item: dict[str, Any], out: Out) -> Item:
        """Return the open item at *key*; one that fits *item* is opened if need be."""
        kind = text_of(item, "type")
        if kind == "message":
            return self._message(key)
        if kind == "reasoning":
            return self._reasoning(key, out)
        if kind in _CALLS:
            return self._call(key, item, custom=_CALLS[kind], out=out)
        self._waits = self._waits or kind == _WAITING
        return self._find(key, ServerItem) or self._keep(key, ServerItem(self._take_index))

    def _added(self, event: Event, out: Out, clock: Clock) -> None:
        item, key = dict_of(event, "item"), item_key(event)
        if key is None:
            self._items.pop(key, None)  # the server does not say which item its events are about: the latest
        opened = self._item(key, item, out)
        if isinstance(opened, MessageItem):
            opened.phase = text_of(item, "phase") or opened.phase

    def _item_done(self, event: Event, out: Out, clock: Clock) -> None:
        item, key = dict_of(event, "item"), item_key(event)
        if key is None or not self._settled(key):
            self._item(key, item, out).done(item, out)

    # -- ends of parts

    def _text_done(self, event: Event, out: Out, clock: Clock) -> None:
        self._whole_part(event, event, out)

    def _part_done(self, event: Event, out: Out, clock: Clock) -> None:
        part = dict_of(event, "part")
        if part.get("type") != "reasoning_text":  # its own event comes as well
            self._whole_part(event, part, out)

    def _whole_part(self, event: Event, part: Event, out: Out) -> None:
        if not self._settled(key := item_key(event)):
            self._message(key).whole(*read_part(part, part_of(event)), out=out)

    def _thoughts_done(self, event: Event, out: Out, clock: Clock) -> None:
        if self._settled(key := item_key(event)):
            return
        summary = "summary" in event["type"]
        place = part_of(event, "summary_index" if summary else "content_index")
        text = text_of(event, "text") or text_of(dict_of(event, "part"), "text")
        self._reasoning(key, out).whole(SUMMARY if summary else REASONING, place, text, out)

    def _arguments_done(self, event: Event, out: Out, clock: Clock) -> None:
        if not self._settled(key := item_key(event)):
            custom = event["type"].startswith("response.custom")
            self._call(key, event, custom=custom, out=out).whole(event, out)

    def _annotated(self, event: Event, out: Out, clock: Clock) -> None:
        message = self._find(item_key(event), MessageItem)
        if message is not None:
            message.annotate(part_of(event), event.get("annotation"))

    def _heard(self, event: Event, out: Out, clock: Clock) -> None:
        if piece := text_of(event, "delta"):
            if self._audio.index < 0:
                self._audio.index = self._take_index()
            self._audio.pieces.append(piece)

    # -- the response

    def _note(self, event: Event, out: Out, clock: Clock) -> None:
        response = dict_of(event, "response")
        for name in ("id", "model", "service_tier", "tool_usage", "input_transformations"):
            if response.get(name):
                self.facts[name] = response[name]
        usage = dict_of(response, "usage") or dict_of(event, "usage")  # xAI puts it beside the response
        self._raw_usage = usage or self._raw_usage

    def _terminal(self, event: Event, out: Out, clock: Clock) -> None:
        self._note(event, out, clock)
        response = dict_of(event, "response")
        status = text_of(response, "status")
        if status not in _ENDS:
            status = event["type"].removeprefix("response.")
        details = dict_of(response, "incomplete_details") or dict_of(response, "status_details")
        reason = text_of(details, "reason")
        if status in ("completed", "incomplete"):
            if not self._order:  # a proxy left all events of items out, or never streamed
                for place, item in enumerate(list_of(response, "output")):
                    self._item_done({"output_index": place, "item": item}, out, clock)
            self._done(status, reason, out)
            return
        if status == "cancelled":
            text = f"the provider cancelled the response{f' ({reason})' if reason else ''}"
            fault: Event = {"error": {"code": status, "message": text}}
        else:
            fault = {"error": dict_of(response, "error") or dict_of(details, "error")}
        if self._fault is not None and read_fault(self._fault).message:
            fault = self._fault
        self._fail(fault, out, clock, status=status)

    def _error(self, event: Event, out: Out, clock: Clock) -> None:
        self._fault = event

    def _close_all(self, out: Out, *, cut: bool) -> None:
        self._hot_type = None
        for item in self._open_items():
            item.close(out, cut=cut)
        self._audio.place(out)
        self.ended = True

    def _done(self, status: str, reason: str, out: Out) -> None:
        whole = status == "completed"
        self._close_all(out, cut=not whole)
        word = f"{status}:{reason}" if reason else status
        finish = self._finish_of(reason, whole=whole)
        native = {**self.facts, "finish_reason": word}
        out.append(Done(done_reason=word, finish=finish, usage=self.usage, native=native))

    def _finish_of(self, reason: str, *, whole: bool) -> FinishReason:
        if any(isinstance(item, MessageItem) and item.refused for item in self._order):
            return FinishReason.REFUSAL
        if not whole:
            return FINISH.get(reason, FinishReason.OTHER)
        if any(isinstance(item, CallItem) for item in self._order):
            return FinishReason.TOOL_USE
        return FinishReason.PAUSED if self._waits else FinishReason.STOP

    def _fail(self, fault: Event, out: Out, clock: Clock, *, status: str = "failed") -> None:
        self._close_all(out, cut=True)
        event: Error = error_event(fault, now=clock(), usage=self.usage)
        event.native = {**self.facts, "finish_reason": status, **(event.native or {})}
        out.append(event)


_Handler: TypeAlias = Callable[[Answer, Event, Out, Clock], None]
_HANDLERS: dict[str, _Handler] = {
    "response.created": Answer._note,
    "response.queued": Answer._note,
    "response.in_progress": Answer._note,
    "response.output_item.added": Answer._added,
    "response.output_item.done": Answer._item_done,
    "response.content_part.done": Answer._part_done,
    "response.output_text.done": Answer._text_done,
    "response.output_text.annotation.added": Answer._annotated,
    "response.refusal.done": Answer._text_done,
    "response.output_audio_transcript.done": Answer._text_done,
    AUDIO_DELTA: Answer._heard,
    "response.reasoning_summary_part.done": Answer._thoughts_done,
    "response.reasoning_summary_text.done": Answer._thoughts_done,
    "response.reasoning_text.done": Answer._thoughts_done,
    "response.function_call_arguments.done": Answer._arguments_done,
    "response.custom_tool_call_input.done": Answer._arguments_done,
    "response.completed": Answer._terminal,
    "response.incomplete": Answer._terminal,
    "response.failed": Answer._terminal,
    "response.cancelled": Answer._terminal,
    "response.done": Answer._terminal,
    "error": Answer._error,
}
_WORKING = frozenset(
    {
        "response.output_item.added",
        "response.output_item.done",
        "response.output_text.annotation.added",
        AUDIO_DELTA,
    }
)
"""Events that are work on the answer also where they make no event."""
