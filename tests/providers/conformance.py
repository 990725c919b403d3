"""What every dialect's events must keep to, whatever came over the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiio.context.events import (
    Done,
    Error,
    Placed,
    Start,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from aiio.context.types import Block

_STARTS = {TextStart: "text", ThinkingStart: "thinking", ToolCallStart: "tool_call"}
_DELTAS = {TextDelta: "text", ThinkingDelta: "thinking", ToolCallDelta: "tool_call"}
_ENDS = {TextEnd: "text", ThinkingEnd: "thinking", ToolCallEnd: "tool_call"}


def check_events(events: Sequence[Any], content: Sequence[Block], *, cut: bool = False) -> None:
    """Assert the laws of an event list and of the message *content* assembled from it.

    Indexes are dense and start in order; every block is started once, of one kind, and ended once before the
    terminal event; that is the only one and the last; no piece of text is lost on the way into the message.

    Args:
      events: what a provider gave for one answer.
      content: the sealed message's blocks.
      cut: the stream broke off, so no terminal event and no ends are asked for.
    """
    open_blocks: dict[int, str] = {}
    seen: dict[int, str] = {}
    prose: dict[str, list[str]] = {"text": [], "thinking": []}
    started = -1
    for event in events:
        kind: Any = type(event)
        if kind in _STARTS:
            assert event.content_index not in seen
            assert event.content_index > started
            started = event.content_index
            seen[started] = open_blocks[started] = _STARTS[kind]
        elif kind in _DELTAS:
            assert open_blocks[event.content_index] == _DELTAS[kind]
            if kind is not ToolCallDelta:
                assert event.text
                prose[_DELTAS[kind]].append(event.text)
        elif kind in _ENDS:
            assert open_blocks.pop(event.content_index) == _ENDS[kind]
        elif isinstance(event, Placed):
            assert event.content_index not in seen
            seen[event.content_index] = "placed"
        else:
            assert not isinstance(event, Start)  # IO sends it
            assert isinstance(event, Done | Error)
    assert sorted(seen) == list(range(len(seen)))
    terminals = [event for event in events if isinstance(event, Done | Error)]
    if cut:
        assert not terminals
    else:
        assert len(terminals) == 1
        assert events[-1] is terminals[0]
        assert not open_blocks
    for kind_name, pieces in prose.items():
        kept = "".join(block["text"] for block in content if block["type"] == kind_name)
        assert kept == "".join(pieces)
