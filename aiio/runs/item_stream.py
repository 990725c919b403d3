"""Items as they grow: what a person sees of a run, one snapshot after the other."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from .items import Item
from .streams import EventSource, EventStream, StreamEvent

_GROWS = {
    "response.output_text.delta": "output_text",
    "response.reasoning.delta": "reasoning_text",
    "response.function_call_arguments.delta": "arguments",
}


@dataclass(frozen=True, slots=True)
class ItemSnapshot:
    """An item, as far as it has come."""

    item: Item
    """Whole, not what is new. Not to be changed."""
    is_complete: bool
    """Whether this is the last snapshot of it."""


class _Growing:
    """An item in the making, and the pieces of its parts."""

    def __init__(self, item: Item) -> None:
        self._item = item
        self._parts: dict[int, tuple[str, list[str]]] = {}
        self._arguments: list[str] = []

    def add(self, kind: str, part: int | None, piece: str) -> None:
        if kind == "arguments":
            self._arguments.append(piece)
        else:
            self._parts.setdefault(part or 0, (kind, []))[1].append(piece)

    def snapshot(self) -> ItemSnapshot:
        if self._item["type"] == "function_call":
            item = {**self._item, "arguments": "".join(self._arguments)}
        else:
            parts = [self._parts[number] for number in sorted(self._parts)]
            content = [{"type": kind, "text": "".join(pieces)} for kind, pieces in parts]
            item = {**self._item, "content": content}
        return ItemSnapshot(item, False)


class ItemStream:
    """Snapshots of items: `async with stream: async for snapshot in stream`. Read by one task, entered once.

    An item of the model grows from snapshot to snapshot; what came while nobody read is in one. What others
    say (users, tools, layers) comes whole, once it is in the log. Ends as the stream of events does.

    Args:
      events: where from; entered and left with this.
    """

    def __init__(self, events: EventStream) -> None:
        self._events = events
        self._growing: dict[str, _Growing] = {}
        self._told: set[str] = set()
        """Ids of complete items that will join the log, and are not to be told again then."""
        self._ready: deque[ItemSnapshot] = deque()

    async def __aenter__(self) -> ItemStream:
        await self._events.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._events.__aexit__(kind, exc, trace)

    def __aiter__(self) -> ItemStream:
        return self

    async def __anext__(self) -> ItemSnapshot:
        """Return the next snapshot. Cancellation loses none. A checkpoint, unless one is there already."""
        while not self._ready:
            event: StreamEvent | None = await self._events.__anext__()
            changed: dict[str, None] = {}
            while event is not None:
                self._take(event, changed)
                event = self._events.next_nowait()
            self._ready.extend(self._growing[id].snapshot() for id in changed if id in self._growing)
        return self._ready.popleft()

    def _take(self, event: StreamEvent, changed: dict[str, None]) -> None:
        data: Any = event.data
        if event.source is EventSource.FRAMEWORK:
            if event.type.endswith(":item_appended"):
                self._appended(data["item"])
            return
        if event.type == "response.output_item.added":
            self._growing[data["item_id"]] = _Growing(data["item"])
            changed[data["item_id"]] = None
        elif event.type == "response.output_item.done":
            self._growing.pop(data["item_id"], None)
            self._told.add(data["item_id"])
            self._ready.append(ItemSnapshot(data["item"], True))
        elif event.type in _GROWS and data["item_id"] in self._growing:
            self._growing[data["item_id"]].add(_GROWS[event.type], event.content_index, data["delta"])
            changed[data["item_id"]] = None

    def _appended(self, item: Item) -> None:
        if item["id"] in self._told:
            self._told.discard(item["id"])
        else:
            self._ready.append(ItemSnapshot(item, True))
