"""Responses over a WebSocket: the request, what a chain sends, errors, allowances."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aiio.context.events import Done, Error, Send, TextDelta
from aiio.context.types import (
    Message,
    assistant_message,
    system_message,
    text_content,
    tool_result_message,
    user_message,
)
from aiio.env.errors import HttpStatusError, ProviderError, classify_error
from aiio.providers.base import dialect_class
from aiio.providers.openai_responses_ws import OpenAIResponsesWS, OverSSE, plain_url, socket_url
from aiio.providers.openai_responses_ws_chain import Chain, digest_of
from aiio.transports.base import Frame

from .fakes import FakeIO

HELLO = [user_message("Hello")]


def provider(url: str = "https://api.test/v1", **settings: Any) -> tuple[OpenAIResponsesWS, FakeIO]:
    io = FakeIO(**settings)
    return OpenAIResponsesWS(url, io), io


def events_of(one: OpenAIResponsesWS, state: Any, *natives: dict[str, Any]) -> list[Any]:
    frames = [json.dumps(native).encode() for native in natives]
    return list(one.translate_all(frames, state, one.io))


# -- the request


def test_the_request_is_one_message_of_its_own_kind() -> None:
    one, io = provider(quirks={"stream_options": "obfuscation"}, extra_body={"background": True, "user": "u"})
    headers, body = one.request([system_message("Be brief."), *HELLO], io)
    assert headers == {"Authorization": "Bearer key-1"}
    assert body["type"] == "response.create"
    assert body["instructions"] == "Be brief."
    assert body["user"] == "u"
    assert not body.keys() & {"stream", "background", "stream_options"}
    assert dialect_class("openai_responses_ws") is OpenAIResponsesWS


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://api.test/v1", "wss://api.test/v1/responses"),
        ("http://127.0.0.1:1/v1/responses?x=1", "ws://127.0.0.1:1/v1/responses?x=1"),
        ("wss://api.test/v1/", "wss://api.test/v1/responses"),
    ],
)
def test_the_address(url: str, expected: str) -> None:
    assert provider(url)[0].url == expected
    assert OverSSE(url, FakeIO()).url == plain_url(expected)


def test_an_address_of_another_scheme_stays() -> None:
    assert (socket_url("unix:///x"), plain_url("unix:///x")) == ("unix:///x", "unix:///x")


def test_models_are_listed_over_http() -> None:
    url, headers = OpenAIResponsesWS.models_request("wss://api.test/v1/responses", {}, "key-1")
    assert url == "https://api.test/v1/models"
    assert headers["Authorization"] == "Bearer key-1"


def test_a_fallback_that_is_none() -> None:
    one, io = provider(ws_fallback="http")
    with pytest.raises(ValueError, match="ws_fallback must be 'sse', not 'http'"):
        one.request(HELLO, io)


def refused(status: int) -> ProviderError:
    return classify_error(HttpStatusError(status))


@pytest.mark.parametrize(
    ("setting", "error", "expected"),
    [
        ("sse", refused(426), OverSSE),
        ("sse", refused(404), OverSSE),
        ("sse", refused(401), None),
        ("sse", refused(429), None),
        ("sse", ProviderError("network", "broken"), None),
        (None, refused(426), None),
    ],
)
def test_what_is_followed_by_sse(setting: str | None, error: ProviderError, expected: Any) -> None:
    assert provider(ws_fallback=setting)[0].fallback(error) is expected


# -- the answer


def test_a_binary_message_is_refused() -> None:
    with pytest.raises(ValueError, match="a binary message of 2 bytes"):
        provider()[0].decode(Frame(b"{}", "binary"))


def test_text_is_translated_and_the_socket_may_be_kept() -> None:
    one, io = provider()
    _, body = one.request(HELLO, io)
    state = one.new_state()
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}
    found = events_of(
        one,
        state,
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Hi"},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "resp_1", "status": "completed"}},
    )
    assert TextDelta(0, "Hi") in found
    assert isinstance(found[-1], Done)
    assert io.kept == {
        "id": "resp_1",
        "model": "m1",
        "input": body["input"],
        "received": [("message", "Hi")],
    }


def test_a_failed_answer_is_not_continued() -> None:
    one, io = provider()
    one.request(HELLO, io)
    failed = {"type": "response.failed", "response": {"status": "failed", "error": {"message": "no"}}}
    [error] = events_of(one, one.new_state(), failed)
    assert isinstance(error, Error)
    assert io.kept is None


def test_a_response_without_an_id_is_not_continued() -> None:
    assert Chain({"model": "m"}).memory("") == {}


def test_an_error_of_the_request_ends_it_at_once() -> None:
    one, io = provider()
    one.request(HELLO, io)
    fault = {"type": "usage_limit_reached", "message": "The usage limit has been reached"}
    headers = {"x-codex-primary-used-percent": "100.0", "x-codex-primary-window-minutes": 15}
    [error] = events_of(
        one, one.new_state(), {"type": "error", "status": 429, "error": fault, "headers": headers}
    )
    assert isinstance(error, Error)
    assert (error.status, error.retryable) == (429, False)
    [quotas] = io.plan_usage
    assert quotas == {"primary": {"total": 100, "used": 100.0, "remaining": 0.0, "window_seconds": 900.0}}


@pytest.mark.parametrize("status", [400, 429])
def test_the_end_of_a_sockets_hour_is_known_by_its_code(status: int) -> None:
    one, io = provider()
    one.request(HELLO, io)
    fault = {"code": "websocket_connection_limit_reached", "message": "60 minutes"}
    [error] = events_of(one, one.new_state(), {"type": "error", "status": status, "error": fault})
    assert isinstance(error, Error)
    assert error.retryable


def test_an_error_in_a_response_waits_for_its_end() -> None:
    one, io = provider()
    one.request(HELLO, io)
    state = one.new_state()
    error = {"type": "error", "code": "server_error", "message": "oops"}
    assert events_of(one, state, {"type": "response.created"}, error) == []
    assert one.ending(state)
    [ended] = events_of(one, state, {"type": "response.failed", "response": {"status": "failed"}})
    assert ended.error == "oops"


def test_the_plan_of_the_backend_is_reported() -> None:
    one, io = provider()
    one.request(HELLO, io)
    limits = {"primary": {"used_percent": 12.5, "window_minutes": 300}, "secondary": None}
    native = {"type": "codex.rate_limits", "plan_type": "pro", "rate_limits": limits}
    assert events_of(one, one.new_state(), native) == []
    assert io.plan_usage == [
        {"primary": {"total": 100, "used": 12.5, "remaining": 87.5, "window_seconds": 18000.0}}
    ]


# -- chains

CALL = {"type": "tool_call", "call_id": "c1", "name": "look", "arguments": {"a": 1}}
ANSWERED: list[Message] = [
    *HELLO,
    assistant_message([text_content("Let me see."), CALL]),
    tool_result_message("c1", "look", "seen"),
    user_message("And?"),
]
RECEIVED: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs_1"},
    {"type": "message", "content": [{"type": "output_text", "text": "Let me see."}, {"type": "odd"}]},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{ "a": 1 }'},
]


def memory(**changes: Any) -> dict[str, Any]:
    """What was remembered of an answer that was `RECEIVED`."""
    one, io = provider()
    _, body = one.request(HELLO, io)
    received = [digest for item in RECEIVED if (digest := digest_of(item)) is not None]
    return {"id": "resp_1", "model": "m1", "input": body["input"], "received": received, **changes}


def sent(context: list[Message], kept: dict[str, Any], **settings: Any) -> dict[str, Any]:
    one, io = provider(**settings)
    io.kept = kept
    body: dict[str, Any] = one.request(context, io)[1]
    return body


def test_a_context_that_goes_on_is_sent_as_what_is_new() -> None:
    body = sent(ANSWERED, memory())
    assert body["previous_response_id"] == "resp_1"
    assert [item["type"] for item in body["input"]] == ["function_call_output", "message"]


@pytest.mark.parametrize(
    ("context", "changes"),
    [
        (ANSWERED, {"model": "m2"}),
        (ANSWERED, {"received": []}),
        (ANSWERED, {"received": [("message", "Let me see!"), ("function_call", "c1", "look", {"a": 1})]}),
        ([user_message("Bye"), *ANSWERED[1:]], {}),
        (HELLO, {}),
        (HELLO, {"received": []}),
    ],
    ids=["another model", "nothing received", "another answer", "another question", "shorter", "the same"],
)
def test_any_other_context_is_sent_whole(context: list[Message], changes: dict[str, Any]) -> None:
    body = sent(context, memory(**changes))
    assert "previous_response_id" not in body
    assert len(body["input"]) >= 1


def test_a_chain_of_the_callers_own_is_left_alone() -> None:
    body = sent(ANSWERED, memory(), extra_body={"previous_response_id": "mine"})
    assert body["previous_response_id"] == "mine"
    assert len(body["input"]) == 5


def test_a_server_that_forgot_gets_the_whole_once() -> None:
    one, io = provider()
    io.kept = memory()
    one.request(ANSWERED, io)
    state = one.new_state()
    forgot = {
        "type": "error",
        "status": 400,
        "error": {"code": "previous_response_not_found", "message": "?"},
    }
    [send] = events_of(one, state, forgot)
    assert isinstance(send, Send)
    whole = json.loads(send.data)
    assert whole["type"] == "response.create"
    assert "previous_response_id" not in whole
    assert len(whole["input"]) == 5
    assert io.repair_names == ["context_sent_whole"]
    [error] = events_of(one, state, forgot)
    assert error.code == "previous_response_not_found"


@pytest.mark.parametrize(
    ("item", "digest"),
    [
        ({"type": "reasoning"}, None),
        ({"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}, ("message", "No.")),
        (
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{oops"},
            ("function_call", "c", "f", "{oops"),
        ),
        (
            {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"},
            ("custom_tool_call", "c", "f", "x"),
        ),
        ({"type": "web_search_call", "id": "ws_1"}, ("web_search_call", "ws_1")),
    ],
)
def test_items_are_compared_by_what_they_say(item: dict[str, Any], digest: Any) -> None:
    assert digest_of(item) == digest
