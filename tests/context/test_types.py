"""Messages and blocks: the constructors."""

from __future__ import annotations

import pytest

from aiio.context.types import (
    ContentType,
    MessageType,
    assistant_message,
    mimetype_of,
    system_message,
    text_content,
    tool_result_message,
    user_message,
)


def test_the_constants_can_not_be_changed() -> None:
    assert [kind.value for kind in MessageType] == [0, 1, 2, 3, 4]
    assert [str(kind) for kind in ContentType] == ["text", "image", "binary", "thinking", "tool_call"]
    with pytest.raises(AttributeError):
        MessageType.USER = 5  # type: ignore[misc]


def test_text_is_what_str_makes_of_the_value() -> None:
    assert text_content(12) == {"type": "text", "text": "12"}

    class Unprintable:
        def __str__(self) -> str:
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        text_content(Unprintable())


def test_a_user_message_takes_a_list_as_its_content_and_metadata_last() -> None:
    content = [text_content("hi")]
    assert user_message(content)["content"] is content
    assert user_message("hi") == {"type": 2, "content": content}
    assert user_message("hi", {"id": 1, "type": 9}) == {"type": 9, "content": content, "id": 1}


def test_assistant_messages_share_no_default_content() -> None:
    content = [text_content("hi")]
    assert assistant_message(content)["content"] is content
    assert assistant_message()["content"] is not assistant_message()["content"]
    assert system_message("be kind") == {"type": 1, "content": [text_content("be kind")]}


def test_a_tool_result_carries_its_call_and_its_failure() -> None:
    result = tool_result_message("c1", "add", "3")
    assert result == {"type": 4, "content": [text_content("3")], "call_id": "c1", "name": "add"}
    failed = tool_result_message("c1", "add", [text_content("boom")], error=True)
    assert failed["error"] is True
    assert failed["content"] == [text_content("boom")]


def test_mimetype_outranks_mime() -> None:
    assert mimetype_of({"mimetype": "a/b", "mime": "c/d"}) == "a/b"
    assert mimetype_of({"mimetype": "", "mime": "c/d"}) == "c/d"
    assert mimetype_of({"mimetype": 5}) is None
    assert mimetype_of(None) is None
