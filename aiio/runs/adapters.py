"""Between items and messages, both ways, losing nothing.

A message becomes one item, an assistant message one for each thing it says. What an item's own fields can't
hold rides along under a key of ours, and only then:

    origin    on an item: `turn` (which items were one message), `metadata` (its other keys), `blocks`
              (blocks that their part or item can't give back)
    aiio:item on a block, a message or a record: the item it came from, for the way back

`messages_to_items` then `items_to_messages` gives equal messages; `items_to_messages(keep=True)` then
`messages_to_items` gives equal items. Without *keep* a message holds only what a provider is to see; a
developer's item is a user message there: system messages are moved to the front by some dialects, and what a
run puts in belongs where it stands. Keys and types that begin with `aiio:` are ours.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiio.context.text import compact_json, parse_json
from aiio.context.types import Block, ContentType, Message, MessageType, Record
from aiio.context.validate import is_record

from .items import Item, ItemStatus, misshapen, new_item

_ROLE_OF = {MessageType.SYSTEM: "system", MessageType.USER: "user"}
_CORE = frozenset({"type", "content"})
_ITEM = "aiio:item"


def messages_to_items(
    messages: Iterable[Message | Record], *, status: str = ItemStatus.COMPLETED.value
) -> list[Item]:
    """Return the items that say what *messages* (and records) say. Nothing is shared with them."""
    return [item for message in messages for item in _items_of(copy.deepcopy(message), status)]


def items_to_messages(items: Iterable[Item], *, keep: bool = False) -> list[Message | Record]:
    """Return *items* as messages; an assistant's items that follow each other are one. Nothing is shared.

    Args:
      items: oldest first.
      keep: whether blocks and messages carry what `messages_to_items` needs to give back these very items.
    """
    messages: list[Message | Record] = []
    turn: list[Item] = []
    names: dict[str, str] = {}
    for item in items:
        if item["type"] == "function_call":
            names[item["call_id"]] = item["name"]
        if turn and not _same_turn(turn[-1], item):
            messages.append(_assistant(turn, keep))
            turn = []
        if _of_assistant(item):
            turn.append(item)
        else:
            messages.append(_other(item, keep, names))
    if turn:
        messages.append(_assistant(turn, keep))
    return copy.deepcopy(messages)


# -- messages to items ----------------------------------------------------------------------------


def _items_of(message: Message | Record, status: str) -> list[Item]:
    if is_record(message):
        if message["type"] == _ITEM and _ITEM in message:
            return [message[_ITEM]]
        if ":" in message["type"] and not message["type"].startswith("aiio:") and misshapen(message) is None:
            return [message]
        return [new_item("aiio:record", data={"record": message}, status=status)]
    if _ITEM in message:
        return [message[_ITEM]]
    kind = message["type"]
    if kind == MessageType.ASSISTANT:
        return _items_of_assistant(message, status)
    if kind == MessageType.TOOL_RESULT and isinstance(message.get("call_id"), str):
        return [_output_item(message, status)]
    metadata = {key: value for key, value in message.items() if key not in _CORE}
    if kind not in _ROLE_OF:
        return [new_item("aiio:message", data={"message": message}, status=status)]
    parts, kept = _parts(message["content"], "input_text")
    item = new_item("message", role=_ROLE_OF[kind], content=parts, status=status)
    return [_with_origin(item, metadata=metadata, blocks=kept)]


def _output_item(message: Message, status: str) -> Item:
    content = message["content"]
    plain = len(content) == 1 and _is_plain_text(content[0])
    item = new_item(
        "function_call_output",
        call_id=message["call_id"],
        output=content[0]["text"] if plain else _json_text(content),
        status=status,
    )
    metadata = {key: value for key, value in message.items() if key not in (*_CORE, "call_id")}
    return _with_origin(item, metadata=metadata, blocks=None if plain else {"all": content})


def _items_of_assistant(message: Message, status: str) -> list[Item]:
    content = message["content"]
    metadata = {key: value for key, value in message.items() if key not in _CORE}
    items: list[Item] = []
    said: list[Block] = []

    def close_said() -> None:
        if said:
            parts, kept = _parts(said, "output_text")
            item = new_item("message", role="assistant", content=parts, status=status)
            items.append(_with_origin(item, blocks=kept))
            said.clear()

    for block in content:
        if isinstance(block, dict) and _ITEM in block:
            close_said()
            if not items or items[-1] != block[_ITEM]:  # an item may have made several blocks
                items.append(block[_ITEM])
        elif isinstance(block, dict) and block.get("type") == ContentType.TEXT:
            said.append(block)
        else:
            close_said()
            items.append(_block_item(block, status))
    close_said()
    if not items:
        items.append(new_item("message", role="assistant", content=[], status=status))
    if any(_ITEM in block for block in content if isinstance(block, dict)):
        return items
    turn = uuid.uuid4().hex
    items[0] = _with_origin(items[0], metadata=metadata)
    return [_with_origin(item, turn=turn) for item in items]


def _block_item(block: Any, status: str) -> Item:
    if not isinstance(block, dict):
        return new_item("aiio:block", data={"block": block}, status=status)
    if block.get("type") == ContentType.THINKING and isinstance(block.get("text"), str):
        item = new_item(
            "reasoning", content=[{"type": "reasoning_text", "text": block["text"]}], status=status
        )
        if isinstance(block.get("signature"), str):
            item["encrypted_content"] = block["signature"]
        return item if _thinking_block(item) == block else _with_origin(item, blocks={"0": block})
    if block.get("type") == ContentType.TOOL_CALL and all(
        isinstance(block.get(key), str) for key in ("call_id", "name")
    ):
        arguments = block.get("arguments")
        text = arguments if isinstance(arguments, str) else _json_text(arguments)
        item = new_item(
            "function_call", call_id=block["call_id"], name=block["name"], arguments=text, status=status
        )
        return item if _same(_call_block(item), block) else _with_origin(item, blocks={"0": block})
    return new_item("aiio:block", data={"block": block}, status=status)


def _parts(blocks: Sequence[Block], kind: str) -> tuple[list[dict[str, Any]], dict[str, Block]]:
    """Return *blocks* as content parts, and by their place those that a part can't give back."""
    parts: list[dict[str, Any]] = []
    kept: dict[str, Block] = {}
    for at, block in enumerate(blocks):
        part = _part(block, kind)
        parts.append(part)
        if not _same(_part_block(part), block):
            kept[str(at)] = block
    return parts, kept


def _part(block: Any, kind: str) -> dict[str, Any]:
    found = block.get("type") if isinstance(block, dict) else None
    if found == ContentType.TEXT and isinstance(block.get("text"), str):
        return {"type": kind, "text": block["text"]}
    if found in (ContentType.IMAGE, ContentType.BINARY) and isinstance(block.get("content"), str):
        media = block.get("mimetype") or block.get("mime") or "application/octet-stream"
        url = f"data:{media};base64,{block['content']}"
        if found == ContentType.IMAGE:
            return {"type": "input_image", "image_url": url}
        return {"type": "input_file", "filename": block.get("filename"), "file_data": url}
    return {"type": "aiio:block"}


def _with_origin(item: Item, **origin: Any) -> Item:
    told = {key: value for key, value in origin.items() if value}
    return {**item, "origin": {**item.get("origin", {}), **told}} if told else item


def _is_plain_text(block: Any) -> bool:
    plain = isinstance(block, dict) and block.keys() == {"type", "text"}
    return plain and bool(block["type"] == ContentType.TEXT)


def _json_text(value: Any) -> str:
    try:
        return compact_json(value)
    except (TypeError, ValueError):
        return str(value)


def _same(one: Any, other: Any) -> bool:
    """Tell whether they are equal to the letter: True is not 1, and 1.0 is not 1."""
    return bool(one == other) and repr(one) == repr(other)


# -- items to messages ----------------------------------------------------------------------------


def _of_assistant(item: Item) -> bool:
    match item["type"]:
        case "message":
            return bool(item["role"] == "assistant")
        case "function_call" | "reasoning" | "aiio:block":
            return True
        case kind:
            return bool(kind.endswith("_call"))  # a server-side tool's item stands in the answer it came with


def _same_turn(last: Item, item: Item) -> bool:
    if not _of_assistant(item):
        return False
    return bool(last.get("origin", {}).get("turn") == item.get("origin", {}).get("turn"))


def _assistant(turn: Sequence[Item], keep: bool) -> Message:
    content: list[Block] = []
    for item in turn:
        blocks = _blocks_of(item)
        if keep:
            # An item without blocks must have a place to ride on; it is no content, and is not sent.
            blocks = [{**block, _ITEM: item} for block in blocks or [{"type": "text", "text": ""}]]
        content += blocks
    metadata = {} if keep else turn[0].get("origin", {}).get("metadata", {})
    return {"type": MessageType.ASSISTANT.value, "content": content, **metadata}


def _blocks_of(item: Item) -> list[Block]:
    kept = item.get("origin", {}).get("blocks", {})
    match item["type"]:
        case "message":
            parts = item["content"]
            return [kept[str(at)] if str(at) in kept else _part_block(part) for at, part in enumerate(parts)]
        case "reasoning":
            return [kept["0"] if kept else _thinking_block(item)]
        case "function_call":
            return [kept["0"] if kept else _call_block(item)]
        case "aiio:block":
            return [item["data"]["block"]]
        case _:
            return [item]


def _thinking_block(item: Item) -> Block:
    parts = item["content"] or item.get("summary") or []
    block: Block = {
        "type": ContentType.THINKING.value,
        "text": "".join(str(part.get("text", "")) for part in parts),
    }
    if "encrypted_content" in item:
        block["signature"] = item["encrypted_content"]
    return block


def _call_block(item: Item) -> Block:
    text = item["arguments"]
    try:
        arguments = parse_json(text) if text else {}
    except ValueError:
        arguments = text
    return {
        "type": ContentType.TOOL_CALL.value,
        "call_id": item["call_id"],
        "name": item["name"],
        "arguments": arguments,
    }


def _part_block(part: dict[str, Any]) -> Block:
    match part["type"]:
        case "input_image":
            media, data = _from_data_url(part["image_url"])
            return {"type": ContentType.IMAGE.value, "content": data, "mimetype": media}
        case "input_file":
            media, data = _from_data_url(part.get("file_data") or "")
            block = {"type": ContentType.BINARY.value, "content": data, "mimetype": media}
            return {**block, "filename": part["filename"]} if part.get("filename") else block
        case "refusal":
            return {"type": ContentType.TEXT.value, "text": part["refusal"], "refusal": True}
        case _:
            return {"type": ContentType.TEXT.value, "text": str(part.get("text", ""))}


def _from_data_url(url: str) -> tuple[str, str]:
    head, _, data = url.partition(",")
    return head.removeprefix("data:").removesuffix(";base64"), data


def _other(item: Item, keep: bool, names: Mapping[str, str]) -> Message | Record:
    """Return an item that is no part of an answer. *names*: of the tools called so far, by call id."""
    origin = item.get("origin", {})
    match item["type"]:
        case "message":
            kind = MessageType.SYSTEM if item["role"] == "system" else MessageType.USER
            message: Message = {"type": kind.value, "content": _blocks_of(item)}
        case "function_call_output":
            content = origin.get("blocks", {}).get("all")
            message = {
                "type": MessageType.TOOL_RESULT.value,
                "content": [{"type": "text", "text": item["output"]}] if content is None else content,
                "call_id": item["call_id"],
            }
            if item["call_id"] in names:
                message["name"] = names[item["call_id"]]
        case _ if keep:
            return {"type": _ITEM, _ITEM: item}
        case "aiio:message":
            return dict(item["data"]["message"])
        case "aiio:record":
            return dict(item["data"]["record"])
        case _:
            return item  # an extension is owner data, as a record is
    return {**message, _ITEM: item} if keep else {**message, **origin.get("metadata", {})}
