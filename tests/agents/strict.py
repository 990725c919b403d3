"""A strict reader of contexts, as strict as the strictest provider. Written apart from the code it judges."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiio.context.validate import has_content, validate_context


def assert_linked(context: Iterable[Any]) -> None:
    """Every call has one result, in call order, before the next turn; every result has its call."""
    entries = validate_context(list(context))
    waiting: list[str] = []
    seen: set[str] = set()
    for at, entry in enumerate(entries):
        if isinstance(entry["type"], str):
            continue
        assert has_content(entry), f"context[{at}] is empty"
        match entry["type"]:
            case 4:
                assert waiting, f"context[{at}]: a result that nobody waits for"
                assert entry["call_id"] == waiting.pop(0), f"context[{at}]: not the next call's result"
                assert isinstance(entry["name"], str)
            case 2 | 3:
                assert not waiting, f"context[{at}]: a turn while {waiting} have no result"
                for block in entry["content"]:
                    if block["type"] == "tool_call":
                        call_id = block["call_id"]
                        assert isinstance(call_id, str), call_id
                        assert call_id.strip(), f"context[{at}]: a call without an id"
                        assert call_id not in seen, f"context[{at}]: {call_id} twice"
                        seen.add(call_id)
                        waiting.append(call_id)
    assert not waiting, f"{waiting} have no result"
