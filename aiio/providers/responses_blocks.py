"""The items of a Responses answer while they stream, and the blocks they become.

A message becomes one text block a part, reasoning one thinking block, a call one tool call. What must go back
to this dialect with the next request is laid onto the block when its item is done: see `responses_input.py`,
which reads it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from aiio.context.assemble import FREE_TEXT
from aiio.context.events import Placed, TextEnd, ThinkingEnd
from aiio.context.types import Block, ContentType

from .chat_blocks import REFUSAL, TEXT, THINKING, TRANSCRIPT, OpenCall, Out, Prose, join_surrogates
from .narrow import dict_of, list_of, text_of

DIALECT = "openai_responses"

SUMMARY, REASONING = "summary", "reasoning"
"""Parts of a reasoning item: what may be shown of it, and the thoughts themselves.

Also the keys of a thinking block under which the lists of both are kept as they came.
"""

EXTRA = "item_extra"
"""The key for fields of an item that nobody here knows."""


class Part(Prose):
    """One part of a message: text, a refusal, or what was said aloud."""

    __slots__ = ("final", "marks")

    def __init__(self, kind: str, index: int) -> None:
        super().__init__(kind, index)
        self.final: str | None = None
        """The whole text, as the server repeats it at the end."""
        self.marks: dict[str, Any] = {}

    def finish(self, metadata: dict[str, Any], out: Out) -> None:
        """Close the block with its final text."""
        self.release(out)
        mark = {} if self.kind == TEXT else {self.kind: True}
        out.append(TextEnd(self.index, text=self.final, metadata={**mark, **self.marks, **metadata} or None))


class Item(ABC):
    """One output item. `take_index` gives the next free content index."""

    __slots__ = ("closed", "take_index")

    def __init__(self, take_index: Callable[[], int]) -> None:
        self.take_index: Callable[[], int] = take_index
        self.closed: bool = False

    @abstractmethod
    def done(self, item: dict[str, Any], out: Out) -> None:
        """Close with the complete *item*."""
        ...

    @abstractmethod
    def close(self, out: Out, *, cut: bool) -> None:
        """Close without having seen the complete item. *cut*: and without a good end of the answer."""
        ...

    @abstractmethod
    def release(self, out: Out) -> None:
        """Append what is held back, staying open."""
        ...


class MessageItem(Item):
    """Text, in parts."""

    __slots__ = ("parts", "phase")

    def __init__(self, take_index: Callable[[], int]) -> None:
        super().__init__(take_index)
        self.parts: dict[tuple[str, int], Part] = {}
        self.phase: str | None = None
        """`commentary` or `final_answer`, to be sent back."""

    @property
    def refused(self) -> bool:
        """Whether a part of it is a refusal."""
        return any(part.kind == REFUSAL for part in self.parts.values())

    def write(self, kind: str, place: int, text: str, out: Out) -> Part:
        """Append the delta for *text*, opening the part when its first text comes."""
        part = self.parts.get((kind, place))
        if part is None:
            part = self.parts[kind, place] = Part(kind, self.take_index())
            out.append(part.start())
        part.write(text, out)
        return part

    def whole(self, kind: str, place: int, text: str, marks: dict[str, Any], out: Out) -> None:
        """Take the complete *text* of a part; it counts, whatever was streamed."""
        if not text:
            return
        part = self.parts.get((kind, place)) or self.write(kind, place, text, out)
        part.final = join_surrogates(text)
        part.marks.update(marks)

    def annotate(self, place: int, annotation: object) -> None:
        """Note a citation as it comes; the complete list of the part's end replaces what was noted."""
        part = self.parts.get((TEXT, place))
        if part is not None and isinstance(annotation, dict):
            part.marks["annotations"] = [*part.marks.get("annotations", ()), annotation]

    def done(self, item: dict[str, Any], out: Out) -> None:
        self.phase = text_of(item, "phase") or self.phase
        for place, part in enumerate(list_of(item, "content")):
            self.whole(*read_part(part, place), out=out)
        self.close(out, cut=False)

    def close(self, out: Out, *, cut: bool) -> None:
        self.closed = True
        for part in self.parts.values():
            part.finish({"phase": self.phase} if self.phase else {}, out)

    def release(self, out: Out) -> None:
        for part in self.parts.values():
            part.release(out)


def read_part(part: object, place: int) -> tuple[str, int, str, dict[str, Any]]:
    """Return what `MessageItem.whole` takes for a complete *part*: its kind, place, text and marks."""
    for name, kind in _PART_KINDS.items():
        if text := text_of(part, name):
            names = ("annotations", "logprobs") if kind == TEXT else ()
            return kind, place, text, {key: found for key in names if (found := list_of(part, key))}
    return TEXT, place, "", {}


_PART_KINDS = {"text": TEXT, "refusal": REFUSAL, "transcript": TRANSCRIPT}


class ReasoningItem(Item):
    """Thinking: a summary in parts, or raw thoughts, or nothing but ciphertext."""

    __slots__ = ("_last", "_prose", "_streamed")

    def __init__(self, take_index: Callable[[], int], out: Out) -> None:
        super().__init__(take_index)
        self._prose = Prose(THINKING, take_index())
        self._last: tuple[str, int] | None = None
        self._streamed: set[tuple[str, int]] = set()
        out.append(self._prose.start())

    @property
    def index(self) -> int:
        """The block's content index."""
        return self._prose.index

    @property
    def holds(self) -> bool:
        """Whether half a surrogate pair is held back."""
        return self._prose.held != ""

    def write(self, kind: str, place: int, text: str, out: Out) -> None:
        """Append the delta for *text*. Parts are set apart by a blank line."""
        key = (kind, place)
        if self._last is not None and key != self._last:
            text = f"\n\n{text}"
        self._last = key
        self._streamed.add(key)
        self._prose.write(text, out)

    def whole(self, kind: str, place: int, text: str, out: Out) -> None:
        """Take the complete *text* of a part: it is written if nothing of it was streamed."""
        if text and (kind, place) not in self._streamed:
            self.write(kind, place, text, out)

    def done(self, item: dict[str, Any], out: Out) -> None:
        lists = {SUMMARY: list_of(item, "summary"), REASONING: list_of(item, "content")}
        texts = {kind: [text_of(part, "text") for part in parts] for kind, parts in lists.items()}
        for kind, found in texts.items():
            for place, text in enumerate(found):
                self.whole(kind, place, text, out)
        both = any(texts[SUMMARY]) and any(texts[REASONING])
        shown = "" if both else "\n\n".join(filter(None, texts[SUMMARY] + texts[REASONING]))
        metadata: dict[str, Any] = {SUMMARY: lists[SUMMARY]}
        if lists[REASONING]:
            metadata[REASONING] = lists[REASONING]
        for name in ("id", "encrypted_content"):
            if text := text_of(item, name):
                metadata[name] = text
        if extra := {key: value for key, value in item.items() if key not in _REASONING_FIELDS}:
            metadata[EXTRA] = extra
        self._end(join_surrogates(shown) or None, metadata, out)

    def close(self, out: Out, *, cut: bool) -> None:
        self._end(None, None, out)

    def release(self, out: Out) -> None:
        self._prose.release(out)

    def _end(self, text: str | None, metadata: dict[str, Any] | None, out: Out) -> None:
        self.closed = True
        self._prose.release(out)
        out.append(ThinkingEnd(self._prose.index, text=text, metadata=metadata))


_REASONING_FIELDS = frozenset({"type", "id", "status", "summary", "content", "encrypted_content"})


class CallItem(Item):
    """A call of a tool: a function with JSON arguments, or a custom tool with free text."""

    __slots__ = ("call", "name", "written")

    def __init__(
        self, take_index: Callable[[], int], item: dict[str, Any], *, custom: bool, out: Out
    ) -> None:
        super().__init__(take_index)
        self.call: OpenCall = OpenCall()
        self.name = "input" if custom else "arguments"
        self.written: bool = False
        if custom:
            self.call.metadata[FREE_TEXT] = True
        self.learn(item, out)

    def learn(self, item: dict[str, Any], out: Out) -> None:
        """Take id and name from *item*, an item or an event; the block opens when the name is known."""
        call = self.call
        call.id = call.id or text_of(item, "call_id")
        call.name = call.name or text_of(item, "name")
        for name in ("namespace", "caller"):
            if item.get(name) is not None:
                call.metadata[name] = item[name]
        if call.index < 0 and call.name:
            call.start(self.take_index(), out)

    def write(self, piece: str, out: Out) -> None:
        """Append the delta for *piece* of the arguments."""
        self.written = True
        self.call.write(piece, out)

    def whole(self, item: dict[str, Any], out: Out) -> None:
        """Take the complete arguments, if *item* (an item or an event) has them."""
        self.learn(item, out)
        final = item.get(self.name)
        if isinstance(final, str):
            if final and not self.written:
                self.write(final, out)
            final = join_surrogates(final) or None
        if final is not None:
            self.call.arguments = final

    def done(self, item: dict[str, Any], out: Out) -> None:
        self.whole(item, out)
        self.close(out, cut=item.get("status") == "incomplete")

    def close(self, out: Out, *, cut: bool) -> None:
        self.closed = True
        self._open_nameless(out)
        if self.call.index >= 0:
            self.call.end(out, cut=cut)

    def release(self, out: Out) -> None:
        self._open_nameless(out)
        if self.call.index >= 0:
            self.call.release(out)

    def _open_nameless(self, out: Out) -> None:
        if self.call.index < 0 and self.call.said_something:
            self.call.start(self.take_index(), out)


class ServerItem(Item):
    """A tool that the server runs itself, a compaction, or a kind of item nobody here knows."""

    __slots__ = ()

    def done(self, item: dict[str, Any], out: Out) -> None:
        self.closed: bool = True
        out.append(Placed(self.take_index(), server_block(item)))

    def close(self, out: Out, *, cut: bool) -> None:
        self.closed = True  # half an item can't be sent back

    def release(self, out: Out) -> None:
        """Nothing is ever held back."""


def server_block(item: dict[str, Any]) -> Block:
    """Return the block for a server-side *item*, to be sent back as it is; a generated image is a picture."""
    image = text_of(item, "result") if item.get("type") == "image_generation_call" else ""
    if not image:
        return {"type": "server", "dialect": DIALECT, "item": item}
    return {
        "type": ContentType.BINARY.value,
        "mimetype": f"image/{text_of(item, 'output_format') or 'png'}",
        "content": image,
        "dialect": DIALECT,
        "item": {key: value for key, value in item.items() if key != "result"},
    }


def made_here(block: Block) -> dict[str, Any] | None:
    """Return the item that *block* keeps for this dialect, complete; None: it keeps none that can be sent."""
    if block.get("dialect") != DIALECT or not text_of(dict_of(block, "item"), "type"):
        return None  # without a type no server takes it back
    item: dict[str, Any] = block["item"]
    return {**item, "result": block["content"]} if block.get("type") == ContentType.BINARY else item
