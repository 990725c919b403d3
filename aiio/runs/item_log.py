"""The log of a run: items, appended and never changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .errors import RunError, RunErrorKind
from .item_schemas import ItemSchemaRegistry
from .items import Item


class ItemLog:
    """An append-only log. What the model sees of it is decided elsewhere; nothing is ever trimmed here.

    Args:
      schemas: decides what is taken.
      items: what to begin with; checked like everything else.
    """

    def __init__(self, schemas: ItemSchemaRegistry, items: Iterable[Item] = ()) -> None:
        self.schemas = schemas
        self._items: list[Item] = []
        self._by_id: dict[str, Item] = {}
        self._tools: dict[str, str] = {}
        """Names of called tools by call id."""
        self._snapshot: tuple[Item, ...] | None = ()
        self.on_append: Callable[[Item], None] | None = None
        """Told of every item that is new."""
        for item in items:
            self.append(item)

    @property
    def items(self) -> tuple[Item, ...]:
        """All items; the same tuple until something is appended."""
        if self._snapshot is None:
            self._snapshot = tuple(self._items)
        return self._snapshot

    def __len__(self) -> int:
        return len(self._items)

    def append(self, item: Item) -> None:
        """Append *item* itself. One with the id and the content of an earlier one is ignored.

        Raises:
          RunError: item_schema_mismatch: not an item, no schema takes it, or its id is another item's.
        """
        call_id = self.schemas.check_shape(item).get("call_id")
        self.schemas.check(item, tool=self._tools.get(str(call_id)))
        known = self._by_id.get(item["id"])
        if known is not None:
            if known != item:
                text = f"item id {item['id']!r} is another item's"
                raise RunError(
                    RunErrorKind.ITEM_SCHEMA_MISMATCH, text, category="items", item_type=item["type"]
                )
            return
        if item["type"] == "function_call":
            self._tools[item["call_id"]] = item["name"]
        self._items.append(item)
        self._by_id[item["id"]] = item
        self._snapshot = None
        if self.on_append is not None:
            self.on_append(item)
