"""Messages of a context as Anthropic Messages writes them (FORMATS 6.2).

Turns of one role in a row become one, and the results of all calls of an answer stand first in the turn after
it. What this dialect made goes back as it came: thinking with its signature, redacted thinking, citations,
server-side items. What another made is sent as far as the wire has a form for it, and reported if not.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from aiio.context.types import Block, ContentType, Message, MessageType, mimetype_of

from .anthropic_blocks import EXTRA, server_item
from .anthropic_options import cache_mark
from .base import ProviderIO
from .chat_messages import decoded_text, file_name
from .history import has_text

Wire: TypeAlias = dict[str, Any]

OPENING = "(The conversation goes on from here.)"
"""Stands for a user's turn where there is none and the wire wants one first."""
GO_ON = "Go on."
"""The same at the end, after an answer: models that take no prefill want a user's turn."""

IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_THINKING = ("thinking", "redacted_thinking")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How messages are to be written."""

    later_system: str = "user"
    """Where system messages after the first turn go: `user` (text in the turn there), `top` (the top-level
    prompt), or `message` (one of that role, which only newer models take)."""
    foreign_thinking: str = "drop"
    """`"text"`: thinking that another dialect made, or of which only the text is left, is sent as text."""
    prefill: bool = False
    """Whether a context may end with the assistant's words, to be continued. Newer models refuse that."""
    cache_point: Mapping[str, Any] | None = None
    """The prompt-cache mark for messages with a true `cache_point`; None: none is wanted."""

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Ways:
        """Return what *settings* ask for. ValueError: it names the setting."""
        found: dict[str, Any] = {}
        for key, allowed in _CHOICES.items():
            if (value := settings.get(key)) is not None:
                if not any(value is one or (value == one and isinstance(one, str)) for one in allowed):
                    raise ValueError(
                        f"setting {key} must be one of {', '.join(map(str, allowed))}, not {value!r}"
                    )
                found[key] = value
        wanted = settings.get("prompt_cache")
        return cls(**found, cache_point=cache_mark(True if wanted is None else wanted))

    def mark(self, message: Message) -> Mapping[str, Any] | None:
        """Return the prompt-cache mark for the last part of *message*; None: it has none."""
        own = message.get("cache_control")
        return own or (self.cache_point if message.get("cache_point") is True else None)


_CHOICES: dict[str, tuple[object, ...]] = {
    "later_system": ("user", "top", "message"),
    "foreign_thinking": ("drop", "text"),
    "prefill": (True, False),
}


def anthropic_messages(
    history: Sequence[Message], ways: Ways, io: ProviderIO
) -> tuple[list[Wire], list[Wire]]:
    """Return the system prompt's blocks and the turns for *history*, as `paired_history` gives it.

    Raises:
      ValueError: a user message holds a file that can't be sent.
    """
    return _Writer(history, ways, io).written()


class _Writer:
    """One history being written."""

    def __init__(self, history: Sequence[Message], ways: Ways, io: ProviderIO) -> None:
        self._history = history
        self._ways = ways
        self._io = io
        self._unpaired = _unpaired_items(history)
        self._toolsets: dict[str, str] = {}
        """The `toolset_name` of a call, which its result repeats."""
        self.system: list[Wire] = []
        self.turns: list[Wire] = []

    def written(self) -> tuple[list[Wire], list[Wire]]:
        for message in self._history:
            match message["type"]:
                case MessageType.SYSTEM:
                    self._system(message)
                case MessageType.USER:
                    self._turn("user", self._user(message["content"]), message)
                case MessageType.TOOL_RESULT:
                    self._turn("user", [self._tool_result(message)], message)
                case _:
                    self._turn("assistant", self._assistant(message["content"]), message)
        self._end()
        return self.system, self.turns

    def _turn(self, role: str, content: list[Wire], message: Message) -> None:
        if not content:
            self._io.repaired("message_dropped", why="nothing in it that this dialect can send")
            return
        if (mark := self._ways.mark(message)) and content[-1]["type"] not in _THINKING:
            content[-1].setdefault("cache_control", mark)
        if self.turns and self.turns[-1]["role"] == role:
            self.turns[-1]["content"].extend(content)
        else:
            self.turns.append({"role": role, "content": content})

    def _end(self) -> None:
        """See to it that the first turn is the user's, and the last one unless it is to be continued."""
        turns = self.turns
        if not turns or turns[0]["role"] == "assistant":
            turns.insert(0, {"role": "user", "content": [_text(OPENING)]})
            self._io.repaired("message_made_up", role="user", where="first")
        last = turns[-1]
        if last["role"] != "assistant" or self._paused():
            return
        if not self._ways.prefill:
            turns.append({"role": "user", "content": [_text(GO_ON)]})
            self._io.repaired("message_made_up", role="user", where="last")
        elif last["content"][-1]["type"] == "text":  # white space at the end of a prefill is refused
            last["content"][-1]["text"] = last["content"][-1]["text"].rstrip()

    def _paused(self) -> bool:
        """Tell whether the last answer ends with an item of the server's: it goes on when it is sent back."""
        return server_item(self._history[-1]["content"][-1]) is not None

    # -- system and user

    def _system(self, message: Message) -> None:
        texts = [
            _marked(_text(block["text"]), block)
            for block in message["content"]
            if block.get("type") == ContentType.TEXT
        ]
        if not self.turns or self._ways.later_system == "top":
            if texts and (mark := self._ways.mark(message)):
                texts[-1].setdefault("cache_control", mark)
            self.system.extend(texts)
        else:
            self._turn("system" if self._ways.later_system == "message" else "user", texts, message)

    def _user(self, blocks: Iterable[Block]) -> list[Wire]:
        content: list[Wire] = []
        for block in blocks:
            if (part := _part(block)) is not None:
                content.append(part)
            else:
                self._dropped(block)
        return content

    def _dropped(self, block: Block) -> None:
        self._io.repaired(
            "block_dropped", why=f"{block.get('type')} of another dialect, or without a form here"
        )

    def _tool_result(self, message: Message) -> Wire:
        parts = [_result_part(block) for block in message["content"]]
        plain = len(parts) == 1 and parts[0].keys() == {"type", "text"}
        result: Wire = {
            "type": "tool_result",
            "tool_use_id": wire_call_id(message["call_id"]),
            "content": parts[0]["text"] if plain else parts,
        }
        if message.get("error") is True:
            result["is_error"] = True
        if toolset := self._toolsets.get(message["call_id"]):
            result["toolset_name"] = toolset
        return result

    # -- assistant

    def _assistant(self, blocks: Sequence[Block]) -> list[Wire]:
        """Return the content of one answer, in its order; thinking that led to nothing is left out."""
        content: list[Wire] = []
        for block in blocks:
            if (part := self._answer_part(block)) is not None:
                content.append(part)
            else:
                self._dropped(block)
        while content and content[-1]["type"] in _THINKING:
            content.pop()
            self._io.repaired("block_dropped", why="thinking that led to nothing that can be sent")
        return content

    def _answer_part(self, block: Block) -> Wire | None:
        match block.get("type"):
            case ContentType.TEXT:
                part = _marked(_text(block["text"]), block)
                if citations := [found for one in _list(block.get("citations")) if (found := _citation(one))]:
                    part["citations"] = citations
                return part
            case ContentType.THINKING:
                return self._thinking(block)
            case ContentType.TOOL_CALL:
                return self._tool_use(block)
        item = server_item(block)
        return None if item is None or id(block) in self._unpaired else {**item}

    def _thinking(self, block: Block) -> Wire | None:
        text, signature, data = block.get("text"), block.get("signature"), block.get("data")
        if block.get("redacted") is True and isinstance(data, str):
            return {"type": "redacted_thinking", "data": data}
        if isinstance(signature, str) and signature:
            return {
                "type": "thinking",
                "thinking": text if isinstance(text, str) else "",
                "signature": signature,
            }
        return _text(block["text"]) if self._ways.foreign_thinking == "text" and has_text(block) else None

    def _tool_use(self, block: Block) -> Wire:
        arguments, extra = block["arguments"], block.get(EXTRA)
        extra = extra if isinstance(extra, dict) else {}
        if isinstance(toolset := extra.get("toolset_name"), str):
            self._toolsets[block["call_id"]] = toolset
        call: Wire = {
            "type": "tool_use",
            "id": wire_call_id(block["call_id"]),
            "name": wire_name(block["name"]),
            "input": arguments if isinstance(arguments, dict) else {"input": arguments},
        }
        return _marked({**extra, **call}, block)


def wire_call_id(call_id: str) -> str:
    """Return *call_id* in letters, digits, `_` and `-`, always the same for the same id."""
    if re.fullmatch(r"[a-zA-Z0-9_-]+", call_id):
        return call_id
    return f"toolu_{hashlib.sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def wire_name(name: str) -> str:
    """Return the name of a tool that was called as this dialect takes it: 128 letters, digits, `_`, `-`."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:128]


def _unpaired_items(history: Sequence[Message]) -> set[int]:
    """Return the identities of blocks with a server-side call that has no result, or a result without a call.

    The server refuses both. But a call may be waiting: for the turn to be continued, when it is in the last
    message, or for the calls that its program makes.
    """
    calls: dict[str, tuple[int, int]] = {}
    waiting: set[str] = set()
    unpaired: set[int] = set()
    for position, message in enumerate(history):
        for block in message["content"]:
            if isinstance(extra := block.get(EXTRA), dict) and isinstance(extra.get("caller"), dict):
                waiting.add(str(extra["caller"].get("tool_id")))
            item = server_item(block) or {}
            kind = str(item.get("type"))
            if kind.endswith("_tool_use"):
                calls[str(item.get("id"))] = (id(block), position)
            elif kind.endswith("_tool_result") and calls.pop(str(item.get("tool_use_id")), None) is None:
                unpaired.add(id(block))
    for call_id, (identity, position) in calls.items():
        if call_id not in waiting and position < len(history) - 1:
            unpaired.add(identity)
    return unpaired


# -- parts


def _text(text: str) -> Wire:
    return {"type": "text", "text": text}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _marked(part: Wire, block: Block) -> Wire:
    if mark := block.get("cache_control"):
        part["cache_control"] = mark
    return part


def _citation(value: object) -> Wire | None:
    """Return a citation of this dialect's as it may go back; None: it is none."""
    if not isinstance(value, dict) or not str(value.get("type")).endswith("_location"):
        return None
    return {key: value[key] for key in value if key != "file_id"}  # the one field that is not taken back


def _part(block: Block) -> Wire | None:
    """Return the part of a user's turn for *block*; None: it has no form. ValueError: a file without."""
    kind = block.get("type")
    if kind == ContentType.TEXT:
        return _marked(_text(block["text"]), block)
    if kind in (ContentType.IMAGE, ContentType.BINARY):
        return _marked(_file(block), block)
    if kind == "image_url" and isinstance(block.get("url"), str):
        return _marked({"type": "image", "source": {"type": "url", "url": block["url"]}}, block)
    return None


def _file(block: Block) -> Wire:
    """Return the image or document for a file. ValueError: there is no form for it; the text names it."""
    data: str = block["content"]
    mimetype = mimetype_of(block) or (_sniffed(data) if block["type"] == ContentType.IMAGE else None)
    mimetype = (mimetype or "application/octet-stream").partition(";")[0].strip().lower()
    mimetype = "image/jpeg" if mimetype == "image/jpg" else mimetype
    source = {"type": "base64", "media_type": mimetype, "data": data}
    if mimetype in IMAGES:
        return {"type": "image", "source": source}
    filename = file_name(block, mimetype)
    title = {"title": filename} if block.get("filename") else {}
    if mimetype == "application/pdf":
        return {"type": "document", "source": source, **title}
    if mimetype.partition("/")[0] in ("audio", "video", "image") and mimetype != "image/svg+xml":
        raise ValueError(f"the Anthropic wire has no form for {mimetype!r} (block {filename!r})")
    text = decoded_text(data, mimetype, filename)
    if not text.strip():
        text = "(an empty file)"
    return {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": text},
        "title": filename,
    }


def _sniffed(data: str) -> str:
    """Return the media type that base64 *data* begins like; image/png when it looks like none."""
    return next((kind for head, kind in _HEADS.items() if data.startswith(head)), "image/png")


_HEADS = {"/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}


def _result_part(block: Block) -> Wire:
    try:
        part = _part(block)
    except ValueError as exc:
        return _text(f"(left out: {exc})")
    if part is None:
        return _text(block.get("text") or json.dumps(block, ensure_ascii=False, default=str))
    return part


def limit_marks(marked: Sequence[Wire], limit: int, io: ProviderIO) -> None:
    """Take away the prompt-cache marks of the first of *marked* parts beyond *limit*: more are refused.

    Args:
      marked: the parts in the order in which their marks may be spared.
    """
    found = [part for part in marked if "cache_control" in part]
    for part in found[: max(0, len(found) - limit)]:
        del part["cache_control"]
        io.repaired("cache_mark_dropped", why=f"more than {limit}")


def parts_of(turns: Iterable[Wire]) -> Iterator[Wire]:
    """Yield the parts of all *turns*, and before a tool result what is in it."""
    for turn in turns:
        for part in turn["content"]:
            if part["type"] == "tool_result" and isinstance(part["content"], list):
                yield from part["content"]
            yield part
