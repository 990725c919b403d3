"""The blocks of one Anthropic answer while they stream, and the server-side items kept for replay.

A block gets its content index when its first event is made, so indexes are dense and in order of appearance.
What must go back to this dialect later is laid onto a block when it is whole, under keys that only this
dialect reads: `signature`; `redacted` and `data`; `anthropic` on a tool call. Items of the server's own
become `{"type": "server", "dialect": "anthropic", "item": {...}}`.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from aiio.context.events import (
    Placed,
    TextDelta,
    TextEnd,
    ThinkingDelta,
    ThinkingEnd,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from aiio.context.text import compact_json, parse_json
from aiio.context.types import Block

from .anthropic_wire import JsonPiece, Piece, TextPiece, ThinkingPiece
from .chat_blocks import TEXT, THINKING, Out, Prose, hold_back

DIALECT = "anthropic"
EXTRA = "anthropic"
"""Key of a tool call block: fields of `tool_use` to be sent back (`caller`, `toolset_name`)."""

_TOOL_USE = frozenset({"type", "id", "name", "input"})


def server_item(block: Block) -> dict[str, Any] | None:
    """Return the item that *block* keeps for this dialect; None: it keeps none, or half of one."""
    item = block.get("item")
    ours = block.get("type") == "server" and block.get("dialect") == DIALECT and not block.get("partial")
    return item if ours and isinstance(item, dict) and isinstance(item.get("type"), str) else None


class OpenBlock(ABC):
    """A block that was started. *take_index* gives the next free content index."""

    __slots__ = ("direct", "index", "take_index")

    takes: ClassVar[type[Piece]]
    """The kind of piece that belongs into this block."""
    delta: ClassVar[type[TextDelta | ThinkingDelta | ToolCallDelta]]
    """The event of a piece that is `direct`."""

    def __init__(self, take_index: Callable[[], int]) -> None:
        self.take_index: Callable[[], int] = take_index
        self.index: int = -1
        self.direct: bool = False
        """Whether a piece can become its event as it is: the block has begun, and nothing is held back."""

    @abstractmethod
    def appear(self, out: Out) -> None:
        """Make the block's first event, unless it is out already."""
        ...

    @abstractmethod
    def write(self, text: str, out: Out) -> None:
        """Take one piece of its text."""
        ...

    def add(self, delta: dict[str, Any]) -> bool:
        """Take a delta that is no piece of text; tell whether it belongs to such a block."""
        return False

    @abstractmethod
    def stop(self, out: Out, *, cut: bool = False) -> None:
        """Close the block. *cut*: before it was whole."""
        ...

    @abstractmethod
    def release(self, out: Out) -> None:
        """Append what is held back, staying open."""
        ...


class _ProseBlock(OpenBlock):
    __slots__ = ("prose",)

    kind: ClassVar[str]

    def __init__(self, take_index: Callable[[], int]) -> None:
        super().__init__(take_index)
        self.prose: Prose | None = None

    def appear(self, out: Out) -> None:
        self._begun(out)

    def _begun(self, out: Out) -> Prose:
        if self.prose is None:
            self.index: int = self.take_index()
            self.prose = Prose(self.kind, self.index)
            out.append(self.prose.start())
            self.direct: bool = True
        return self.prose

    def write(self, text: str, out: Out) -> None:
        if text:
            prose = self._begun(out)
            prose.write(text, out)
            self.direct = not prose.held

    def release(self, out: Out) -> None:
        if self.prose is not None:
            self.prose.release(out)


class TextBlock(_ProseBlock):
    """Text. It appears with its first text, since the wire has empty blocks that mean nothing."""

    __slots__ = ("citations",)

    kind: ClassVar[str] = TEXT
    takes: ClassVar[type[Piece]] = TextPiece
    delta: ClassVar[type[TextDelta | ThinkingDelta | ToolCallDelta]] = TextDelta

    def __init__(self, take_index: Callable[[], int], block: dict[str, Any], out: Out) -> None:
        super().__init__(take_index)
        found = block.get("citations")
        self.citations: list[Any] = [*found] if isinstance(found, list) else []
        text = block.get("text")
        self.write(text if isinstance(text, str) else "", out)

    def add(self, delta: dict[str, Any]) -> bool:
        citation = delta.get("citation")
        if delta.get("type") != "citations_delta" or not isinstance(citation, dict):
            return False
        self.citations.append(citation)
        return True

    def stop(self, out: Out, *, cut: bool = False) -> None:
        if self.prose is not None:
            self.prose.release(out)
            metadata = {"citations": self.citations} if self.citations else None
            out.append(TextEnd(self.index, metadata=metadata))


class ThinkingBlock(_ProseBlock):
    """Thinking, shown, hidden behind a signature, or redacted. It appears at once: it counts without text."""

    __slots__ = ("_data", "_signature")

    kind: ClassVar[str] = THINKING
    takes: ClassVar[type[Piece]] = ThinkingPiece
    delta: ClassVar[type[TextDelta | ThinkingDelta | ToolCallDelta]] = ThinkingDelta

    def __init__(self, take_index: Callable[[], int], block: dict[str, Any], out: Out) -> None:
        super().__init__(take_index)
        signature, data, text = block.get("signature"), block.get("data"), block.get("thinking")
        self._signature: list[str] = [signature] if isinstance(signature, str) else []
        self._data = data if block.get("type") == "redacted_thinking" and isinstance(data, str) else None
        self.appear(out)
        self.write(text if isinstance(text, str) else "", out)

    def add(self, delta: dict[str, Any]) -> bool:
        signature = delta.get("signature")
        if delta.get("type") != "signature_delta" or not isinstance(signature, str):
            return False
        self._signature.append(signature)
        return True

    def stop(self, out: Out, *, cut: bool = False) -> None:
        self.release(out)
        metadata: dict[str, Any] = {}
        if not cut:  # a signature covers the whole text
            if signature := "".join(self._signature):
                metadata["signature"] = signature
            if self._data is not None:
                metadata.update(redacted=True, data=self._data)
        out.append(ThinkingEnd(self.index, metadata=metadata or None))


class CallBlock(OpenBlock):
    """A tool call."""

    __slots__ = ("_extra", "_held", "_input", "_named", "_streamed")

    takes: ClassVar[type[Piece]] = JsonPiece
    delta: ClassVar[type[TextDelta | ThinkingDelta | ToolCallDelta]] = ToolCallDelta

    def __init__(self, take_index: Callable[[], int], block: dict[str, Any], out: Out) -> None:
        super().__init__(take_index)
        self._input = block.get("input")
        self._extra = {key: block[key] for key in block if key not in _TOOL_USE and block[key] is not None}
        self._held = ""
        self._streamed = False
        call_id, name = block.get("id"), block.get("name")
        self._named = isinstance(name, str) and name != ""
        self.index: int = take_index()
        out.append(
            ToolCallStart(
                self.index,
                call_id if isinstance(call_id, str) and call_id else f"toolu_{uuid.uuid4().hex[:24]}",
                name if isinstance(name, str) else "",
            )
        )

    def appear(self, out: Out) -> None:
        """It has appeared when it was made."""

    def write(self, text: str, out: Out) -> None:
        if not text:
            return
        self._streamed = True
        whole, self._held = hold_back(self._held + text)
        if whole:
            out.append(ToolCallDelta(self.index, whole))
        self.direct: bool = not self._held

    def stop(self, out: Out, *, cut: bool = False) -> None:
        self._release_half(out)
        metadata: dict[str, Any] = {EXTRA: self._extra} if self._extra else {}
        if cut or not self._named:
            metadata["partial"] = True
        arguments = msgspec.UNSET if self._streamed or not self._input else self._input
        out.append(ToolCallEnd(self.index, arguments=arguments, metadata=metadata or None))

    def release(self, out: Out) -> None:
        self._release_half(out)
        if self._input and not self._streamed:  # it came whole, and would come out with the end
            self.write(self._input if isinstance(self._input, str) else compact_json(self._input), out)

    def _release_half(self, out: Out) -> None:
        if self._held:
            held, self._held = self._held, ""
            out.append(ToolCallDelta(self.index, held))


class ServerBlock(OpenBlock):
    """An item of the server's own (a tool it runs, what came of it, a compaction), kept as received."""

    __slots__ = ("_item", "_pieces")

    takes: ClassVar[type[Piece]] = JsonPiece

    def __init__(self, take_index: Callable[[], int], block: dict[str, Any], out: Out) -> None:
        super().__init__(take_index)
        self.index: int = take_index()
        self._item = {**block}
        self._pieces: list[str] = []

    def appear(self, out: Out) -> None:
        """Its place is taken since it was made."""

    def write(self, text: str, out: Out) -> None:
        self._pieces.append(text)

    def add(self, delta: dict[str, Any]) -> bool:
        if delta.get("type") != "compaction_delta":
            return False
        for key, value in delta.items():
            if key != "type" and value is not None:
                before = self._item.get(key)
                joins = isinstance(before, str) and isinstance(value, str)
                self._item[key] = before + value if joins else value
        return True

    def stop(self, out: Out, *, cut: bool = False) -> None:
        block: Block = {"type": "server", "dialect": DIALECT, "item": self._item}
        if pieces := "".join(self._pieces):
            try:
                self._item["input"] = parse_json(pieces)
            except ValueError:
                self._item["input"] = pieces
                cut = True
        if cut:
            block["partial"] = True  # not to be sent again
        out.append(Placed(self.index, block))

    def release(self, out: Out) -> None:
        self.stop(out, cut=True)


def open_block(take_index: Callable[[], int], block: dict[str, Any], out: Out) -> OpenBlock:
    """Return the open block for a `content_block`, its first events appended to *out*."""
    match block.get("type"):
        case "text":
            return TextBlock(take_index, block, out)
        case "thinking" | "redacted_thinking":
            return ThinkingBlock(take_index, block, out)
        case "tool_use":
            return CallBlock(take_index, block, out)
        case _:
            return ServerBlock(take_index, block, out)
