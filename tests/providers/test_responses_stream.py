"""Responses events, one situation at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from aiio.context.events import (
    Done,
    Error,
    ErrorKind,
    FinishReason,
    Placed,
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
from aiio.context.usage_data import usage_normalize
from aiio.providers.base import WORKING
from aiio.providers.openai_responses import OpenAIResponses
from aiio.providers.responses_stream import Answer
from aiio.providers.responses_wire import read_frame, read_loosely
from aiio.transports.framing import SSEDecoder, WholeBody

from .conformance import check_events
from .fakes import FakeIO
from .manifest import Replay, replay, replay_frames

Event = dict[str, Any]


def provider(**settings: Any) -> OpenAIResponses:
    return OpenAIResponses("http://x", FakeIO(**settings))


def run(*events: Event, **settings: Any) -> Replay:
    """Return what *events* become, by both readers alike, after checking the laws of all event lists."""
    frames = [json.dumps(event).encode() for event in events]
    result = replay_frames(provider(**settings), frames)
    check_events(result.events, result.content, cut=result.terminal is None)
    loose = provider(**settings).new_state()
    again = [
        made
        for frame in frames
        if (found := loose.take(read_loosely(frame), lambda: 0.0)) is not WORKING
        for made in found
    ]
    again += loose.finish(lambda: 0.0) if not loose.ended else []
    again += loose.abandon() if not loose.ended else []
    assert again == result.events
    return result


def added(place: int | None, item: Event) -> Event:
    return {"type": "response.output_item.added", "output_index": place, "item": item}


def done(place: int | None, item: Event) -> Event:
    return {"type": "response.output_item.done", "output_index": place, "item": item}


def delta(kind: str, place: int | None, text: str, **more: Any) -> Event:
    return {"type": f"response.{kind}.delta", "output_index": place, "delta": text, **more}


def text(piece: str, place: int | None = 0, part: int = 0) -> Event:
    return delta("output_text", place, piece, content_index=part)


def arguments(piece: str, place: int | None = 0, **more: Any) -> Event:
    return delta("function_call_arguments", place, piece, **more)


def call(call_id: str = "call_1", name: str = "f", **more: Any) -> Event:
    return {"type": "function_call", "id": "fc_1", "call_id": call_id, "name": name, "arguments": "", **more}


def end(status: str = "completed", **response: Any) -> Event:
    return {"type": f"response.{status}", "response": {"id": "resp_1", "status": status, **response}}


COMPLETED = end()
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}


# -- text


def test_text_block_opens_with_its_first_text() -> None:
    opened = {"type": "response.content_part.added", "output_index": 0, "part": {"type": "output_text"}}
    result = run(added(0, MESSAGE), opened, text(""), text("Hi"), text("!"), COMPLETED)
    assert result.events[:3] == [TextStart(0), TextDelta(0, "Hi"), TextDelta(0, "!")]
    assert result.content == [{"type": "text", "text": "Hi!"}]


def test_text_that_was_never_streamed_comes_whole() -> None:
    whole = {"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "Hi"}
    item = {**MESSAGE, "content": [{"type": "output_text", "text": "Hi"}]}
    for events in ([whole], [done(0, item)], [whole, done(0, item), done(0, item), whole]):
        result = run(*events, COMPLETED)
        assert result.events[:3] == [TextStart(0), TextDelta(0, "Hi"), TextEnd(0, text="Hi")]


def test_final_text_counts_whatever_was_streamed() -> None:
    item = {**MESSAGE, "content": [{"type": "output_text", "text": "Hi there"}]}
    frames = [json.dumps(event).encode() for event in (text("Hi th"), done(0, item), COMPLETED)]
    assert replay_frames(provider(), frames).content[0]["text"] == "Hi there"


def test_empty_final_text_replaces_nothing() -> None:
    item = {**MESSAGE, "content": [{"type": "output_text", "text": ""}, "junk"]}
    assert run(text("Hi"), done(0, item), COMPLETED).content == [{"type": "text", "text": "Hi"}]


def test_parts_of_a_message_are_blocks_of_their_own() -> None:
    item = {
        **MESSAGE,
        "phase": "final_answer",
        "content": [{"type": "output_text", "text": "ab"}, {"type": "output_text", "text": "cd"}],
    }
    events = [text("a"), text("c", part=1), text("b"), text("d", part=1), done(0, item), COMPLETED]
    result = replay_frames(provider(), [json.dumps(event).encode() for event in events])
    assert result.content == [
        {"type": "text", "text": "ab", "phase": "final_answer"},
        {"type": "text", "text": "cd", "phase": "final_answer"},
    ]


def test_text_after_the_end_of_its_item_is_not_lost() -> None:
    item = {**MESSAGE, "content": [{"type": "output_text", "text": "a"}]}
    assert [block["text"] for block in run(text("a"), done(0, item), text("b"), COMPLETED).content] == [
        "a",
        "b",
    ]


def test_citations_come_one_by_one_or_with_the_end() -> None:
    cite = {"type": "response.output_text.annotation.added", "output_index": 0, "content_index": 0}
    one, two = {"type": "url_citation", "url": "u1"}, {"type": "file_citation", "file_id": "f1"}
    early = {**cite, "annotation": one}
    result = run(
        early, text("a"), early, {**cite, "annotation": two}, {**cite, "annotation": None}, COMPLETED
    )
    assert result.content[0]["annotations"] == [one, two]
    part = {"type": "output_text", "text": "a", "annotations": [two]}
    last = {"type": "response.content_part.done", "output_index": 0, "content_index": 0, "part": part}
    assert run(text("a"), early, last, COMPLETED).content[0]["annotations"] == [two]


def test_H3_halves_of_a_surrogate_pair_meet_again() -> None:
    def frames(kind: str) -> Iterable[bytes]:
        for piece in ("\\ud83d", "\\ude00!"):
            yield f'{{"type":"response.{kind}.delta","output_index":0,"delta":"{piece}"}}'.encode()
        yield json.dumps(COMPLETED).encode()

    for kind in ("output_text", "reasoning_text"):
        result = replay_frames(provider(), frames(kind))
        assert result.content[0]["text"] == "😀!"
        assert [event.text for event in result.events if isinstance(event, TextDelta | ThinkingDelta)] == [
            "😀!"
        ]
    called = replay_frames(
        provider(), [json.dumps(added(0, call())).encode(), *frames("function_call_arguments")]
    )
    assert called.content[0]["arguments"] == "😀!"


def test_H3_half_a_pair_at_a_cut_is_kept() -> None:
    half = b'{"type":"response.%s.delta","output_index":%d,"delta":"a\\ud83d"}'
    frames = [
        half % (b"output_text", 0),
        half % (b"reasoning_text", 1),
        json.dumps(added(2, call())).encode(),
        half % (b"function_call_arguments", 2),
    ]
    result = replay_frames(provider(), frames)
    assert result.terminal is None
    assert [block.get("text") or block["arguments"] for block in result.content] == ["a\ud83d"] * 3


def test_plain_text_after_half_a_pair_is_joined_in_order() -> None:
    half = b'{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"a\\ud83d"}'
    frames = [json.dumps(text(piece)).encode() for piece in "xyzbc"]
    frames.insert(3, half)
    result = replay_frames(provider(), frames)
    texts = [event.text for event in result.events if isinstance(event, TextDelta)]
    assert texts == ["x", "y", "z", "a", "\ud83db", "c"]


# -- thinking


def test_reasoning_without_any_text_is_kept_for_replay() -> None:
    item = {**REASONING, "encrypted_content": "c1ph3r", "status": "completed", "content": []}
    result = run(added(0, REASONING), done(0, item), text("Hi", 1), COMPLETED)
    kept = {"summary": [], "id": "rs_1", "encrypted_content": "c1ph3r"}
    assert result.events[:2] == [ThinkingStart(0), ThinkingEnd(0, metadata=kept)]
    assert result.content[0] == {"type": "thinking", "text": "", **kept}


def test_parts_of_a_summary_are_joined_by_blank_lines() -> None:
    def piece(words: str, part: int) -> Event:
        return delta("reasoning_summary_text", 0, words, summary_index=part)

    summary = [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}]
    item = {**REASONING, "summary": summary}
    opened = {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0}
    result = run(
        added(0, REASONING), opened, piece("o", 0), piece("ne", 0), piece("two", 1), done(0, item), COMPLETED
    )
    assert [event.text for event in result.events[1:4]] == ["o", "ne", "\n\ntwo"]  # type: ignore[union-attr]
    assert result.content == [{"type": "thinking", "text": "one\n\ntwo", "summary": summary, "id": "rs_1"}]
    assert run(done(0, item), COMPLETED).content == result.content


def test_thoughts_that_were_never_streamed_come_whole() -> None:
    where = {"output_index": 0, "content_index": 0, "summary_index": 0}
    raw = {"type": "response.reasoning_text.done", **where, "text": "hm"}
    part = {"type": "response.reasoning_summary_part.done", **where, "part": {"text": "sum"}}
    assert run(raw, raw, part, COMPLETED).content == [{"type": "thinking", "text": "hm\n\nsum"}]
    assert run(done(0, REASONING), raw, text("Hi", 1), COMPLETED).content[0]["text"] == ""


def test_thoughts_and_their_summary_are_both_shown() -> None:
    item = {**REASONING, "summary": [{"text": "sum"}], "content": [{"type": "reasoning_text", "text": "hm"}]}
    result = run(delta("reasoning_text", 0, "hm", content_index=0), done(0, item), COMPLETED)
    assert result.content[0]["text"] == "hm\n\nsum"
    assert result.content[0]["reasoning"] == item["content"]


def test_what_nobody_knows_of_reasoning_is_kept_apart() -> None:
    item = {**REASONING, "signature": "sig", "format": "x-v1"}
    block = run(done(0, item), text("Hi", 1), COMPLETED).content[0]
    assert block["item_extra"] == {"signature": "sig", "format": "x-v1"}
    assert "signature" not in block


# -- tool calls


@pytest.mark.parametrize("final", [{}, {"arguments": '{"a":1}'}, {"arguments": {"a": 1}}])
def test_call_with_its_arguments_in_any_form(final: Event) -> None:
    result = run(added(0, call()), arguments('{"a"'), arguments(":1}"), done(0, call() | final), COMPLETED)
    assert result.content == [
        {"type": "tool_call", "call_id": "call_1", "name": "f", "arguments": {"a": 1}},
    ]
    assert isinstance(result.terminal, Done)
    assert result.terminal.finish is FinishReason.TOOL_USE


def test_arguments_that_were_never_streamed_come_whole() -> None:
    last = {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": "{}"}
    for events in (
        [added(0, call()), last],
        [done(0, call(arguments="{}"))],
        [done(0, call(arguments="{}")), last],
    ):
        result = run(*events, COMPLETED)
        assert result.events[:2] == [ToolCallStart(0, "call_1", "f"), ToolCallDelta(0, "{}")]


def test_call_without_arguments_has_none() -> None:
    assert run(added(0, call()), done(0, call()), COMPLETED).content[0]["arguments"] == {}


def test_namespace_and_caller_are_kept_for_replay() -> None:
    item = call(namespace="crm", caller={"type": "program"})
    assert run(done(0, item), COMPLETED).content[0] | {} == {
        "type": "tool_call",
        "call_id": "call_1",
        "name": "f",
        "arguments": {},
        "namespace": "crm",
        "caller": {"type": "program"},
    }


def test_F1_calls_are_told_apart_by_their_place_though_ids_change() -> None:
    result = run(
        added(0, call("call_1")),
        added(1, call("call_2", "g")),
        added(1, call("call_2", "g")),
        arguments('{"a"', 0, item_id="x1"),
        arguments('{"b"', 1, item_id="x2"),
        arguments(":1}", 0, item_id="x3"),
        arguments(":2}", 1, item_id="x4"),
        done(1, call("call_2", "g", id="x5")),
        done(0, call("call_1", id="x6")),
        COMPLETED,
    )
    assert [(one["call_id"], one["arguments"]) for one in result.content] == [
        ("call_1", {"a": 1}),
        ("call_2", {"b": 2}),
    ]


def test_F1_calls_without_a_place_are_told_apart_by_id_or_order() -> None:
    by_id = run(
        added(None, call("call_1", id="i1")),
        added(None, call("call_2", id="i2")),
        arguments('{"a":1}', None, item_id="i1"),
        arguments('{"b":2}', None, item_id="i2"),
        COMPLETED,
    )
    nameless = {"type": "function_call", "name": "f"}
    in_order = run(
        added(None, {**nameless, "call_id": "call_1"}),
        arguments('{"a":1}', None),
        added(None, {**nameless, "call_id": "call_2"}),
        arguments('{"b":2}', None),
        done(None, {**nameless, "call_id": "call_2"}),
        COMPLETED,
    )
    for result in (by_id, in_order):
        assert [(one["call_id"], one["arguments"]) for one in result.content] == [
            ("call_1", {"a": 1}),
            ("call_2", {"b": 2}),
        ]


def test_arguments_before_the_name_are_not_lost() -> None:
    assert run(arguments('{"a":1}'), done(0, call()), COMPLETED).content[0]["arguments"] == {"a": 1}
    for last in ([COMPLETED], []):
        frames = [json.dumps(event).encode() for event in (arguments('{"a":1}'), *last)]
        [block] = replay_frames(provider(), frames).content
        assert (block["name"], block["partial"], block["arguments"]) == ("", True, '{"a":1}')
    assert run(added(0, {"type": "function_call"}), text("Hi", 1), COMPLETED).content == [
        {"type": "text", "text": "Hi"}
    ]
    assert run(added(0, {"type": "function_call"})).content == []


ARGUMENTS = json.dumps({"path": "a/b.txt", "text": "x" * 20, "n": [1, 2, {"k": None}]})


@pytest.mark.parametrize("last", ["incomplete", "completed", None])
@pytest.mark.parametrize("cut", range(len(ARGUMENTS)))
def test_F3_cut_arguments_stay_raw_and_are_not_callable(cut: int, last: str | None) -> None:
    ends = [] if last is None else [end(last, incomplete_details={"reason": "max_output_tokens"})]
    result = run(added(0, call()), arguments(ARGUMENTS[:cut]), *ends)
    [block] = result.content
    if last == "completed" and not cut:
        assert block["arguments"] == {}  # an answer that is whole has nothing more to say
        return
    assert (block["arguments"], block["partial"]) == (ARGUMENTS[:cut], True)
    if last == "incomplete":
        assert isinstance(result.terminal, Done)
        assert (result.terminal.finish, result.terminal.done_reason) == (
            FinishReason.LENGTH,
            "incomplete:max_output_tokens",
        )


def test_F3_incomplete_item_is_not_callable_though_its_arguments_parse() -> None:
    item = call(arguments="{}", status="incomplete")
    [block] = run(added(0, call()), done(0, item), end("incomplete")).content
    assert (block["arguments"], block["partial"]) == ("{}", True)


def test_input_of_a_custom_tool_stays_text() -> None:
    item = {"type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": ""}
    last = {"type": "response.custom_tool_call_input.done", "output_index": 0, "input": "[1]"}
    for events in ([delta("custom_tool_call_input", 0, "[1]")], [last]):
        [block] = run(added(0, item), *events, COMPLETED).content
        assert (block["arguments"], block["free_text"]) == ("[1]", True)


# -- server-side tools, pictures, sound


def test_server_side_item_is_one_block_that_goes_back_as_it_came() -> None:
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    result = run(added(0, {**item, "status": "in_progress"}), done(0, item), text("Hi", 1), COMPLETED)
    assert result.events[0] == Placed(0, {"type": "server", "dialect": "openai_responses", "item": item})


def test_half_a_server_side_item_is_left_out() -> None:
    for last in ([COMPLETED], []):
        result = run(text("Hi", 0), added(1, {"type": "web_search_call", "id": "ws_1"}), *last)
        assert [block["type"] for block in result.content] == ["text"]


def test_picture_has_the_type_that_the_item_names() -> None:
    item = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "QUJD"}
    blocks = run(done(0, item), done(1, {**item, "output_format": "webp"}), COMPLETED).content
    assert [block["mimetype"] for block in blocks] == ["image/png", "image/webp"]
    assert run(done(0, {**item, "result": None}), COMPLETED).content[0]["type"] == "server"


def test_spoken_answer_is_sound_and_transcript() -> None:
    result = run(
        {"type": "response.audio.transcript.delta", "delta": "Hel", "output_index": 0},
        {"type": "response.audio.delta", "delta": "QUJD", "output_index": 0},
        {"type": "response.output_audio_transcript.delta", "delta": "lo", "output_index": 0},
        {"type": "response.audio.delta", "delta": "", "output_index": 0},
        {"type": "response.audio.delta", "delta": "REVG"},
        {"type": "response.output_audio_transcript.done", "output_index": 0, "transcript": "Hello"},
        COMPLETED,
        audio={"format": "mp3"},
    )
    assert result.content == [
        {"type": "text", "text": "Hello", "audio_transcript": True},
        {"type": "binary", "mimetype": "audio/mpeg", "content": "QUJDREVG"},
    ]
    cut = run({"type": "response.audio.delta", "delta": "QUJD", "output_index": 0})
    assert cut.content == [{"type": "binary", "mimetype": "audio/wav", "content": "QUJD"}]


@pytest.mark.parametrize(
    ("kind", "working"),
    [
        ("response.web_search_call.searching", True),
        ("response.code_interpreter_call_code.delta", True),
        ("response.image_generation_call.partial_image", True),
        ("response.mcp_list_tools.in_progress", True),
        ("response.compaction.compacting", True),
        ("response.reasoning_summary_part.added", True),
        ("response.content_part.added", True),
        ("response.created", False),
        ("response.in_progress", False),
        ("response.output_text.delta", False),
        ("response.brand_new.event", False),
        ("keepalive", False),
        ("", False),
    ],
)
def test_frames_without_an_event_that_report_work(kind: str, working: bool) -> None:
    state = Answer()
    found = state.take(read_frame(json.dumps({"type": kind, "output_index": 0}).encode()), lambda: 0.0)
    assert list(found) == (list(WORKING) if working else [])
    assert (found is WORKING) == working


def test_items_report_work_when_they_make_no_event() -> None:
    state = Answer()
    for event in (added(0, MESSAGE), added(1, {"type": "web_search_call"}), done(0, MESSAGE)):
        assert state.take(read_frame(json.dumps(event).encode()), lambda: 0.0) is WORKING


# -- usage


USAGE = {
    "input_tokens": 30,
    "input_tokens_details": {"cached_tokens": 10, "cache_write_tokens": 5},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 8},
    "total_tokens": 50,
}


def test_usage_has_all_counts_and_the_service_tier() -> None:
    tools = {"web_search": {"num_requests": 2}}
    done_event = run(text("a"), end(usage=USAGE, service_tier="flex", tool_usage=tools)).terminal
    assert isinstance(done_event, Done)
    assert usage_normalize(done_event.usage) == {
        "input_tokens": 30,
        "output_tokens": 20,
        "total_tokens": 50,
        "cached_tokens": 10,
        "cache_write_tokens": 5,
        "reasoning_tokens": 8,
        "service_tier": "flex",
        "details": {"tool_usage": tools},
    }
    assert done_event.native == {
        "id": "resp_1",
        "service_tier": "flex",
        "tool_usage": tools,
        "finish_reason": "completed",
    }


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (end(), {}),
        (end(usage=None), {}),
        (end(usage={}), {}),
        (end(usage="many"), {}),
        (end(usage={"input_tokens": None, "output_tokens": 3}), {"output_tokens": 3}),
        (end(usage={"input_tokens": True, "output_tokens": "3", "total_tokens": -1}), {}),
        (end(usage={"input_tokens": 1, "output_tokens": 2, "input_tokens_details": None}), (1, 2)),
        ({**end(usage={}), "usage": {"input_tokens": 1, "output_tokens": 2}}, (1, 2)),
        (end("incomplete", usage={"input_tokens": 1, "output_tokens": 2}), (1, 2)),
        (end("failed", usage={"input_tokens": 1, "output_tokens": 2}), (1, 2)),
    ],
)
def test_G1_usage_in_any_state(event: Event, expected: Any) -> None:
    terminal = run(text("a"), event).terminal
    assert terminal is not None
    if isinstance(expected, tuple):
        expected = {"input_tokens": expected[0], "output_tokens": expected[1], "total_tokens": sum(expected)}
    assert usage_normalize(terminal.usage) == expected


def test_G1_usage_known_before_a_cut_is_in_the_state() -> None:
    result = run({"type": "response.in_progress", "response": {"usage": USAGE}}, text("a"))
    assert result.state.usage == USAGE
    assert run(text("a")).state.usage is None


# -- the end


@pytest.mark.parametrize(
    ("status", "reason", "finish"),
    [
        ("completed", None, FinishReason.STOP),
        ("incomplete", None, FinishReason.OTHER),
        ("incomplete", "max_output_tokens", FinishReason.LENGTH),
        ("incomplete", "max_messages", FinishReason.LENGTH),
        ("incomplete", "content_filter", FinishReason.REFUSAL),
        ("incomplete", "steered", FinishReason.OTHER),
    ],
)
def test_finish_reasons(status: str, reason: str | None, finish: FinishReason) -> None:
    details = {"reason": reason} if reason else None
    terminal = run(text("a"), end(status, incomplete_details=details)).terminal
    assert isinstance(terminal, Done)
    assert terminal.done_reason == (f"{status}:{reason}" if reason else status)
    assert terminal.finish is finish


def test_refusal_that_only_its_item_has_is_a_refusal() -> None:
    item = {**MESSAGE, "content": [{"type": "refusal", "refusal": "No."}]}
    result = run(done(0, item), COMPLETED)
    assert result.content == [{"type": "text", "text": "No.", "refusal": True}]
    assert isinstance(result.terminal, Done)
    assert result.terminal.finish is FinishReason.REFUSAL


def test_what_the_server_did_with_the_input_is_passed_on() -> None:
    removed = [{"id": "rs_1", "type": "reasoning", "action": "removed", "reason": "model_mismatch"}]
    terminal = run(text("a"), end(input_transformations=removed, model="m")).terminal
    assert terminal is not None
    assert terminal.native == {
        "id": "resp_1",
        "model": "m",
        "input_transformations": removed,
        "finish_reason": "completed",
    }


def test_output_that_only_the_terminal_event_has_is_taken_from_there() -> None:
    output = [
        REASONING,
        {**MESSAGE, "content": [{"type": "output_text", "text": "Hi"}]},
        call(arguments="{}"),
    ]
    kinds = [block["type"] for block in run(end(output=output)).content]
    assert kinds == ["thinking", "text", "tool_call"]
    assert [block["type"] for block in run(text("Hi"), end(output=output)).content] == ["text"]


def test_whole_response_instead_of_a_stream_is_an_answer() -> None:
    output = [{**MESSAGE, "content": [{"type": "output_text", "text": "Hi"}]}]
    body = json.dumps(
        {"object": "response", "status": "completed", "output": output, "usage": USAGE}, indent=1
    )
    result = replay(provider(), body.encode(), framer=WholeBody)
    assert result.content == [{"type": "text", "text": "Hi"}]
    assert isinstance(result.terminal, Done)
    assert result.terminal.usage == USAGE
    untold = replay(provider(), json.dumps({"output": output}).encode(), framer=WholeBody)
    assert isinstance(untold.terminal, Done)
    waiting = replay(provider(), b'{"object":"response","status":"queued"}', framer=WholeBody)
    assert waiting.terminal is None


def test_nothing_counts_after_the_terminal_event() -> None:
    one = provider()
    state = one.new_state()
    frames = [json.dumps(event).encode() for event in (text("a"), COMPLETED, text("b"), end("failed"))]
    events = [
        made for frame in [*frames, b"[DONE]"] for made in one.translate(one.decode(frame), state, one.io)
    ]
    assert sum(isinstance(event, Done | Error) for event in events) == 1
    assert [*one.finish(state, one.io), *one.abandon(state, one.io)] == []


def test_done_marker_alone_ends_nothing() -> None:
    result = replay_frames(provider(), [json.dumps(text("a")).encode(), b" [DONE]"])
    assert result.terminal is None


def test_terminal_event_without_a_status_means_what_it_is_called() -> None:
    for response in ({}, {"status": "in_progress"}):
        terminal = run(text("a"), {"type": "response.completed", "response": response}).terminal
        assert isinstance(terminal, Done)
        assert terminal.done_reason == "completed"


# -- errors


LIMIT = {"code": "rate_limit_exceeded", "message": "Slow down. Please try again in 1.5s."}


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", **LIMIT, "param": None},
        {"type": "error", "error": {"type": "tokens", **LIMIT}},
        end("failed", error=LIMIT),
        {"error": LIMIT},
        {"type": "response.done", "response": {"status": "failed", "status_details": {"error": LIMIT}}},
    ],
)
def test_E1_error_in_any_form_is_classified_and_the_partial_kept(event: Event) -> None:
    result = run(text("a"), event)
    error = result.terminal
    assert isinstance(error, Error)
    assert (error.kind, error.code, error.retryable) == (ErrorKind.PROVIDER, "rate_limit_exceeded", True)
    assert (error.error, error.retry_after_ms) == (LIMIT["message"], 1500)
    assert error.native is not None
    assert error.native["finish_reason"] == "failed"
    assert result.content == [{"type": "text", "text": "a"}]


def test_E1_named_error_events_are_errors_whatever_is_in_them() -> None:
    for data in (
        b"upstream gone",
        b'{"message":"upstream gone"}',
        b'{"type":"server_error","message":"upstream gone"}',
    ):
        result = replay(provider(), b"event: error\ndata: %b\n\n" % data)
        assert isinstance(result.terminal, Error)
        assert result.terminal.error == "upstream gone"
    named = b"event: error\ndata: " + json.dumps(end("failed", error=LIMIT)).encode() + b"\n\n"
    assert replay(provider(), named).terminal.code == "rate_limit_exceeded"  # type: ignore[union-attr]


def test_E1_error_and_failed_response_are_one_error() -> None:
    event = {"type": "error", "error": {"type": "tokens", **LIMIT}}
    one = provider()
    state = one.new_state()
    assert list(one.translate(one.decode(json.dumps(event).encode()), state, one.io)) == []
    assert one.ending(state)
    result = run(event, end("failed", error={"code": "server_error", "message": "x"}, usage=USAGE))
    [error] = result.events
    assert isinstance(error, Error)
    assert (error.code, error.usage) == ("rate_limit_exceeded", USAGE)
    said = run({"type": "error"}, end("failed", error=LIMIT)).terminal
    assert isinstance(said, Error)
    assert said.code == "rate_limit_exceeded"


def test_E1_failed_response_without_a_word_says_so() -> None:
    error = run(end("failed", error=None)).terminal
    assert isinstance(error, Error)
    assert error.error == "the provider reported an error without saying which"


def test_cancelled_response_is_an_error() -> None:
    for reason, said in ((None, ""), ("client_cancelled", " (client_cancelled)")):
        details = {"reason": reason} if reason else None
        error = run(text("a"), end("cancelled", status_details=details)).terminal
        assert isinstance(error, Error)
        assert (error.kind, error.code, error.retryable) == (ErrorKind.PROVIDER, "cancelled", False)
        assert error.error == f"the provider cancelled the response{said}"


def test_failure_closes_open_blocks_and_marks_calls() -> None:
    result = run(
        added(0, REASONING),
        delta("reasoning_text", 0, "hm"),
        added(1, call()),
        arguments("{}", 1),
        end("failed", error=LIMIT),
    )
    assert [block.get("partial") for block in result.content] == [None, True]
    assert result.content[0] == {"type": "thinking", "text": "hm"}
    assert [type(event) for event in result.events[-3:]] == [ThinkingEnd, ToolCallEnd, Error]


@pytest.mark.parametrize(
    "body",
    [b'{"detail":"Not Found"}', b'{"message":"no","code":"x"}', b'{"code":"x","error":"no"}'],
)
def test_json_error_on_a_200_is_an_error(body: bytes) -> None:
    assert isinstance(replay(provider(), body, framer=WholeBody).terminal, Error)


def test_E3_polite_end_without_a_terminal_event_is_a_cut() -> None:
    result = run(added(0, MESSAGE), text("Hel"), text("lo"))
    assert result.terminal is None
    assert result.content == [{"type": "text", "text": "Hello"}]


@pytest.mark.parametrize("frame", [b"[1]", b'"x"', b"{", b"nonsense"])
def test_what_is_no_object_is_malformed(frame: bytes) -> None:
    with pytest.raises(ValueError):
        read_frame(frame)


def test_D5_comments_ids_and_blank_lines_make_no_event() -> None:
    first, second = json.dumps(text("a")).encode(), json.dumps(COMPLETED).encode()
    wire = (
        b": hello\n\nid: 1\n\nretry: 5\n\nevent: x\nid: 2\ndata: %b\n\n:\n\n: ping\n\ndata:\n\ndata: %b\n\n"
    )
    decoder = SSEDecoder()
    frames = decoder.feed(wire % (first, second))
    assert [bytes(frame) for frame in frames] == [first, second]
    assert isinstance(replay(provider(), wire % (first, second)).terminal, Done)


def test_junk_in_known_events_is_ignored() -> None:
    result = run(
        {"type": "response.created", "response": "x"},
        {"type": "response.output_item.added", "output_index": "one", "item": None},
        {"type": "response.output_text.delta", "output_index": 0, "delta": {"a": 1}},
        {"type": "response.output_text.delta", "delta": "Hi", "item_id": 5},
        {"type": "response.content_part.done", "part": {"type": "reasoning_text", "text": "hm"}},
        {"type": 5, "a": 1},
        COMPLETED,
    )
    assert result.content == [{"type": "text", "text": "Hi"}]
