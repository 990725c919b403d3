"""What single frames of an Anthropic stream become."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aiio.context.events import (
    Done,
    Error,
    ErrorKind,
    Start,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallEnd,
)
from aiio.context.usage_data import usage_normalize
from aiio.providers.anthropic import Anthropic
from aiio.providers.anthropic_wire import (
    BlockDelta,
    Event,
    ThinkingPiece,
    read_frame,
    read_loosely,
    read_piece,
)
from aiio.providers.base import WORKING, dialect_class
from aiio.transports.base import Frame
from aiio.transports.framing import SSEDecoder, WholeBody

from .conformance import check_events
from .fakes import FakeIO
from .manifest import Replay, replay, replay_frames

STOP = b'{"type":"message_stop"}'


def event(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": kind, **fields}).encode()


def begin(identity: str = "msg_1", usage: Any = None, **fields: Any) -> bytes:
    message: dict[str, Any] = {
        "id": identity,
        "model": "m1",
        "content": [],
        "usage": usage or {"input_tokens": 5},
    }
    return event("message_start", message={**message, **fields})


def start(index: Any, kind: str = "text", **fields: Any) -> bytes:
    return event("content_block_start", index=index, content_block={"type": kind, **fields})


def call(index: Any, call_id: str = "t1", name: str = "f", value: Any = None, **fields: Any) -> bytes:
    return start(index, "tool_use", id=call_id, name=name, input={} if value is None else value, **fields)


def delta(index: Any, kind: str, **fields: Any) -> bytes:
    return event("content_block_delta", index=index, delta={"type": f"{kind}_delta", **fields})


def text(index: Any, piece: str) -> bytes:
    return delta(index, "text", text=piece)


def think(index: Any, piece: str, **fields: Any) -> bytes:
    return delta(index, "thinking", thinking=piece, **fields)


def args(index: Any, piece: str) -> bytes:
    return delta(index, "input_json", partial_json=piece)


def stop(index: Any) -> bytes:
    return event("content_block_stop", index=index)


def end(reason: str | None = "end_turn", usage: Any = None, **fields: Any) -> bytes:
    return event(
        "message_delta", delta={"stop_reason": reason, **fields}, usage=usage or {"output_tokens": 7}
    )


def answer(*frames: bytes, cut: bool = False) -> Replay:
    """Return what *frames* become, checked against the laws."""
    result = replay_frames(Anthropic("http://x", FakeIO()), frames)
    assert result.fault is None
    check_events(result.events, result.content, cut=cut)
    return result


def done(result: Replay) -> Done:
    assert isinstance(result.terminal, Done)
    return result.terminal


def failed(result: Replay) -> Error:
    assert isinstance(result.terminal, Error)
    return result.terminal


def calls(result: Replay) -> list[tuple[str, str, Any]]:
    return [(block["call_id"], block["name"], block["arguments"]) for block in result.content]


def one_by_one(*frames: bytes) -> list[Any]:
    """Return what `translate` returns for each frame."""
    one = Anthropic("http://x", FakeIO())
    state = one.new_state()
    return [one.translate(one.decode(frame), state, one.io) for frame in frames]


# -- blocks


def test_a_common_delta_is_one_event() -> None:
    first, second, third, fourth = one_by_one(begin(), start(0), text(0, "a"), text(0, "b"))
    assert first == []
    assert second is WORKING
    assert (third, fourth) == ([TextStart(0), TextDelta(0, "a")], [TextDelta(0, "b")])


def test_a_whole_answer() -> None:
    result = answer(
        begin(),
        start(0, "thinking", thinking="", signature=""),
        think(0, "hm"),
        delta(0, "signature", signature="ab"),
        delta(0, "signature", signature="cd"),
        stop(0),
        start(1, text="A"),
        text(1, "B"),
        stop(1),
        call(2),
        args(2, ""),
        args(2, '{"a":'),
        args(2, "1}"),
        stop(2),
        end("tool_use", stop_sequence=None),
        STOP,
        b"[DONE]",
        text(0, "late"),
    )
    assert result.events[:3] == [
        ThinkingStart(0),
        ThinkingDelta(0, "hm"),
        ThinkingEnd(0, metadata={"signature": "abcd"}),
    ]
    assert result.content == [
        {"type": "thinking", "text": "hm", "signature": "abcd"},
        {"type": "text", "text": "AB"},
        {"type": "tool_call", "call_id": "t1", "name": "f", "arguments": {"a": 1}},
    ]
    assert done(result).native == {"id": "msg_1", "model": "m1"}
    assert one_by_one(begin(), start(0), text(0, "a"), end(), STOP, text(0, "late"), STOP)[5:] == [(), ()]
    assert (done(result).done_reason, done(result).finish) == ("tool_use", "tool_use")


def test_blocks_are_found_by_index_and_numbered_as_they_appear() -> None:
    result = answer(
        begin(),
        start(0),
        call(4),
        text(0, "a"),
        args(4, "{}"),
        start(2, "thinking"),
        think(2, "t"),
        text(0, "b"),
        stop(4),
        stop(2),
        stop(0),
        end(),
        STOP,
    )
    assert [block["type"] for block in result.content] == ["text", "tool_call", "thinking"]
    assert result.text() == "ab"


def test_an_empty_text_block_is_none_but_counts_as_work() -> None:
    result = answer(begin(), start(0, text=""), stop(0), start(1), text(1, "a"), stop(1), end(), STOP)
    assert [block["text"] for block in result.content] == ["a"]
    assert all(found is WORKING for found in one_by_one(begin(), start(0), stop(0))[1:])


def test_an_index_may_be_used_again() -> None:
    result = answer(
        begin(), start(0), text(0, "a"), stop(0), start(0), text(0, "b"), start(0), text(0, "c"), end(), STOP
    )
    assert [block["text"] for block in result.content] == ["a", "b", "c"]


def test_text_that_came_without_its_start_is_kept() -> None:
    result = answer(
        begin(), text(0, "a"), think(0, "t"), text(1, "b"), text(1, ""), args(7, "{}"), end(), STOP
    )
    assert [(block["type"], block["text"]) for block in result.content] == [
        ("text", "a"),
        ("thinking", "t"),
        ("text", "b"),
    ]
    assert one_by_one(begin(), call(0), text(0, "a"), delta(0, "citations", citation={}))[2:] == [(), ()]


def test_unknown_frames_and_deltas_are_read_past() -> None:
    odd = [
        event("ping"),
        event("brand_new", x=1),
        b"ping",
        b"{}",
        b'{"type":7}',
        stop(9),
        event("content_block_delta", index=0),
        delta(0, "future", y=1),
        delta(0, "text", text=5),
        delta(0, "signature", signature=5),
        delta(0, "citations", citation="no"),
    ]
    assert one_by_one(begin(), start(0), text(0, "a"), *odd)[3:] == [
        [],
        [],
        [],
        [],
        [],
        (),
        (),
        (),
        (),
        (),
        (),
    ]
    kinds = one_by_one(
        begin(), start(0, "thinking"), delta(0, "signature", signature=5), delta(0, "text", text=None)
    )
    assert kinds[2:] == [(), ()]


@pytest.mark.parametrize("frame", [b"[]", b"7", b'"a"', b"{", b"\xff", b"null"])
def test_frames_that_are_no_object_are_refused(frame: bytes) -> None:
    result = replay_frames(Anthropic("http://x", FakeIO()), [begin(), start(0), text(0, "a"), frame])
    assert isinstance(result.fault, ValueError)
    assert result.text() == "a"


def test_citations_are_metadata_of_their_text() -> None:
    first, second = {"type": "char_location", "cited_text": "x"}, {"type": "page_location"}
    frames = [start(0, citations=[first]), text(0, "a"), delta(0, "citations", citation=second), stop(0)]
    assert answer(begin(), *frames, end(), STOP).content[0]["citations"] == [first, second]
    assert one_by_one(begin(), *frames)[3] is WORKING


def test_A3_hidden_work_is_progress_and_empty_deltas_are_not() -> None:
    frames = [
        begin(),
        start(0, "thinking"),
        think(0, ""),
        think(0, "", estimated_tokens=50),
        think(0, "", estimated_tokens=None),
        delta(0, "signature", signature="s"),
        start(1, "server_tool_use", id="s1", name="web_search", input={}),
        args(1, ""),
        args(1, '{"query":"a"}'),
        start(2, "compaction", content=None),
        delta(2, "compaction", content="sum"),
        event("ping"),
        end(),
    ]
    found = one_by_one(*frames)
    assert found[0] == []
    assert found[1] == [ThinkingStart(0)]
    working = [WORKING is one for one in found[2:]]
    assert working == [False, True, False, True, True, False, True, True, True, False, False]


def test_A3_both_readers_see_hidden_work() -> None:
    for frame, piece in ((think(0, "", estimated_tokens=50), 50), (think(0, "", estimated_tokens="x"), None)):
        loose = read_loosely(frame)
        assert isinstance(loose, Event)
        found = read_piece(loose.value["delta"])
        assert isinstance(found, ThinkingPiece)
        assert found.estimated_tokens == piece
    typed = read_frame(think(0, "", estimated_tokens=50))
    assert typed == BlockDelta(0, ThinkingPiece("", 50))


def test_items_of_the_server_are_kept_whole() -> None:
    result = answer(
        begin(),
        start(0, "server_tool_use", id="s1", name="web_search", input={}),
        args(0, '{"query"'),
        args(0, ':"a"}'),
        stop(0),
        start(1, "web_search_tool_result", tool_use_id="s1", content=[{"encrypted_content": "xx"}]),
        stop(1),
        start(2, "compaction", content=None, encrypted_content="a"),
        delta(2, "compaction", content="sum", encrypted_content="b"),
        delta(2, "compaction", content=None),
        stop(2),
        start(3, "server_tool_use", id="s2", name="web_search", input={}),
        args(3, '{"query"'),
        stop(3),
        end("pause_turn"),
        STOP,
    )
    assert [block["type"] for block in result.content] == ["server"] * 4
    assert [block["dialect"] for block in result.content] == ["anthropic"] * 4
    items = [block["item"] for block in result.content]
    assert items[0] == {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "a"}}
    assert items[1]["content"] == [{"encrypted_content": "xx"}]
    assert items[2] == {"type": "compaction", "content": "sum", "encrypted_content": "ab"}
    assert items[3]["input"] == '{"query"'
    assert [block.get("partial") for block in result.content] == [None, None, None, True]
    assert done(result).finish == "paused"


# -- tool calls


F1: list[list[bytes]] = [
    [call(0, "a"), args(0, '{"x":1}'), stop(0), call(0, "b"), args(0, '{"x":2}'), stop(0)],
    [call(0, "a"), args(0, '{"x":1}'), call(0, "b"), args(0, '{"x":2}')],
    [call(None, "a"), args(None, '{"x":1}'), stop(None), call(None, "b"), args(None, '{"x":2}'), stop(None)],
    [call(None, "a"), args(None, '{"x":1}'), call(None, "b"), args(None, '{"x":2}')],
    [
        call(1, "a"),
        call(2, "b"),
        args(2, '{"x":'),
        args(1, '{"x":'),
        args(2, "2}"),
        args(1, "1}"),
        stop(1),
        stop(2),
    ],
    [
        call(0, "a"),
        args(0, '{"x"'),
        call(1, "a"),
        args(1, ":1}"),
        stop(1),
        stop(0),
        call(0, "b"),
        args(0, '{"x":2}'),
        stop(0),
    ],
    [call("0", "a"), args("0", '{"x":1}'), stop("0"), call("1", "b", value={"x": 2}), stop("1")],
]


@pytest.mark.parametrize("frames", F1)
def test_F1_parallel_calls_are_told_apart(frames: list[bytes]) -> None:
    result = answer(begin(), *frames, end("tool_use"), STOP)
    assert calls(result) == [("a", "f", {"x": 1}), ("b", "f", {"x": 2})]


def test_calls_without_an_id_get_one_each() -> None:
    result = answer(begin(), call(0, ""), call(1, ""), stop(0), stop(1), end("tool_use"), STOP)
    first, second = (block["call_id"] for block in result.content)
    assert first != second
    assert first.startswith("toolu_")


def test_a_call_without_a_name_is_kept_and_not_callable() -> None:
    for name in ("", None):
        frame = start(0, "tool_use", id="a", name=name)
        [block] = answer(begin(), frame, stop(0), end("tool_use"), STOP).content
        assert (block["name"], block["partial"]) == ("", True)


def test_streamed_input_outranks_the_one_of_the_start() -> None:
    result = answer(
        begin(), call(0, "a", value={"x": 1}), args(0, '{"x":2}'), stop(0), call(1, "b"), stop(1), end(), STOP
    )
    assert calls(result) == [("a", "f", {"x": 2}), ("b", "f", {})]
    assert done(result).finish == "tool_use"


def test_who_called_is_kept_for_replay() -> None:
    caller = {"type": "code_execution_20250825", "tool_id": "s1"}
    [block] = answer(begin(), call(0, caller=caller, toolset_name=None), stop(0), end(), STOP).content
    assert block["anthropic"] == {"caller": caller}


@pytest.mark.parametrize("reason", ["max_tokens", "tool_use", None])
@pytest.mark.parametrize("stopped", [True, False])
def test_F3_arguments_cut_anywhere_stay_raw(reason: str | None, stopped: bool) -> None:
    whole = json.dumps({"path": "a" * 120, "list": list(range(30)), "text": 'say "hi"\\'})
    assert len(whole) > 250
    for at in range(len(whole)):
        ends = [*([stop(0)] if stopped else []), *([end(reason), STOP] if reason else [])]
        result = answer(begin(), call(0), args(0, whole[:at]), *ends, cut=reason is None)
        [block] = result.content
        if at == 0 and (stopped or reason == "tool_use"):
            assert block["arguments"] == {}
        else:
            assert block["arguments"] == whole[:at]
            assert block["partial"] is True
        if reason:
            assert done(result).finish == ("length" if reason == "max_tokens" else "tool_use")


def test_F3_a_call_that_is_open_at_the_limit_is_not_callable_whatever_it_looks_like() -> None:
    for frames in ([call(0)], [call(0), args(0, '{"x":1}')], [call(0, value={"x": 1})]):
        [block] = answer(begin(), *frames, end("max_tokens"), STOP).content
        assert block["partial"] is True


def test_a_whole_input_is_not_lost_when_the_answer_is_cut() -> None:
    result = answer(begin(), call(0, value={"x": "é"}), call(1, "b", value="{raw"), cut=True)
    assert [block["arguments"] for block in result.content] == ['{"x":"é"}', "{raw"]
    assert all(block["partial"] for block in result.content)


# -- stop reasons and the end


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_use"),
        ("pause_turn", "paused"),
        ("compaction", "paused"),
        ("refusal", "refusal"),
        ("brand_new", "other"),
        (None, "stop"),
        ("", "stop"),
    ],
)
def test_stop_reasons(reason: str | None, finish: str) -> None:
    result = answer(begin(), start(0), text(0, "a"), stop(0), end(reason), STOP)
    assert (done(result).done_reason, done(result).finish) == (reason or None, finish)


def test_the_first_stop_reason_decides_and_usage_may_still_come() -> None:
    result = answer(
        begin(), start(0), text(0, "a"), end("end_turn"), end("max_tokens", {"output_tokens": 9}), STOP
    )
    assert done(result).done_reason == "end_turn"
    assert (done(result).usage or {})["output_tokens"] == 9


def test_what_the_message_says_of_itself_is_kept() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "no"}
    facts = end("refusal", stop_sequence="x", stop_details=details, container={"id": "c"})
    last = event("message_delta", delta={}, context_management={"applied_edits": []}, usage=None)
    native = done(answer(begin(diagnostics={"a": 1}), facts, last, STOP)).native
    assert native == {
        "id": "msg_1",
        "model": "m1",
        "stop_sequence": "x",
        "stop_details": details,
        "container": {"id": "c"},
        "context_management": {"applied_edits": []},
        "diagnostics": {"a": 1},
    }
    assert done(answer(event("message_start"), start(0), text(0, "a"), end(), STOP)).native is None


def test_E3_end_of_stream_is_done_only_after_a_stop_reason() -> None:
    one = Anthropic("http://x", FakeIO())
    state = one.new_state()
    for frame in (begin(), start(0), text(0, "a"), stop(0)):
        list(one.translate_all([frame], state, one.io))
        assert not one.ending(state)
        assert one.finish(state, one.io) == []
    list(one.translate_all([end()], state, one.io))
    assert one.ending(state)
    assert [type(found) for found in one.finish(state, one.io)] == [Done]
    assert one.finish(state, one.io) == []
    assert one.abandon(state, one.io) == []


def test_E3_a_done_mark_alone_is_no_end() -> None:
    assert answer(begin(), start(0), text(0, "a"), b"[DONE]", cut=True).terminal is None
    assert done(answer(begin(), start(0), text(0, "a"), end(), b" [DONE]\n")).finish == "stop"


def test_a_message_start_may_bring_everything() -> None:
    blocks = [
        {"type": "text", "text": "hi"},
        5,
        {"type": "tool_use", "id": "t", "name": "f", "input": {"x": 1}},
    ]
    head = begin(content=blocks, stop_reason="tool_use")
    for tail in ([STOP], []):
        result = answer(head, *tail)
        assert [block["type"] for block in result.content] == ["text", "tool_call"]
        assert result.content[1]["arguments"] == {"x": 1}
        assert done(result).finish == "tool_use"


def test_a_server_that_does_not_stream_gives_the_same() -> None:
    body = {
        "type": "message",
        "id": "msg_1",
        "content": [{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "a"}],
        "stop_reason": None,
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    result = replay(Anthropic("http://x", FakeIO()), json.dumps(body).encode(), framer=WholeBody)
    check_events(result.events, result.content)
    assert result.content == [
        {"type": "thinking", "text": "t", "signature": "s"},
        {"type": "text", "text": "a"},
    ]
    assert done(result).usage == {"input_tokens": 3, "output_tokens": 4}


# -- a stream that begins again


def test_a_second_message_start_of_the_same_id_is_ignored() -> None:
    for again in (begin(), begin(""), event("message_start")):
        result = answer(begin(), start(0), text(0, "a"), again, text(0, "b"), end(), STOP)
        assert result.text() == "ab"
    assert done(answer(begin(), start(0), text(0, "a"), end(), begin("msg_2"), STOP)).native == {
        "id": "msg_1",
        "model": "m1",
    }


def test_a_message_start_of_another_id_begins_anew() -> None:
    frames = [
        begin(usage={"input_tokens": 5, "cache_read_input_tokens": 2}),
        start(0),
        text(0, "half"),
        call(1, "a"),
        begin("msg_2"),
        start(0),
        text(0, "whole"),
        stop(0),
        end(),
        STOP,
    ]
    result = replay_frames(Anthropic("http://x", FakeIO()), frames)
    assert result.text() == "whole"
    assert len(result.content) == 1
    at = next(place for place, one in enumerate(result.events) if isinstance(one, Start))
    assert [type(one) for one in result.events[at - 2 : at]] == [TextEnd, ToolCallEnd]
    assert (done(result).finish, done(result).usage) == ("stop", {"input_tokens": 5, "output_tokens": 7})
    assert (done(result).native or {})["id"] == "msg_2"
    early = answer(begin(), begin("msg_2"), start(0), text(0, "a"), end(), STOP)
    assert (done(early).native or {})["id"] == "msg_2"


# -- usage


G1: list[tuple[list[bytes], dict[str, Any]]] = [
    ([begin(usage={"input_tokens": 5, "output_tokens": 1}), end()], {"input_tokens": 5, "output_tokens": 7}),
    (
        [begin(usage={"input_tokens": 5}), end(usage={"input_tokens": 9, "output_tokens": 7})],
        {"input_tokens": 9, "output_tokens": 7},
    ),
    (
        [begin(usage={"input_tokens": 5}), end(usage={"input_tokens": None, "output_tokens": 7})],
        {"input_tokens": 5, "output_tokens": 7},
    ),
    (
        [
            begin(
                usage={"input_tokens": 5, "cache_read_input_tokens": 3, "cache_creation_input_tokens": None}
            ),
            end(),
        ],
        {"input_tokens": 8, "output_tokens": 7, "cached_tokens": 3},
    ),
    ([begin(usage={"input_tokens": True, "output_tokens": -1}), end(usage={"output_tokens": "7"})], {}),
    ([begin(usage=[1]), end(usage={"output_tokens": 7})], {"output_tokens": 7}),
    (
        [begin(usage={"input_tokens": 5}), end(), end(usage={"output_tokens": 8})],
        {"input_tokens": 5, "output_tokens": 8},
    ),
    (
        [begin(usage={"input_tokens": 5}), event("message_delta", delta={"stop_reason": "end_turn"})],
        {"input_tokens": 5},
    ),
    (
        [
            begin(usage={"input_tokens": 5}),
            end(usage={"output_tokens": 7, "output_tokens_details": {"thinking_tokens": 4}}),
        ],
        {"input_tokens": 5, "output_tokens": 7, "reasoning_tokens": 4},
    ),
]


@pytest.mark.parametrize(("frames", "expected"), G1)
def test_G1_of_each_field_the_last_report_counts(frames: list[bytes], expected: dict[str, Any]) -> None:
    head, *tail = frames
    usage = usage_normalize(done(answer(head, start(0), text(0, "a"), *tail, STOP)).usage)
    usage.pop("total_tokens", None)
    assert usage == expected


def test_G1_no_usage_at_all_is_none() -> None:
    head = event("message_start", message={"id": "m", "content": []})
    tail = event("message_delta", delta={"stop_reason": "end_turn"})
    assert done(answer(head, start(0), text(0, "a"), tail, STOP)).usage is None


def test_the_input_is_known_when_the_answer_is_cut_and_the_output_is_not() -> None:
    frames = [
        begin(usage={"input_tokens": 5, "output_tokens": 1, "service_tier": "priority"}),
        start(0),
        text(0, "a"),
    ]
    assert answer(cut=True).state.usage is None
    state = answer(*frames, cut=True).state
    assert usage_normalize(state.usage) == {"input_tokens": 5, "service_tier": "priority"}


# -- errors


E1: list[tuple[bytes, str, str | None, ErrorKind, bool]] = [
    (
        event("error", error={"type": "overloaded_error", "message": "Overloaded"}),
        "Overloaded",
        "overloaded_error",
        ErrorKind.PROVIDER,
        True,
    ),
    (
        Frame(b'{"error":{"type":"api_error","message":"Internal"}}', "error"),
        "Internal",
        "api_error",
        ErrorKind.PROVIDER,
        True,
    ),
    (
        event(
            "error",
            error={"type": "rate_limit_error", "message": "Slow down", "details": {"error_code": "x"}},
        ),
        "Slow down",
        "rate_limit_error",
        ErrorKind.PROVIDER,
        True,
    ),
    (
        event(
            "error",
            error={"type": "rate_limit_error", "message": "m", "details": {"error_code": "spend_limit"}},
        ),
        "m",
        "rate_limit_error",
        ErrorKind.PROVIDER,
        False,
    ),
    (
        event("error", error={"type": "authentication_error", "message": "no"}),
        "no",
        "authentication_error",
        ErrorKind.AUTH,
        False,
    ),
    (
        event("error", error={"type": "invalid_request_error", "message": "bad"}),
        "bad",
        "invalid_request_error",
        ErrorKind.PROVIDER,
        False,
    ),
    (b'{"detail":"gateway says no"}', "gateway says no", None, ErrorKind.PROVIDER, False),
    (b'{"message":"flat","code":"slow_down"}', "flat", "slow_down", ErrorKind.PROVIDER, True),
    (Frame(b"upstream died", "error"), "upstream died", None, ErrorKind.PROVIDER, False),
    (Frame(b'["a"]', "error"), "a", None, ErrorKind.PROVIDER, False),
]


@pytest.mark.parametrize(("frame", "message", "code", "kind", "retryable"), E1)
def test_E1_an_error_in_the_stream_ends_it(
    frame: bytes, message: str, code: str | None, kind: ErrorKind, retryable: bool
) -> None:
    result = answer(begin(), start(0), text(0, "Once"), text(0, " upon"), frame, text(0, "x"), STOP)
    error = failed(result)
    assert (error.error, error.code, error.kind, error.retryable) == (message, code, kind, retryable)
    assert result.text() == "Once upon"
    assert (error.usage or {})["input_tokens"] == 5
    assert (error.native or {})["id"] == "msg_1"


def test_E1_an_error_names_its_request_and_brings_usage() -> None:
    frame = event("error", error={"type": "overloaded_error"}, request_id="req_1", usage={"output_tokens": 3})
    error = failed(answer(begin(), frame))
    assert error.request_id == "req_1"
    assert error.usage == {"input_tokens": 5, "output_tokens": 3}
    assert failed(answer(begin(), event("error", error="x"))).request_id is None


def test_E1_an_error_on_a_200_with_a_json_body() -> None:
    body = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"r"}'
    result = replay(Anthropic("http://x", FakeIO()), body, framer=WholeBody)
    assert (failed(result).code, failed(result).native) == (
        "overloaded_error",
        {"type": "overloaded_error", "message": "Overloaded"},
    )
    assert result.message is None


def test_B6_an_error_leaves_open_calls_uncallable_and_thinking_unsigned() -> None:
    result = answer(
        begin(),
        start(0, "thinking", signature="sig"),
        think(0, "hm"),
        call(1),
        args(1, '{"x":1}'),
        start(2, "redacted_thinking", data="d"),
        start(3, "server_tool_use", id="s", name="web_search"),
        start(4),
        text(4, "t"),
        event("error", error={"type": "overloaded_error", "message": "m"}),
    )
    assert failed(result).retryable
    thinking, tool, server, prose = result.content
    assert thinking == {"type": "thinking", "text": "hm"}
    assert (tool["arguments"], tool["partial"]) == ('{"x":1}', True)
    assert server["partial"] is True
    assert prose == {"type": "text", "text": "t"}


# -- keep-alives (D5), surrogates (H3)


def test_D5_keepalives_with_ids_and_blank_lines_carry_nothing() -> None:
    piece = text(0, "b")
    head = b"id: 1\nevent: x\ndata: %s\n\n: ping\n\n:\n\nid: 2\n\nretry: 5\n\ndata:\n\n" % begin()
    body = b"data: %s\n\ndata: %s\n\n" % (start(0), text(0, "a"))
    glued = b"data: {\n:glued\ndata: %s\n\n: \n\n" % piece[1:]
    wire = head + body + glued + b"data: %s\n\ndata: %s\n\n" % (end(), STOP)
    one = Anthropic("http://x", FakeIO())
    for at in range(len(wire)):
        result = replay(one, wire, (at,), framer=SSEDecoder)
        assert result.text() == "ab"
        assert isinstance(result.terminal, Done)


def raw(tag: str, name: str, piece: str) -> bytes:
    """Return a delta frame with *piece* as it is, escapes and all."""
    inner = f'{{"type":"{tag}_delta","{name}":"{piece}"}}'
    return f'{{"type":"content_block_delta","index":0,"delta":{inner}}}'.encode()


@pytest.mark.parametrize(("kind", "made"), [("text", TextDelta), ("thinking", ThinkingDelta)])
def test_H3_halves_of_a_pair_in_two_deltas_become_one_character(
    kind: str, made: type[TextDelta | ThinkingDelta]
) -> None:
    frames = [raw(kind, kind, piece) for piece in ("a\\ud83d", "\\ude00b", "c")]
    result = answer(begin(), start(0, kind), *frames, stop(0), end(), STOP)
    assert result.text(kind) == "a😀bc"
    assert result.events[1:4] == [made(0, "a"), made(0, "😀b"), made(0, "c")]
    cut = answer(begin(), start(0, kind), *frames[:1], cut=True)
    assert cut.text(kind) == "a\ud83d"


def test_H3_halves_in_tool_arguments_become_one_character() -> None:
    first, second, third = (
        raw("input_json", "partial_json", piece) for piece in ('{\\"a\\":\\"\\ud83d', "\\ude00", '\\"}')
    )
    whole = answer(begin(), call(0), first, second, third, stop(0), end(), STOP)
    assert calls(whole) == [("t1", "f", {"a": "😀"})]
    alone = raw("input_json", "partial_json", "\\ud83d")
    assert one_by_one(begin(), call(0), alone)[2] is WORKING
    assert answer(begin(), call(0), alone, alone, cut=True).content[0]["arguments"] == "\ud83d\ud83d"
    stopped = answer(begin(), call(0), alone, stop(0), end("tool_use"), STOP)
    assert stopped.content[0]["arguments"] == "\ud83d"


def test_the_dialect_is_found_by_its_name() -> None:
    assert dialect_class("anthropic") is Anthropic
