"""Messages of a context as Ollama writes them (FORMATS 8): text, images beside it, calls as objects."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from aiio.context.types import Block, ContentType, Message, MessageType, mimetype_of

from .base import ProviderIO
from .chat_messages import file_name, file_text
from .history import content_text, has_text, join_texts
from .ollama_stream import OWN

Wire: TypeAlias = dict[str, Any]

IMAGES = frozenset({"image/png", "image/jpeg", "image/webp"})

FOREIGN = ("drop", "text")
"""What the setting `foreign_thinking` may be: thinking of other dialects is left out, or sent as text."""


def ollama_messages(
    history: Sequence[Message], io: ProviderIO, *, foreign_thinking: str = FOREIGN[0]
) -> list[Wire]:
    """Return *history* (as `paired_history` gives it) in wire form.

    Args:
      foreign_thinking: `"drop"` or `"text"`.

    Raises:
      ValueError: a user message holds a file that has no form here.
    """
    wire: list[Wire] = []
    lifted: list[Wire] = []
    for message in history:
        kind = message["type"]
        if kind == MessageType.TOOL_RESULT:
            wire.append(_tool_result(message, lifted, io))
            continue
        wire += lifted
        lifted = []
        if kind == MessageType.SYSTEM:
            found = {"role": "system", "content": content_text(message)}
        elif kind == MessageType.USER:
            found = _user(message["content"], io)
        else:
            found = _assistant(message["content"], io, as_text=foreign_thinking == "text")
        if found["content"] or len(found) > 2:
            wire.append(found)
        else:
            io.repaired("message_dropped", why="nothing in it that this dialect can send")
    return wire + lifted


def _dropped(block: Block, io: ProviderIO) -> None:
    io.repaired("block_dropped", why=f"{block.get('type')} of another dialect, or without a form here")


def _user(blocks: Iterable[Block], io: ProviderIO) -> Wire:
    texts: list[str] = []
    images: list[str] = []
    for block in blocks:
        kind = block.get("type")
        if kind == ContentType.TEXT:
            texts.append(block["text"])
        elif kind in (ContentType.IMAGE, ContentType.BINARY):
            _file(block, texts, images)
        else:
            _dropped(block, io)
    return {"role": "user", "content": join_texts(texts), **({"images": images} if images else {})}


def _file(block: Block, texts: list[str], images: list[str]) -> None:
    """Put an image or a text-like file where it belongs. ValueError: it has no form; it names the block."""
    default = "image/png" if block["type"] == ContentType.IMAGE else "application/octet-stream"
    mimetype = (mimetype_of(block) or default).partition(";")[0].strip().lower()
    if mimetype in IMAGES or mimetype == "image/jpg":
        images.append(block["content"])
    else:
        texts.append(file_text(block["content"], mimetype, file_name(block, mimetype)))


def _tool_result(message: Message, lifted: list[Wire], io: ProviderIO) -> Wire:
    texts: list[str] = []
    images: list[str] = []
    for block in message["content"]:
        if block.get("type") in (ContentType.IMAGE, ContentType.BINARY):
            try:
                _file(block, texts, images)
            except ValueError as exc:
                texts.append(f"(left out: {exc})")
        elif isinstance(block.get("text"), str):
            texts.append(block["text"])
        else:
            texts.append(json.dumps(block, ensure_ascii=False, default=str))
    name, call_id = message["name"], message["call_id"]
    if images:
        io.repaired("files_moved_to_user", call_id=call_id, count=len(images))
        head = f"Images from the result of {name} (call {call_id}):"
        lifted.append({"role": "user", "content": head, "images": images})
        texts = texts or ["(see the images in the next message)"]
    text = join_texts(texts)
    if message.get("error") is True and not text.lower().startswith("error"):
        text = f"Error: {text}"  # the wire has no flag for it
    return {"role": "tool", "tool_name": name, "tool_call_id": call_id, "content": text}


def _assistant(blocks: Iterable[Block], io: ProviderIO, *, as_text: bool) -> Wire:
    texts: list[str] = []
    thinking: list[str] = []
    calls: list[Wire] = []
    for block in blocks:
        kind = block.get("type")
        if kind == ContentType.TEXT:
            texts.append(block["text"])
        elif kind == ContentType.THINKING and has_text(block) and (block.get(OWN) is True or as_text):
            (thinking if block.get(OWN) is True else texts).append(block["text"])
        elif kind == ContentType.TOOL_CALL:
            arguments = block["arguments"]
            arguments = arguments if isinstance(arguments, dict) else {"input": arguments}
            function = {"index": len(calls), "name": block["name"], "arguments": arguments}
            calls.append({"id": block["call_id"], "function": function})
        else:
            _dropped(block, io)
    wire: Wire = {"role": "assistant", "content": join_texts(texts)}
    if thinking and (texts or calls):
        wire["thinking"] = join_texts(thinking)
    if calls:
        wire["tool_calls"] = calls
    return wire
