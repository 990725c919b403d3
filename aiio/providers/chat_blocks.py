"""The blocks of one answer while they stream: which are open, what is held back, what closing them says.

A block gets its content index when its first event is made, so indexes are dense and in order of appearance.
"""

from __future__ import annotations

import base64
import re
import uuid
from typing import Any, TypeAlias

import msgspec

from aiio.context.events import (
    Placed,
    ResponseEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from aiio.context.types import Block, ContentType

from .chat_wire import Call, Function

Out: TypeAlias = "list[ResponseEvent | Placed]"

TEXT, THINKING, REFUSAL, TRANSCRIPT = "text", "thinking", "refusal", "audio_transcript"
"""What a block of prose is. A refusal and a transcript are text blocks with that mark in their metadata."""

_LONE = re.compile("[\ud800-\udfff]")


def join_surrogates(text: str) -> str:
    """Return *text* with neighbouring halves of surrogate pairs made one character; lone ones stay."""
    if _LONE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def hold_back(text: str) -> tuple[str, str]:
    """Split off a high surrogate at the end: its other half may come with the next delta."""
    if text.isascii():
        return text, ""
    if "\ud800" <= text[-1] <= "\udbff":
        return join_surrogates(text[:-1]), text[-1]
    return join_surrogates(text), ""


class Prose:
    """An open block of text or thinking."""

    __slots__ = ("held", "index", "kind")

    def __init__(self, kind: str, index: int) -> None:
        self.kind: str = kind
        self.index: int = index
        self.held: str = ""

    def start(self) -> ResponseEvent:
        return ThinkingStart(self.index) if self.kind == THINKING else TextStart(self.index)

    def write(self, text: str, out: Out) -> None:
        """Append the delta for *text*, keeping half a surrogate pair at its end back."""
        whole, self.held = hold_back(self.held + text)
        if whole:
            out.append(
                ThinkingDelta(self.index, whole) if self.kind == THINKING else TextDelta(self.index, whole)
            )

    def release(self, out: Out) -> None:
        """Append what is held back as it is: the other half never came."""
        if self.held:
            held, self.held = self.held, ""
            out.append(
                ThinkingDelta(self.index, held) if self.kind == THINKING else TextDelta(self.index, held)
            )

    def end(self, metadata: dict[str, Any], out: Out) -> None:
        """Close the block, laying *metadata* onto it."""
        self.release(out)
        if self.kind == THINKING:
            out.append(ThinkingEnd(self.index, metadata=metadata or None))
            return
        if self.kind != TEXT:
            metadata = {self.kind: True, **metadata}
        out.append(TextEnd(self.index, metadata=metadata or None))


_NONE_YET = ("", None)


class Details:
    """`reasoning_details` put together: pieces of one type and index become one entry."""

    __slots__ = ("_entries", "_last")

    def __init__(self) -> None:
        self._entries: dict[tuple[str, Any], tuple[dict[str, Any], dict[str, list[str]]]] = {}
        self._last: tuple[str, Any] = _NONE_YET

    def add(self, piece: dict[str, Any]) -> None:
        """Take one piece. Without an index, prose continues the entry before, anything else stands alone."""
        kind, index = str(piece.get("type")), piece.get("index")
        key: tuple[str, Any] = (kind, str(index))
        if index is None:
            flows = kind in ("reasoning.text", "reasoning.summary") and self._last[0] == kind
            key = self._last if flows else (kind, object())
        self._last = key
        entry, texts = self._entries.setdefault(key, ({}, {}))
        for name, value in piece.items():
            if name in ("text", "summary", "data") and isinstance(value, str):
                texts.setdefault(name, []).append(value)
                entry.setdefault(name, "")
            elif value is not None:
                entry[name] = value

    def take(self) -> list[dict[str, Any]]:
        """Return the entries, once."""
        entries, self._entries, self._last = self._entries, {}, _NONE_YET
        return [
            {**entry, **{n: "".join(parts) for n, parts in texts.items()}}
            for entry, texts in entries.values()
        ]


class OpenCall:
    """A tool call whose arguments are coming."""

    __slots__ = ("arguments", "begun", "early", "held", "id", "index", "metadata", "name")

    def __init__(self) -> None:
        self.index: int = -1  # until its start is out
        self.begun: bool = False
        """Whether any of the arguments came."""
        self.id: str = ""
        self.name: str = ""
        self.early: list[str] = []
        """Pieces that came before the name."""
        self.held: str = ""
        self.arguments: Any = msgspec.UNSET
        """The whole value, when the server sent it as such."""
        self.metadata: dict[str, Any] = {}

    @property
    def said_something(self) -> bool:
        """Whether arguments came before a name did."""
        return bool(self.early) or self.arguments is not msgspec.UNSET

    def write(self, piece: str, out: Out) -> None:
        """Append the delta for *piece*, or keep it until the name is known."""
        if self.index < 0:
            self.early.append(piece)
            return
        whole, self.held = hold_back(self.held + piece)
        if whole:
            out.append(ToolCallDelta(self.index, whole))

    def start(self, index: int, out: Out) -> None:
        self.index = index
        out.append(ToolCallStart(index, self.id or f"call_{uuid.uuid4().hex[:24]}", self.name))
        if self.early:
            early, self.early = "".join(self.early), []
            self.write(early, out)

    def release(self, out: Out) -> None:
        if self.held:
            held, self.held = self.held, ""
            out.append(ToolCallDelta(self.index, held))

    def end(self, out: Out, *, cut: bool) -> None:
        """Close the call. One that was *cut*, or never got a name, must not be made."""
        self.release(out)
        metadata = {**self.metadata, "partial": True} if cut or not self.name else self.metadata
        out.append(ToolCallEnd(self.index, arguments=self.arguments, metadata=metadata or None))


class Calls:
    """The tool calls of one answer, found again by whatever identity the server gives them (FORMATS 2.3)."""

    __slots__ = ("_by_id", "_by_index", "_last", "order")

    def __init__(self) -> None:
        self.order: list[OpenCall] = []
        """Calls not ended yet, in order of appearance."""
        self._by_id: dict[str, OpenCall] = {}
        self._by_index: dict[int | str, OpenCall] = {}
        self._last: OpenCall | None = None

    def find(self, piece: Call, function: Function, *, again: bool, key: int | str | None) -> OpenCall:
        """Return the call that *piece* belongs to, a new one if need be.

        An id seen before decides; a new id opens a new call, on a used index too; then the index; a piece
        with neither continues the last call, unless it names another tool or is the second named one of its
        list.

        Args:
          piece, function: the wire's.
          again: an earlier entry of the same list had neither id nor index.
          key: the index, or a stand-in for it.
        """
        found: OpenCall | None
        if piece.id:
            found = self._by_id.get(piece.id)
            if found is None and key is not None:
                taken = self._by_index.get(key)
                found = taken if taken is not None and not taken.id else None
        elif key is not None:
            found = self._by_index.get(key)
        else:
            found = self._last
            name = function.name
            if found is not None and name and name != "null" and found.name and (again or name != found.name):
                found = None
        if found is None:
            found = OpenCall()
            self.order.append(found)
        if piece.id and not found.id:
            found.id = piece.id
            self._by_id[piece.id] = found
        if key is not None:
            self._by_index[key] = found
        self._last = found
        return found


def media_block(url: str) -> Block | None:
    """Return the binary block that a data URL stands for; None: it is no base64 data URL."""
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    mimetype = head[5:].split(";", 1)[0] or "application/octet-stream"
    return {"type": ContentType.BINARY.value, "mimetype": mimetype, "content": data}


class Audio:
    """Spoken output: pieces of base64 that become one binary block."""

    __slots__ = ("facts", "index", "mimetype", "pieces")

    def __init__(self, mimetype: str) -> None:
        self.mimetype: str = mimetype
        self.index: int = -1
        self.pieces: list[str] = []
        self.facts: dict[str, Any] = {}
        """`audio_id`, `expires_at`."""

    def place(self, out: Out) -> None:
        """Append the block, once, if any data came."""
        if self.pieces:
            pieces, self.pieces = self.pieces, []
            content = join_base64(pieces)
            block = {
                "type": ContentType.BINARY.value,
                "mimetype": self.mimetype,
                "content": content,
                **self.facts,
            }
            out.append(Placed(self.index, block))


def join_base64(pieces: list[str]) -> str:
    """Return one base64 text for *pieces*: slices of one text, or texts of their own (padded each)."""
    if not any(piece.endswith("=") for piece in pieces[:-1]):
        return "".join(pieces)
    try:
        return base64.b64encode(b"".join(map(base64.b64decode, pieces))).decode("ascii")
    except ValueError:  # not base64, or not even ASCII
        return "".join(pieces)
