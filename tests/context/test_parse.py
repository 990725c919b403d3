"""Reading contexts from text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from aiio.context.parse import parse_context
from aiio.context.types import user_message
from aiio.context.validate import is_message

from .strategies import contexts

MESSAGE = {"type": 3, "content": [{"type": "text", "text": "hi"}]}


def test_a_json_list_is_returned_unchanged_and_unchecked() -> None:
    assert parse_context('[1, {"type": "note"}, null]') == [1, {"type": "note"}, None]
    assert parse_context("[]") == []


def test_prose_becomes_a_user_message_a_line_untrimmed() -> None:
    assert parse_context("  one \r\n\r\n \t\ntwo\r") == [user_message("  one "), user_message("two")]
    assert parse_context("") == []


def test_lines_of_json_give_messages_and_keep_the_rest_as_text() -> None:
    lines = [
        json.dumps(MESSAGE),
        json.dumps([MESSAGE, {"type": "note"}, 5, {"type": 2}]),
        '{"type": "note", "value": 1}',
        "42",
        '"text"',
        "{broken",
        "NaN",
    ]
    assert parse_context("\n".join(lines)) == [MESSAGE, MESSAGE, *map(user_message, lines[2:])]


def test_a_single_message_is_read_as_a_line() -> None:
    assert parse_context(json.dumps(MESSAGE)) == [MESSAGE]


def test_only_strings_are_read() -> None:
    with pytest.raises(TypeError, match="bytes"):
        parse_context(b"hi")  # type: ignore[arg-type]


@given(contexts())
def test_a_dumped_context_is_read_back(context: list[dict[str, Any]]) -> None:
    assert parse_context(json.dumps(context)) == context
    wanted = [message for message in context if is_message(message)]
    assert parse_context("\n".join(map(json.dumps, wanted))) == wanted
