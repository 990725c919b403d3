"""Assembling events into one assistant message.

This is the hot path: `consume` runs once per delta. A block that still grows is a `_Slot`: the block's
dict, as it stands in the message, and the pieces that came since somebody last looked. Pieces are joined
when the message or the block is looked at, never before, so that an answer costs what its bytes cost,
however finely it was cut; what nobody looks at is joined once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

import msgspec

from .callbacks import CALLBACK_NAMES, CallbackSet
from .events import (
    EVENT_CLASSES,
    BlockEvent,
    Done,
    Error,
    Placed,
    Start,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    as_event,
)
from .merge import join_texts
from .text import parse_json
from .types import Block, ContentType, Message, assistant_message
from .validate import has_content, is_message

TEXT = ContentType.TEXT.value
THINKING = ContentType.THINKING.value
TOOL_CALL = ContentType.TOOL_CALL.value

MAX_GAP = 4096
"""How far beyond the message's end a block may open: an index is a list position, and padding is memory."""

FREE_TEXT = "free_text"
"""Block key (see `ToolCallEnd.metadata`) by which a dialect says that the arguments are prose, not JSON."""


class ContentIndexer:
    """Gives wire items dense content indexes, in order of first appearance. One per request."""

    __slots__ = ("_next", "_seen")

    def __init__(self) -> None:
        self._seen: dict[Hashable, int] = {}
        self._next = 0

    def of(self, key: Hashable) -> int:
        """Return the index of the wire item *key*: a new one the first time, the same one ever after."""
        index = self._seen.get(key)
        if index is None:
            index = self._seen[key] = self.next()
        return index

    def next(self) -> int:
        """Return a fresh index."""
        index = self._next
        self._next = index + 1
        return index


class _Slot:
    """One block in the making; called, it returns the block made current. Events hold it as `_block`."""

    __slots__ = ("block", "kind", "open", "pieces", "settled")

    def __init__(self, kind: str, block: Block) -> None:
        self.kind = kind
        self.block = block
        self.pieces: list[str] = []
        self.open = True
        """Started and not ended."""
        self.settled = False
        """A tool call whose arguments are final, whatever they are."""

    def __call__(self) -> Block:
        if self.pieces:
            self._join()
        return self.block

    def _join(self) -> None:
        key = "arguments" if self.kind == TOOL_CALL else "text"
        block = self.block
        text = block[key]
        block[key] = ""  # leaves `text` the only reference, and CPython can grow the string where it lies
        text += "".join(self.pieces)
        block[key] = text
        self.pieces.clear()


class Assembler:
    """Folds the events of one answer into one assistant message. Not shared between requests.

    The message is live: `message()["content"][i]` and the `content` of the events of block *i* are the
    same dict, from its first event to the end.
    """

    __slots__ = ("_message", "_slots")

    def __init__(self) -> None:
        self._message = assistant_message()
        self._slots: dict[int, _Slot] = {}

    def consume(self, event: BlockEvent | Start | Done | Error | Placed | dict[str, Any]) -> None:
        """Fold *event* in, and give a block event its live `content`.

        A dict is converted first; one of an unknown type is ignored, and so is anything else.

        Raises:
          TypeError: a dict that is no valid event, or a delta that is no string.
          ValueError: an index that is negative, or leaves a gap beyond `MAX_GAP`.
        """
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def message(self) -> Message:
        """Return the live message, made current. Index gaps are None in its content."""
        for slot in self._slots.values():
            slot()
        return self._message

    @property
    def has_content(self) -> bool:
        """Whether a provider could consume the message as it stands. Costs no joining."""
        return has_content(self._message) or any(slot.pieces for slot in self._slots.values())

    def open_blocks(self) -> list[tuple[int, str, Callable[[], Block]]]:
        """Return (content_index, block type, what returns the block) of blocks without an end, in order."""
        return [(index, slot.kind, slot) for index, slot in sorted(self._slots.items()) if slot.open]

    def seal(self, *, cut: bool) -> Message | None:
        """Finish the live message and return it; None when nothing with content is in it.

        Index gaps are closed up. Argument strings are parsed; one that is no JSON stays as it came and is
        marked `partial: True`, never repaired. Idempotent.

        Args:
          cut: the answer broke off. The message becomes a valid partial, fit to be sent again: whole blocks
            stay, an unfinished tool call keeps its raw string and is marked `partial: True`, unfinished
            thinking keeps its text only, text and thinking blocks without text are dropped (but for whole
            thinking whose replay data came without text).
        """
        message = self.message()
        content: list[Any] = message["content"]
        kept: list[Block] = []
        slots: dict[int, _Slot] = {}
        for index, block in enumerate(content):
            if not isinstance(block, dict):
                continue
            slot = self._slots.get(index)
            unfinished = cut and slot is not None and slot.open
            if block.get("type") == TOOL_CALL:
                if unfinished:
                    block["partial"] = True
                elif slot is None or not slot.settled:
                    _settle_arguments(block)
            elif cut and not _replayable(block, unfinished):
                continue
            if slot is not None:
                slots[len(kept)] = slot
            kept.append(block)
        content[:] = kept
        self._slots = slots
        return message if has_content(message) else None

    def _open(self, index: int, kind: str) -> _Slot:
        """Return the slot of a block of *kind* at *index*: the one there, or an empty block's."""
        return self._find(index, kind) or self._put(index, _Slot(kind, {"type": kind, "text": ""}))

    def _find(self, index: int, kind: str) -> _Slot | None:
        """Return the slot of the block at *index* if it is of *kind*; a replaced message's block gets one."""
        slot = self._slots.get(index)
        if slot is not None:
            return slot if slot.kind == kind else None
        content = self._message["content"]
        block = content[index] if 0 <= index < len(content) else None
        if not isinstance(block, dict) or block.get("type") != kind:
            return None
        slot = self._slots[index] = _Slot(kind, block)
        if kind == TOOL_CALL:
            slot.settled = not isinstance(block.get("arguments"), str)
        elif not isinstance(block.get("text"), str):
            block["text"] = ""
        return slot

    def _put(self, index: int, slot: _Slot) -> _Slot:
        self._place(index, slot.block)
        self._slots[index] = slot
        return slot

    def _place(self, index: int, block: Block) -> None:
        content: list[Any] = self._message["content"]
        gap = index - len(content)
        if index < 0 or gap > MAX_GAP:
            raise ValueError(f"content_index {index} is out of range: the message has {len(content)} blocks")
        if gap < 0:
            content[index] = block
        else:
            content += [None] * gap
            content.append(block)

    def _replace(self, event: Start | Done | Error) -> None:
        if is_message(event.message):
            self._message = event.message
            self._slots = {}

    def _placed(self, event: Placed) -> None:
        self._place(event.content_index, event.block)
        self._slots.pop(event.content_index, None)

    def _tool_call_start(self, event: ToolCallStart) -> None:
        block = {
            "type": TOOL_CALL,
            "call_id": event.call_id,
            "name": event.name,
            "arguments": event.arguments,
        }
        slot = event._block = self._put(event.content_index, _Slot(TOOL_CALL, block))
        slot.settled = not isinstance(event.arguments, str)

    def _tool_call_delta(self, event: ToolCallDelta) -> None:
        slot = self._slots.get(event.content_index)
        if slot is None or slot.kind != TOOL_CALL:
            slot = self._find(event.content_index, TOOL_CALL)
            if slot is None:
                return
        event._block = slot
        piece = event.arguments
        if piece and not slot.settled:
            if not isinstance(piece, str):
                raise _not_text(piece)
            slot.pieces.append(piece)

    def _tool_call_end(self, event: ToolCallEnd) -> None:
        slot = self._find(event.content_index, TOOL_CALL)
        if slot is None:
            return
        event._block = slot
        block = slot()
        if event.metadata:
            block.update(event.metadata)
        if event.arguments is not msgspec.UNSET:
            block["arguments"] = event.arguments
            slot.settled = False
        if not slot.settled:
            _settle_arguments(block)
        slot.settled = True
        slot.open = False

    def _dict(self, value: dict[str, Any]) -> None:
        """Take an event that a plug-in made as a dict, filling in what the wire may leave out."""
        kind = value.get("type")
        if not isinstance(kind, str) or kind not in EVENT_CLASSES:
            return
        fields = {key: item for key, item in value.items() if item is not None}
        message = fields.pop("message", None)  # converting would copy it, and the caller's own is wanted
        if issubclass(EVENT_CLASSES[kind], BlockEvent):
            count = len(self._message["content"])
            fields.setdefault("content_index", count if kind.endswith("_start") else max(count - 1, 0))
        if kind.endswith("_delta"):
            fields.setdefault("arguments" if kind == ToolCallDelta.type else "text", "")
        event = as_event(fields)
        if isinstance(event, Start | Done | Error):
            event.message = message
        self.consume(event)


_Handler: TypeAlias = Callable[[Assembler, Any], None]


def _start_handler(kind: str) -> _Handler:
    def start(self: Assembler, event: TextStart | ThinkingStart) -> None:
        slot = event._block = self._open(event.content_index, kind)
        slot.open = True

    return start


def _delta_handler(kind: str) -> _Handler:
    def delta(self: Assembler, event: TextDelta | ThinkingDelta) -> None:
        slot = self._slots.get(event.content_index)
        if slot is None or slot.kind != kind:
            slot = self._open(event.content_index, kind)
        event._block = slot
        text = event.text
        if text:
            if not isinstance(text, str):
                raise _not_text(text)
            slot.pieces.append(text)

    return delta


def _end_handler(kind: str) -> _Handler:
    def end(self: Assembler, event: TextEnd | ThinkingEnd) -> None:
        if event.text is not None and not isinstance(event.text, str):
            raise _not_text(event.text)
        if event.text is None and not event.metadata:
            slot = self._find(event.content_index, kind)
            if slot is None:
                return
        else:
            slot = self._open(event.content_index, kind)
        event._block = slot
        slot.open = False
        block = slot()
        if event.text is not None:
            streamed, block["text"] = block["text"], event.text
            if kind == TEXT and streamed and streamed != event.text:
                self._message["draft"] = join_texts([self._message.get("draft") or "", streamed])
        if event.metadata:
            block.update(event.metadata)

    return end


_HANDLERS: dict[type, _Handler] = {
    TextDelta: _delta_handler(TEXT),
    ThinkingDelta: _delta_handler(THINKING),
    ToolCallDelta: Assembler._tool_call_delta,
    TextStart: _start_handler(TEXT),
    ThinkingStart: _start_handler(THINKING),
    ToolCallStart: Assembler._tool_call_start,
    TextEnd: _end_handler(TEXT),
    ThinkingEnd: _end_handler(THINKING),
    ToolCallEnd: Assembler._tool_call_end,
    Placed: Assembler._placed,
    Start: Assembler._replace,
    Done: Assembler._replace,
    Error: Assembler._replace,
    dict: Assembler._dict,
}


def _not_text(piece: object) -> TypeError:
    return TypeError(f"the text of an event is a string, not a {type(piece).__name__}")


def _settle_arguments(block: Block) -> None:
    """Make a whole tool call's arguments final: parsed if they are JSON, else raw and not callable."""
    arguments = block.get("arguments")
    if arguments is None:
        block["arguments"] = {}
    elif isinstance(arguments, str) and not block.get(FREE_TEXT) and not block.get("partial"):
        try:
            block["arguments"] = parse_json(arguments) if arguments.strip() else {}
        except ValueError:
            block["partial"] = True


def _replayable(block: Block, unfinished: bool) -> bool:
    """Tell whether a block of a cut answer can be sent again, as what is left of it if it is *unfinished*."""
    kind = block.get("type")
    if kind not in (TEXT, THINKING):
        return True
    if unfinished and kind == THINKING:
        for key in block.keys() - {"type", "text"}:  # a signature covers the whole text, which never came
            del block[key]
    return bool(block.get("text")) or (kind == THINKING and len(block.keys() - {"type", "text"}) > 0)


def create_assembler() -> Assembler:
    """Return an assembler for one answer."""
    return Assembler()


def assembly_callbacks(assembler: Assembler) -> CallbackSet:
    """Return all callbacks, each of which feeds *assembler*. AttributeError: it has no `consume`."""
    return dict.fromkeys(CALLBACK_NAMES, assembler.consume)


def content_indexer() -> ContentIndexer:
    """Return a fresh indexer for one request of a provider's translator."""
    return ContentIndexer()
