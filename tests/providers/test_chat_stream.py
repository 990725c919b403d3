"""What single chunks of a Chat Completions stream become."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aiio.context.events import (
    Done,
    Error,
    ErrorKind,
    FinishReason,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from aiio.providers.openai_chat import OpenAIChat
from aiio.transports.base import Frame
from aiio.transports.framing import SSEDecoder, WholeBody

from .conformance import check_events
from .fakes import FakeIO
from .manifest import Replay, replay, replay_frames

DONE = b"[DONE]"


def chunk(delta: Any = None, finish: str | None = None, **top: Any) -> bytes:
    """Return a frame with one choice."""
    choice = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish}
    return json.dumps({"id": "c1", "model": "m1", "choices": [choice], **top}).encode()


def call(**fields: Any) -> dict[str, Any]:
    """Return a delta with one piece of a tool call; `name` and `arguments` go where they belong."""
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return {"tool_calls": [{**fields, "function": function}]}


def answer(
    *frames: bytes, cut: bool = False, quirks: dict[str, Any] | None = None, **settings: Any
) -> Replay:
    """Return what *frames* become, checked against the laws."""
    result = replay_frames(OpenAIChat("http://x", FakeIO(quirks=quirks or {}, **settings)), frames)
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


def test_a_common_delta_is_one_event() -> None:
    one = OpenAIChat("http://x", FakeIO())
    state = one.new_state()
    first = one.translate(one.decode(chunk({"content": "a"})), state, one.io)
    assert first == [TextStart(0), TextDelta(0, "a")]
    assert one.translate(one.decode(chunk({"content": "b"})), state, one.io) == [TextDelta(0, "b")]
    assert not one.ending(state)
    assert one.translate(one.decode(chunk(finish="stop")), state, one.io) == [TextEnd(0)]
    assert one.ending(state)
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    late = json.dumps({"choices": [], "usage": usage, "service_tier": "flex"}).encode()
    assert one.translate(one.decode(late), state, one.io) == []
    [end] = one.finish(state, one.io)
    assert end == Done(
        done_reason="stop",
        usage={**usage, "service_tier": "flex"},
        native={"id": "c1", "model": "m1", "service_tier": "flex", "finish_reason": "stop"},
    )
    assert one.finish(state, one.io) == []
    assert one.abandon(state, one.io) == []
    assert one.translate(one.decode(chunk({"content": "late"})), state, one.io) == []


# -- blocks


def test_text_after_a_tool_call_opens_a_new_block() -> None:
    result = answer(
        chunk({"content": "a"}),
        chunk(call(index=0, id="x", name="f", arguments="{")),
        chunk({"content": "b"}),
        chunk(call(index=0, arguments="}")),
        chunk(finish="tool_calls"),
        DONE,
    )
    assert [block["type"] for block in result.content] == ["text", "tool_call", "text"]
    assert result.content[1]["arguments"] == {}


def test_content_after_the_finish_reason_is_kept() -> None:
    result = answer(chunk({"content": "a"}, "stop"), chunk({"content": "b"}), DONE)
    assert [block["text"] for block in result.content] == ["a", "b"]
    assert done(result).finish is FinishReason.STOP


def test_content_lists_hold_text_thinking_images_and_refusals() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}, {"type": "text"}]},
        {"type": "thinking", "thinking": "m"},
        {"type": "text", "text": "a"},
        "b",
        7,
        {"type": "reference", "reference_ids": [1]},
        {"type": "image_url", "image_url": "data:image/png;base64,AAAA"},
        {"type": "refusal", "refusal": "no"},
        {"type": "refusal", "refusal": ""},
        {"type": "text", "text": ""},
    ]
    result = answer(chunk({"content": parts}, "stop"), DONE)
    assert result.content == [
        {"type": "thinking", "text": "hmm"},
        {"type": "text", "text": "ab"},
        {"type": "binary", "mimetype": "image/png", "content": "AAAA"},
        {"type": "text", "text": "no", "refusal": True},
    ]
    assert done(result).finish is FinishReason.REFUSAL


def test_an_image_that_is_no_data_url_is_kept_as_it_is() -> None:
    images = [{"image_url": {"url": "https://x/y.png"}}, {"image_url": {"url": "data:;base64,AA=="}}, {}, 3]
    result = answer(chunk({"images": images}), chunk(finish="stop"), DONE)
    assert result.content == [
        {"type": "image_url", "url": "https://x/y.png"},
        {"type": "binary", "mimetype": "application/octet-stream", "content": "AA=="},
    ]


def test_reasoning_is_read_once_when_it_comes_in_two_fields() -> None:
    both = {
        "reasoning": "a",
        "reasoning_content": "a",
        "reasoning_details": [{"type": "reasoning.text", "text": "a"}],
    }
    result = answer(
        chunk(both), chunk({"reasoning": "b"}), chunk({"content": "c"}), chunk(finish="stop"), DONE
    )
    assert result.text("thinking") == "ab"


def test_reasoning_details_alone_are_shown_and_kept() -> None:
    pieces = [
        {"type": "reasoning.summary", "index": 0, "summary": "a"},
        {"type": "reasoning.summary", "index": 0, "summary": "b", "format": None},
        {"type": "reasoning.encrypted", "index": 1, "data": "x", "id": "r1"},
        {"type": "reasoning.encrypted", "index": 1, "data": "y"},
        {"type": "reasoning.encrypted", "data": "z"},
        "junk",
    ]
    frames = [chunk({"reasoning_details": [piece]}) for piece in pieces]
    result = answer(*frames, chunk({"content": "c"}), DONE, quirks={"finish_optional": True})
    assert result.content[0] == {
        "type": "thinking",
        "text": "ab",
        "reasoning_details": [
            {"type": "reasoning.summary", "index": 0, "summary": "ab"},
            {"type": "reasoning.encrypted", "index": 1, "data": "xy", "id": "r1"},
            {"type": "reasoning.encrypted", "data": "z"},
        ],
    }


def test_reasoning_details_without_an_index_flow_together() -> None:
    pieces = [
        {"type": "reasoning.text", "text": "a"},
        {"type": "reasoning.text", "text": "b", "signature": "s"},
        {"type": "reasoning.encrypted", "data": "x"},
        {"type": "reasoning.encrypted", "data": "y"},
        {"type": "reasoning.text", "text": "c"},
        {"type": "reasoning.text", "index": {}, "text": "d"},
    ]
    result = answer(*(chunk({"reasoning_details": [piece]}) for piece in pieces), chunk(finish="stop"), DONE)
    assert result.content == [
        {
            "type": "thinking",
            "text": "abcd",
            "reasoning_details": [
                {"type": "reasoning.text", "text": "ab", "signature": "s"},
                {"type": "reasoning.encrypted", "data": "x"},
                {"type": "reasoning.encrypted", "data": "y"},
                {"type": "reasoning.text", "text": "c"},
                {"type": "reasoning.text", "index": {}, "text": "d"},
            ],
        }
    ]


def test_hidden_reasoning_rides_on_the_block_that_ends_next() -> None:
    hidden = {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}
    result = answer(
        chunk(hidden),
        chunk(call(index=0, id="a", name="f", arguments="{}")),
        chunk(finish="tool_calls"),
        DONE,
    )
    assert result.content[0]["reasoning_details"] == hidden["reasoning_details"]
    alone = answer(chunk(hidden), chunk(finish="stop"), DONE)
    assert (done(alone).native or {})["reasoning_details"] == hidden["reasoning_details"]


def test_sources_go_with_the_text_that_ends_next() -> None:
    found = {"citations": ["u"], "search_results": [{"url": "u"}]}
    result = answer(chunk({"content": "a"}, "stop", **found), DONE)
    assert result.content == [{"type": "text", "text": "a", **found}]
    noted = [chunk({"content": "a", "annotations": [1]}), chunk({"annotations": [2]}), chunk(finish="stop")]
    assert answer(*noted, DONE).content == [{"type": "text", "text": "a", "annotations": [1, 2]}]
    late = answer(chunk({"content": "a"}, "stop"), chunk(citations=["u"]), chunk(citations=[]), DONE)
    assert (done(late).native or {})["citations"] == ["u"]


def test_refusal_is_a_block_of_its_own() -> None:
    result = answer(
        chunk({"content": "a"}), chunk({"refusal": "n"}), chunk({"refusal": "o"}), chunk(finish="stop"), DONE
    )
    assert result.content == [{"type": "text", "text": "a"}, {"type": "text", "text": "no", "refusal": True}]
    assert done(result).finish is FinishReason.REFUSAL
    assert done(result).done_reason == "stop"


def test_audio_pieces_that_are_padded_each_are_joined_by_value() -> None:
    frames = [
        chunk({"audio": {"data": "AA=="}}),
        chunk({"audio": {"data": "AQ=="}}),
        chunk({"audio": {"data": 1}}),
    ]
    result = answer(*frames, chunk(finish="stop"), DONE, audio={"format": "pcm16"})
    assert result.content == [{"type": "binary", "mimetype": "audio/pcm16", "content": "AAE="}]


@pytest.mark.parametrize(
    ("spoken", "mimetype"), [("mp3", "audio/mpeg"), ("opus", "audio/opus"), (None, "audio/wav")]
)
def test_audio_is_what_the_request_asked_for(spoken: str | None, mimetype: str) -> None:
    settings: dict[str, Any] = {"audio": {"voice": "a", "format": spoken}} if spoken else {}
    result = answer(chunk({"audio": {"data": "AA=="}}, "stop"), DONE, **settings)
    assert result.content[0]["mimetype"] == mimetype


def test_audio_that_is_no_base64_is_kept_as_it_came() -> None:
    result = answer(chunk({"audio": {"data": "A="}}), chunk({"audio": {"data": "B"}}, "stop"), DONE)
    assert result.content[0]["content"] == "A=B"


def test_audio_is_placed_when_the_answer_is_cut() -> None:
    result = answer(chunk({"audio": {"transcript": "Hi", "data": "AAAA"}}), cut=True)
    assert [block["type"] for block in result.content] == ["text", "binary"]


# -- tool calls


F1 = {
    "all index 0 with two ids": [
        call(index=0, id="a", name="f", arguments='{"x":1}'),
        call(index=0, id="b", name="g", arguments='{"y":2}'),
    ],
    "no index": [
        call(id="a", name="f", arguments='{"x":'),
        call(arguments="1}"),
        call(id="b", name="g", arguments='{"y":'),
        call(id="b", arguments="2}"),
    ],
    "null index": [
        call(index=None, id="a", name="f", arguments='{"x":'),
        call(index=None, id="a", arguments="1}"),
        call(index=None, id="b", name="g", arguments='{"y":2}'),
    ],
    "index 0 then 1 for the same id": [
        call(index=0, id="a", name="f", arguments='{"x":'),
        call(index=1, id="a", arguments="1"),
        call(index=1, arguments="}"),
        call(index=2, id="b", name="g", arguments='{"y":2}'),
    ],
    "interleaved": [
        call(index=0, id="a", name="f", arguments='{"x"'),
        call(index=1, id="b", name="g", arguments='{"y"'),
        call(index=0, arguments=":1}"),
        call(index=1, arguments=":2}"),
    ],
    "index starting at 1": [
        call(index=1, id="a", name="f", arguments=""),
        call(index=1, arguments='{"x":1}'),
        call(index=3, id="b", name="g", arguments='{"y":2}'),
    ],
}


@pytest.mark.parametrize("deltas", F1.values(), ids=F1.keys())
def test_F1_parallel_calls_are_told_apart(deltas: list[dict[str, Any]]) -> None:
    result = answer(*map(chunk, deltas), chunk(finish="tool_calls"), DONE)
    assert calls(result) == [("a", "f", {"x": 1}), ("b", "g", {"y": 2})]
    assert done(result).finish is FinishReason.TOOL_USE
    starts = [event.content_index for event in result.events if isinstance(event, ToolCallStart)]
    assert starts == [0, 1]


def test_F1_no_index_in_one_list_without_ids() -> None:
    pieces = [
        {"function": {"name": "f", "arguments": "{}"}},
        {"function": {"name": "f", "arguments": '{"a":1}'}},
    ]
    result = answer(
        chunk({"tool_calls": pieces}), chunk(call(name="g", arguments="{}")), chunk(finish="stop"), DONE
    )
    assert [(name, arguments) for _, name, arguments in calls(result)] == [
        ("f", {}),
        ("f", {"a": 1}),
        ("g", {}),
    ]
    ids = [call_id for call_id, _, _ in calls(result)]
    assert len(set(ids)) == 3
    assert all(call_id.startswith("call_") for call_id in ids)


def test_an_id_that_comes_late_belongs_to_the_call_of_its_index() -> None:
    result = answer(
        chunk(call(index=0, arguments='{"a"')),
        chunk(call(index=0, id="late")),
        chunk(call(index=0, name="null")),
        chunk(call(index=0, name="f", arguments=":1}")),
        chunk(finish="tool_calls"),
        DONE,
    )
    assert calls(result) == [("late", "f", {"a": 1})]


def test_a_call_without_a_name_is_kept_and_not_callable() -> None:
    result = answer(
        chunk(call(index=0, arguments='{"a":1}')), chunk(call(index=1)), chunk(finish="stop"), DONE
    )
    [block] = result.content
    assert (block["name"], block["arguments"], block["partial"]) == ("", '{"a":1}', True)
    assert done(result).finish is FinishReason.STOP


def test_arguments_may_come_as_a_value() -> None:
    result = answer(
        chunk(call(index=0, id="a", name="f", arguments={"q": [1]})), chunk(finish="tool_calls"), DONE
    )
    assert calls(result) == [("a", "f", {"q": [1]})]
    assert [type(event) for event in result.events][:2] == [ToolCallStart, ToolCallEnd]


def test_the_old_function_call_is_a_tool_call() -> None:
    frames = [
        chunk({"function_call": {"name": "f", "arguments": "{"}}),
        chunk({"function_call": {"arguments": "}"}}),
    ]
    result = answer(*frames, chunk(finish="function_call"), DONE)
    assert calls(result)[0][1:] == ("f", {})
    assert done(result).finish is FinishReason.TOOL_USE


def test_signatures_of_calls_are_kept_for_replay() -> None:
    extra = {"google": {"thought_signature": "s"}}
    result = answer(
        chunk(call(index=0, id="a", name="f", arguments="{}", extra_content=extra)),
        chunk(finish="stop"),
        DONE,
    )
    assert result.content[0]["extra_content"] == extra


@pytest.mark.parametrize("reason", ["length", "tool_calls", None])
def test_F3_arguments_cut_anywhere_stay_raw(reason: str | None) -> None:
    whole = json.dumps({"path": "a" * 120, "list": list(range(30)), "text": 'say "hi"\\'})
    assert len(whole) > 250
    for at in range(len(whole)):
        end = [chunk(finish=reason)] if reason else []
        frames = [chunk(call(index=0, id="a", name="f", arguments=whole[:at])), *end]
        result = answer(*frames, *([DONE] if reason else []), cut=reason is None)
        [block] = result.content
        if at == 0 and reason == "tool_calls":
            assert block["arguments"] == {}  # a call of a tool without parameters
        else:
            assert block["arguments"] == whole[:at]
            assert block["partial"] is True
        if reason:
            assert done(result).finish == ("length" if reason == "length" else "tool_use")


# -- finish reasons and the end


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("length", "length"),
        ("MAX_TOKENS", "length"),
        ("model_length", "length"),
        ("content_filter", "refusal"),
        ("sensitive", "refusal"),
        ("made_up", "other"),
    ],
)
def test_finish_reasons(reason: str, finish: str) -> None:
    event = done(answer(chunk({"content": "a"}), chunk(finish=reason), DONE))
    assert (event.done_reason, event.finish) == (reason, finish)


@pytest.mark.parametrize("reason", ["stop", "", None, "eos"])
def test_stop_after_calls_means_tool_use(reason: str | None) -> None:
    result = answer(chunk(call(index=0, id="a", name="f", arguments="{}"), reason), DONE)
    assert done(result).finish is FinishReason.TOOL_USE


def test_the_first_finish_reason_decides_and_the_last_is_told() -> None:
    event = done(answer(chunk({"content": "a"}, "length"), chunk(finish="stop"), DONE))
    assert (event.finish, event.done_reason) == (FinishReason.LENGTH, "stop")


@pytest.mark.parametrize(("reason", "retryable"), [("error", False), ("insufficient_system_resource", True)])
def test_finish_reasons_that_mean_failure(reason: str, retryable: bool) -> None:
    event = failed(answer(chunk({"content": "a"}), chunk(finish=reason), DONE))
    assert event.error == f"the provider ended the answer with {reason!r}"
    assert (event.code, event.retryable, event.kind) == (reason, retryable, ErrorKind.PROVIDER)


def test_end_of_stream_after_a_finish_reason_is_done() -> None:
    assert done(answer(chunk({"content": "a"}), chunk(finish="stop"))).done_reason == "stop"


def test_done_mark_without_a_finish_reason_is_done() -> None:
    event = done(answer(chunk({"content": "a"}), DONE, DONE))
    assert (event.done_reason, event.finish) == (None, FinishReason.STOP)


def test_end_of_stream_without_either_is_no_end() -> None:
    answer(chunk({"content": "a"}), cut=True)
    answer(chunk({"content": "a"}), chunk(finish=""), cut=True)


def test_end_of_stream_may_be_the_end_where_no_reason_is_given() -> None:
    quirks = {"finish_optional": True}
    assert done(answer(chunk({"content": "a"}), quirks=quirks)).finish is FinishReason.STOP
    answer(cut=True, quirks=quirks)


# -- usage (G1)


USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}


def bare(**fields: Any) -> bytes:
    return json.dumps({"id": "c1", "model": "m1", **fields}).encode()


G1 = {
    "empty choices": ([bare(choices=[], usage=USAGE)], USAGE),
    "null choices": ([bare(choices=None, usage=USAGE)], USAGE),
    "missing choices": ([bare(usage=USAGE)], USAGE),
    "null usage": ([bare(choices=[], usage=None)], None),
    "never": ([], None),
    "odd usage": ([bare(choices=[], usage="many")], None),
    "before content": ([bare(choices=[], usage={"prompt_tokens": 1}), bare(choices=[], usage=USAGE)], USAGE),
    "in the choice": (
        [b'{"choices":[{"index":0,"delta":{},"usage":{"prompt_tokens":3}}]}'],
        {"prompt_tokens": 3},
    ),
    "of groq": ([bare(choices=[], x_groq={"id": "req_1", "usage": USAGE})], USAGE),
    "of groq, without usage": ([bare(choices=[], x_groq={"id": 0})], None),
    "null members": (
        [bare(choices=[], usage={**USAGE, "completion_tokens_details": None})],
        {**USAGE, "completion_tokens_details": None},
    ),
}


@pytest.mark.parametrize(("frames", "expected"), G1.values(), ids=G1.keys())
def test_G1_usage_comes_in_any_chunk_or_never(frames: list[bytes], expected: dict[str, Any] | None) -> None:
    before = answer(*frames, chunk({"content": "a"}), chunk(finish="stop"), DONE)
    after = answer(chunk({"content": "a"}), chunk(finish="stop"), *frames, DONE)
    assert done(before).usage == done(after).usage == expected


def test_G1_usage_on_every_chunk_is_not_summed() -> None:
    counts = [{"prompt_tokens": 9, "completion_tokens": n} for n in (1, 2)]
    frames = [chunk({"content": "a"}, usage=count) for count in counts]
    assert done(answer(*frames, chunk(finish="stop"), DONE)).usage == counts[-1]


def test_usage_is_known_when_the_answer_is_cut() -> None:
    result = answer(chunk({"content": "a"}, usage=USAGE), cut=True)
    assert result.state.usage == USAGE
    assert answer(cut=True).state.usage is None


def test_reasoning_beside_the_completion_is_added_where_no_total_tells() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 5}}
    frames = (chunk({"content": "a"}, "stop", usage=usage), DONE)
    assert (done(answer(*frames)).usage or {})["completion_tokens"] == 2
    assert (done(answer(*frames, quirks={"reasoning_in_completion": False})).usage or {})[
        "completion_tokens"
    ] == 7


# -- errors inside the stream (E1)


E1 = {
    "error object": (
        {"error": {"message": "m", "type": "server_error", "code": None}},
        "server_error",
        None,
        True,
    ),
    "overload": ({"error": {"message": "m", "type": "overloaded_error"}}, "overloaded_error", None, True),
    "rate limit": (
        {"error": {"message": "m", "code": "rate_limit_exceeded"}},
        "rate_limit_exceeded",
        None,
        True,
    ),
    "used up": ({"error": {"message": "m", "type": "insufficient_quota", "code": 429}}, "429", 429, False),
    "numeric code": ({"error": {"message": "m", "code": 503}}, "503", 503, True),
    "code as string": ({"error": {"message": "m", "code": "400"}}, "400", 400, False),
    "text": ({"error": "m", "code": "internal"}, "internal", None, True),
    "text alone": ({"error": "m"}, None, None, False),
    "flat": ({"object": "error", "message": "m", "type": "BadRequestError", "code": 400}, "400", 400, False),
    "detail list": ({"detail": [{"loc": ["body"], "msg": "m"}]}, None, None, False),
    "detail text": ({"detail": "m"}, None, None, False),
    "message and code": ({"message": "m", "code": 500}, "500", 500, True),
    "tagged": ({"type": "error", "message": "m"}, None, None, False),
    "in the choice": (
        {"choices": [{"index": 0, "delta": {"content": ""}, "error": {"message": "m", "code": 502}}]},
        "502",
        502,
        True,
    ),
    "in a list": ([{"error": {"message": "m", "status": "UNAVAILABLE"}}], "UNAVAILABLE", None, True),
}


@pytest.mark.parametrize(("value", "code", "status", "retryable"), E1.values(), ids=E1.keys())
@pytest.mark.parametrize("finished", [False, True])
def test_E1_an_error_in_the_stream_ends_it(
    value: Any, code: str | None, status: int | None, retryable: bool, finished: bool
) -> None:
    frames = [chunk({"content": "a"}), chunk({"content": "b"}, "stop" if finished else None)]
    result = answer(*frames, json.dumps(value).encode(), DONE)
    event = failed(result)
    assert (event.error, event.code, event.status, event.retryable) == ("m", code, status, retryable)
    assert event.kind is ErrorKind.PROVIDER
    assert result.text() == "ab"


def test_E1_an_error_event_needs_no_json() -> None:
    assert failed(answer(chunk({"content": "a"}), Frame(b"it broke ", "error"))).error == "it broke"
    assert failed(answer(Frame(b'{"message":"m"}', "error"))).error == "m"
    assert failed(answer(Frame(b"7", "error"))).error == "the provider reported an error without saying which"


def test_E1_what_the_error_brings_along_is_taken() -> None:
    value = {
        "error": {"message": "Rate limit reached. Please try again in 1.5s.", "code": "rate_limit_exceeded"},
        "choices": [{"index": 0, "delta": {"content": "b"}}],
        "usage": USAGE,
    }
    result = answer(chunk({"content": "a"}), json.dumps(value).encode())
    event = failed(result)
    assert result.text() == "ab"
    assert event.usage == USAGE
    assert event.retry_after_ms == 1500
    assert event.native == {"id": "c1", "model": "m1", **value["error"]}  # type: ignore[dict-item]


def test_E1_credentials_refused_in_the_stream_are_auth() -> None:
    event = failed(answer(b'{"error":{"message":"m","code":"invalid_api_key"}}'))
    assert event.kind is ErrorKind.AUTH


def test_B6_an_error_leaves_open_calls_uncallable_and_thinking_unsigned() -> None:
    signed = {
        "reasoning": "hm",
        "reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "s"}],
    }
    thinking = answer(chunk(signed), b'{"error":"m"}').content
    assert thinking == [{"type": "thinking", "text": "hm"}]
    result = answer(chunk(call(index=0, id="a", name="f", arguments="{}")), b'{"error":"m"}')
    assert result.content == [
        {"type": "tool_call", "call_id": "a", "name": "f", "arguments": "{}", "partial": True}
    ]


def test_E1_an_error_of_groqs_own_ends_the_answer() -> None:
    error = {"message": "over capacity", "type": "server_error", "code": "overloaded"}
    result = answer(chunk({"content": "Half"}), bare(choices=[], x_groq={"id": "req_1", "error": error}))
    assert failed(result).error == "over capacity"
    assert result.text() == "Half"


def test_a_frame_with_empty_text_after_text_is_no_event() -> None:
    result = answer(*(chunk({"content": text}) for text in ("a", "", "b")), DONE)
    assert [event.text for event in result.events if isinstance(event, TextDelta)] == ["a", "b"]


def test_falsy_errors_are_none() -> None:
    values: list[Any] = [None, False, "", {}]
    for value in values:
        assert done(answer(chunk({"content": "a"}, "stop", error=value), DONE)).finish is FinishReason.STOP


# -- whole answers


def whole(value: Any) -> Replay:
    one = OpenAIChat("http://x", FakeIO())
    result = replay(one, json.dumps(value).encode(), framer=WholeBody)
    check_events(result.events, result.content, cut=result.terminal is None)
    return result


def test_a_whole_message_gives_the_same_events() -> None:
    message = {
        "role": "assistant",
        "reasoning_content": "hm",
        "content": "a",
        "tool_calls": [{"id": "x", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}],
    }
    result = whole(
        {
            "id": "c1",
            "model": "m1",
            "choices": [{"message": message, "finish_reason": "tool_calls"}],
            "usage": USAGE,
        }
    )
    assert [block["type"] for block in result.content] == ["thinking", "text", "tool_call"]
    assert done(result).usage == USAGE
    assert done(result).finish is FinishReason.TOOL_USE


def test_a_whole_message_is_an_end_signal_of_its_own() -> None:
    assert done(whole({"choices": [{"message": {"content": "a"}}]})).finish is FinishReason.STOP


@pytest.mark.parametrize(
    "value", [{}, {"choices": []}, {"id": "x", "usage": USAGE}, {"choices": [{"delta": None}, 7]}]
)
def test_nothing_is_never_a_success(value: Any) -> None:
    result = whole(value)
    assert result.terminal is None
    assert result.message is None


# -- frames


def test_a_bare_ping_is_ignored() -> None:
    assert (
        answer(b"ping", chunk({"content": "a"}), b" ping ", chunk(finish="stop"), b" [DONE] ").text() == "a"
    )


@pytest.mark.parametrize(
    "frame", [b"hello", b'{"choices":[', b"7", b"null", b"[]", b'"x"', b'{"a":"\xff"}', b"[" * 100_000]
)
def test_frames_that_are_no_object_are_refused(frame: bytes) -> None:
    result = replay_frames(OpenAIChat("http://x", FakeIO()), [chunk({"content": "a"}), frame])
    assert result.fault is not None
    assert result.text() == "a"


def test_other_choices_do_not_count() -> None:
    choices = [
        {"index": 1, "delta": {"content": "x"}, "finish_reason": "stop"},
        {"index": 0, "delta": {"content": "a"}},
    ]
    assert answer(json.dumps({"choices": choices}).encode(), cut=True).text() == "a"


def test_odd_types_are_read_past() -> None:
    odd: list[Any] = [
        {"content": 7, "tool_calls": "x", "reasoning": ["y"], "refusal": 1, "audio": "z"},
        {"content": "a", "tool_calls": [7, {"index": "0", "function": "f"}, {"id": 5}]},
        {"content": float("nan")},
    ]
    result = answer(*[chunk(delta, logprobs=float("nan")) for delta in odd], chunk(finish="stop"), DONE)
    assert result.content == [{"type": "text", "text": "a"}]


def test_D5_keepalives_with_ids_and_blank_lines_carry_nothing() -> None:
    first, second, end = chunk({"content": "a"}), chunk({"content": "b"}), chunk(finish="stop")
    head, tail = second[:20], second[20:]
    wire = b"id: 1\ndata: %s\n\n: ping\n\n:\n\nid: 2\n\nretry: 5\n\ndata:\n\ndata: %s\n:glued\n" % (
        first,
        second,
    )
    wire += b"data: %s\n\n: \n\ndata: [DONE]\n\n" % end
    assert head + tail == second
    wire = wire.replace(b"data: %s\n:glued\n" % second, b'data: {"x":1,\n:glued\ndata: %s\n\n' % second[1:])
    one = OpenAIChat("http://x", FakeIO())
    for at in range(len(wire)):
        result = replay(one, wire, (at,), framer=SSEDecoder)
        assert result.text() == "ab"
        assert isinstance(result.terminal, Done)


# -- surrogates (H3)


def raw(delta: str) -> bytes:
    return b'{"choices":[{"index":0,"delta":%s}]}' % delta.encode()


@pytest.mark.parametrize("name", ["content", "reasoning_content", "refusal"])
def test_H3_halves_of_a_pair_in_two_deltas_become_one_character(name: str) -> None:
    frames = [
        raw(f'{{"{name}":"a\\ud83d"}}'),
        raw(f'{{"{name}":"\\ude00b"}}'),
        chunk({name: "c"}),
        chunk({name: "\ue000"}),
    ]
    content = answer(*frames, chunk(finish="stop"), DONE).content
    assert content[0]["text"] == "a\U0001f600bc\ue000"


def test_H3_halves_in_tool_arguments_become_one_character() -> None:
    first = '{"tool_calls":[{"index":0,"id":"x","function":{"name":"f","arguments":"{\\"a\\":\\"\\ud83d"}}]}'
    second = '{"tool_calls":[{"index":0,"function":{"arguments":"\\ude00\\"}"}}]}'
    result = answer(raw(first), raw(second), chunk(finish="tool_calls"), DONE)
    assert calls(result) == [("x", "f", {"a": "\U0001f600"})]


def test_H3_a_half_whose_other_half_never_comes_is_not_lost() -> None:
    half = raw('{"content":"a\\ud83d"}')
    assert answer(half, chunk({"content": "b"}), chunk(finish="stop"), DONE).text() == "a\ud83db"
    assert answer(half, chunk(finish="stop"), DONE).text() == "a\ud83d"
    assert answer(half, cut=True).text() == "a\ud83d"
    assert answer(raw('{"content":"\\ud83d"}'), cut=True).text() == "\ud83d"
    thinking = answer(raw('{"reasoning":"a\\ud83d"}'), raw('{"reasoning":"\\ud83d"}'), cut=True)
    assert thinking.text("thinking") == "a\ud83d\ud83d"
    assert answer(raw('{"content":"\\ude00a"}'), chunk(finish="stop"), DONE).text() == "\ude00a"
    cut = answer(raw('{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"\\ud83d"}}]}'), cut=True)
    assert cut.content[0]["arguments"] == "\ud83d"


# -- what is held back


def test_a_call_that_never_got_its_name_is_given_out_when_cut() -> None:
    result = answer(chunk(call(index=0, id="x", arguments='{"a"')), cut=True)
    assert result.content == [
        {"type": "tool_call", "call_id": "x", "name": "", "arguments": '{"a"', "partial": True}
    ]
    assert isinstance(result.events[-1], ToolCallDelta)


def test_a_call_of_which_nothing_came_is_no_block() -> None:
    assert answer(chunk(call(index=0)), cut=True).message is None


def test_think_tags_that_were_not_finished_are_given_out() -> None:
    quirks = {"think_tags": True}
    cut = answer(chunk({"content": "<think>hm</th"}), cut=True, quirks=quirks)
    assert cut.content == [{"type": "thinking", "text": "hm</th"}]
    ended = answer(chunk({"content": " <thi"}), chunk(finish="stop"), DONE, quirks=quirks)
    assert ended.content == [{"type": "text", "text": " <thi"}]
    called = answer(
        chunk({"content": "<t"}),
        chunk(call(index=0, id="x", name="f", arguments="{}")),
        chunk(finish="stop"),
        DONE,
        quirks=quirks,
    )
    assert [block["type"] for block in called.content] == ["text", "tool_call"]


def test_the_service_tier_of_the_last_chunk_counts() -> None:
    """It rides on every chunk, and is not looked for on those that only add text."""
    frames = [
        chunk({"content": "a"}, service_tier="auto"),
        chunk({"content": "b"}, service_tier="auto"),
        chunk(finish="stop", service_tier="flex"),
        DONE,
    ]
    result = answer(*frames)
    native = done(result).native
    assert native is not None
    assert native["service_tier"] == "flex"
    assert result.content[0]["text"] == "ab"
