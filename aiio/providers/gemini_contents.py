"""Messages of a context as Gemini writes them: contents made of parts (FORMATS 7.2).

What this dialect made goes back as it came: signatures on the very parts they came with, items of the
server's own tools. What others made is sent as far as the wire has a form for it; what is left out is
reported through `io.repaired`. The Live API takes the same contents.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from aiio.context.types import Block, ContentType, Message, MessageType, mimetype_of

from .base import ProviderIO
from .chat_messages import file_name, file_text
from .checks import BOOL, checked
from .gemini_stream import DIALECT, SIGNATURE, SPAN, THOUGHT
from .history import content_text, has_text, join_texts

Wire: TypeAlias = dict[str, Any]

OPENING = "(The conversation goes on from here.)"
"""Stands for a user's turn where there is none and the wire wants one first."""

SKIP_SIGNATURE = "skip_thought_signature_validator"
"""What stands for the signature of a call that Gemini did not make."""
# Source: Gemini API, "Thought signatures", FAQ; the form in JSON is unverified (FORMATS 7.2).

TEXT_FILES = frozenset({"plain", "html", "css", "csv", "markdown", "md", "xml", "rtf", "javascript"})
"""Subtypes of text that are taken as such; others are sent as plain."""
RESULT_FILES = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})
"""What the results of tools may hold, from Gemini 3 on."""

_FOREIGN = ("drop", "text")
_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")


def generation(model: str) -> tuple[int, int]:
    """Return the generation that *model* belongs to, (2, 5) say.

    One that the name does not tell (`gemini-flash-latest`) is taken for the latest; (0, 0): it is no Gemini.
    """
    found = _VERSION.search(model)
    if found is None:
        return (0, 0) if "gemini" not in model else (99, 0)
    return int(found[1]), int(found[2] or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How contents are to be written."""

    foreign_thinking: str = "drop"
    """`"text"`: thinking that another dialect made, or of which only the text is left, is sent as text."""
    replay_reasoning: bool = True
    """Whether signatures go back."""
    generation: tuple[int, int] = (99, 0)

    @classmethod
    def of(cls, settings: Mapping[str, Any], model: str) -> Ways:
        """Return what *settings* ask for and *model* takes. ValueError: it names the setting."""
        foreign = settings.get("foreign_thinking") or _FOREIGN[0]
        if foreign not in _FOREIGN:
            raise ValueError(
                f"setting foreign_thinking must be one of {', '.join(_FOREIGN)}, not {foreign!r}"
            )
        replay = checked(settings, "replay_reasoning", BOOL)
        return cls(
            foreign_thinking=foreign, replay_reasoning=replay is not False, generation=generation(model)
        )


def gemini_contents(history: Sequence[Message], ways: Ways, io: ProviderIO) -> tuple[str, list[Wire]]:
    """Return the system text ("": none) and the contents for *history*, as `paired_history` gives it.

    Raises:
      ValueError: a user message holds a file that can't be sent.
    """
    system = join_texts(content_text(message) for message in history if message["type"] == MessageType.SYSTEM)
    contents = _Contents(ways, io)
    for message in history:
        contents.add(message)
    contents.end()
    turns = contents.turns
    if system and not turns:
        io.repaired("system_sent_as_user", why="there is nothing else to send")
        return "", [{"role": "user", "parts": [_text(system)]}]
    if turns and turns[0]["role"] == "model":
        turns.insert(0, {"role": "user", "parts": [_text(OPENING)]})
        io.repaired("message_made_up", role="user", where="first")
    return system, turns


class _Contents:
    """Contents in the making. Neighbours of one role become one, but for the results of calls."""

    def __init__(self, ways: Ways, io: ProviderIO) -> None:
        self.turns: list[Wire] = []
        self._ways = ways
        self._io = io
        self._results: list[Wire] = []  # of the answer before
        self._lifted: list[Wire] = []  # files of those results that have no place in them

    def add(self, message: Message) -> None:
        kind = message["type"]
        if kind == MessageType.TOOL_RESULT:
            self._results.append(self._result(message))
            return
        if kind == MessageType.SYSTEM:
            return
        self.end()
        user = kind == MessageType.USER
        parts = self._user(message["content"]) if user else self._model(message["content"])
        if not parts:
            self._io.repaired("message_dropped", why="nothing in it that this dialect can send")
            return
        role = "user" if user else "model"
        last = self.turns[-1] if self.turns else {}
        if last.get("role") == role and "functionResponse" not in last["parts"][0]:
            last["parts"].extend(parts)
        else:
            self.turns.append({"role": role, "parts": parts})

    def end(self) -> None:
        """Put the results of the answer before in one content, and their files in one after it."""
        for parts in (self._results, self._lifted):
            if parts:
                self.turns.append({"role": "user", "parts": parts})
        self._results, self._lifted = [], []

    def _dropped(self, block: Block) -> None:
        self._io.repaired(
            "block_dropped", why=f"{block.get('type')} of another dialect, or without a form here"
        )

    # -- user

    def _user(self, blocks: Iterable[Block]) -> list[Wire]:
        parts: list[Wire] = []
        for block in blocks:
            if (part := user_part(block)) is not None:
                parts.append(part)
            else:
                self._dropped(block)
        return parts

    def _result(self, message: Message) -> Wire:
        texts: list[str] = []
        files: list[Wire] = []
        lifted: list[Wire] = []
        for block in message["content"]:
            if block.get("type") not in (ContentType.IMAGE, ContentType.BINARY):
                said = block.get("text")
                texts.append(
                    said if isinstance(said, str) else json.dumps(block, ensure_ascii=False, default=str)
                )
                continue
            part = _file_or_word(block)
            inline = part.get("inlineData")
            fits = inline is not None and inline["mimeType"] in RESULT_FILES
            (files if fits and self._ways.generation >= (3, 0) else lifted).append(part)
        name, call_id = wire_name(message["name"]), message["call_id"]
        if lifted:
            self._io.repaired("files_moved_to_user", call_id=call_id, count=len(lifted))
            self._lifted += [_text(f"Files from the result of {name} (call {call_id}):"), *lifted]
            texts = texts or ["(see the files in the next message)"]
        key = "error" if message.get("error") is True else "output"
        response: Wire = {"id": call_id, "name": name, "response": {key: join_texts(texts)}}
        if files:
            response["parts"] = files
        return {"functionResponse": response}

    # -- model

    def _model(self, blocks: Iterable[Block]) -> list[Wire]:
        parts: list[Wire] = []
        for block in blocks:
            if found := self._answer_parts(block):
                parts.extend(found)
            elif block.get(THOUGHT) is not True:
                self._dropped(block)
        if self._ways.generation >= (3, 0):
            first = next((part for part in parts if "functionCall" in part), {})
            if first and "thoughtSignature" not in first:
                first["thoughtSignature"] = SKIP_SIGNATURE
        return parts

    def _answer_parts(self, block: Block) -> list[Wire]:
        signature = block.get(SIGNATURE) if self._ways.replay_reasoning else None
        signed = {"thoughtSignature": signature} if isinstance(signature, str) and signature else {}
        match block.get("type"):
            case ContentType.TEXT:
                return _text_parts(block, signed)
            case ContentType.THINKING:
                return self._thinking(block, signed)
            case ContentType.TOOL_CALL:
                args = block["arguments"]
                call = {
                    "id": block["call_id"],
                    "name": wire_name(block["name"]),
                    "args": args if isinstance(args, dict) else {"input": args},
                }
                return [{"functionCall": call, **signed}]
            case ContentType.IMAGE | ContentType.BINARY:
                # An image can be looked at again; one of the thinking need not, and speech is not taken back.
                mimetype = media_type(block)
                if mimetype.startswith("image/") and mimetype != "image/svg+xml" and not block.get(THOUGHT):
                    return [{"inlineData": {"mimeType": mimetype, "data": block["content"]}, **signed}]
                return []
        item = server_item(block)
        return [] if item is None else [item]

    def _thinking(self, block: Block, signed: Wire) -> list[Wire]:
        if signed:
            return [{**part, "thought": True} for part in _text_parts(block, signed)]
        foreign = self._ways.foreign_thinking == "text" and block.get(THOUGHT) is not True
        return [_text(block["text"])] if foreign and has_text(block) else []


def server_item(block: Block) -> Wire | None:
    """Return the part that *block* keeps for this dialect, as it came; None: it keeps none."""
    item = block.get("item")
    ours = block.get("type") == "server" and block.get("dialect") == DIALECT
    return item if ours and isinstance(item, dict) else None


def wire_name(name: str) -> str:
    """Return the name of a tool as this dialect takes it; the same for the same name, always."""
    safe = re.sub(r"[^A-Za-z0-9_.:-]", "_", name)[:128]
    return safe if re.match(r"[A-Za-z_]", safe) else f"_{safe}"[:128]


# -- parts


def user_part(block: Block) -> Wire | None:
    """Return the part of a user's turn for *block*; None: it has no form. ValueError: a file has none."""
    kind = block.get("type")
    if kind == ContentType.TEXT:
        return _text(block["text"])
    if kind in (ContentType.IMAGE, ContentType.BINARY):
        return file_part(block)
    return server_item(block)


def file_part(block: Block) -> Wire:
    """Return the part for an image or file. ValueError: the wire has no form for it; it names the block."""
    mimetype = media_type(block)
    major, _, minor = mimetype.partition("/")
    data: str = block["content"]
    if major == "text" and minor not in TEXT_FILES:
        mimetype = "text/plain"
    known = major in ("audio", "video", "text") or mimetype == "application/pdf"
    if known or (major == "image" and mimetype != "image/svg+xml"):
        return {"inlineData": {"mimeType": mimetype, "data": data}}
    return _text(file_text(data, mimetype, file_name(block, mimetype)))


def media_type(block: Block) -> str:
    """Return the media type of an image or file, without parameters."""
    default = "image/png" if block["type"] == ContentType.IMAGE else "application/octet-stream"
    mimetype = (mimetype_of(block) or default).partition(";")[0].strip().lower()
    return "image/jpeg" if mimetype == "image/jpg" else mimetype


def _file_or_word(block: Block) -> Wire:
    try:
        return file_part(block)
    except ValueError as exc:
        return _text(f"(left out: {exc})")


def _text(text: str) -> Wire:
    return {"text": text}


def _text_parts(block: Block, signed: Wire) -> list[Wire]:
    """Return the text of *block*, cut so that the signature is on the part it came with."""
    text = block.get("text")
    text = text if isinstance(text, str) else ""
    span = _span_of(block, len(text))
    if not signed or span is None:
        return [{**_text(text), **signed}]
    start, end = span
    before, after = text[:start], text[end:]
    return [
        *([_text(before)] if before else []),
        {**_text(text[start:end]), **signed},
        *([_text(after)] if after else []),
    ]


def _span_of(block: Block, length: int) -> tuple[int, int] | None:
    span = block.get(SPAN)
    if not isinstance(span, list) or len(span) != 2 or not all(type(at) is int for at in span):
        return None
    start, end = span
    return (start, end) if 0 <= start <= end <= length else None
