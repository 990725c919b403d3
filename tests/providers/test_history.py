"""History made valid on a copy."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiio.context.types import Message, assistant_message, system_message, tool_result_message, user_message
from aiio.providers.history import NO_OUTPUT, NO_RESULT, content_text, paired_history
from aiio.providers.openai_chat import OpenAIChat

from .fakes import FakeIO
from .strict_chat import check_chat_body


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def call(call_id: Any, name: Any = "f", arguments: Any = None, **more: Any) -> dict[str, Any]:
    arguments = {} if arguments is None else arguments
    return {"type": "tool_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def calling(*blocks: dict[str, Any]) -> Message:
    return assistant_message([*blocks])


def result(call_id: Any, value: Any = "r", name: str = "f") -> Message:
    return tool_result_message(call_id, name, value)


def sent(context: list[Message]) -> tuple[list[Message], FakeIO]:
    """Return the history as sent, after checking that the context is untouched and the body is valid."""
    before, io = copy.deepcopy(context), FakeIO()
    history = paired_history(context, io)
    assert context == before
    assert paired_history(context, FakeIO()) == history
    judge = FakeIO()
    again = paired_history(history, judge)
    assert again == history
    assert judge.repairs == []
    _, body = OpenAIChat("http://x", io).request(context, FakeIO())
    if body["messages"]:
        check_chat_body(body)
    return history, io


def outline(history: list[Message]) -> list[str]:
    """Return one word per message: its role, with the ids of calls and results."""
    words = {1: "system", 2: "user", 3: "assistant", 4: "result"}
    lines = []
    for message in history:
        ids = [block["call_id"] for block in message["content"] if block.get("type") == "tool_call"]
        ids += [message["call_id"]] if message["type"] == 4 else []
        lines.append(" ".join([words[message["type"]], *ids]))
    return lines


USER, MORE = user_message("hi"), user_message("and?")

F7: dict[str, tuple[list[Message], list[str], list[str]]] = {
    "orphan call at the end": (
        [USER, calling(call("a"))],
        ["user", "assistant a", "result a"],
        ["result_made_up"],
    ),
    "orphan call in the middle": (
        [USER, calling(call("a"), call("b")), result("b"), MORE],
        ["user", "assistant a b", "result a", "result b", "user"],
        ["result_made_up"],
    ),
    "reverse orphan": ([USER, result("x"), MORE], ["user", "user", "user"], ["result_without_call"]),
    "duplicate ids": (
        [
            USER,
            calling(call("a"), call("a")),
            result("a", "1"),
            result("a", "2"),
            calling(call("a")),
            result("a", "3"),
        ],
        ["user", "assistant a a-2", "result a", "result a-2", "assistant a", "result a"],
        ["call_id_replaced"],
    ),
    "result before call": (
        [USER, result("a"), calling(call("a")), MORE],
        ["user", "assistant a", "result a", "user"],
        ["result_moved"],
    ),
    "result after an interposed user message": (
        [USER, calling(call("a")), MORE, result("a")],
        ["user", "assistant a", "result a", "user"],
        ["result_moved"],
    ),
    "two calls one result": (
        [USER, calling(call("a"), call("b")), result("a")],
        ["user", "assistant a b", "result a", "result b"],
        ["result_made_up"],
    ),
    "trimmed head": (
        [result("a"), result("b"), calling(text("so")), USER],
        ["user", "user", "assistant", "user"],
        ["result_without_call", "result_without_call"],
    ),
}


@pytest.mark.parametrize(("context", "expected", "repairs"), F7.values(), ids=F7.keys())
def test_F7_calls_and_results_are_paired(
    context: list[Message], expected: list[str], repairs: list[str]
) -> None:
    history, io = sent(context)
    assert outline(history) == expected
    assert io.repair_names == repairs


def test_F7_duplicate_ids_keep_their_results_in_order() -> None:
    history, _ = sent(F7["duplicate ids"][0])
    assert [content_text(one) for one in history if one["type"] == 4] == ["1", "2", "3"]


def test_F7_a_made_up_result_says_so_and_is_an_error() -> None:
    history, _ = sent([calling(call("a"))])
    assert history[1] == tool_result_message("a", "f", NO_RESULT, error=True)


def test_F7_a_repeated_result_is_dropped_and_another_one_is_kept_as_text() -> None:
    history, io = sent([calling(call("a")), result("a"), result("a"), result("a", "other")])
    assert outline(history) == ["assistant a", "result a", "user"]
    assert content_text(history[2]).endswith("other")
    assert io.repair_names == ["result_dropped", "result_without_call"]


def test_F7_a_result_with_no_name_is_kept_as_text() -> None:
    history, _ = sent([{"type": 4, "call_id": 3, "content": [text("x")]}])
    assert content_text(history[0]) == "Result of a tool call:\n\nx"


@pytest.mark.parametrize("call_id", [None, "", " ", 7])
def test_a_call_without_a_usable_id_gets_one(call_id: Any) -> None:
    history, io = sent([USER, calling(call("a")), result("a"), calling(call(call_id)), result(call_id)])
    assert outline(history)[-2:] == ["assistant repair-2", "result repair-2"]
    assert io.repair_names == ["call_id_replaced"]


def test_the_name_of_a_result_is_its_calls() -> None:
    history, _ = sent([calling(call("a", "real")), result("a", name="wrong")])
    assert history[1]["name"] == "real"


def test_system_messages_between_call_and_result_come_after_it() -> None:
    history, io = sent([calling(call("a")), system_message("s"), result("a")])
    assert outline(history) == ["assistant a", "result a", "system"]
    assert io.repair_names == ["result_moved"]


PARTIAL = {
    "marked": call("a", arguments={}, partial=True),
    "raw": call("a", arguments='{"x": '),
    "no name": call("a", name=""),
    "name of another type": call("a", name=None),
    "too deep": call("a", arguments="[" * 100_000),
}


@pytest.mark.parametrize("block", PARTIAL.values(), ids=PARTIAL.keys())
def test_F3_a_call_that_was_cut_is_left_out_with_its_result(block: dict[str, Any]) -> None:
    history, io = sent([USER, calling(text("let me"), block, call("b")), result("a"), result("b"), MORE])
    assert outline(history) == ["user", "assistant b", "result b", "user"]
    assert io.repair_names == ["call_dropped", "result_dropped"]


def test_F3_a_message_of_nothing_but_cut_calls_is_left_out() -> None:
    thinking = {"type": "thinking", "text": "hm", "signature": "s"}
    history, io = sent([USER, calling(thinking, PARTIAL["raw"]), result("a"), MORE])
    assert outline(history) == ["user"]
    assert content_text(history[0]) == "hi\n\nand?"
    assert io.repair_names == ["call_dropped", "message_dropped", "result_dropped", "message_joined"]


@pytest.mark.parametrize(("arguments", "expected"), [("", {}), (" ", {}), ('{"x":1}', {"x": 1}), (None, {})])
def test_argument_texts_that_parse_are_sent(arguments: Any, expected: Any) -> None:
    block = {**call("a"), "arguments": arguments}
    history, io = sent([calling(block), result("a")])
    assert history[0]["content"][0]["arguments"] == expected
    assert io.repairs == []


F5: dict[str, tuple[list[Message], list[str]]] = {
    "empty text": ([USER, calling(text("")), MORE], ["user"]),
    "whitespace only": ([USER, calling(text(" \n")), MORE], ["user"]),
    "empty thinking": ([USER, calling({"type": "thinking", "text": ""}), MORE], ["user"]),
    "empty list": ([USER, calling(), MORE], ["user"]),
    "null content": ([USER, {"type": 3, "content": None}, MORE], ["user"]),
    "null block": ([USER, {"type": 3, "content": [None, text("a")]}, MORE], ["user", "assistant", "user"]),
    "empty text and a call": (
        [USER, calling(text(""), call("a")), result("a")],
        ["user", "assistant a", "result a"],
    ),
    "empty user": ([calling(text("a")), user_message(""), calling(text("b")), USER], ["assistant", "user"]),
    "empty user after a call": (
        [calling(call("a")), user_message(""), calling(text("b"))],
        ["assistant a", "result a", "assistant"],
    ),
    "empty image": ([USER, user_message([{"type": "image", "content": ""}])], ["user"]),
    "empty system": ([system_message(""), USER], ["user"]),
    "unknown type": ([USER, {"type": 9, "content": [text("x")]}], ["user"]),
    "record": ([USER, {"type": "note", "content": [text("x")]}], ["user"]),
    "empty at the end": ([USER, calling(text("a")), user_message(" ")], ["user", "assistant"]),
}


@pytest.mark.parametrize(("context", "expected"), F5.values(), ids=F5.keys())
def test_F5_empty_messages_never_reach_a_provider(context: list[Message], expected: list[str]) -> None:
    history, _ = sent(context)
    assert outline(history) == expected
    for message in history:
        assert all(block.get("text", "x").strip() for block in message["content"])


def test_F5_neighbours_of_a_dropped_message_are_joined() -> None:
    history, io = sent(F5["empty text"][0])
    assert content_text(history[0]) == "hi\n\nand?"
    assert io.repair_names == ["message_dropped", "message_joined"]


def test_F5_an_empty_result_says_that_it_is_empty() -> None:
    history, _ = sent([calling(call("a")), result("a", "")])
    assert content_text(history[1]) == NO_OUTPUT
    history, _ = sent([calling(call("a")), {"type": 4, "call_id": "a", "content": None}])
    assert content_text(history[1]) == NO_OUTPUT


def test_thinking_without_text_is_kept_when_it_can_be_replayed() -> None:
    block = {"type": "thinking", "text": "", "signature": "s"}
    history = paired_history([calling(block, text("a"))], FakeIO())
    assert history[0]["content"] == [block, text("a")]


def test_messages_that_need_no_repair_are_passed_on_as_they_are() -> None:
    context = [system_message("s"), USER, calling(text("a"), call("a")), result("a"), MORE]
    history, io = sent(context)
    assert all(one is other for one, other in zip(history, context, strict=True))
    assert io.repairs == []


BLOCKS = st.one_of(
    st.builds(text, st.sampled_from(["", " ", "t"])),
    st.builds(
        call,
        st.sampled_from(["a", "b", "", None]),
        st.sampled_from(["f", ""]),
        st.sampled_from([{}, "{}", "{", None]),
        partial=st.booleans(),
    ),
    st.just({"type": "thinking", "text": "t"}),
)
MESSAGES = st.one_of(
    st.builds(user_message, st.sampled_from(["", "u"])),
    st.builds(system_message, st.sampled_from(["", "s"])),
    st.builds(assistant_message, st.lists(BLOCKS, max_size=4)),
    st.builds(lambda blocks: {**assistant_message(blocks), "refused": True}, st.lists(BLOCKS, max_size=3)),
    st.builds(result, st.sampled_from(["a", "b", "", None]), st.sampled_from(["", "r", "q"])),
    st.just({"type": "record", "x": 1}),
)


@given(st.lists(MESSAGES, max_size=12))
def test_any_history_is_made_valid_once_and_for_all(context: list[Message]) -> None:
    sent(context)


def test_a_refused_answer_is_not_sent_again_and_neither_are_the_results_of_its_calls() -> None:
    refused = {**calling(text("Half an"), call("a")), "refused": True}
    history, io = sent([user_message("u"), refused, result("a"), user_message("v")])
    assert outline(history) == ["user"]
    assert content_text(history[0]) == "u\n\nv"
    assert io.repair_names == ["message_dropped", "result_dropped", "message_joined"]


def test_a_refusal_in_the_models_own_words_is_sent_again() -> None:
    refused = {**calling({**text("I won't."), "refusal": True}), "refused": True}
    history, io = sent([user_message("u"), refused, user_message("v")])
    assert outline(history) == ["user", "assistant", "user"]
    assert io.repairs == []


def test_F5_text_without_words_stays_for_the_dialect_that_signed_it() -> None:
    block = {**text(""), "sig": "s"}
    context = [user_message("u"), calling(text("Hi."), block), user_message("v")]
    assert paired_history(context, FakeIO(), signed="sig")[1]["content"] == [text("Hi."), block]
    for key in (None, "other"):
        assert paired_history(context, FakeIO(), signed=key)[1]["content"] == [text("Hi.")]


def test_cost_grows_linearly_with_the_context() -> None:
    class Counting(dict[str, Any]):
        looked = 0

        def get(self, key: str, default: Any = None) -> Any:
            Counting.looked += 1
            return super().get(key, default)

    def cost(turns: int) -> int:
        Counting.looked = 0
        context: list[Message] = []
        for _ in range(turns):
            context += [user_message("u"), calling(call("same")), result("same")]
        paired_history([Counting(message) for message in context], FakeIO())
        return Counting.looked

    assert cost(2000) == 2 * cost(1000)
    assert json.dumps(cost(10))
