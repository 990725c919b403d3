"""Laws of the assembler, whatever comes in: nothing streamed is lost, nothing is guessed, nothing raises."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aiio.context.assemble import create_assembler
from aiio.context.events import (
    Done,
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
from aiio.context.validate import has_content, is_message

PIECES = st.sampled_from(["", "a", "é", "\ud83d", '{"a":', "1}", "{}", " \n"])
INDEXES = st.integers(0, 3)
ANYTHING = st.one_of(
    st.builds(TextStart, INDEXES),
    st.builds(TextDelta, INDEXES, PIECES),
    st.builds(TextEnd, INDEXES, st.none() | PIECES, st.none() | st.just({"id": 1})),
    st.builds(ThinkingStart, INDEXES),
    st.builds(ThinkingDelta, INDEXES, PIECES),
    st.builds(ThinkingEnd, INDEXES, st.none() | PIECES, st.none() | st.just({"signature": "s"})),
    st.builds(ToolCallStart, INDEXES, st.just("c"), st.just("n"), PIECES),
    st.builds(ToolCallDelta, INDEXES, PIECES),
    st.builds(ToolCallEnd, INDEXES),
    st.builds(ToolCallEnd, INDEXES, PIECES | st.just({"b": 1})),
    st.builds(Placed, INDEXES, st.builds(lambda: {"type": "image", "content": "aGk="})),
    st.builds(Start, st.builds(lambda: {"type": 3, "content": [{"type": "text", "text": "x"}, None]})),
    st.just(Done()),
)


@given(st.lists(ANYTHING, max_size=30), st.booleans())
def test_any_sequence_ends_in_a_dense_valid_message(events: list[Any], cut: bool) -> None:
    assembler = create_assembler()
    for event in events:
        assembler.consume(event)
    has = assembler.has_content
    assert has is has_content(assembler.message())
    sealed = assembler.seal(cut=cut)
    if sealed is None:
        assert not has_content(assembler.message())
        return
    assert has
    assert is_message(sealed)
    assert has_content(sealed)
    for block in sealed["content"]:
        assert isinstance(block, dict)
        if block["type"] == "tool_call" and isinstance(block["arguments"], str):
            assert block["partial"] is True
        if cut and block["type"] == "text":
            assert block["text"]
    once = json.dumps(sealed)
    assert json.dumps(assembler.seal(cut=cut)) == once


Script = list[tuple[str, list[str]]]


@st.composite
def interleaved(draw: st.DrawFn) -> tuple[Script, list[Any]]:
    """Blocks with the pieces of each, and their delta events in some interleaving."""
    kinds = st.sampled_from(["text", "thinking", "tool_call"])
    script: Script = draw(st.lists(st.tuples(kinds, st.lists(PIECES, max_size=5)), max_size=4))
    deltas = {"text": TextDelta, "thinking": ThinkingDelta, "tool_call": ToolCallDelta}
    queues = [[deltas[kind](index, piece) for piece in pieces] for index, (kind, pieces) in enumerate(script)]
    events: list[Any] = []
    for index, (kind, _) in enumerate(script):
        starts = {"text": TextStart(index), "thinking": ThinkingStart(index)}
        events.append(starts.get(kind) or ToolCallStart(index, f"c{index}", "n"))
    while any(queues):
        queue = draw(st.sampled_from([queue for queue in queues if queue]))
        events.append(queue.pop(0))
    return script, events


@given(interleaved(), st.sets(st.integers(0, 30)))
def test_no_piece_is_lost_whatever_is_looked_at_in_between(
    drawn: tuple[Script, list[Any]], looks: set[int]
) -> None:
    script, events = drawn
    assembler = create_assembler()
    for number, event in enumerate(events):
        assembler.consume(event)
        if number in looks:
            block = event.content
            assert block is assembler.message()["content"][event.content_index]
    blocks = assembler.message()["content"]
    for (kind, pieces), block in zip(script, blocks, strict=True):
        assert block["type"] == kind
        assert block["arguments" if kind == "tool_call" else "text"] == "".join(pieces)
    sealed = assembler.seal(cut=True) or {"content": []}
    raws = ["".join(pieces) for kind, pieces in script if kind == "tool_call"]
    assert [block["arguments"] for block in sealed["content"] if block["type"] == "tool_call"] == raws
