"""Events: their wire form, their validation, and what a plug-in's dict becomes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aiio.context.events import (
    EVENT_CLASSES,
    Done,
    Error,
    ErrorKind,
    EventType,
    Start,
    TextDelta,
    TextStart,
    ToolCallEnd,
    as_event,
    is_response_event,
    validate_response_event,
)


def test_there_are_twelve_events_by_name() -> None:
    assert list(EVENT_CLASSES) == [kind.value for kind in EventType]
    assert [cls.type for cls in EVENT_CLASSES.values()] == list(EventType)


def test_an_event_is_written_as_one_small_json_object() -> None:
    assert msgspec.json.encode(TextDelta(3, "hi")) == b'{"type":"text_delta","content_index":3,"text":"hi"}'
    assert msgspec.json.encode(Start()) == b'{"type":"start"}'


def test_content_is_none_until_an_assembler_saw_the_event() -> None:
    event = TextDelta(0, "hi")
    assert event.content is None
    event._block = lambda: {"type": "text", "text": "hi"}
    assert event.content == {"type": "text", "text": "hi"}


def test_retrying_is_safe_only_when_nothing_was_delivered() -> None:
    assert Error("x", retryable=True).safe_to_retry
    assert not Error("x", retryable=True, emitted=True).safe_to_retry
    assert not Error("x").safe_to_retry


@pytest.mark.parametrize(
    "value",
    [
        Start(),
        TextStart(0),
        Done(),
        {"type": "start"},
        {"type": EventType.TEXT_DELTA, "content_index": 1, "text": "x", "extra": 1},
        {"type": "tool_call_end", "content_index": 0, "arguments": {"a": 1}},
        {"type": "error", "error": "no", "kind": "auth"},
    ],
)
def test_a_valid_event_is_returned_itself(value: Any) -> None:
    assert is_response_event(value)
    assert validate_response_event(value) is value


@pytest.mark.parametrize(
    "value",
    [
        None,
        "start",
        ["start"],
        {},
        {"type": "message_start"},
        {"type": 3},
        {"type": ["start"]},
        {"type": "text_delta", "text": "x"},
        {"type": "text_delta", "content_index": -1, "text": "x"},
        {"type": "text_delta", "content_index": True, "text": "x"},
        {"type": "text_delta", "content_index": 0, "text": 5},
        TextStart(-1),
        TextStart(True),
        TextStart("0"),  # type: ignore[arg-type]
        {"type": "text_start", "content_index": float("nan")},
    ],
)
def test_an_invalid_event_is_refused(value: Any) -> None:
    assert not is_response_event(value)
    with pytest.raises(TypeError, match="invalid response event"):
        validate_response_event(value)


@pytest.mark.parametrize("payload", ["y" * 1000, {1, 2}, "\ud83d", 1 << 70])
def test_what_was_refused_is_quoted_in_at_most_120_characters(payload: Any) -> None:
    with pytest.raises(TypeError) as caught:
        validate_response_event({"type": "nothing", "payload": payload})
    assert len(str(caught.value).partition(": ")[2]) <= 120


def test_a_dict_becomes_its_event() -> None:
    assert as_event({"type": "tool_call_end", "content_index": 2}) == ToolCallEnd(2)
    error = as_event({"type": "error", "error": "no", "kind": "network"})
    assert isinstance(error, Error)
    assert error.kind is ErrorKind.NETWORK
