"""Realtime: the session, the conversation, what is sent when, and the answer in text and sound."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aiio.context.events import Done, Error, FinishReason, Placed, Send, TextDelta, TextEnd
from aiio.context.types import (
    Message,
    assistant_message,
    system_message,
    text_content,
    tool_result_message,
    user_message,
)
from aiio.providers.base import dialect_class
from aiio.providers.openai_realtime import PCM, OpenAIRealtime
from aiio.transports.base import Frame

from .fakes import FakeIO

CREATED = {"type": "response.created", "response": {"id": "resp_1"}}
TOOL = {"name": "look", "description": "Look.", "input_schema": {"type": "object"}}


def session_of(**settings: Any) -> dict[str, Any]:
    io = FakeIO(**settings)
    _, body = OpenAIRealtime("wss://x/v1", io).request([system_message("Be brief."), user_message("Hi")], io)
    assert body["type"] == "session.update"
    session: dict[str, Any] = body["session"]
    return session


def conversation(context: list[Message], **settings: Any) -> tuple[list[dict[str, Any]], FakeIO]:
    """Return the messages after the session is set up."""
    io = FakeIO(**settings)
    one = OpenAIRealtime("wss://x/v1", io)
    one.request(context, io)
    state = one.new_state()
    found = events_of(one, state, {"type": "session.updated", "session": {}})
    assert events_of(one, state, {"type": "session.updated", "session": {}}) == []
    assert all(isinstance(event, Send) for event in found)
    return [json.loads(event.data) for event in found], io


def events_of(one: OpenAIRealtime, state: Any, *natives: dict[str, Any]) -> list[Any]:
    return list(one.translate_all([json.dumps(native).encode() for native in natives], state, one.io))


# -- the session


def test_the_session_is_one_of_text() -> None:
    assert session_of(max_tokens=50, tool_choice="auto", extra_body={"tracing": "auto"}) == {
        "type": "realtime",
        "output_modalities": ["text"],
        "audio": {"input": {"turn_detection": None}},
        "instructions": "Be brief.",
        "max_output_tokens": 50,
        "tracing": "auto",
    }


def test_the_session_has_tools_and_a_voice() -> None:
    free = {"name": "free", "format": {"type": "text"}}
    session = session_of(tools=[TOOL, free], tool_choice="look", modalities=["audio"], voice="alloy")
    schema = {"type": "object"}
    assert session["tools"] == [
        {"type": "function", "name": "look", "description": "Look.", "parameters": schema}
    ]
    assert session["tool_choice"] == {"type": "function", "name": "look"}
    assert session["output_modalities"] == ["audio"]
    assert session["audio"]["output"] == {"voice": "alloy"}


@pytest.mark.parametrize(("settings", "voice"), [({}, {}), ({"voice": "ara"}, {"voice": "ara"})])
def test_older_servers_get_the_older_session(settings: dict[str, Any], voice: dict[str, Any]) -> None:
    assert session_of(session_style="beta", **settings) == {
        "instructions": "Be brief.",
        "modalities": ["text"],
        "turn_detection": None,
        **voice,
    }


def test_a_style_that_is_none() -> None:
    with pytest.raises(ValueError, match="session_style must be one of ga, beta, not 'alpha'"):
        session_of(session_style="alpha")


@pytest.mark.parametrize(
    ("options", "headers"),
    [
        ({}, {"Authorization": "Bearer key-1"}),
        ({"quirks": {"auth_header": "api-key"}}, {"api-key": "key-1"}),
        ({"token": None, "extra_headers": {"x-a": "b"}}, {"x-a": "b"}),
    ],
)
def test_the_credential_is_in_a_header(options: dict[str, Any], headers: dict[str, str]) -> None:
    io = FakeIO(**options)
    assert OpenAIRealtime("wss://x/v1", io).request([user_message("Hi")], io)[0] == headers


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://x/v1", "wss://x/v1/realtime?model=m%2F1"),
        ("wss://x/v1?api-version=1", "wss://x/v1/realtime?api-version=1&model=m%2F1"),
        ("wss://x/v1/realtime?model=other", "wss://x/v1/realtime?model=other"),
        ("wss://x/v1/realtime?call_id=c", "wss://x/v1/realtime?call_id=c"),
    ],
)
def test_the_address_names_the_model(url: str, expected: str) -> None:
    assert OpenAIRealtime(url, FakeIO(model="m/1")).url == expected
    assert dialect_class("openai_realtime") is OpenAIRealtime


def test_models_are_listed_over_http() -> None:
    assert OpenAIRealtime.models_request("wss://x/v1", {}, None)[0] == "https://x/v1/models"


# -- the conversation


def test_the_context_becomes_items_and_one_request() -> None:
    call = {"type": "tool_call", "call_id": "c1", "name": "look", "arguments": {"a": 1}}
    image = {"type": "image", "content": "AAAA", "mimetype": "image/png"}
    sound = {"type": "binary", "content": "BBBB", "mimetype": "audio/wav"}
    context: list[Message] = [
        user_message([text_content("Hi"), image, sound]),
        assistant_message([text_content("Let me see."), {"type": "text", "text": "No.", "refusal": True}]),
        assistant_message([call]),
        tool_result_message("c1", "look", "seen"),
    ]
    sent, io = conversation(context, input_audio=True)
    assert sent[-1] == {"type": "response.create"}
    assert all(message["type"] == "conversation.item.create" for message in sent[:-1])
    items = [message["item"] for message in sent[:-1]]
    assert items == [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Hi"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
                {"type": "input_audio", "audio": "BBBB"},
            ],
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {"type": "output_text", "text": "Let me see."},
                {"type": "output_text", "text": "No."},
            ],
        },
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "seen"},
    ]
    assert io.repair_names == []


def test_a_refusal_goes_back_as_text() -> None:
    refusal = {"type": "text", "text": "No.", "refusal": True}
    sent, _ = conversation([user_message("x"), assistant_message([refusal]), user_message("y")], quirks={})
    assert sent[1]["item"]["content"] == [{"type": "output_text", "text": "No."}]


def test_what_has_no_form_in_a_conversation() -> None:
    call = {"type": "tool_call", "call_id": "c1", "name": "look", "arguments": {}}
    search = {
        "type": "server",
        "dialect": "openai_responses",
        "item": {"type": "web_search_call", "id": "ws_1"},
    }
    image = {"type": "image", "content": "AAAA", "mimetype": "image/png"}
    context: list[Message] = [
        user_message("x"),
        assistant_message([search, call]),
        tool_result_message("c1", "look", [text_content("seen"), image]),
    ]
    sent, io = conversation(context)
    assert sent[2]["item"]["output"] == "seen"
    assert set(io.repair_names) == {"block_dropped"}
    assert len(sent) == 4


def test_a_file_cannot_be_sent() -> None:
    file = {"type": "binary", "content": "AAAA", "mimetype": "application/pdf", "filename": "a.pdf"}
    with pytest.raises(ValueError, match=r"no form for 'input_file' \('a.pdf'\)"):
        conversation([user_message([file])])


# -- the answer


def answered(*natives: dict[str, Any], one: OpenAIRealtime | None = None) -> list[Any]:
    one = one or OpenAIRealtime("wss://x/v1", FakeIO())
    state = one.new_state()
    return events_of(one, state, *natives)


def test_an_answer_in_text() -> None:
    delta = {"type": "response.text.delta", "output_index": 0, "content_index": 0, "delta": "ok"}
    done = {"type": "response.done", "response": {"id": "resp_1", "status": "completed"}}
    found = answered(CREATED, delta, delta, done)
    assert [event.text for event in found if isinstance(event, TextDelta)] == ["ok", "ok"]
    assert isinstance(found[-1], Done)
    assert found[-1].finish is FinishReason.STOP


@pytest.mark.parametrize(
    ("sound", "mimetype"),
    [
        ({"type": "audio/pcm", "rate": 16000}, "audio/pcm;rate=16000"),
        ({"type": "audio/pcmu"}, "audio/pcmu"),
        ({}, PCM),
    ],
)
def test_an_answer_in_sound_comes_with_its_words(sound: dict[str, Any], mimetype: str) -> None:
    found = answered(
        {"type": "session.updated", "session": {"audio": {"output": {"format": sound}}}},
        CREATED,
        {"type": "response.output_audio_transcript.delta", "output_index": 0, "delta": "Hi"},
        {"type": "response.output_audio.delta", "output_index": 0, "delta": "AAAA"},
        {"type": "response.output_audio.delta", "output_index": 0, "delta": "BBBB"},
        {"type": "response.done", "response": {"status": "completed"}},
    )
    [placed] = [event for event in found if isinstance(event, Placed)]
    assert placed.block == {"type": "binary", "mimetype": mimetype, "content": "AAAABBBB"}
    [end] = [event for event in found if isinstance(event, TextEnd)]
    assert end.metadata == {"audio_transcript": True}


def test_an_error_before_the_response_ends_the_request() -> None:
    fault = {"type": "invalid_request_error", "code": "invalid_value", "message": "No such voice."}
    [error] = answered({"type": "error", "error": fault})
    assert isinstance(error, Error)
    assert (error.error, error.code) == ("No such voice.", "invalid_value")


def test_an_error_during_the_response_does_not() -> None:
    done = {"type": "response.done", "response": {"status": "incomplete"}, "usage": {"input_tokens": 1}}
    [end] = answered(CREATED, {"type": "error", "error": {"message": "odd"}}, {"type": "ping"}, done)
    assert isinstance(end, Done)
    assert end.usage == {"input_tokens": 1}


def test_limits_are_reported() -> None:
    io = FakeIO()
    one = OpenAIRealtime("wss://x/v1", io)
    limits = [
        {"name": "tokens", "limit": 100, "remaining": 90, "reset_seconds": 2.5},
        {"name": "requests", "limit": 10},
        {"limit": 1},
    ]
    assert answered({"type": "rate_limits.updated", "rate_limits": limits}, one=one) == []
    [quotas] = io.plan_usage
    assert quotas["tokens"].pop("reset") > 1e9
    assert quotas == {"tokens": {"total": 100, "remaining": 90}, "requests": {"total": 10}}


def test_a_binary_message_is_refused() -> None:
    with pytest.raises(ValueError, match="a binary message"):
        OpenAIRealtime("wss://x/v1", FakeIO()).decode(Frame(b"{}", "binary"))
