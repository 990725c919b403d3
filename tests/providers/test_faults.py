"""Errors in the provider's words, classified."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aiio.context.events import ErrorKind
from aiio.env.errors import HttpStatusError, ProviderError
from aiio.providers.faults import read_fault
from aiio.providers.openai_chat import OpenAIChat

from .fakes import FakeIO


def verdict(
    status: int, body: Any = "", headers: dict[str, str] | None = None, endpoint: str = ""
) -> ProviderError:
    text = body if isinstance(body, str) else json.dumps(body)
    io = FakeIO(endpoint=endpoint)
    return OpenAIChat("http://x", io).classify_error(HttpStatusError(status, "Reason", text, headers))


STATUSES: list[tuple[int, dict[str, Any], str, bool]] = [
    (400, {"code": "context_length_exceeded"}, "provider", False),
    (400, {"code": "API_KEY_INVALID"}, "auth", False),
    (400, {"details": [1, {"reason": "API_KEY_INVALID"}, {"reason": 5}]}, "auth", False),
    (401, {"code": "invalid_api_key"}, "auth", False),
    (402, {"message": "Insufficient Balance"}, "provider", False),
    (403, {"type": "permission_error"}, "auth", False),
    (404, {"code": "model_not_found"}, "provider", False),
    (408, {}, "provider", True),
    (409, {}, "provider", True),
    (413, {}, "provider", False),
    (429, {"type": "tokens", "code": "rate_limit_exceeded"}, "provider", True),
    (429, {"type": "insufficient_quota"}, "provider", False),
    (429, {"code": "billing_hard_limit_reached"}, "provider", False),
    (429, {"message": "You exceeded your current quota, please check your plan"}, "provider", False),
    (429, {"type": "usage_limit_reached"}, "provider", False),
    (498, {}, "provider", True),
    (500, {}, "provider", True),
    (501, {}, "provider", False),
    (503, {"type": "unavailable_error", "code": 503}, "provider", True),
]


@pytest.mark.parametrize(("status", "error", "kind", "retryable"), STATUSES)
def test_status_and_code_decide(status: int, error: dict[str, Any], kind: str, retryable: bool) -> None:
    found = verdict(status, {"error": error})
    assert (found.kind, found.retryable, found.status) == (kind, retryable, status)


@pytest.mark.parametrize(("said", "retryable"), [("true", True), ("FALSE ", False), ("maybe", False)])
def test_the_should_retry_header_outranks_the_rest(said: str, retryable: bool) -> None:
    assert verdict(400, headers={"x-should-retry": said}).retryable is retryable


BODIES: dict[str, tuple[Any, str]] = {
    "nested": ({"error": {"message": " m "}}, "m"),
    "text": ({"code": "c", "error": "m"}, "m"),
    "flat": ({"object": "error", "message": "m"}, "m"),
    "detail": ({"detail": [{"msg": "m"}, {"msg": "n"}, 7, {}]}, "m; n"),
    "detail without words": ({"detail": [{}]}, 'HTTP 422 Reason: {"detail": [{}]}'),
    "oauth": ({"error": "invalid_grant", "error_description": "m"}, "invalid_grant"),
    "description": ({"error": {"error_description": "m"}}, "m"),
    "wrapped": ([{"error": {"message": "m"}}], "m"),
    "wrapped text": (["m"], "m"),
    "empty list": ([], "HTTP 422 Reason: []"),
    "empty": ("", "HTTP 422 Reason"),
    "plain": ("just\n text", "HTTP 422 Reason: just text"),
    "number": ("7", "HTTP 422 Reason: 7"),
    "html": ("<html><head><title>x</title></head><body><h1>Too <b>big", "HTTP 422 Reason: Too big"),
    "long": ("x" * 9000, "HTTP 422 Reason: " + "x" * 200),
    "lone surrogate": ('{"error":{"message":"\\ud83d"}}', "\ud83d"),
    "raw surrogate": ("\ud83d", "HTTP 422 Reason: \ud83d"),
}


@pytest.mark.parametrize(("body", "message"), BODIES.values(), ids=BODIES.keys())
def test_messages_of_all_shapes(body: Any, message: str) -> None:
    assert verdict(422, body).message == message
    assert verdict(422, body, endpoint="e").message == f"{message} [e]"


def test_native_code_and_cause_are_kept() -> None:
    error = {"message": "m", "type": "t", "param": None, "code": None}
    found = verdict(400, {"error": error})
    assert found.native == error
    assert found.code == "t"
    assert isinstance(found.__cause__, HttpStatusError)
    assert verdict(400).native is None
    assert verdict(400, {"error": {"code": True, "status": "INVALID_ARGUMENT"}}).code == "INVALID_ARGUMENT"


@pytest.mark.parametrize("name", ["x-request-id", "request-id", "apim-request-id", "x-generation-id"])
def test_request_ids(name: str) -> None:
    assert verdict(500, headers={name: "r1"}).request_id == "r1"
    assert verdict(500, headers={name: ""}).request_id is None


def test_words_decide_where_there_is_no_status() -> None:
    assert read_fault("The model is overloaded").retryable
    assert not read_fault("no").retryable
    assert read_fault({"error": {"code": "tool_use_failed", "status_code": 400}}).status == 400
    assert read_fault({"error": {"code": "12"}}).status is None
    assert read_fault({"message": "m", "choices": [], "usage": {}}).native == {"message": "m"}


def test_other_exceptions_get_the_common_verdict() -> None:
    found = OpenAIChat("http://x", FakeIO()).classify_error(OSError("gone"))
    assert found.kind is ErrorKind.NETWORK
    assert found.message == "gone [fake]"
