"""Items: what the log of a run is made of. Plain dicts, like messages; the `TypedDict`s describe them.

An item says one thing (a message, a call, a call's output, a thought), where a message holds all that one
turn said. `developer` is the role of what the run itself puts in (layers, inbox, steering), `system` of
instructions.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from aiio.context.text import compact_json

Item: TypeAlias = dict[str, Any]
"""Any item, also an extension `prefix:name` with `data`."""


class ItemStatus(StrEnum):
    """How far an item came."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    """Cut: the request was stopped, or failed."""
    FAILED = "failed"


class ItemBase(TypedDict):
    """What all items have."""

    id: str
    status: str
    type: str


class ContentPart(TypedDict):
    """`output_text`, `input_text`, `refusal`, `reasoning_text`, `input_image`, `input_file`, ..."""

    type: str
    text: NotRequired[str]
    refusal: NotRequired[str]
    image_url: NotRequired[str]
    filename: NotRequired[str]
    file_data: NotRequired[str]


class MessageItem(ItemBase):
    """Something said."""

    role: Literal["user", "assistant", "system", "developer"]
    content: list[ContentPart]


class FunctionCallItem(ItemBase):
    """A tool the model wants called."""

    call_id: str
    name: str
    arguments: str
    """JSON text."""


class FunctionCallOutputItem(ItemBase):
    """What came of a call."""

    call_id: str
    output: str
    """JSON text, or plain text."""


class ReasoningItem(ItemBase):
    """What the model thought."""

    content: list[ContentPart]
    summary: NotRequired[list[ContentPart]]
    encrypted_content: NotRequired[str]


class ExtensionItem(ItemBase):
    """An item of somebody's own: `type` is `prefix:name`."""

    data: dict[str, Any]


ROLES = frozenset({"user", "assistant", "system", "developer"})
_FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "message": {"role": str, "content": list},
    "function_call": {"call_id": str, "name": str, "arguments": str},
    "function_call_output": {"call_id": str, "output": str},
    "reasoning": {"content": list},
    "web_search_call": {"action": dict},
    "file_search_call": {"queries": list},
    "image_generation_call": {"result": (str, type(None))},
}
BUILT_IN = frozenset(_FIELDS)
"""The types that need no schema."""

_STATUSES = frozenset(status.value for status in ItemStatus)


def new_item(type: str, *, status: str = ItemStatus.COMPLETED.value, **fields: Any) -> Item:
    """Return an item with a fresh id."""
    return {"type": type, "id": str(uuid.uuid4()), "status": status, **fields}


def create_message(text: str, role: str = "user") -> Item:
    """Return a completed message item that says *text*. ValueError: an unknown role."""
    if role not in ROLES:
        raise ValueError(f"a role is one of {', '.join(sorted(ROLES))}, not {role!r}")
    kind = "output_text" if role == "assistant" else "input_text"
    return new_item("message", role=role, content=[{"type": kind, "text": text}])


def input_items(input: Any, id_of: Callable[[str], str] | None = None) -> list[Item]:
    """Return what a step's or a session's input says: items as they are, anything else as a user's message.

    Args:
      input: None and "" say nothing; an item, or a list of items; other data becomes JSON text.
      id_of: gives the message's id for its text; None: a fresh one.

    Raises:
      TypeError, ValueError: it is neither, and no JSON.
    """
    if input is None or input == "":
        return []
    if isinstance(input, dict) and isinstance(input.get("type"), str):
        return [input]
    if isinstance(input, list) and all(isinstance(item, dict) and "type" in item for item in input):
        return input
    text = input if isinstance(input, str) else compact_json(input)
    message = create_message(text)
    return [message if id_of is None else {**message, "id": id_of(text)}]


def misshapen(item: Item) -> str | None:
    """Return what is wrong with the shape of *item*, None when nothing is. Unknown keys are fine."""
    if not isinstance(item.get("id"), str) or not item["id"]:
        return "an item has a string `id`"
    if item.get("status") not in _STATUSES:
        return f"an item's status is one of {', '.join(sorted(_STATUSES))}, not {item.get('status')!r}"
    for name, kind in _FIELDS.get(item["type"], {}).items():
        if not isinstance(item.get(name), kind):
            return f"a {item['type']} has `{name}`"
    if item["type"] == "message" and item["role"] not in ROLES:
        return f"unknown role {item['role']!r}"
    if item["type"] not in BUILT_IN and not isinstance(item.get("data"), dict):
        return "an extension item has an object `data`"
    return None


def item_text(item: Item) -> str:
    """Return the text of an item's parts, joined as it is; "" when it has none."""
    parts = item.get("content")
    if not isinstance(parts, list):
        return ""
    return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def extract_assistant_text(items: Iterable[Item]) -> str:
    """Return the `output_text` of the last assistant message, "" when there is none."""
    last: Item = {}
    for item in items:
        if item["type"] == "message" and item["role"] == "assistant":
            last = item
    return "".join(part["text"] for part in last.get("content", ()) if part["type"] == "output_text")


def estimate_item_tokens(items: Iterable[Item]) -> int:
    """Return an estimate of the tokens of *items*: for each the length of its JSON / 4, rounded up."""
    return sum(math.ceil(len(compact_json(item)) / 4) for item in items)


def strip_unresolved_tool_calls(items: Sequence[Item]) -> list[Item]:
    """Return *items* without calls that have no output and outputs that have no call, in their order."""
    called = {item["call_id"] for item in items if item["type"] == "function_call"}
    answered = {item["call_id"] for item in items if item["type"] == "function_call_output"}
    whole = called & answered
    return [
        item
        for item in items
        if item["type"] not in ("function_call", "function_call_output") or item["call_id"] in whole
    ]
