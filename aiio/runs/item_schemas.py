"""Which items a log takes: the built-in ones, and extensions that somebody registered a schema for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from .errors import RunError, RunErrorKind
from .items import BUILT_IN, Item, misshapen

ItemSchema: TypeAlias = "type | Callable[[Item], object]"
"""A type that msgspec converts to, or a function: False, TypeError and ValueError refuse."""

NATIVE_PREFIXES = ("openrouter:", "aiio:")
"""Extensions that need no schema."""


class ItemCategory(StrEnum):
    """What a schema is about."""

    ITEMS = "items"
    DEVELOPER_MESSAGES = "developer_messages"
    TOOL_CALLS = "tool_calls"
    TOOL_RESULTS = "tool_results"


class ItemSchemaRegistry:
    """Schemas by category. They accept or refuse; the item that was given is what is kept.

    Args:
      strict: whether an extension without a schema is refused.
    """

    def __init__(self, *, strict: bool = True) -> None:
        self.strict = strict
        self._schemas: dict[ItemCategory, list[ItemSchema]] = {}
        self._results: dict[str, list[ItemSchema]] = {}

    def register(self, category: ItemCategory | str, schema: ItemSchema) -> None:
        """Add a schema. ValueError: an unknown category."""
        self._schemas.setdefault(ItemCategory(category), []).append(schema)

    def register_result(self, tool: str, schema: ItemSchema) -> None:
        """Add a schema for the results of *tool* alone."""
        self._results.setdefault(tool, []).append(schema)

    def extended(self, schemas: Mapping[ItemCategory, Sequence[ItemSchema]]) -> ItemSchemaRegistry:
        """Return a registry that takes what *schemas* take besides; itself when there are none."""
        if not schemas:
            return self
        more = ItemSchemaRegistry(strict=self.strict)
        more._schemas = {category: list(known) for category, known in self._schemas.items()}
        more._results = {tool: list(known) for tool, known in self._results.items()}
        for category, added in schemas.items():
            for schema in added:
                more.register(category, schema)
        return more

    def check(self, item: object, *, tool: str | None = None) -> Item:
        """Return *item* itself if a log may hold it.

        Args:
          item: anything.
          tool: for a `function_call_output`: the name of the tool that was called.

        Raises:
          RunError: item_schema_mismatch, with `category` and `item_type`.
        """
        whole = self.check_shape(item)
        return self._checked(whole, tool)

    def check_shape(self, item: object) -> Item:
        """Return *item* itself if it has the shape of its type. RunError: item_schema_mismatch."""
        if not isinstance(item, dict) or not isinstance(item.get("type"), str) or not item["type"]:
            raise _mismatch(ItemCategory.ITEMS, None, "an item is a dict with a `type`")
        wrong = misshapen(item)
        if wrong is not None:
            raise _mismatch(ItemCategory.ITEMS, item["type"], wrong)
        return item

    def _checked(self, item: Item, tool: str | None) -> Item:
        category = _category(item)
        own = list(self._schemas.get(category, ())) if category else []
        if category is ItemCategory.TOOL_RESULTS and tool is not None:
            own += self._results.get(tool, [])
        general = self._schemas.get(ItemCategory.ITEMS, [])
        if own:
            if not any(_accepts(schema, item) for schema in (*own, *general)):
                assert category is not None  # it has schemas
                raise _mismatch(category, item["type"], "no schema of its category takes it")
        elif self._is_foreign(item["type"]) and not any(_accepts(schema, item) for schema in general):
            raise _mismatch(
                ItemCategory.ITEMS, item["type"], "no schema takes it; register one, or set strict=False"
            )
        return item

    def _is_foreign(self, item_type: str) -> bool:
        return self.strict and item_type not in BUILT_IN and not item_type.startswith(NATIVE_PREFIXES)


def _category(item: Item) -> ItemCategory | None:
    match item["type"]:
        case "message":
            return ItemCategory.DEVELOPER_MESSAGES if item["role"] == "developer" else None
        case "function_call":
            return ItemCategory.TOOL_CALLS
        case "function_call_output":
            return ItemCategory.TOOL_RESULTS
        case _:
            return None


def _accepts(schema: ItemSchema, item: Item) -> bool:
    try:
        if isinstance(schema, type):
            msgspec.convert(item, schema)
            return True
        return schema(item) is not False
    except (TypeError, ValueError):
        return False


def _mismatch(category: ItemCategory, item_type: Any, why: str) -> RunError:
    return RunError(
        RunErrorKind.ITEM_SCHEMA_MISMATCH,
        f"item of type {item_type!r} refused: {why}",
        category=category.value,
        item_type=item_type,
    )
