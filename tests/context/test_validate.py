"""What counts as a message, and what in it counts as content."""

from __future__ import annotations

from typing import Any

import pytest

from aiio.context.types import MessageType
from aiio.context.validate import (
    error_text,
    has_content,
    has_error,
    has_replay_data,
    is_context,
    is_message,
    is_record,
    validate_context,
    validate_message,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"type": 2, "content": []}, True),
        ({"type": MessageType.USER, "content": [None], "more": 1}, True),
        ({"type": 99, "content": []}, True),
        ({"type": True, "content": []}, False),
        ({"type": 2.0, "content": []}, False),
        ({"type": "2", "content": []}, False),
        ({"type": 2, "content": ()}, False),
        ({"type": 2}, False),
        ([2, []], False),
        (None, False),
    ],
)
def test_a_message_is_a_dict_with_an_int_type_and_a_content_list(value: Any, expected: bool) -> None:
    assert is_message(value) is expected


def test_a_record_is_a_dict_with_a_string_type() -> None:
    assert is_record({"type": "note"})
    assert is_record({"type": ""})
    assert not is_record({"type": 2})
    assert not is_record(["note"])


def test_a_context_is_a_list_of_both() -> None:
    assert is_context([])
    assert is_context([{"type": "note"}, {"type": 2, "content": []}])
    assert not is_context([{"type": 2}])
    assert not is_context(({"type": "note"},))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "message: a message is a dict, not None"),
        ([], "message: a message is a dict, not a list"),
        ({}, "message: a message has a numeric `type`, not None"),
        ({"type": True, "content": []}, "message: a message has a numeric `type`, not a bool"),
        ({"type": 2}, "message: a message has a `content` list, not None"),
        ({"type": 2, "content": "hi"}, "message: a message has a `content` list, not a str"),
    ],
)
def test_validation_says_what_is_missing_and_what_was_found(value: Any, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        validate_message(value)
    assert str(caught.value) == text


def test_validation_returns_the_same_object() -> None:
    message = {"type": 2, "content": [], "kept": object()}
    assert validate_message(message) is message
    context = [message, {"type": "note"}]
    assert validate_context(context) is context


def test_a_bad_entry_is_named_by_its_place() -> None:
    with pytest.raises(TypeError, match=r"^context\[1\]: a message has a numeric `type`"):
        validate_context([{"type": "note"}, {"type": None}])
    with pytest.raises(TypeError, match="a context is a list, not a tuple"):
        validate_context(())


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([], False),
        (None, False),
        ("text", False),
        ([{"type": "text", "text": ""}], False),
        ([{"type": "text", "text": None}], False),
        ([{"type": "thinking", "text": "", "signature": "s"}], False),
        ([None, "x"], False),
        ([{"type": "text", "text": " "}], True),
        ([{"type": "thinking", "text": "hm"}], True),
        ([{"type": "tool_call", "arguments": ""}], True),
        ([{}], True),
        ([None, {"type": "new thing"}], True),
    ],
)
def test_F5_content_is_text_that_is_not_empty_or_any_other_block(content: Any, expected: bool) -> None:
    assert has_content({"type": 3, "content": content}) is expected


def test_F5_no_message_has_no_content() -> None:
    assert not has_content(None)
    assert not has_content({"type": 3})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([{"type": "thinking", "text": "", "signature": "s"}], True),
        ([{"type": "thinking", "data": "c", "redacted": True}], True),
        (
            [None, {"type": "text", "text": ""}, {"type": "thinking", "text": "", "encrypted_content": "e"}],
            True,
        ),
        ([{"type": "thinking", "text": "hm"}], False),
        ([{"type": "text", "text": "", "signature": "s"}], False),
        ([], False),
        (None, False),
    ],
)
def test_thinking_with_a_signature_is_replay_data(content: Any, expected: bool) -> None:
    assert has_replay_data({"type": 3, "content": content}) is expected


def test_what_is_no_message_has_no_replay_data() -> None:
    assert not has_replay_data(None)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("boom", "boom"),
        ({"message": "later", "retry": 5}, "later"),
        ("", ""),
        ({"message": ""}, ""),
        ({"retry": 5}, ""),
        (True, ""),
        (None, ""),
    ],
)
def test_a_failed_response_has_a_text(error: Any, text: str) -> None:
    message = {"type": 3, "content": [], "error": error}
    assert error_text(message) == text
    assert has_error(message) is bool(text)


def test_what_is_no_message_has_no_error() -> None:
    assert error_text("boom") == ""
