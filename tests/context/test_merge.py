"""Appending and merging."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import structlog
from hypothesis import given

from aiio.context.merge import append_message, append_valid, fold, join_texts
from aiio.context.types import assistant_message, text_content, tool_result_message, user_message

from .strategies import contexts, messages

T = text_content


@pytest.fixture(autouse=True)
def _unconfigured_logging() -> None:
    structlog.reset_defaults()


def test_consecutive_user_texts_become_one_with_a_blank_line() -> None:
    context: list[Any] = []
    first = append_message(context, user_message("one"))
    assert append_message(context, user_message("two")) is first
    assert context == [user_message("one\n\ntwo")]


@pytest.mark.parametrize(
    ("texts", "joined"),
    [
        (["a", "b"], "a\n\nb"),
        (["a\n", "b"], "a\nb"),
        (["", "b"], "b"),
        (["a", ""], "a"),
        (["a", "", "b"], "a\n\nb"),
        (["a\n", "", "b", "c"], "a\nb\n\nc"),
        (["", ""], ""),
    ],
)
def test_joining_adds_a_blank_line_unless_a_line_ended(texts: list[str], joined: str) -> None:
    assert join_texts(texts) == joined
    assert fold([T(text) for text in texts]) == [T(joined)]


def test_folding_keeps_blocks_with_metadata_and_other_kinds_apart() -> None:
    marked = {"type": "text", "text": "m", "citations": []}
    thinking = {"type": "thinking", "text": "hm"}
    call = {"type": "tool_call", "call_id": "c", "name": "n", "arguments": {}}
    content = [T("a"), marked, T("b"), T("c"), thinking, thinking, call, call, None, T(""), {"type": "text"}]
    folded = fold(content)
    two_thoughts = {"type": "thinking", "text": "hm\n\nhm"}
    assert folded == [T("a"), marked, T("b\n\nc"), two_thoughts, call, call, None, T(""), {"type": "text"}]
    assert folded[0] is content[0]
    assert fold(folded) == folded


def test_the_message_given_is_not_changed() -> None:
    message = user_message([T("a"), T("b")])
    before = copy.deepcopy(message)
    context: list[Any] = []
    stored = append_message(context, message)
    append_message(context, message)
    assert message == before
    assert stored is not message
    assert context == [user_message("a\n\nb\n\na\n\nb")]


@pytest.mark.parametrize(
    ("last", "message"),
    [
        (user_message("a"), assistant_message([T("b")])),
        (tool_result_message("c", "n", "a"), tool_result_message("c", "n", "b")),
        (user_message("a", {"draft": "x"}), user_message("b")),
        (user_message("a", {"draft": "x"}), user_message("b", {"draft": "y"})),
        ({**assistant_message([T("a")]), "error": "e"}, assistant_message([T("b")])),
        ({"type": "note"}, user_message("b")),
    ],
)
def test_what_differs_does_not_merge(last: dict[str, Any], message: dict[str, Any]) -> None:
    context = [last]
    assert append_message(context, message) == message
    assert context == [last, message]


def test_equal_metadata_does_not_keep_messages_apart() -> None:
    context = [user_message("a", {"tags": ["x"]})]
    append_message(context, user_message("b", {"tags": ["x"]}))
    assert context == [user_message("a\n\nb", {"tags": ["x"]})]


def test_merge_can_be_turned_off() -> None:
    context = [user_message("a")]
    append_message(context, user_message([T("b"), T("c")]), merge=False)
    assert context == [user_message("a"), user_message("b\n\nc")]


def test_records_are_pushed_untouched() -> None:
    record = {"type": "note"}
    context: list[Any] = [user_message("a")]
    assert append_message(context, record) is record
    assert context[1] is record
    append_message(context, user_message("b"))
    assert len(context) == 3


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("context", [[], [assistant_message([T("a")])], [{"type": "note"}]])
def test_F5_an_empty_append_warns_and_changes_nothing(
    context: list[Any], merge: bool, caplog: pytest.LogCaptureFixture
) -> None:
    before = copy.deepcopy(context)
    assert append_message(context, user_message(""), merge=merge) is None
    assert context == before
    assert [record.message for record in caplog.records] == ["context.empty_message_dropped"]


def test_an_empty_message_is_absorbed_by_one_it_would_merge_with(caplog: pytest.LogCaptureFixture) -> None:
    context = [user_message("a")]
    assert append_message(context, user_message("")) is context[0]
    assert context == [user_message("a")]
    assert not caplog.records
    assert append_message(context, user_message(""), merge=False) is None


def test_a_failed_response_without_content_is_kept() -> None:
    context = [user_message("a")]
    failed = {**assistant_message(), "error": "boom"}
    assert append_message(context, failed) == failed
    assert context[1] == failed


@pytest.mark.parametrize(
    ("context", "message"),
    [((), user_message("a")), ([{"type": 2}], user_message("a")), ([], {"type": 2}), ([], None)],
)
def test_invalid_contexts_and_messages_are_refused(context: Any, message: Any) -> None:
    with pytest.raises(TypeError):
        append_message(context, message)


def test_M1_an_owner_of_a_valid_context_pays_for_the_tail_only() -> None:
    class Counting(list[Any]):
        walks = 0

        def __iter__(self) -> Any:
            type(self).walks += 1
            return super().__iter__()

    context = Counting([user_message("a"), assistant_message([T("b")])])
    append_valid(context, user_message("c"))
    assert Counting.walks == 0
    assert len(context) == 3


def _text_of(context: list[dict[str, Any]]) -> str:
    blocks = [block for entry in context for block in entry.get("content", ())]
    return "".join(block.get("text", "") for block in blocks).replace("\n", "")


@given(contexts(), messages())
def test_appending_loses_no_text_and_leaves_nothing_to_merge(
    context: list[dict[str, Any]], message: dict[str, Any]
) -> None:
    text = _text_of([*context, message])
    appended = copy.deepcopy(context)
    for entry in [message]:
        append_message(appended, entry)
    assert _text_of(appended) == text

    merged: list[Any] = []
    for entry in appended:
        append_message(merged, entry)
    again: list[Any] = []
    for entry in merged:
        append_message(again, entry)
    assert again == merged
