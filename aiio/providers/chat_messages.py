"""Messages of a context as Chat Completions writes them (FORMATS 2.2)."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from aiio.context.types import Block, ContentType, Message, MessageType, mimetype_of

from .base import ProviderIO
from .chat_blocks import REFUSAL, TRANSCRIPT, Details
from .history import content_text, has_text, join_texts
from .quirks import Quirks

Wire: TypeAlias = dict[str, Any]

AUDIO_FORMATS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/vnd.wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}
_TEXT_LIKE = frozenset(
    {
        "application/json",
        "application/x-ndjson",
        "application/xml",
        "application/yaml",
        "application/toml",
        "image/svg+xml",
    }
)


def chat_messages(history: Sequence[Message], quirks: Quirks, io: ProviderIO, now: float) -> list[Wire]:
    """Return *history* (as `paired_history` gives it) in wire form.

    Args:
      now: epoch seconds; spoken answers are referred to by id only until they expire.

    Raises:
      ValueError: a user message holds a file that this server can't take.
    """
    wire: list[Wire] = []
    lifted: list[Wire] = []
    for message in history:
        kind = message["type"]
        if kind == MessageType.TOOL_RESULT:
            wire.append(_tool_result(message, quirks, lifted, io))
            continue
        _put_lifted(lifted, wire, quirks)
        if kind == MessageType.SYSTEM:
            if text := content_text(message):
                wire.append({"role": quirks.system_role, "content": text})
        elif kind == MessageType.USER:
            if content := _user_content(message["content"], quirks, io):
                _put_user(content, wire, quirks)
        elif found := _assistant(message, quirks, io, now):
            wire.append(found)
        else:
            io.repaired("message_dropped", why="nothing in it that this dialect can send")
    _put_lifted(lifted, wire, quirks)
    return _system_first(wire) if quirks.system_first else wire


def _put_user(content: str | list[Wire], wire: list[Wire], quirks: Quirks) -> None:
    if wire and wire[-1]["role"] == "tool" and not quirks.tool_then_user:
        wire.append({"role": "assistant", "content": "OK."})  # roles must alternate for this server
    wire.append({"role": "user", "content": content})


def _put_lifted(lifted: list[Wire], wire: list[Wire], quirks: Quirks) -> None:
    """Put the files of tool results, which have no place in the results, into a user message after them."""
    if lifted:
        _put_user([*lifted], wire, quirks)
        lifted.clear()


def _system_first(wire: list[Wire]) -> list[Wire]:
    systems = [one for one in wire if one["role"] in ("system", "developer")]
    if not systems:
        return wire
    first = {"role": systems[0]["role"], "content": join_texts(one["content"] for one in systems)}
    return [first, *(one for one in wire if one["role"] not in ("system", "developer"))]


# -- user


def _user_content(blocks: Iterable[Block], quirks: Quirks, io: ProviderIO) -> str | list[Wire]:
    parts = list(_parts(blocks, quirks, io))
    if all(part["type"] == "text" for part in parts):
        return join_texts(part["text"] for part in parts)
    return parts


def _parts(blocks: Iterable[Block], quirks: Quirks, io: ProviderIO) -> Iterator[Wire]:
    for block in blocks:
        kind = block.get("type")
        if kind == ContentType.TEXT:
            yield _text_part(block["text"])
        elif kind in (ContentType.IMAGE, ContentType.BINARY):
            yield _file_part(block, quirks)
        else:
            io.repaired("block_dropped", why=f"type {kind!r} has no form in a user message")


def _text_part(text: str) -> Wire:
    return {"type": "text", "text": text}


def _file_part(block: Block, quirks: Quirks) -> Wire:
    """Return the part for an image or file. ValueError: this server can't take it."""
    image = block["type"] == ContentType.IMAGE
    mimetype = mimetype_of(block) or ("image/png" if image else "application/octet-stream")
    major = mimetype.partition("/")[0]
    data: str = block["content"]
    url = f"data:{mimetype};base64,{data}"
    if (major == "image" and mimetype not in _TEXT_LIKE) or image:
        detail = block.get("detail")
        return {"type": "image_url", "image_url": {"url": url, **({"detail": detail} if detail else {})}}
    if mimetype in AUDIO_FORMATS:
        return {"type": "input_audio", "input_audio": {"data": data, "format": AUDIO_FORMATS[mimetype]}}
    if major == "video":
        return {"type": "video_url", "video_url": {"url": url}}
    filename = file_name(block, mimetype)
    if quirks.files == "part":
        return {"type": "file", "file": {"filename": filename, "file_data": url}}
    return _text_part(file_text(data, mimetype, filename))


def file_name(block: Block, mimetype: str) -> str:
    """Return the name under which the file in *block* is sent."""
    return block.get("filename") or f"attachment.{mimetype.partition('/')[2].partition('+')[0] or 'bin'}"


def file_text(data: str, mimetype: str, filename: str) -> str:
    """Return a text-like file (*data* is its base64) under its name. ValueError: it is none, or no base64."""
    return f"File {filename}:\n{decoded_text(data, mimetype, filename)}"


def decoded_text(data: str, mimetype: str, filename: str) -> str:
    """Return what is in a text-like file (*data* is its base64). ValueError: it is none, or no base64."""
    if mimetype.partition("/")[0] != "text" and mimetype not in _TEXT_LIKE:
        raise ValueError(f"this endpoint takes no files of type {mimetype!r} (file {filename!r})")
    try:
        return base64.b64decode(data, validate=True).decode("utf-8", "replace")
    except ValueError as exc:
        raise ValueError(f"file {filename!r} is not base64: {exc}") from exc


# -- tool results


def _tool_result(message: Message, quirks: Quirks, lifted: list[Wire], io: ProviderIO) -> Wire:
    texts: list[str] = []
    files: list[Block] = []
    for block in message["content"]:
        if block.get("type") in (ContentType.IMAGE, ContentType.BINARY):
            files.append(block)
        elif isinstance(block.get("text"), str):
            texts.append(block["text"])
        else:
            texts.append(json.dumps(block, ensure_ascii=False, default=str))
    if files:
        io.repaired("files_moved_to_user", call_id=message["call_id"], count=len(files))
        lifted.append(_text_part(f"Files from the result of {message['name']} (call {message['call_id']}):"))
        lifted.extend(_lifted_part(block, quirks) for block in files)
        texts = texts or ["(see the files in the next message)"]
    text = join_texts(texts)
    if message.get("error") is True and not text.lower().startswith("error"):
        text = f"Error: {text}"  # the wire has no flag for it
    return {"role": "tool", "tool_call_id": wire_call_id(message["call_id"], quirks), "content": text}


def _lifted_part(block: Block, quirks: Quirks) -> Wire:
    try:
        return _file_part(block, quirks)
    except ValueError as exc:
        return _text_part(f"(left out: {exc})")


def wire_call_id(call_id: str, quirks: Quirks) -> str:
    """Return *call_id* as this server takes it; the same for the same id, always."""
    if quirks.tool_id is None or (len(call_id) == 9 and call_id.isascii() and call_id.isalnum()):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:9]


# -- assistant


_WRITTEN = frozenset({ContentType.TEXT, ContentType.THINKING, ContentType.TOOL_CALL})
"""Blocks of an answer with a form here; thinking is left out silently when the server does not ask for it."""


def _assistant(message: Message, quirks: Quirks, io: ProviderIO, now: float) -> Wire | None:
    """Return the wire form, or None when there is neither content nor a call in it."""
    blocks: list[Block] = message["content"]
    for block in blocks:
        if block.get("type") not in _WRITTEN and "audio_id" not in block:
            io.repaired("block_dropped", why=f"type {block.get('type')!r} has no form in an answer")
    calls = [_tool_call(block, quirks) for block in blocks if block.get("type") == ContentType.TOOL_CALL]
    wire: Wire = {"role": "assistant"}
    audio = _audio_id(blocks, now)
    texts, refusals = _texts(blocks, quirks, spoken=audio is not None)
    if quirks.reasoning_replay == "thinking_parts" and (parts := _thinking_parts(blocks)):
        if texts or calls:
            wire["content"] = [*parts, *map(_text_part, texts)]
    elif texts:
        wire["content"] = join_texts(texts)
    if refusals:
        wire.setdefault("content", None)
        wire["refusal"] = join_texts(refusals)
    if audio is not None:
        wire["audio"] = {"id": audio}
    if calls:
        wire["tool_calls"] = calls
        if "content" not in wire and quirks.empty_content != "omit":
            wire["content"] = None if quirks.empty_content == "null" else ""
    if len(wire) == 1:
        return None
    wire.update(_reasoning(blocks, quirks, called=bool(calls)))
    return wire


def _texts(blocks: list[Block], quirks: Quirks, *, spoken: bool) -> tuple[list[str], list[str]]:
    texts: list[str] = []
    refusals: list[str] = []
    for block in blocks:
        if block.get("type") != ContentType.TEXT or (spoken and block.get(TRANSCRIPT)):
            continue
        (refusals if block.get(REFUSAL) is True and quirks.refusal == "field" else texts).append(
            block["text"]
        )
    return texts, refusals


def _audio_id(blocks: list[Block], now: float) -> str | None:
    for block in blocks:
        audio_id, expires = block.get("audio_id"), block.get("expires_at")
        if isinstance(audio_id, str) and isinstance(expires, int | float) and expires > now:
            return audio_id
    return None


def _tool_call(block: Block, quirks: Quirks) -> Wire:
    call: Wire = {
        "id": wire_call_id(block["call_id"], quirks),
        "type": "function",
        "function": {"name": block["name"], "arguments": arguments_text(block["arguments"])},
    }
    if isinstance(extra := block.get("extra_content"), dict):
        call["extra_content"] = extra
    return call


def arguments_text(arguments: Any) -> str:
    """Return tool arguments as compact JSON text; NaN and the infinities, which JSON lacks, become null."""
    try:
        return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(arguments), parse_constant=lambda name: None)
        return json.dumps(finite, ensure_ascii=False, separators=(",", ":"))


def _thinking(blocks: list[Block]) -> list[Block]:
    return [block for block in blocks if block.get("type") == ContentType.THINKING]


def _thinking_parts(blocks: list[Block]) -> list[Wire]:
    texts = [block["text"] for block in _thinking(blocks) if has_text(block)]
    return [{"type": "thinking", "thinking": [_text_part(text)]} for text in texts]


def _reasoning(blocks: list[Block], quirks: Quirks, *, called: bool) -> Wire:
    if quirks.reasoning_replay == "reasoning_content" and called:
        # Asked for with every tool call, "" included; ignored everywhere else.
        return {
            "reasoning_content": "".join(
                b["text"] for b in _thinking(blocks) if isinstance(b.get("text"), str)
            )
        }
    if quirks.reasoning_replay == "reasoning_details":
        details = Details()
        for block in blocks:
            pieces = block.get("reasoning_details")
            for piece in pieces if isinstance(pieces, list) else ():
                details.add(piece)
        if merged := details.take():
            return {"reasoning_details": merged}
    return {}
