"""The assembler: events in, one live message out."""

from __future__ import annotations

from typing import Any

import pytest

from aiio.context.assemble import MAX_GAP, Assembler, assembly_callbacks, content_indexer, create_assembler
from aiio.context.callbacks import dispatch
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
from aiio.context.types import assistant_message, text_content
from aiio.context.validate import validate_message

T = text_content


def assembled(*events: Any) -> Assembler:
    assembler = create_assembler()
    for event in events:
        assembler.consume(event)
    return assembler


def content(*events: Any) -> list[Any]:
    blocks: list[Any] = assembled(*events).message()["content"]
    return blocks


def call(arguments: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_call", "call_id": "c1", "name": "add", "arguments": arguments, **more}


CALL = ToolCallStart(0, "c1", "add")


def test_deltas_become_blocks_in_one_assistant_message() -> None:
    events = [
        Start(),
        ThinkingStart(0),
        ThinkingDelta(0, "h"),
        ThinkingDelta(0, "m"),
        ThinkingEnd(0, metadata={"signature": "s"}),
        TextStart(1),
        TextDelta(1, "He"),
        TextDelta(1, "llo"),
        TextEnd(1),
        ToolCallStart(2, "c1", "add"),
        ToolCallDelta(2, '{"a":'),
        ToolCallDelta(2, "1}"),
        ToolCallEnd(2),
        Done(),
    ]
    thinking = {"type": "thinking", "text": "hm", "signature": "s"}
    assert assembled(*events).message() == {"type": 3, "content": [thinking, T("Hello"), call({"a": 1})]}


def test_the_message_and_its_blocks_are_live_objects() -> None:
    assembler = create_assembler()
    message = assembler.message()
    first, second = TextDelta(0, "a"), TextDelta(0, "b")
    assembler.consume(first)
    block = first.content
    assert block == T("a")
    assembler.consume(second)
    assert assembler.message() is message
    assert message["content"][0] is block is first.content is second.content
    assert block == T("ab")


def test_M1_pieces_are_joined_once_when_somebody_looks() -> None:
    assembler = create_assembler()
    events = [TextDelta(0, "x" * 200) for _ in range(1000)]
    for event in events:
        assembler.consume(event)
    block = assembler._message["content"][0]
    assert block["text"] == ""  # nothing was joined before somebody asked
    text = assembler.message()["content"][0]["text"]
    assert len(text) == 200_000
    assert assembler.message()["content"][0]["text"] is text  # and nothing is joined again
    assert events[0].content is block
    assert events[0].content["text"] is text


def test_M1_a_look_joins_only_what_came_since_the_last_one() -> None:
    assembler = assembled(CALL)
    slot = assembler._slots[0]
    for size in (3, 1, 2):
        for number in range(size):
            event = ToolCallDelta(0, "12")
            assembler.consume(event)
            assert len(slot.pieces) == number + 1
        assert event.content is slot.block
        assert slot.pieces == []
    assert slot.block["arguments"] == "12" * 6


def test_index_gaps_are_padded_and_survived() -> None:
    assert content(TextDelta(2, "x")) == [None, None, T("x")]
    assert content(TextDelta(2, "x"), TextDelta(0, "a")) == [T("a"), None, T("x")]
    assert assembled(TextDelta(2, "x")).seal(cut=False) == assistant_message([T("x")])


@pytest.mark.parametrize("index", [-1, MAX_GAP + 1, 10**12])
def test_an_index_out_of_range_is_an_error_not_a_memory_fault(index: int) -> None:
    for event in (TextDelta(index, "x"), TextStart(index), ToolCallStart(index, "c", "n"), Placed(index, {})):
        with pytest.raises(ValueError, match=f"content_index {index} is out of range"):
            assembled(event)


def test_a_repeated_start_erases_nothing() -> None:
    assert content(TextStart(0), TextDelta(0, "a"), TextStart(0), TextDelta(0, "b")) == [T("ab")]
    thoughts = content(ThinkingStart(0), ThinkingDelta(0, "a"), ThinkingStart(0))
    assert thoughts == [{"type": "thinking", "text": "a"}]


def test_another_kind_at_the_same_place_replaces_the_block() -> None:
    assert content(TextDelta(0, "a"), ThinkingDelta(0, "b")) == [{"type": "thinking", "text": "b"}]
    assert content(ThinkingDelta(0, "b"), TextStart(0)) == [T("")]
    assert content(TextDelta(0, "a"), CALL) == [call("")]
    assert content(CALL, ToolCallDelta(0, "{"), ToolCallStart(0, "c2", "sub")) == [
        {"type": "tool_call", "call_id": "c2", "name": "sub", "arguments": ""}
    ]


def test_argument_deltas_without_a_call_are_ignored() -> None:
    delta, end = ToolCallDelta(0, "{}"), ToolCallEnd(0)
    assert content(delta, end) == []
    assert delta.content is None
    assert content(TextDelta(0, "a"), delta, end) == [T("a")]


def test_an_empty_delta_is_nothing() -> None:
    assembler = assembled(TextDelta(0, ""), TextDelta(0, None), CALL_AT_1, ToolCallDelta(1, ""))  # type: ignore[arg-type]
    assert assembler.message()["content"][0] == T("")


CALL_AT_1 = ToolCallStart(1, "c1", "add")


@pytest.mark.parametrize(
    ("event", "text"),
    [(TextDelta, 5), (ThinkingDelta, b"x"), (ToolCallDelta, {"a": 1}), (TextEnd, 5), (ThinkingEnd, [])],
)
def test_text_that_is_no_string_is_refused_at_once(event: Any, text: Any) -> None:
    with pytest.raises(TypeError, match="the text of an event is a string, not a"):
        assembled(CALL, event(0, text))


def test_authoritative_text_replaces_and_the_streamed_text_is_the_draft() -> None:
    assembler = assembled(TextDelta(0, "Helo"), TextEnd(0, "Hello"))
    assert assembler.message() == {**assistant_message([T("Hello")]), "draft": "Helo"}
    same = assembled(TextDelta(0, "Hello"), TextEnd(0, "Hello"), TextEnd(1, "unstreamed"))
    assert same.message() == assistant_message([T("Hello"), T("unstreamed")])
    thinking = assembled(ThinkingDelta(0, "hm"), ThinkingEnd(0, "hmm"))
    assert thinking.message() == assistant_message([{"type": "thinking", "text": "hmm"}])


def test_no_draft_is_lost_to_another() -> None:
    assembler = assembled(TextDelta(0, "a"), TextEnd(0, "A"), TextDelta(1, "b"), TextEnd(1, "B"))
    assert assembler.message()["draft"] == "a\n\nb"


def test_an_end_keeps_the_keys_a_block_has_and_lays_its_metadata_on() -> None:
    start = Start(message=assistant_message([{"type": "text", "text": "a", "id": "m1"}]))
    end = TextEnd(0, "b", metadata={"citations": []})
    assert content(start, end) == [{"type": "text", "text": "b", "id": "m1", "citations": []}]
    assert end.content == {"type": "text", "text": "b", "id": "m1", "citations": []}


def test_an_end_without_a_block_makes_one_only_when_it_brings_something() -> None:
    assert content(TextEnd(0)) == []
    assert content(TextEnd(0, "x")) == [T("x")]
    redacted = {"type": "thinking", "text": "", "data": "secret"}
    assert content(ThinkingEnd(0, metadata={"data": "secret"})) == [redacted]


@pytest.mark.parametrize("raw", ["", "  ", None])
def test_missing_arguments_are_an_empty_object(raw: Any) -> None:
    assert content(CALL, *([] if raw is None else [ToolCallDelta(0, raw)]), ToolCallEnd(0)) == [call({})]
    assert content(CALL, ToolCallEnd(0, arguments=raw)) == [call({})]


@pytest.mark.parametrize("given", [{"b": 2}, [1], 0, False, '{"b": 2}'])
def test_explicit_arguments_win(given: Any) -> None:
    blocks = content(CALL, ToolCallDelta(0, '{"a":1}'), ToolCallEnd(0, arguments=given))
    assert blocks == [call({"b": 2} if isinstance(given, str) else given)]


def test_F3_malformed_arguments_stay_raw_and_are_marked() -> None:
    assert content(CALL, ToolCallDelta(0, '{"a": '), ToolCallEnd(0)) == [call('{"a": ', partial=True)]
    assert content(CALL, ToolCallEnd(0, arguments="{]")) == [call("{]", partial=True)]


@pytest.mark.parametrize("cut", range(1, 300))
def test_F3_arguments_cut_anywhere_are_never_repaired(cut: int) -> None:
    whole = '{"path": "/tmp/x", "lines": [1, 2.5, null, true], "text": "' + "word \\u00e9 " * 20 + '"}'
    raw = whole[:cut]
    assert len(whole) >= 300 > cut
    for end in ([ToolCallEnd(0)], []):
        sealed = assembled(CALL, ToolCallDelta(0, raw), *end).seal(cut=False)
        assert sealed == assistant_message([call(raw, partial=True)])


def test_free_text_arguments_are_never_parsed() -> None:
    end = ToolCallEnd(0, arguments="42", metadata={"free_text": True})
    assembler = assembled(CALL, end)
    assert assembler.seal(cut=False) == assistant_message([call("42", free_text=True)])


def test_a_call_that_ended_takes_no_more_arguments() -> None:
    late = ToolCallDelta(0, "zzz")
    assert content(CALL, ToolCallDelta(0, "{}"), ToolCallEnd(0), late) == [call({})]
    assert late.content == call({})
    assert content(CALL, ToolCallEnd(0, {"a": 1}), ToolCallEnd(0)) == [call({"a": 1})]
    assert content(ToolCallStart(0, "c1", "add", {"a": 1}), ToolCallDelta(0, "x")) == [call({"a": 1})]  # type: ignore[arg-type]


def test_a_call_whose_arguments_are_a_json_string_is_parsed_once() -> None:
    assembler = assembled(CALL, ToolCallDelta(0, '"{\\"a\\": 1}"'), ToolCallEnd(0))
    expected = assistant_message([call('{"a": 1}')])
    assert assembler.seal(cut=False) == expected
    assert assembler.seal(cut=True) == expected


@pytest.mark.parametrize("event", [Start, Done, lambda message: Error("no", message=message)])
def test_a_message_snapshot_replaces_the_state(event: Any) -> None:
    snapshot = assistant_message([T("whole")])
    assembler = assembled(TextDelta(0, "ha"), event(message=snapshot))
    assert assembler.message() is snapshot
    assembler.consume(TextDelta(0, "!"))
    assert assembler.message()["content"] == [T("whole!")]
    unchanged = assembled(TextDelta(0, "ha"), event(message={"type": "x"}))
    assert unchanged.message() == assistant_message([T("ha")])


def test_blocks_of_a_snapshot_go_on_growing() -> None:
    snapshot = assistant_message([{"type": "text"}, call("{"), call({"a": 1}), None, "?"])  # type: ignore[list-item]
    assembler = assembled(Start(message=snapshot))
    for event in (TextDelta(0, "x"), ToolCallDelta(1, "}"), ToolCallDelta(2, "x"), TextDelta(3, "y")):
        assembler.consume(event)
    assembler.consume(ToolCallDelta(4, "x"))
    assert assembler.seal(cut=False) == assistant_message([T("x"), call({}), call({"a": 1}), T("y")])


def test_a_placed_block_takes_its_place_whole() -> None:
    image = {"type": "image", "content": "aGk="}
    assembler = assembled(TextDelta(0, "x"), Placed(0, image), Placed(1, call("{}")), Placed(2, call("{")))
    assert assembler.message()["content"][0] is image
    assert assembler.open_blocks() == []
    sealed = assembler.seal(cut=True)
    assert sealed == assistant_message([image, call({}), call("{", partial=True)])


def test_content_is_there_from_the_first_character() -> None:
    assert not create_assembler().has_content
    assert not assembled(Start(), TextStart(0), ThinkingStart(1)).has_content
    assert assembled(TextDelta(0, "x")).has_content
    assert assembled(CALL).has_content
    assert assembled(Done(message=assistant_message([T("x")]))).has_content


def test_open_blocks_are_those_without_an_end() -> None:
    events = [TextDelta(1, "a"), ThinkingStart(0), ToolCallStart(2, "c", "n"), TextDelta(3, "b")]
    assembler = assembled(*events)

    def opened() -> list[tuple[int, str]]:
        found = assembler.open_blocks()
        content = assembler.message()["content"]
        assert all(block() is content[index] for index, _, block in found)
        return [(index, kind) for index, kind, _ in found]

    assert opened() == [(0, "thinking"), (1, "text"), (2, "tool_call"), (3, "text")]
    for event in (ThinkingEnd(0), TextEnd(1), ToolCallEnd(2)):
        assembler.consume(event)
    assert opened() == [(3, "text")]
    assembler.consume(ThinkingStart(0))
    assert opened() == [(0, "thinking"), (3, "text")]


B6_CASES: list[tuple[list[Any], list[Any] | None]] = [
    ([], None),
    ([Start(), TextStart(0), ThinkingStart(1)], None),
    ([ThinkingEnd(0, metadata={"signature": "s"})], None),
    ([TextDelta(0, "ha")], [T("ha")]),
    ([TextDelta(0, "ha"), TextStart(1), ThinkingStart(2), ThinkingEnd(3)], [T("ha")]),
    ([TextDelta(1, "ha"), CALL, ToolCallDelta(0, '{"a":')], [call('{"a":', partial=True), T("ha")]),
    ([CALL, ToolCallDelta(0, '{"a":1}')], [call('{"a":1}', partial=True)]),
    ([CALL], [call("", partial=True)]),
    ([CALL, ToolCallDelta(0, '{"a":1}'), ToolCallEnd(0)], [call({"a": 1})]),
    ([ThinkingDelta(0, "hm")], [{"type": "thinking", "text": "hm"}]),
    (
        [ThinkingDelta(0, "hm"), ThinkingEnd(0, metadata={"signature": "s"})],
        [{"type": "thinking", "text": "hm", "signature": "s"}],
    ),
    (
        [ThinkingEnd(0, metadata={"data": "d"}), TextDelta(2, "x")],
        [{"type": "thinking", "text": "", "data": "d"}, T("x")],
    ),
    (
        [
            Start(message=assistant_message([{"type": "thinking", "text": "h", "signature": "s"}])),
            ThinkingDelta(0, "m"),
        ],
        [{"type": "thinking", "text": "hm"}],
    ),
]


@pytest.mark.parametrize(("events", "expected"), B6_CASES)
def test_B6_a_cut_answer_is_a_valid_partial(events: list[Any], expected: list[Any] | None) -> None:
    assembler = assembled(*events)
    live = assembler.message()
    sealed = assembler.seal(cut=True)
    if expected is None:
        assert sealed is None
        return
    assert sealed is live
    assert validate_message(sealed) == assistant_message(expected)
    assert assembler.seal(cut=True) == assistant_message(expected)
    assert assembler.seal(cut=False) == assistant_message(expected)


def test_a_finished_answer_keeps_its_empty_blocks_and_ends_open_calls() -> None:
    events = [TextStart(0), CALL_AT_1, ToolCallDelta(1, '{"a":1}'), TextDelta(3, "x")]
    assert assembled(*events).seal(cut=False) == assistant_message([T(""), call({"a": 1}), T("x")])
    assert assembled(TextStart(0)).seal(cut=False) is None


def test_events_go_on_showing_their_block_after_the_seal() -> None:
    delta = TextDelta(2, "x")
    assembler = assembled(delta)
    sealed = assembler.seal(cut=True)
    assert sealed is not None
    assert delta.content is sealed["content"][0]
    assembler.consume(TextDelta(0, "y"))
    assert assembler.message() is sealed
    assert sealed["content"] == [T("xy")]


def test_dicts_are_taken_with_what_the_wire_may_leave_out() -> None:
    snapshot = assistant_message([T("a")])
    assembler = assembled(
        {"type": "start", "message": None},
        {"type": "text_start"},
        {"type": "text_delta", "text": "a"},
        {"type": "text_delta", "text": None},
        {"type": "tool_call_start", "call_id": "c1", "name": "add", "arguments": None},
        {"type": "tool_call_delta", "arguments": "{}"},
        {"type": "tool_call_delta", "content_index": 1},
        {"type": "tool_call_end"},
    )
    assert assembler.message() == assistant_message([T("a"), call({})])
    assembler.consume({"type": "done", "message": snapshot})
    assert assembler.message() is snapshot
    assert content({"type": "text_end", "text": "x"}) == [T("x")]


@pytest.mark.parametrize(
    "event", [None, "start", {}, {"type": "message_start"}, {"type": ["start"]}, object()]
)
def test_unknown_events_are_ignored(event: Any) -> None:
    assert content(event) == []


def test_malformed_events_raise() -> None:
    for event in ({"type": "text_delta", "text": 5}, {"type": "tool_call_start"}, {"type": "error"}):
        with pytest.raises(TypeError, match="invalid response event"):
            assembled(event)


def test_assembly_callbacks_feed_the_assembler() -> None:
    assembler = create_assembler()
    callbacks = assembly_callbacks(assembler)
    assert len(callbacks) == 12
    dispatch(callbacks, TextDelta(0, "x"))
    assert assembler.message()["content"] == [T("x")]
    with pytest.raises(AttributeError):
        assembly_callbacks(None)  # type: ignore[arg-type]


def test_the_indexer_is_dense_and_stable_per_key() -> None:
    indexer = content_indexer()
    assert [indexer.of("a"), indexer.of(("b", 1)), indexer.of("a"), indexer.next(), indexer.of("c")] == [
        0,
        1,
        0,
        2,
        3,
    ]
