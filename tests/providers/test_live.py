"""Gemini Live: the setup, the turn, and the answer in text and sound."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aiio.context.events import (
    Done,
    Error,
    FinishReason,
    Placed,
    Send,
    TextDelta,
    TextEnd,
    ThinkingDelta,
    ToolCallEnd,
    Working,
)
from aiio.context.types import system_message, user_message
from aiio.providers.base import dialect_class
from aiio.providers.gemini_live import GeminiLive
from aiio.transports.base import Frame

from .conformance import check_events
from .fakes import FakeIO
from .manifest import Replay, replay_frames

BASE = "https://api.test/v1beta"
SERVICE = "google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"


def setup_of(**settings: Any) -> tuple[dict[str, Any], FakeIO]:
    io = FakeIO(**settings)
    one = GeminiLive(BASE, io)
    _, body = one.request([system_message("Be brief."), user_message("Hi")], io)
    setup: dict[str, Any] = body["setup"]
    return setup, io


def answered(*natives: dict[str, Any], binary: bool = False) -> Replay:
    """Replay the messages of one turn, and check the laws of events."""
    data = [json.dumps(native).encode() for native in natives]
    frames = [Frame(one, "binary") if binary else one for one in data]
    result = replay_frames(GeminiLive(BASE, FakeIO()), frames)
    check_events(
        [event for event in result.events if not isinstance(event, Send)],
        result.content,
        cut=result.terminal is None,
    )
    return result


def turn(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"serverContent": {"modelTurn": {"parts": list(parts)}, **more}}


def sound(data: str) -> dict[str, Any]:
    return {"inlineData": {"mimeType": "audio/pcm;rate=24000", "data": data}}


def spoken(text: str) -> dict[str, Any]:
    return {"serverContent": {"outputTranscription": {"text": text}}}


OVER = {"serverContent": {"turnComplete": True}, "usageMetadata": {"promptTokenCount": 3}}


# -- the request


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (BASE, f"wss://api.test/ws/{SERVICE}"),
        ("https://api.test/v1alpha/", f"wss://api.test/ws/{SERVICE.replace('v1beta', 'v1alpha')}"),
        ("http://127.0.0.1:1?x=1", f"ws://127.0.0.1:1/ws/{SERVICE}?x=1"),
        (f"wss://api.test/ws/{SERVICE}", f"wss://api.test/ws/{SERVICE}"),
    ],
)
def test_the_address(url: str, expected: str) -> None:
    assert GeminiLive(url, FakeIO()).url == expected
    assert dialect_class("gemini_live") is GeminiLive


@pytest.mark.parametrize("url", [BASE, "wss://api.test/v1beta", f"wss://api.test/ws/{SERVICE}"])
def test_models_are_listed_over_http(url: str) -> None:
    found, _ = GeminiLive.models_request(url, {}, "key-1")
    assert found == "https://api.test/v1beta/models?pageSize=1000"


def test_the_setup_is_one_of_text() -> None:
    setup, io = setup_of(temperature=0.5, tools=[{"name": "look"}], extra_body={"sessionResumption": {}})
    assert setup.pop("tools")[0]["functionDeclarations"][0]["name"] == "look"
    assert setup == {
        "model": "models/m1",
        "generationConfig": {"temperature": 0.5, "responseModalities": ["TEXT"]},
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "sessionResumption": {},
    }
    assert io.repair_names == []


def test_sound_comes_with_its_words_and_what_has_no_form_is_left_out() -> None:
    setup, io = setup_of(modalities=["audio"], safety_settings=[{"category": "x", "threshold": "y"}])
    assert setup["generationConfig"]["responseModalities"] == ["AUDIO"]
    assert setup["outputAudioTranscription"] == {}
    assert "safetySettings" not in setup
    assert io.repair_names == ["field_dropped"]


def test_the_turn_follows_the_setup_once() -> None:
    io = FakeIO(extra_headers={"x-a": "b"})
    one = GeminiLive(BASE, io)
    headers, _ = one.request([user_message("Hi")], io)
    assert headers == {"x-goog-api-key": "key-1", "x-a": "b"}
    state = one.new_state()
    [send] = list(one.translate_all([b'{"setupComplete":{}}'], state, io))
    assert isinstance(send, Send)
    assert json.loads(send.data) == {
        "clientContent": {"turns": [{"role": "user", "parts": [{"text": "Hi"}]}], "turnComplete": True}
    }
    assert list(one.translate_all([b'{"setupComplete":{}}'], state, io)) == []
    assert not one.ending(state)


# -- the answer


@pytest.mark.parametrize("binary", [False, True])
def test_an_answer_in_text(binary: bool) -> None:
    result = answered(
        turn({"text": "Hm.", "thought": True}),
        turn({"text": "Hel"}),
        turn({"text": "lo"}, groundingMetadata={"webSearchQueries": ["x"]}),
        {"serverContent": {"generationComplete": True}},
        {**OVER, "serverContent": {"turnComplete": True, "turnCompleteReason": "DONE"}},
        binary=binary,
    )
    assert [event.text for event in result.events if isinstance(event, ThinkingDelta)] == ["Hm."]
    assert result.text() == "Hello"
    assert result.content[1]["grounding"] == {"webSearchQueries": ["x"]}
    done = result.terminal
    assert isinstance(done, Done)
    assert (done.done_reason, done.finish, done.usage) == (
        "turnComplete",
        FinishReason.STOP,
        {"promptTokenCount": 3},
    )
    assert done.native is not None
    assert done.native["turn_complete_reason"] == "DONE"


def test_sound_and_its_transcript_stay_open_beside_each_other() -> None:
    result = answered(
        turn({"text": "Hm.", "thought": True}),
        spoken("I"),
        turn(sound("AAAA"), sound("")),
        spoken(" see"),
        turn(sound("BBBB")),
        OVER,
    )
    assert [block["type"] for block in result.content] == ["thinking", "text", "binary"]
    assert result.text("audio_transcript") == "I see"
    assert result.content[2]["content"] == "AAAABBBB"


def test_a_tool_call_ends_the_turn() -> None:
    call = {"id": "c1", "name": "look", "args": {"a": 1}}
    result = answered({"toolCall": {"functionCalls": [call, {"name": "see"}]}})
    ends = [event for event in result.events if isinstance(event, ToolCallEnd)]
    assert [end.arguments for end in ends] == [{"a": 1}, {}]
    assert isinstance(result.terminal, Done)
    assert (result.terminal.done_reason, result.terminal.finish) == ("toolCall", FinishReason.TOOL_USE)


def test_an_interrupted_turn_is_cut() -> None:
    result = answered(spoken("I s"), turn(sound("AAAA")), {"serverContent": {"interrupted": True}}, OVER)
    assert isinstance(result.terminal, Error)
    assert (result.terminal.code, result.terminal.retryable) == ("interrupted", True)
    assert [block["type"] for block in result.content] == ["text", "binary"]


def test_an_error_ends_the_turn() -> None:
    result = answered(
        turn({"text": "He"}), {"error": {"code": 429, "message": "Quota.", "status": "X"}}, OVER
    )
    assert isinstance(result.terminal, Error)
    assert (result.terminal.error, result.terminal.status) == ("Quota.", 429)


def test_a_turn_that_was_cut_keeps_what_was_heard() -> None:
    result = answered(turn({"text": "Well"}), spoken("I \ud83d"), turn(sound("AAAA")))
    assert result.terminal is None
    assert result.text("audio_transcript") == ""
    assert [event.text for event in result.events if isinstance(event, TextDelta)] == ["Well", "I ", "\ud83d"]
    assert [event.block["content"] for event in result.events if isinstance(event, Placed)] == ["AAAA"]
    assert not any(isinstance(event, TextEnd) for event in result.events)


def test_what_is_no_content_makes_no_event_but_sound_is_work() -> None:
    one = GeminiLive(BASE, FakeIO())
    state = one.new_state()
    nothing = [{"goAway": {"timeLeft": "10s"}}, turn(), {"usageMetadata": {"promptTokenCount": 1}}]
    frames = [json.dumps(native).encode() for native in nothing]
    assert list(one.translate_all(frames, state, one.io)) == []
    [working] = list(one.translate_all([json.dumps(turn(sound("AAAA"))).encode()], state, one.io))
    assert isinstance(working, Working)
    assert state.usage == {"promptTokenCount": 1}


def test_nothing_follows_the_end() -> None:
    one = GeminiLive(BASE, FakeIO())
    state = one.new_state()
    list(one.translate_all([json.dumps(OVER).encode()], state, one.io))
    assert list(one.translate_all([json.dumps(turn({"text": "x"})).encode()], state, one.io)) == []
    assert list(one.abandon(state, one.io)) == []
