"""Gemini answers that no recording has: odd shapes, cuts, faults, signatures."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from aiio.context.events import Done, Error, ErrorKind, FinishReason, Placed, TextEnd
from aiio.context.usage_data import usage_normalize
from aiio.env.errors import HttpStatusError
from aiio.providers.base import WORKING
from aiio.providers.gemini import Gemini
from aiio.transports.base import Frame
from aiio.transports.framing import WholeBody

from .conformance import check_events
from .fakes import FakeIO
from .manifest import Replay, replay, replay_frames

STOP = {"candidates": [{"content": {"parts": []}, "finishReason": "STOP"}]}


def provider() -> Gemini:
    return Gemini("http://x", FakeIO(model="gemini-3-pro"))


def chunk(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "index": 0, **more}]}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"text": words, **more}


def call(name: str, args: Any = None, **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, **({} if args is None else {"args": args}), **more}}


def pieces(*found: dict[str, Any], more: bool = True) -> dict[str, Any]:
    return {"functionCall": {"partialArgs": list(found), **({"willContinue": True} if more else {})}}


def read(chunks: Iterable[Any], one: Gemini | None = None) -> Replay:
    """Read *chunks* frame by frame, and check what holds for every answer."""
    frames = [found if isinstance(found, bytes) else json.dumps(found).encode() for found in chunks]
    result = replay_frames(one or provider(), frames)
    check_events(result.events, result.content, cut=result.terminal is None)
    return result


def kinds(result: Replay) -> list[str]:
    return [block["type"] for block in result.content]


def test_text_and_thinking_alternate_as_blocks() -> None:
    result = read(
        [
            chunk(text("hm", thought=True)),
            chunk(text(" hm", thought=True)),
            chunk(text("A"), text("B")),
            chunk(text("")),
            chunk(text("C")),
            chunk(text("D", thought=True)),
            STOP,
        ]
    )
    assert result.content == [
        {"type": "thinking", "text": "hm hm", "thought": True},
        {"type": "text", "text": "ABC"},
        {"type": "thinking", "text": "D", "thought": True},
    ]


def test_other_candidates_do_not_count() -> None:
    other = {"candidates": [{"content": {"parts": [text("no")]}, "index": 1, "finishReason": "STOP"}]}
    result = read([chunk(text("a")), other, chunk(text("b")), other])
    assert result.text() == "ab"
    assert result.terminal is None


def test_one_part_with_an_index_of_its_own_is_read_with_care() -> None:
    assert read([chunk(text("a")), chunk(text("b"), index=1), STOP]).text() == "a"


# -- signatures


def test_a_signature_stays_with_the_characters_it_came_with() -> None:
    result = read([chunk(text("ab")), chunk(text("cd", thoughtSignature="S")), chunk(text("ef")), STOP])
    [block] = result.content
    assert block == {
        "type": "text",
        "text": "abcdef",
        "thought_signature": "S",
        "thought_signature_span": [2, 4],
    }


def test_a_signature_of_the_whole_block_needs_no_place() -> None:
    result = read([chunk(text("hm", thought=True, thoughtSignature="S")), STOP])
    assert result.content == [{"type": "thinking", "text": "hm", "thought": True, "thought_signature": "S"}]


def test_two_signatures_are_two_blocks() -> None:
    result = read(
        [
            chunk(text("a", thoughtSignature="S")),
            chunk(text("b", thoughtSignature="T")),
            chunk(text("", thoughtSignature="U")),
            STOP,
        ]
    )
    assert [block.get("thought_signature") for block in result.content] == ["S", "T", None]
    assert result.content[2]["item"] == {"text": "", "thoughtSignature": "U"}


@pytest.mark.parametrize("before", [[], [text("hm", thought=True)], [call("f")]])
def test_a_signature_without_text_before_it_stands_alone(before: list[Any]) -> None:
    part = {"text": "", "thoughtSignature": "S"}
    result = read([chunk(*before), chunk(part), STOP])
    assert result.content[-1] == {"type": "server", "dialect": "gemini", "item": part}
    assert read([chunk(*before), chunk({"thoughtSignature": "S"}), STOP]).content[-1]["item"] == {
        "thoughtSignature": "S"
    }


def test_a_signed_text_that_is_cut_keeps_its_signature() -> None:
    result = read([chunk(text("ab", thoughtSignature="S")), chunk(text("c"))])
    assert result.events[-1] == TextEnd(
        0, metadata={"thought_signature": "S", "thought_signature_span": [0, 2]}
    )
    assert result.content[0]["thought_signature"] == "S"


def test_thinking_that_is_cut_loses_its_signature() -> None:
    result = read([chunk(text("ab", thought=True, thoughtSignature="S")), {"error": {"message": "no"}}])
    assert result.content == [{"type": "thinking", "text": "ab"}]


# -- whole parts


def test_items_of_the_server_are_kept_as_they_came() -> None:
    items = [
        {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "S"},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"fileData": {"mimeType": "image/png", "fileUri": "gs://b/c"}},
        {"somethingNew": {}},
    ]
    result = read([chunk(text("a"), *items, text("b")), STOP])
    assert kinds(result) == ["text", "server", "server", "server", "server", "text"]
    assert [block.get("item") for block in result.content[1:-1]] == items


def test_images_are_blocks_and_pieces_of_speech_one_block() -> None:
    png, pcm = {"mimeType": "image/png", "data": "iVBO"}, "audio/L16;rate=24000"
    result = read(
        [
            chunk({"inlineData": png, "thoughtSignature": "S"}, {"inlineData": png, "thought": True}),
            chunk({"inlineData": {"mimeType": pcm, "data": "AAAA"}}),
            chunk({"inlineData": {"mimeType": pcm, "data": "BBBB"}}),
            chunk({"inlineData": {"mimeType": "audio/wav", "data": "CCCC"}}),
            chunk({"inlineData": {"mimeType": "image/png", "data": ""}}),
            chunk({"inlineData": {"data": "DDDD"}}),
            STOP,
        ]
    )
    assert result.content == [
        {"type": "binary", "mimetype": "image/png", "content": "iVBO", "thought_signature": "S"},
        {"type": "binary", "mimetype": "image/png", "content": "iVBO", "thought": True},
        {"type": "binary", "mimetype": pcm, "content": "AAAABBBB"},
        {"type": "binary", "mimetype": "audio/wav", "content": "CCCC"},
        {"type": "binary", "mimetype": "application/octet-stream", "content": "DDDD"},
    ]


def test_speech_is_work_before_it_is_a_block() -> None:
    one = provider()
    state = one.new_state()
    speech = chunk({"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}})
    assert one.translate([speech], state, one.io) is WORKING
    assert one.translate([chunk(text(""))], state, one.io) == []
    [placed] = one.abandon(state, one.io)
    assert isinstance(placed, Placed)
    assert one.abandon(state, one.io) == []


# -- calls


def test_F1_calls_are_told_apart_by_order_and_made_ids_are_unique() -> None:
    result = read(
        [
            chunk(call("f", {"a": 1}), call("f", {"a": 2}), call("g", id="x"), call("g", {"b": 1}, id="x")),
            STOP,
        ]
    )
    calls = result.content
    assert [(block["name"], block["arguments"]) for block in calls] == [
        ("f", {"a": 1}),
        ("f", {"a": 2}),
        ("g", {}),
        ("g", {"b": 1}),
    ]
    assert len({block["call_id"] for block in calls}) == 4
    assert calls[2]["call_id"] == "x"
    assert isinstance(result.terminal, Done)
    assert result.terminal.finish is FinishReason.TOOL_USE


def test_arguments_may_be_text_and_need_not_be_an_object() -> None:
    result = read([chunk(call("f", '{"a": 1}'), call("f", "not json"), call("f", [1])), STOP])
    assert [block["arguments"] for block in result.content] == [{"a": 1}, "not json", [1]]
    assert [block.get("partial") for block in result.content] == [None, True, None]


def test_a_call_without_a_name_can_not_be_made() -> None:
    result = read([chunk({"functionCall": {"args": {"a": 1}}}), chunk({"functionCall": {}}), STOP])
    assert [block.get("partial") for block in result.content] == [True]


def test_streamed_arguments_of_one_id_are_one_call() -> None:
    a, b = {"jsonPath": "$.a", "stringValue": "x"}, {"jsonPath": "$.b", "numberValue": 1}
    begin = {"functionCall": {"name": "f", "id": "x", "willContinue": True}, "thoughtSignature": "S"}
    more = {"functionCall": {"name": "f", "id": "x", "partialArgs": [b, 7], "willContinue": True}}
    result = read([chunk(begin), chunk(pieces(a)), chunk(more), chunk({"functionCall": {}}), STOP])
    assert result.content == [
        {
            "type": "tool_call",
            "call_id": "x",
            "name": "f",
            "arguments": {"a": "x", "b": 1},
            "thought_signature": "S",
        }
    ]


def test_the_end_of_streamed_arguments_may_be_left_out() -> None:
    a = {"jsonPath": "$.a", "stringValue": "x", "willContinue": True}
    result = read(
        [chunk(call("f", willContinue=True)), chunk(pieces(a)), chunk(call("g", willContinue=True)), STOP]
    )
    assert [block["arguments"] for block in result.content] == [{"a": "x"}, {}]
    assert not any(block.get("partial") for block in result.content)
    nothing = read([chunk(call("f", willContinue=True)), chunk({"functionCall": {}}), STOP])
    assert nothing.content[0]["arguments"] == {}


@pytest.mark.parametrize("reason", ["MAX_TOKENS", "STOP", None])
def test_F3_arguments_cut_short_are_kept_raw_and_not_callable(reason: str | None) -> None:
    arguments = {"path": "a/b", "lines": [1, 2], "more": {"x": "é😀" * 8}}
    found: list[dict[str, Any]] = [
        {"jsonPath": "$.path", "stringValue": "a/b"},
        {"jsonPath": "$.lines[0]", "numberValue": 1},
        {"jsonPath": "$.lines[1]", "numberValue": 2},
        *({"jsonPath": "$.more.x", "stringValue": character} for character in "é😀" * 8),
    ]
    for upto in range(len(found) + 1):
        chunks = [chunk(call("f", willContinue=True)), *(chunk(pieces(one)) for one in found[:upto])]
        if reason:
            chunks.append(chunk(finishReason=reason))
        result = read(chunks)
        [block] = result.content
        if reason == "STOP":
            assert not block.get("partial")
            continue
        assert block["partial"] is True
        assert isinstance(block["arguments"], str)
        assert json.dumps(arguments, ensure_ascii=False, separators=(",", ":")).startswith(block["arguments"])
        if reason:
            assert isinstance(result.terminal, Done)
            assert result.terminal.finish is FinishReason.LENGTH


def test_pieces_out_of_order_are_work_and_count_in_the_end() -> None:
    one = provider()
    state = one.new_state()
    a, b = {"jsonPath": "$.a", "stringValue": "x"}, {"jsonPath": "$.b", "numberValue": 1}
    chunks = [chunk(call("f", willContinue=True)), chunk(pieces(a, b)), chunk(pieces(a))]
    assert [one.translate([found], state, one.io) is WORKING for found in chunks] == [False, False, True]
    result = read([*chunks, chunk({"functionCall": {}}), STOP])
    assert result.content[0]["arguments"] == {"a": "xx", "b": 1}


def test_pieces_that_do_not_fit_make_the_answer_unreadable() -> None:
    bad = [{"jsonPath": "$.a", "stringValue": "x"}, {"jsonPath": "$.a.b", "stringValue": "y"}]
    result = read([chunk(call("f", willContinue=True)), chunk(pieces(*bad))])
    assert result.fault is not None
    assert result.content[0]["partial"] is True


# -- the end


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", FinishReason.STOP),
        ("MAX_TOKENS", FinishReason.LENGTH),
        ("SAFETY", FinishReason.REFUSAL),
        ("LANGUAGE", FinishReason.REFUSAL),
        ("CONTINUATION", FinishReason.PAUSED),
        ("SOMETHING_NEW", FinishReason.OTHER),
    ],
)
def test_finish_reasons(reason: str, finish: FinishReason) -> None:
    rated = [{"category": "HARM", "probability": "HIGH"}]
    end = {"candidates": [{"finishReason": reason, "safetyRatings": rated, "continuationToken": "t"}]}
    terminal = read([{"responseId": "r", "modelVersion": "m"}, chunk(text("a")), end, end]).terminal
    assert isinstance(terminal, Done)
    assert (terminal.done_reason, terminal.finish) == (reason, finish)
    assert terminal.native == {
        "id": "r",
        "model": "m",
        "finish_reason": reason,
        "safety_ratings": rated,
        "continuation_token": "t",
    }


@pytest.mark.parametrize(
    ("reason", "again"), [("MALFORMED_FUNCTION_CALL", True), ("UNEXPECTED_TOOL_CALL", False)]
)
def test_reasons_that_mean_failure_are_errors(reason: str, again: bool) -> None:
    result = read([chunk(text("a"), finishReason=reason, finishMessage="Malformed: print(1)")])
    terminal = result.terminal
    assert isinstance(terminal, Error)
    assert (terminal.error, terminal.code, terminal.retryable) == ("Malformed: print(1)", reason, again)
    assert terminal.native == {"finish_reason": reason, "finish_message": "Malformed: print(1)"}
    assert result.text() == "a"


def test_what_follows_the_finish_reason_is_not_lost() -> None:
    late = {"usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2}}
    one = provider()
    result = read([chunk(text("a"), finishReason="STOP"), chunk(text("b")), late], one)
    assert one.ending(result.state)
    assert result.text() == "ab"
    assert result.terminal is not None
    assert usage_normalize(result.terminal.usage)["output_tokens"] == 2


def test_nothing_is_said_after_the_end() -> None:
    one = provider()
    state = one.new_state()
    chunks = [{"error": {"message": "no"}}, chunk(text("a"))]
    assert len(list(one.translate(chunks, state, one.io))) == 1
    assert one.finish(state, one.io) == []
    assert one.abandon(state, one.io) == []


def test_E3_a_stream_without_a_finish_reason_is_no_answer() -> None:
    result = read([chunk(text("half a sen"))])
    assert result.terminal is None
    assert result.content == [{"type": "text", "text": "half a sen"}]


def test_a_blocked_prompt_is_an_error_also_in_mid_answer() -> None:
    block = {"promptFeedback": {"blockReason": "OTHER", "blockReasonMessage": "Not this."}}
    result = read([chunk(text("a")), block])
    assert isinstance(result.terminal, Error)
    assert (result.terminal.error, result.terminal.code) == ("Not this.", "OTHER")
    assert result.text() == "a"
    assert isinstance(
        read([{"promptFeedback": {"safetyRatings": []}}, chunk(text("a")), STOP]).terminal, Done
    )


# -- faults


QUOTA = "GenerateRequestsPerMinutePerProjectPerModel"


def exhausted(quota: str, value: Any = "10", delay: Any = "1.5s") -> dict[str, Any]:
    details = [
        {"violations": [{"quotaId": quota, "quotaValue": value}, {"quotaId": None}, 3]},
        {"retryDelay": delay},
        "junk",
    ]
    message = "You exceeded your current quota, please check your plan and billing details."
    return {"error": {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": details}}


def test_E1_an_error_in_the_stream_is_classified_and_quotas_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = provider()
    monkeypatch.setattr(one, "now", lambda: 1000.0)
    result = read([chunk(text("a")), chunk(text("b")), exhausted(QUOTA)], one)
    terminal = result.terminal
    assert isinstance(terminal, Error)
    assert (terminal.kind, terminal.code, terminal.status) == (ErrorKind.PROVIDER, "RESOURCE_EXHAUSTED", 429)
    assert (terminal.retryable, terminal.retry_after_ms) == (True, 1500)
    assert result.text() == "ab"
    assert isinstance(one.io, FakeIO)
    assert one.io.plan_usage == [{QUOTA: {"total": 10, "used": 10, "remaining": 0, "reset": 1001.5}}]


def test_G3_a_quota_by_day_is_not_worth_waiting_for() -> None:
    one = provider()
    terminal = read([exhausted("RequestsPerDay", value=None, delay="junk")], one).terminal
    assert isinstance(terminal, Error)
    assert (terminal.retryable, terminal.retry_after_ms) == (False, None)
    assert isinstance(one.io, FakeIO)
    assert one.io.plan_usage == [{"RequestsPerDay": {"remaining": 0}}]


def test_an_error_may_come_in_an_array_or_under_its_name_or_as_prose() -> None:
    error = {"error": {"code": 503, "message": "Overloaded.", "status": "UNAVAILABLE"}}
    frames: list[Any] = [
        [error],
        Frame(json.dumps(error).encode(), "error"),
        Frame(b'{"message": "Overloaded.", "code": 503}', "error"),
        Frame(b"Overloaded.", "error"),
    ]
    for frame in frames:
        terminal = read([chunk(text("a")), frame]).terminal
        assert isinstance(terminal, Error)
        assert (terminal.error, terminal.retryable) == ("Overloaded.", True)


def test_bare_json_over_many_lines_is_an_error_too() -> None:
    wire = f"data: {json.dumps(chunk(text('a')))}\r\n\r\n"
    error = json.dumps({"error": {"code": 500, "message": "Internal.", "status": "INTERNAL"}}, indent=2)
    terminal = replay(provider(), (wire + error).encode()).terminal
    assert isinstance(terminal, Error)
    assert (terminal.code, terminal.status) == ("INTERNAL", 500)


def test_http_errors_that_are_no_json_are_still_classified() -> None:
    one = provider()
    verdict = one.classify_error(HttpStatusError(502, "Bad Gateway", "<html>no</html>"))
    assert (verdict.status, verdict.retryable) == (502, True)
    array = json.dumps([exhausted(QUOTA)])
    assert one.classify_error(HttpStatusError(429, "", array)).retryable
    assert isinstance(one.io, FakeIO)
    assert list(one.io.plan_usage[0]) == [QUOTA]
    assert one.classify_error(OSError("gone")).kind is ErrorKind.NETWORK


# -- odd shapes


def test_an_answer_without_sse_is_an_array_of_chunks_or_one() -> None:
    chunks = [chunk(text("a")), chunk(text("b")), STOP]
    result = replay(provider(), json.dumps(chunks).encode(), framer=WholeBody)
    assert (result.text(), type(result.terminal)) == ("ab", Done)
    whole = json.dumps(chunk(text("ab"), finishReason="STOP")).encode()
    assert replay(provider(), whole, framer=WholeBody).text() == "ab"


@pytest.mark.parametrize("frame", [b"nonsense", b"3", b"[3]", b'"text"', b"\xff"])
def test_what_is_no_chunk_is_unreadable(frame: bytes) -> None:
    result = read([chunk(text("a")), frame])
    assert result.fault is not None
    assert result.text() == "a"


def test_the_mark_of_other_dialects_says_nothing() -> None:
    assert isinstance(read([chunk(text("a")), STOP, b"[DONE]"]).terminal, Done)


def test_D5_comments_and_empty_events_carry_nothing() -> None:
    first, second = json.dumps(chunk(text("a"))), json.dumps(chunk(text("b"), finishReason="STOP"))
    head, _, tail = first.partition(", ")
    wire = (
        f":\n\nid: 1\ndata: {head},\n: ping\ndata: {tail}\n\n: ping\n\ndata:\n\nid: 2\n\ndata: {second}\n\n"
    )
    assert replay(provider(), wire.encode()).text() == "ab"


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"candidates": None},
        {"candidates": []},
        {"candidates": [None, 3]},
        {"candidates": [{}]},
        {"candidates": [{"content": None}]},
        {"candidates": [{"content": {}}]},
        {"candidates": [{"content": {"role": "model"}}]},
        {"candidates": [{"content": {"parts": None}}]},
        {"candidates": [{"content": {"parts": [None, 3, {}, {"text": None}, {"text": 3}]}}]},
        {"candidates": [{"content": {"parts": [{"functionCall": None, "text": ""}]}}]},
        {"usageMetadata": None},
        {"usageMetadata": 3, "promptFeedback": None, "error": None},
        {"error": {}},
    ],
)
def test_G1_odd_chunks_are_fine_anywhere(odd: dict[str, Any]) -> None:
    usage = {"promptTokenCount": 5, "candidatesTokenCount": None, "thoughtsTokenCount": True}
    a, b = ({**chunk(text(words)), "usageMetadata": usage} for words in "ab")
    result = read([odd, a, odd, b, odd, STOP, odd])
    if "functionCall" not in json.dumps(odd):
        assert kinds(result) == ["text"]
    assert result.text() == "ab"
    assert isinstance(result.terminal, Done)
    assert usage_normalize(result.terminal.usage) == {"input_tokens": 5}


@pytest.mark.parametrize(
    ("usage", "found"),
    [
        (b"null", None),
        (b"3", None),
        (b'{"promptTokenCount": 3}', {"promptTokenCount": 3}),
        (b'{"promptTokenCount": NaN, "candidatesTokenCount": 4}', {"candidatesTokenCount": 4}),
        (b'{"x": "\\ud800"}', {"x": "\ud800"}),
        (b'{"x": "\xff"}', None),
    ],
)
def test_G1_usage_on_every_chunk_is_looked_at_when_it_is_asked_for(usage: bytes, found: Any) -> None:
    frame = json.dumps(chunk(text("b"))).encode()[:-1] + b', "usageMetadata": ' + usage + b"}"
    one = provider()
    state = one.new_state()
    try:
        list(one.translate_all([json.dumps(chunk(text("a"))).encode(), frame], state, one.io))
    except ValueError:
        assert found is None
    known = state.usage
    if known is not None:
        known.pop("promptTokenCount", None) if b"NaN" in usage else None
    assert known == found


def test_halves_of_a_surrogate_pair_are_joined() -> None:
    wire = [json.dumps(chunk(text(words))).encode() for words in ("x\ud83d", "\ude00", "y", "\ud83d")]
    result = read([*wire, STOP])
    assert result.text() == "x😀y\ud83d"
    cut = read(wire)
    assert cut.text() == "x😀y\ud83d"
