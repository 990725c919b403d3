"""Rebuilding messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiio.context.edit import rebuild_message

from .strategies import messages


def test_text_and_files_lose_what_the_schema_does_not_name() -> None:
    message = {
        "type": 2,
        "id": "msg_1",
        "content": [
            {"type": "text", "text": "hi", "cache_control": {}},
            {"type": "image", "content": "aGk=", "mime": "image/png", "file_id": "f"},
            {"type": "binary", "content": "aGk=", "mimetype": "a/b", "filename": "x", "file_id": "f"},
        ],
    }
    assert rebuild_message(message) == {
        "type": 2,
        "content": [
            {"type": "text", "text": "hi"},
            {"type": "image", "content": "aGk=", "mime": "image/png"},
            {"type": "binary", "content": "aGk=", "mimetype": "a/b", "filename": "x"},
        ],
    }


def test_thinking_tool_calls_and_unknown_blocks_keep_everything() -> None:
    content = [
        {"type": "thinking", "text": "hm", "signature": "s", "id": "rs_1"},
        {"type": "tool_call", "call_id": "c", "name": "n", "arguments": {"a": 1}, "partial": True},
        {"type": "new thing", "data": [1]},
        {"type": 7},
    ]
    rebuilt = rebuild_message({"type": 3, "content": content})
    assert rebuilt["content"] == content
    assert all(new is not old for new, old in zip(rebuilt["content"], content, strict=True))


@pytest.mark.parametrize("error", ["boom", {"message": "later", "retry": 5}])
def test_an_assistant_message_keeps_its_error_and_draft(error: Any) -> None:
    message = {"type": 3, "content": [], "error": error, "draft": "first words", "id": "x"}
    assert rebuild_message(message) == {"type": 3, "content": [], "error": error, "draft": "first words"}
    assert rebuild_message({"type": 3, "content": [], "error": True, "draft": ""}) == {
        "type": 3,
        "content": [],
    }
    assert rebuild_message({"type": 2, "content": [], "error": error}) == {"type": 2, "content": []}


def test_a_tool_result_keeps_its_linkage() -> None:
    message = {"type": 4, "content": [], "call_id": "c", "name": "n", "error": False, "draft": "x"}
    assert rebuild_message(message) == {"type": 4, "content": [], "call_id": "c", "name": "n", "error": False}
    assert rebuild_message({"type": 4, "content": []}) == {"type": 4, "content": []}


@pytest.mark.parametrize("value", [None, {"type": "note"}, {"type": 2, "content": ["text"]}])
def test_only_messages_of_blocks_are_rebuilt(value: Any) -> None:
    with pytest.raises(TypeError):
        rebuild_message(value)


@given(messages(), st.dictionaries(st.text(), st.integers()))
def test_rebuilding_twice_changes_nothing_more(message: dict[str, Any], metadata: dict[str, Any]) -> None:
    once = rebuild_message({**metadata, **message})
    assert rebuild_message(once) == once
