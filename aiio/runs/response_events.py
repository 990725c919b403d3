"""One answer of a model as a stream of events, by the names of OpenResponses.

aiio's events are about blocks; theirs are about items and the parts of them. Texts that follow each other are
the parts of one message, every other block is an item of its own: as `messages_to_items` has it, so that what
is told here under an id is what joins the log under it.

Source: OpenResponses specification, "Streaming".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from aiio.context.callbacks import Callback
from aiio.context.events import BlockEvent, Done, Error, FinishReason, Terminal
from aiio.context.types import Block, ContentType, Message, MessageType

from .adapters import messages_to_items
from .items import Item, ItemStatus
from .streams import EventSource, StreamEvent

Publish = Callable[[StreamEvent], None]

_SERVER_CALLS = {
    "web_search_call": "response.web_search_call",
    "image_generation_call": "response.image_gen_call",
}
"""Items of server-side tools that have events of their own; they come whole, so there is only the last."""

_NOTES = ("annotations", "citations")


class _Open:
    """An item in the making."""

    def __init__(self, output_index: int, item_type: str) -> None:
        self.id = str(uuid.uuid4())
        self.output_index = output_index
        self.type = item_type
        self.blocks: list[Block | None] = []
        """Live, one a part; a block's dict is the one in the message."""
        self.ended: set[int] = set()
        """Parts that are whole."""
        self.done = False


class ResponseEvents:
    """Publishes the events of one request. Made for it, and done with it.

    Args:
      publish: told every event; must not raise.
      facts: what every event's data begins with: whose it is.
      model: what was asked.
      first: called once, when the first of the answer has come.
      own_name: a tool's own name for the one on the wire.
    """

    def __init__(
        self,
        publish: Publish,
        *,
        facts: dict[str, Any],
        model: str,
        first: Callable[[], None],
        own_name: Callable[[str], str] = str,
    ) -> None:
        self.id: str = f"resp_{uuid.uuid4().hex}"
        self._publish = publish
        self._facts = {**facts, "response_id": self.id}
        self._model = model
        self._first = first
        self._own_name = own_name
        self._began = False
        self._heard = False
        self._items: list[_Open] = []
        self._places: dict[int, tuple[_Open, int]] = {}
        """By index of the block: its item, and which part of it."""
        self._outputs: list[Item] = []

    def callbacks(self) -> dict[str, Callback]:
        """Return the callbacks of `IO.write` that hear of blocks."""
        return {
            "on_text_start": self._open,
            "on_text_delta": self._text,
            "on_text_end": self._end_block,
            "on_thinking_start": self._open,
            "on_thinking_delta": self._thinking,
            "on_thinking_end": self._end_block,
            "on_tool_call_start": self._open,
            "on_tool_call_delta": self._arguments,
            "on_tool_call_end": self._end_block,
        }

    def begin(self) -> None:
        """An attempt begins; only the first is told."""
        if not self._began:
            self._began = True
            for name in ("created", "in_progress"):
                self._tell(f"response.{name}", {"response": self._response("in_progress")})

    def end(self, terminal: Terminal) -> None:
        """The request has ended: what is open ends, and the response does."""
        whole = isinstance(terminal, Done)
        for item in self._items:
            self._close(item, ItemStatus.COMPLETED if whole else ItemStatus.INCOMPLETE)
        self._tell_unheard(terminal.message)
        if not self._began:
            return
        response = self._response("completed", usage=dict(terminal.usage or {}), output=self._outputs)
        if isinstance(terminal, Error):
            response["status"] = "incomplete" if terminal.cancelled else "failed"
            response["error"] = {"code": terminal.code or terminal.kind.value, "message": terminal.error}
        elif terminal.finish in (FinishReason.LENGTH, FinishReason.PAUSED):
            response["status"] = "incomplete"
        if response["status"] == "incomplete":
            reason = "cancelled" if isinstance(terminal, Error) else _INCOMPLETE[terminal.finish]
            response["incomplete_details"] = {"reason": reason}
        self._tell(f"response.{response['status']}", {"response": response})

    def adopt(self, message: Message | None, items: Sequence[Item]) -> None:
        """Give *items*, which were made of *message*, the ids under which they were told."""
        groups = [] if message is None else _groups(message["content"])
        if len(groups) != len(items):
            return
        known = {id(block): item.id for item in self._items for block in item.blocks if block is not None}
        for group, item in zip(groups, items, strict=True):
            item["id"] = known.get(id(group[0]), item["id"])

    # -- blocks -----------------------------------------------------------------------------------

    def _open(self, event: BlockEvent) -> tuple[_Open, int]:
        """Return the place of the block of *event*; one that is new is told first."""
        place = self._places.get(event.content_index)
        if place is not None:
            return place
        if not self._heard:
            self._heard = True
            self._first()
        block = event.content
        kind = (block or {}).get("type")
        before = self._places.get(event.content_index - 1)
        if kind == ContentType.TEXT and before is not None and before[0].type == "message":
            item = before[0]
        else:
            item = self._begin_item(kind, block)
        part = len(item.blocks)
        item.blocks.append(block)
        self._places[event.content_index] = item, part
        if item.type != "function_call":
            self._tell("response.content_part.added", {"part": _part(item, "")}, item, part)
        return item, part

    def _begin_item(self, kind: Any, block: Block | None) -> _Open:
        for item in self._items:
            self._close(item, ItemStatus.COMPLETED)
        found = _TYPES.get(kind, "message")
        item = _Open(len(self._items), found)
        self._items.append(item)
        shown: Item = {"type": found, "id": item.id, "status": ItemStatus.IN_PROGRESS.value}
        if found == "message":
            shown |= {"role": "assistant", "content": []}
        elif found == "reasoning":
            shown |= {"content": []}
        else:
            name = self._own_name(str((block or {}).get("name") or ""))
            shown |= {"call_id": (block or {}).get("call_id"), "name": name, "arguments": ""}
        self._tell("response.output_item.added", {"item": shown}, item)
        return item

    def _text(self, event: Any) -> None:
        item, part = self._open(event)
        self._tell("response.output_text.delta", {"delta": event.text}, item, part)

    def _thinking(self, event: Any) -> None:
        item, part = self._open(event)
        self._tell("response.reasoning.delta", {"delta": event.text}, item, part)

    def _arguments(self, event: Any) -> None:
        item, _ = self._open(event)
        self._tell("response.function_call_arguments.delta", {"delta": event.arguments}, item)

    def _end_block(self, event: Any) -> None:
        item, part = self._open(event)
        self._end_part(item, part)
        if item.type != "message":  # a message may go on with another text
            self._close(item, ItemStatus.COMPLETED)

    # -- ends -------------------------------------------------------------------------------------

    def _end_part(self, item: _Open, part: int) -> None:
        """Tell that a part is whole, once. A provider may not say so, and a cut answer never does."""
        if part in item.ended:
            return
        item.ended.add(part)
        block = item.blocks[part] or {}
        if item.type == "function_call":
            arguments = self._finished(item, ItemStatus.COMPLETED)["arguments"]
            self._tell("response.function_call_arguments.done", {"arguments": arguments}, item)
            return
        text = str(block.get("text") or "")
        done = _part(item, text)
        if item.type == "reasoning":
            self._tell("response.reasoning.done", {"text": text}, item, part)
        elif block.get("refusal"):  # that it was one is known at its end
            self._tell("response.refusal.delta", {"delta": text}, item, part)
            self._tell("response.refusal.done", {"refusal": text}, item, part)
            done = {"type": "refusal", "refusal": text}
        else:
            for name in _NOTES:
                notes = block.get(name)
                for number, note in enumerate(notes if isinstance(notes, list) else ()):
                    data = {"annotation": note, "annotation_index": number}
                    self._tell("response.output_text.annotation.added", data, item, part)
            self._tell("response.output_text.done", {"text": text}, item, part)
        self._tell("response.content_part.done", {"part": done}, item, part)

    def _close(self, item: _Open, status: ItemStatus) -> None:
        if item.done:
            return
        item.done = True
        for part in range(len(item.blocks)):
            self._end_part(item, part)
        whole = self._finished(item, status)
        self._outputs.append(whole)
        self._tell("response.output_item.done", {"item": whole}, item)

    def _finished(self, item: _Open, status: ItemStatus) -> Item:
        """Return the item as it stands."""
        blocks = [block for block in item.blocks if block is not None]
        message: Message = {"type": MessageType.ASSISTANT.value, "content": blocks}
        made = messages_to_items([message], status=status.value)[0]
        made.pop("origin", None)  # how to get back to blocks; the log's items have it
        if item.type == "function_call":
            made["name"] = self._own_name(str(made.get("name") or ""))
            made.setdefault("arguments", "")
        return {**made, "id": item.id}

    def _tell_unheard(self, message: Message | None) -> None:
        """Tell the items that no event spoke of: images, and what server-side tools did."""
        heard = {id(block) for item in self._items for block in item.blocks}
        for block in () if message is None else message["content"]:
            if id(block) in heard:
                continue
            item = _Open(len(self._items), "aiio:block")
            item.blocks.append(block)
            item.ended.add(0)
            self._items.append(item)
            whole = self._finished(item, ItemStatus.COMPLETED)
            self._tell("response.output_item.added", {"item": whole}, item)
            native = block.get("item") if isinstance(block, dict) else None
            name = _SERVER_CALLS.get(native.get("type", "")) if isinstance(native, dict) else None
            if name is not None:
                self._tell(f"{name}.completed", {}, item)
            self._close(item, ItemStatus.COMPLETED)

    # -- telling ----------------------------------------------------------------------------------

    def _response(self, status: str, **more: Any) -> dict[str, Any]:
        return {"id": self.id, "object": "response", "model": self._model, "status": status, **more}

    def _tell(
        self, name: str, data: dict[str, Any], item: _Open | None = None, part: int | None = None
    ) -> None:
        told = {**self._facts, **data} if item is None else {**self._facts, "item_id": item.id, **data}
        index = None if item is None else item.output_index
        self._publish(StreamEvent(EventSource.SDK, name, told, index, part))


_TYPES: dict[Any, str] = {
    ContentType.TEXT.value: "message",
    ContentType.THINKING.value: "reasoning",
    ContentType.TOOL_CALL.value: "function_call",
}
_INCOMPLETE = {FinishReason.LENGTH: "max_output_tokens", FinishReason.PAUSED: "paused"}


def _part(item: _Open, text: str) -> dict[str, Any]:
    return {"type": "reasoning_text" if item.type == "reasoning" else "output_text", "text": text}


def _groups(content: Sequence[Any]) -> list[list[Any]]:
    """Return the blocks of an answer as the items they become: texts in a row are one."""
    groups: list[list[Any]] = []
    said = False
    for block in content:
        text = isinstance(block, dict) and block.get("type") == ContentType.TEXT
        if text and said:
            groups[-1].append(block)
        else:
            groups.append([block])
        said = text
    return groups
