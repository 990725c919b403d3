"""Pairs of calls and results: found, made, repaired."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiio.context.linkage import NO_RESULT, call_ids, repair_linkage, tool_calls, with_unique_calls
from aiio.context.types import assistant_message, system_message, tool_result_message, user_message
from tests.agents.strict import assert_linked

USER = user_message("Hello")
NOTE = {"type": "note", "text": "a record"}


def call(call_id: Any, name: str = "f") -> dict[str, Any]:
    return {"type": "tool_call", "call_id": call_id, "name": name, "arguments": {}}


def asks(*calls: dict[str, Any]) -> dict[str, Any]:
    return assistant_message([{"type": "text", "text": "Let me see."}, *calls])


def gives(call_id: Any, name: str = "f", text: str = "42") -> dict[str, Any]:
    return tool_result_message(call_id, name, text)


def test_a_sound_context_is_left_alone() -> None:
    context = [
        system_message("Be brief."),
        USER,
        asks(call("a"), call("b")),
        gives("a"),
        NOTE,
        gives("b"),
        USER,
    ]
    before = list(context)
    assert repair_linkage(context) == 0
    assert all(now is then for now, then in zip(context, before, strict=True))


def test_an_unanswered_call_gets_an_error_result_at_the_end_of_its_window() -> None:
    context = [USER, asks(call("a"), call("b")), gives("a"), system_message("Mind the time."), NOTE, USER]
    assert repair_linkage(context) == 1
    assert context[5] == tool_result_message("b", "f", NO_RESULT, error=True)
    assert context[6] is USER
    assert len(context) == 7


def test_an_unanswered_call_at_the_end_of_the_context_is_answered() -> None:
    context = [USER, asks(call("a"))]
    assert repair_linkage(context) == 1
    assert_linked(context)


def test_a_result_without_a_call_becomes_a_system_message_holding_its_json() -> None:
    context = [USER, gives("gone"), asks(call("a")), gives("a"), gives("a", text="again")]
    assert repair_linkage(context) == 2
    assert context[1] == system_message(
        '{"type":4,"content":[{"type":"text","text":"42"}],"call_id":"gone","name":"f"}'
    )
    assert context[4]["type"] == 1
    assert_linked(context)


def test_a_result_that_comes_after_an_interposed_user_message_is_late() -> None:
    context = [asks(call("a")), USER, gives("a")]
    assert repair_linkage(context) == 2
    assert [entry["type"] for entry in context] == [3, 4, 2, 1]


def test_a_result_that_is_no_json_data_is_kept_as_text() -> None:
    context = [{**gives("gone"), "raw": object}]
    assert repair_linkage(context) == 1
    assert "<class 'object'>" in context[0]["content"][0]["text"]


@pytest.mark.parametrize("missing", [None, "", "  ", 7, ["a"]])
def test_missing_ids_become_repair_n(missing: Any) -> None:
    context = [USER, asks(call(missing, "f"), call(missing, "g")), gives(missing, "g"), gives(missing, "f")]
    before = copy.deepcopy(context)
    messages = list(context)
    assert repair_linkage(context) == 4
    assert [block["call_id"] for block in tool_calls(context[1])] == ["repair-1", "repair-2"]
    assert [(entry["call_id"], entry["name"]) for entry in context[2:]] == [
        ("repair-2", "g"),
        ("repair-1", "f"),
    ]
    assert messages == before  # replaced, not changed


def test_one_id_twice_in_a_message_is_told_apart() -> None:
    context = [asks(call("a", "f"), call("a", "g")), gives("a", "f"), gives("a", "g")]
    assert repair_linkage(context) == 2
    assert [entry["call_id"] for entry in context[1:]] == ["a", "repair-1"]
    assert_linked(context)


def test_new_ids_are_not_in_use_anywhere() -> None:
    context = [asks(call("repair-1")), gives("repair-1"), asks(call(None)), gives(None)]
    repair_linkage(context)
    assert call_ids(context) == {"repair-1", "repair-2"}


def test_unique_calls_keep_the_ids_that_are_unique() -> None:
    message = asks(call("a"), call("b"), call("b"), call(""))
    renamed = with_unique_calls(message, {"a", "agent-1"})
    assert [block["call_id"] for block in tool_calls(renamed)] == ["agent-2", "b", "agent-3", "agent-4"]
    assert [block["call_id"] for block in tool_calls(message)] == ["a", "b", "b", ""]
    fine = asks(call("x"))
    assert with_unique_calls(fine, {"a"}) is fine
    assert tool_calls(None) == []


_ids = st.sampled_from(["a", "b", "", None])
_entries = st.one_of(
    st.just(USER),
    st.just(NOTE),
    st.just(system_message("s")),
    st.lists(_ids, max_size=3).map(lambda ids: asks(*map(call, ids))),
    _ids.map(gives),
)


@given(st.lists(_entries, max_size=8))
def test_whatever_came_is_paired_afterwards(context: list[Any]) -> None:
    before = copy.deepcopy(context)
    entries = list(context)
    repair_linkage(context)
    assert repair_linkage(context) == 0
    assert entries == before
    waiting: list[str] = []
    for entry in context:
        if entry["type"] == 4:
            waiting.remove(entry["call_id"])
        elif entry["type"] in (2, 3):
            assert not waiting
            waiting = [block["call_id"] for block in tool_calls(entry)]
            assert len(set(waiting)) == len(waiting)
    assert not waiting
