"""Messages of a context as the items of a Responses request (FORMATS 3.2).

What this dialect made goes back as it came, in its order: reasoning with its ciphertext, phases, items of
server-side tools. What others made is sent as far as the wire has a form for it; what is left out is reported
through `io.repaired`. Nothing relies on the server having kept anything: messages and calls go without ids.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from aiio.context.assemble import FREE_TEXT
from aiio.context.types import Block, ContentType, Message, MessageType, mimetype_of

from .base import ProviderIO
from .chat_blocks import REFUSAL
from .chat_messages import AUDIO_FORMATS, arguments_text, file_name, file_text
from .history import content_text, has_text, join_texts
from .quirks import Quirks
from .responses_blocks import EXTRA, REASONING, SUMMARY, made_here

Wire: TypeAlias = dict[str, Any]

CACHE_MARK = "prompt_cache_breakpoint"
"""The key of a block of a user or tool message under which a cache mark goes: `{"mode": "explicit"}`."""

MAX_CALL_ID = 64
"""Characters; the service refuses longer ones."""

_CHOICES: dict[str, tuple[str, ...]] = {
    "system_as": ("instructions", "system", "developer"),
    "foreign_thinking": ("drop", "text"),
}
_FLAGS = ("replay_reasoning", "store", "input_audio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How messages are to be written."""

    quirks: Quirks
    system_as: str = "instructions"
    """System texts become the instructions, all of them, or messages of that role where they stand."""
    foreign_thinking: str = "drop"
    """`"text"`: thinking that another dialect made, or of which only the text is left, is sent as text."""
    replay_reasoning: bool = True
    """Whether reasoning goes back; ciphertext of another organisation or model family is refused."""
    store: bool = False
    """Whether the server keeps responses, so that an id alone stands for reasoning."""
    input_audio: bool = False
    """Whether the model takes audio; most refuse it."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], quirks: Quirks) -> Ways:
        """Return what *settings* ask for. ValueError: it names the setting."""
        found: dict[str, Any] = {}
        for key, allowed in _CHOICES.items():
            if (value := settings.get(key)) is not None:
                if value not in allowed:
                    raise ValueError(f"setting {key} must be one of {', '.join(allowed)}, not {value!r}")
                found[key] = value
        for key in _FLAGS:
            if (value := settings.get(key)) is not None:
                if not isinstance(value, bool):
                    raise ValueError(f"setting {key} must be a bool, not {value!r}")
                found[key] = value
        return cls(quirks=quirks, **found)


def response_input(history: Sequence[Message], ways: Ways, io: ProviderIO) -> tuple[str, list[Wire]]:
    """Return the instructions ("": none) and the input items for *history*, as `paired_history` gives it.

    Raises:
      ValueError: a user message holds a file that can't be sent.
    """
    system: list[str] = []
    items: list[Wire] = []
    custom: set[str] = set()  # ids of the calls of the message before whose results are a custom tool's
    for message in history:
        kind = message["type"]
        if kind == MessageType.TOOL_RESULT:
            items.append(_tool_result(message, ways, custom=message["call_id"] in custom))
        elif kind == MessageType.SYSTEM:
            if ways.system_as == "instructions":
                system.append(content_text(message))
            elif text := content_text(message):
                items.append(_message(ways.system_as, [_text_part(text)]))
        elif kind == MessageType.USER:
            items.extend(_user(message["content"], ways, io))
        else:
            custom = {block["call_id"] for block in message["content"] if _is_custom(block)}
            found = list(_assistant(message["content"], ways, io))
            items.extend(found)
            if not found:
                io.repaired("message_dropped", why="nothing in it that this dialect can send")
    return join_texts(system), items


def _message(role: str, content: list[Wire]) -> Wire:
    return {"type": "message", "role": role, "content": content}


def _text_part(text: str) -> Wire:
    return {"type": "input_text", "text": text}


# -- user


def _user(blocks: Iterable[Block], ways: Ways, io: ProviderIO) -> Iterator[Wire]:
    """Yield one message, or several items where items of this dialect (an approval, say) stand between."""
    parts: list[Wire] = []
    for block in blocks:
        if (item := made_here(block)) is not None:
            if parts:
                yield _message("user", parts)
            yield item
            parts = []
        elif (part := _user_part(block, ways)) is not None:
            parts.append(part)
        else:
            io.repaired("block_dropped", why=f"type {block.get('type')!r} has no form in a user message")
    if parts:
        yield _message("user", parts)


def _user_part(block: Block, ways: Ways) -> Wire | None:
    kind = block.get("type")
    if kind == ContentType.TEXT:
        part = _text_part(block["text"])
    elif kind in (ContentType.IMAGE, ContentType.BINARY):
        part = _file_part(block, ways)
    else:
        return None
    if isinstance(mark := block.get(CACHE_MARK), dict):
        part[CACHE_MARK] = mark
    return part


def _file_part(block: Block, ways: Ways) -> Wire:
    """Return the part for an image or file. ValueError: it can't be sent."""
    image = block["type"] == ContentType.IMAGE
    mimetype = mimetype_of(block) or ("image/png" if image else "application/octet-stream")
    major = mimetype.partition("/")[0]
    data: str = block["content"]
    url = f"data:{mimetype};base64,{data}"
    if image or (major == "image" and mimetype != "image/svg+xml"):
        return {"type": "input_image", "image_url": url, "detail": block.get("detail") or "auto"}
    filename = file_name(block, mimetype)
    if major == "audio" and ways.input_audio and mimetype in AUDIO_FORMATS:
        return {"type": "input_audio", "input_audio": {"data": data, "format": AUDIO_FORMATS[mimetype]}}
    if major in ("audio", "video"):
        raise ValueError(f"the Responses wire has no form for {mimetype!r} (block {filename!r})")
    if ways.quirks.files == "inline":
        return _text_part(file_text(data, mimetype, filename))
    return {"type": "input_file", "filename": filename, "file_data": url}


# -- tool results


def _tool_result(message: Message, ways: Ways, *, custom: bool) -> Wire:
    parts = [_result_part(block, ways) for block in message["content"]]
    error = "Error: " if message.get("error") is True else ""  # the wire has no flag for it
    output: str | list[Wire]
    if all(part.keys() == {"type", "text"} for part in parts):
        output = join_texts(part["text"] for part in parts)
        if error and not output.lower().startswith("error"):
            output = f"{error}{output}"
    else:
        output = [_text_part(error.rstrip()), *parts] if error else parts
    kind = "custom_tool_call_output" if custom else "function_call_output"
    return {"type": kind, "call_id": wire_call_id(message["call_id"]), "output": output}


def _result_part(block: Block, ways: Ways) -> Wire:
    try:
        part = _user_part(block, ways)
    except ValueError as exc:
        return _text_part(f"(left out: {exc})")
    if part is None:
        return _text_part(block.get("text") or json.dumps(block, ensure_ascii=False, default=str))
    if part["type"] == "input_audio":
        return _text_part("(left out: results hold no audio)")
    return part


def wire_call_id(call_id: str) -> str:
    """Return *call_id* as the service takes it; the same for the same id, always."""
    if len(call_id) <= MAX_CALL_ID:
        return call_id
    return f"call_{hashlib.sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"


# -- assistant


def _assistant(blocks: Sequence[Block], ways: Ways, io: ProviderIO) -> list[Wire]:
    """Return the items of one answer, in its order; reasoning that led to nothing is left out."""
    items: list[Wire] = []
    parts: list[Wire] = []  # of the message that text still goes into
    phase: object = None
    for block in blocks:
        part = _output_part(block, ways)
        if part is not None:
            if not parts or block.get("phase") != phase:
                parts, phase = [], block.get("phase")
                items.append({**_message("assistant", parts), "status": "completed"})
                if phase:
                    items[-1]["phase"] = phase
            parts.append(part)
            continue
        item = _item(block, ways)
        if item is None:
            io.repaired(
                "block_dropped", why=f"{block.get('type')} of another dialect, or without a form here"
            )
            continue
        parts = []
        items.append(item)
    while items and items[-1]["type"] == "reasoning":
        items.pop()
        io.repaired("block_dropped", why="thinking that led to nothing that can be sent")
    return items


def _output_part(block: Block, ways: Ways) -> Wire | None:
    if block.get("type") == ContentType.TEXT:
        if block.get(REFUSAL) is True and ways.quirks.refusal == "field":
            return {"type": "refusal", "refusal": block["text"]}
    elif ways.foreign_thinking != "text" or not _is_only_text(block, ways):
        return None
    return {"type": "output_text", "text": block["text"], "annotations": []}


def _is_only_text(block: Block, ways: Ways) -> bool:
    """Tell whether *block* is thinking that can't go back as such."""
    return block.get("type") == ContentType.THINKING and has_text(block) and not _is_ours(block, ways)


def _item(block: Block, ways: Ways) -> Wire | None:
    kind = block.get("type")
    if kind == ContentType.TOOL_CALL:
        return _call(block)
    if kind == ContentType.THINKING:
        return _reasoning(block) if _is_ours(block, ways) else None
    return made_here(block)


def _is_custom(block: Block) -> bool:
    prose = block.get(FREE_TEXT) is True and isinstance(block.get("arguments"), str)
    return prose and block.get("type") == ContentType.TOOL_CALL


def _call(block: Block) -> Wire:
    call: Wire = {"call_id": wire_call_id(block["call_id"]), "name": block["name"]}
    if _is_custom(block):
        call = {"type": "custom_tool_call", **call, "input": block["arguments"]}
    else:
        call = {"type": "function_call", **call, "arguments": arguments_text(block["arguments"])}
    for name in ("namespace", "caller"):
        if block.get(name) is not None:
            call[name] = block[name]
    return call


def _is_ours(block: Block, ways: Ways) -> bool:
    """Tell whether thinking was made by this dialect and can go back: an id alone says nothing to a server
    that kept nothing."""
    if not ways.replay_reasoning or not isinstance(block.get(SUMMARY), list):
        return False
    return bool(block.get("encrypted_content") or block.get(REASONING) or (ways.store and block.get("id")))


def _reasoning(block: Block) -> Wire:
    extra = block.get(EXTRA)
    item: Wire = {
        **(extra if isinstance(extra, dict) else {}),
        "type": "reasoning",
        "summary": block[SUMMARY],
    }
    for key, name in (("id", "id"), (REASONING, "content"), ("encrypted_content", "encrypted_content")):
        if block.get(key):
            item[name] = block[key]
    return item
