"""History made valid for sending, on a copy: what no provider accepts is left out, moved, or answered.

Every dialect sends the result of `paired_history`. The messages given are never changed; a message that needs
no repair is passed on as it is. Each repair is reported through `io.repaired`, so that the log shows what was
sent.
"""

from __future__ import annotations

import json
import operator
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

from aiio.context.assemble import FREE_TEXT
from aiio.context.types import (
    REFUSED,
    Block,
    ContentType,
    Message,
    MessageType,
    text_content,
    tool_result_message,
)

from .base import ProviderIO
from .chat_blocks import REFUSAL

NO_RESULT = "This tool call was not completed: no result of it was recorded."
NO_OUTPUT = "(no output)"

_SENT = frozenset({MessageType.SYSTEM, MessageType.USER, MessageType.ASSISTANT, MessageType.TOOL_RESULT})


def paired_history(
    context: Sequence[Message], io: ProviderIO, *, free_text: bool = False, signed: str | None = None
) -> list[Message]:
    """Return the messages of *context* in a form that any provider accepts.

    - Records, messages of unknown type, empty blocks and empty messages are left out, and so are answers that
      the provider refused half-way: no later request with them in it would be answered.
    - Tool calls that are partial, or whose arguments are no JSON, are left out together with their results.
    - Every other call is followed directly by its one result: results are moved there, missing ones are made
      up as errors, and a result without its call becomes a user message. A message has no call id twice.

    Raises nothing: whatever is in a context, the outcome is the same for the same input.

    Args:
      free_text: the dialect has calls whose arguments are prose; for others it becomes `{"input": prose}`.
      signed: the key under which a text block keeps this dialect's signature; such a block stays, even empty.
    """
    messages, gaps = _readable(context, io, signed)
    repaired, calls = _sendable_calls(messages, io, free_text=free_text)
    loose = _match(messages, calls, io)
    sent: list[Message] = []
    gap = False
    for position, message in enumerate(repaired):
        gap = gap or position in gaps or message is None
        if message is None or (message["type"] == MessageType.TOOL_RESULT and position not in loose):
            continue
        message = loose.get(position, message)
        if gap and sent and _joinable(sent[-1], message):
            sent[-1] = {**sent[-1], "content": [*sent[-1]["content"], *message["content"]]}
            io.repaired("message_joined", position=position)
        else:
            sent.append(message)
        gap = False
        sent.extend(_result_of(call, io) for call in calls.at(position))
    return sent


def has_text(block: Block) -> bool:
    """Tell whether *block* has text that is more than whitespace."""
    text = block.get("text")
    return isinstance(text, str) and not text.isspace() and text != ""


def join_texts(texts: Iterable[str]) -> str:
    """Return one text: parts are set apart by a blank line unless the part before ends its line."""
    joined = ""
    for text in texts:
        separator = "\n\n" if joined and text and not joined.endswith("\n") else ""
        joined = f"{joined}{separator}{text}"
    return joined


def content_text(message: Message) -> str:
    """Return the text blocks of *message* as one text."""
    return join_texts(block["text"] for block in message["content"] if block.get("type") == ContentType.TEXT)


def parse_arguments(arguments: Any) -> Any:
    """Return tool arguments as JSON data: text is parsed, nothing is `{}`. ValueError: they are no JSON."""
    if arguments is None:
        return {}
    if not isinstance(arguments, str):
        return arguments
    return json.loads(arguments) if arguments.strip() else {}


# -- messages one by one


def _readable(
    context: Sequence[Message], io: ProviderIO, signed: str | None
) -> tuple[list[Message], set[int]]:
    """Return the messages that have something to send, and at which of them one was dropped just before."""
    kept: list[Message] = []
    gaps: set[int] = set()
    for position, message in enumerate(context):
        if isinstance(message.get("type"), str):
            continue  # a record: the owner's, never sent
        cleaned = _cleaned(message, position, io, signed)
        if cleaned is None:
            gaps.add(len(kept))
        else:
            kept.append(cleaned)
    return kept, gaps


def _joinable(first: Message, second: Message) -> bool:
    """Tell whether two messages must be one now that what kept them apart is gone: roles alternate."""
    if first["type"] != second["type"] or first["type"] not in (MessageType.USER, MessageType.ASSISTANT):
        return False
    return not any(_is_call(block) for block in first["content"])


def _cleaned(message: Message, position: int, io: ProviderIO, signed: str | None) -> Message | None:
    kind, content = message.get("type"), message.get("content")
    if kind not in _SENT:
        io.repaired("message_dropped", position=position, why=f"type {kind!r}")
        return None
    blocks = content if isinstance(content, list) else []
    good = [block for block in blocks if _has_payload(block, signed)]
    if not good and kind != MessageType.TOOL_RESULT:
        io.repaired("message_dropped", position=position, why="empty")
        return None
    if good and len(good) == len(blocks):
        return message
    if len(good) < len(blocks):
        io.repaired("blocks_dropped", position=position, count=len(blocks) - len(good))
    return {**message, "content": good or [text_content(NO_OUTPUT)]}


def _has_payload(block: object, signed: str | None) -> bool:
    if not isinstance(block, dict):
        return False
    kind = block.get("type")
    if kind == ContentType.TEXT:
        return has_text(block) or (signed in block and isinstance(block.get("text"), str))
    if kind == ContentType.THINKING:
        return has_text(block) or not block.keys() <= {"type", "text"}  # replay data needs no text
    if kind in (ContentType.IMAGE, ContentType.BINARY):
        return isinstance(block.get("content"), str) and block["content"] != ""
    return True


def _is_refused(message: Message) -> bool:
    """Tell whether *message* is an answer that was refused, and not in words of the model's own."""
    return message.get(REFUSED) is True and not any(
        block.get(REFUSAL) is True for block in message["content"]
    )


def _is_call(block: Block) -> bool:
    return block.get("type") == ContentType.TOOL_CALL


# -- calls and results


class _Sent:
    """A call that is sent, and its result once found."""

    __slots__ = ("call_id", "moved", "name", "position", "result", "wire_id")

    def __init__(self, call_id: str, wire_id: str, name: str, position: int) -> None:
        self.call_id = call_id
        self.wire_id = wire_id
        self.name = name
        self.position = position
        self.result: Message | None = None
        self.moved = False


class _Calls:
    """The calls of a history: those that are sent, in order, and the ids of those that are not."""

    def __init__(self) -> None:
        self.count = 0
        self.lost: dict[str, int] = {}
        """Position of the first call left out, by id."""
        self.answered: dict[str, Message] = {}
        """The latest result given to a call, by id."""
        self._by_position: dict[int, list[_Sent]] = {}
        self._unanswered: dict[str, list[_Sent]] = {}

    def add(self, call: _Sent) -> None:
        self.count += 1
        self._by_position.setdefault(call.position, []).append(call)
        self._unanswered.setdefault(call.call_id, []).append(call)

    def at(self, position: int) -> Sequence[_Sent]:
        return self._by_position.get(position, ())

    def answer(self, result: Message, call_id: str, position: int) -> _Sent | None:
        """Give *result* to the unanswered call of the nearest message before, else of the first after."""
        waiting = self._unanswered.get(call_id)
        if not waiting:
            return None
        at = max(0, bisect_left(waiting, position, key=lambda call: call.position) - 1)
        while at > 0 and waiting[at - 1].position == waiting[at].position:
            at -= 1  # one id twice in a message: in order
        call = waiting.pop(at)
        call.result = self.answered[call_id] = result
        return call


def _sendable_calls(
    messages: list[Message], io: ProviderIO, *, free_text: bool
) -> tuple[list[Message | None], _Calls]:
    """Return the messages with only the calls that can be sent (None: nothing is left), and all calls."""
    repaired: list[Message | None] = list(messages)
    calls = _Calls()
    for position, message in enumerate(messages):
        blocks: list[Block] = message["content"]
        if message["type"] != MessageType.ASSISTANT:
            continue
        if _is_refused(message):
            repaired[position] = None
            for block in filter(_is_call, blocks):
                calls.lost.setdefault(str(block.get("call_id")), position)
            io.repaired("message_dropped", position=position, why="refused")
            continue
        if not any(map(_is_call, blocks)):
            continue
        kept = _kept_blocks(blocks, position, calls, io, free_text=free_text)
        if len(kept) < len(blocks) and all(block.get("type") == ContentType.THINKING for block in kept):
            repaired[position] = None  # thinking that led to nothing that can be sent
            io.repaired("message_dropped", position=position, why="only calls that can't be sent")
        elif len(kept) < len(blocks) or any(map(operator.is_not, kept, blocks)):
            repaired[position] = {**message, "content": kept}
    return repaired, calls


def _kept_blocks(
    blocks: list[Block], position: int, calls: _Calls, io: ProviderIO, *, free_text: bool
) -> list[Block]:
    kept: list[Block] = []
    ids: set[str] = set()
    for block in blocks:
        if not _is_call(block):
            kept.append(block)
            continue
        call_id = block.get("call_id")
        sendable = _sendable(block, free_text=free_text)
        if sendable is None:
            calls.lost.setdefault(str(call_id), position)
            io.repaired("call_dropped", position=position, call_id=call_id, name=block.get("name"))
            continue
        wire_id = _unique(call_id, calls.count + 1, ids)
        if wire_id != call_id:
            sendable = {**sendable, "call_id": wire_id}
            io.repaired("call_id_replaced", position=position, call_id=call_id, sent=wire_id)
        kept.append(sendable)
        calls.add(_Sent(str(call_id), wire_id, sendable["name"], position))
    return kept


def _sendable(block: Block, *, free_text: bool) -> Block | None:
    """Return *block* with parsed arguments, itself when they are; None: this call can't be sent."""
    name = block.get("name")
    if block.get("partial") or not isinstance(name, str) or not name.strip():
        return None
    arguments = block.get("arguments")
    if block.get(FREE_TEXT) is True and isinstance(arguments, str):
        return block if free_text else {**block, "arguments": {"input": arguments}}
    try:
        parsed = parse_arguments(arguments)
    except (ValueError, RecursionError):
        return None
    return block if parsed is arguments else {**block, "arguments": parsed}


def _unique(call_id: object, number: int, taken: set[str]) -> str:
    found = call_id if isinstance(call_id, str) and call_id.strip() else f"repair-{number}"
    base, again = found, 2
    while found in taken:
        found = f"{base}-{again}"
        again += 1
    taken.add(found)
    return found


def _match(messages: list[Message], calls: _Calls, io: ProviderIO) -> dict[int, Message]:
    """Give each result to its call; return the user messages that take the place of results without one."""
    loose: dict[int, Message] = {}
    turn = -1  # the nearest message before that is no result
    for position, message in enumerate(messages):
        if message["type"] != MessageType.TOOL_RESULT:
            turn = position
            continue
        call_id = str(message.get("call_id"))
        call = calls.answer(message, call_id, position)
        if call is not None:
            call.moved = call.position != turn
        elif calls.answered.get(call_id) == message:
            io.repaired("result_dropped", position=position, call_id=call_id, why="repeated")
        elif calls.lost.get(call_id, position) < position:
            io.repaired("result_dropped", position=position, call_id=call_id, why="its call was left out")
        else:
            loose[position] = _as_user(message)
            io.repaired("result_without_call", position=position, call_id=call_id)
    return loose


def _result_of(call: _Sent, io: ProviderIO) -> Message:
    result = call.result
    if result is None:
        io.repaired("result_made_up", position=call.position, call_id=call.wire_id, name=call.name)
        return tool_result_message(call.wire_id, call.name, NO_RESULT, error=True)
    if call.moved:
        io.repaired("result_moved", position=call.position, call_id=call.wire_id)
    if result.get("call_id") == call.wire_id and result.get("name") == call.name:
        return result
    return {**result, "call_id": call.wire_id, "name": call.name}


def _as_user(result: Message) -> Message:
    name = result.get("name")
    head = (
        f"Result of a call to {name} that is no longer in this conversation:"
        if name
        else "Result of a tool call:"
    )
    return {"type": MessageType.USER.value, "content": [text_content(head), *result["content"]]}
