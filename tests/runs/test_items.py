"""Items, their schemas, the log, and the way between items and messages."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiio.context.types import (
    assistant_message,
    system_message,
    text_content,
    tool_result_message,
    user_message,
)
from aiio.runs.adapters import items_to_messages, messages_to_items
from aiio.runs.errors import RunError, RunErrorKind
from aiio.runs.item_log import ItemLog
from aiio.runs.item_schemas import ItemSchemaRegistry
from aiio.runs.items import (
    create_message,
    estimate_item_tokens,
    extract_assistant_text,
    item_text,
    new_item,
    strip_unresolved_tool_calls,
)
from tests.context.strategies import contexts


def refused(log: ItemLog | ItemSchemaRegistry, item: Any, **more: Any) -> RunError:
    with pytest.raises(RunError) as caught:
        log.append(item) if isinstance(log, ItemLog) else log.check(item, **more)
    assert caught.value.kind is RunErrorKind.ITEM_SCHEMA_MISMATCH
    return caught.value


def call_item(call_id: str = "c", name: str = "f") -> dict[str, Any]:
    return new_item("function_call", call_id=call_id, name=name, arguments="{}")


def output_item(call_id: str = "c") -> dict[str, Any]:
    return new_item("function_call_output", call_id=call_id, output="1")


# -- the log ----------------------------------------------------------------------------------------


def test_B4_items_is_one_snapshot_until_something_is_appended() -> None:
    log = ItemLog(ItemSchemaRegistry())
    told: list[Any] = []
    log.on_append = told.append
    before = log.items
    item = create_message("hi")
    log.append(item)
    assert before == ()
    assert log.items is log.items
    assert log.items[0] is item
    assert (len(log), told) == (1, [item])


def test_B_decided_10_the_same_id_with_equal_content_is_ignored_with_different_content_an_error() -> None:
    item = create_message("hi")
    log = ItemLog(ItemSchemaRegistry(), [item])
    log.append(copy.deepcopy(item))
    assert len(log) == 1
    assert "another item" in str(refused(log, {**item, "role": "assistant"}))


@pytest.mark.parametrize(
    "item",
    [
        None,
        {},
        {"type": ""},
        {"type": 3},
        {"type": "message", "status": "completed", "role": "user", "content": []},
        {"type": "message", "id": "", "status": "completed", "role": "user", "content": []},
        new_item("message", role="user", content=[], status="done"),
        new_item("message", role="robot", content=[]),
        new_item("message", role="user"),
        new_item("function_call", call_id="c", name="n", arguments={}),
        new_item("image_generation_call", result=3),
        new_item("noetic:analytics", data=[]),
        new_item("noetic:analytics", data={}),
    ],
)
def test_B4_what_is_no_item_is_refused(item: Any) -> None:
    refused(ItemLog(ItemSchemaRegistry()), item)


def test_B4_built_in_items_and_native_extensions_need_no_schema_in_strict_mode() -> None:
    log = ItemLog(ItemSchemaRegistry())
    items = [
        call_item(),
        output_item(),
        new_item("reasoning", content=[]),
        new_item("web_search_call", action={"type": "search"}),
        new_item("file_search_call", queries=[]),
        new_item("image_generation_call", result=None),
        new_item("openrouter:web_search", data={}),
    ]
    for item in items:
        log.append(item)
    assert list(log.items) == items
    ItemLog(ItemSchemaRegistry(strict=False)).append(new_item("noetic:analytics", data={}))


def test_B4_an_extension_needs_a_registered_schema_and_is_kept_as_it_is() -> None:
    class Analytics(msgspec.Struct):
        data: dict[str, int]

    registry = ItemSchemaRegistry()
    registry.register("items", Analytics)
    log = ItemLog(registry)
    item = new_item("noetic:analytics", data={"clicks": 1}, more="kept")
    log.append(item)
    assert log.items[0] is item
    error = refused(log, new_item("noetic:analytics", data={"clicks": "x"}))
    assert error.detail == {"category": "items", "item_type": "noetic:analytics"}


def test_B4_categories_refuse_when_they_have_schemas_and_none_matches() -> None:
    registry = ItemSchemaRegistry()
    registry.register("developer_messages", lambda item: "ok" in str(item["content"]))
    registry.register("tool_calls", lambda item: item["name"] == "f")
    registry.register_result("f", lambda item: item["output"] == "1")
    log = ItemLog(registry)
    log.append(create_message("ok", "developer"))
    assert refused(log, create_message("no", "developer")).detail["category"] == "developer_messages"
    log.append(create_message("no", "user"))
    log.append(call_item())
    assert refused(log, call_item(name="g")).detail["category"] == "tool_calls"
    log.append(output_item())
    bad = new_item("function_call_output", call_id="c", output="2")
    assert refused(log, bad).detail["category"] == "tool_results"
    log.append({**bad, "call_id": "of another tool"})


def test_B4_create_message_extract_estimate_and_strip() -> None:
    with pytest.raises(ValueError, match="robot"):
        create_message("x", "robot")
    items = [
        create_message("one", "assistant"),
        create_message("two", "assistant"),
        create_message("three", "user"),
        call_item("a"),
        output_item("b"),
        call_item("c"),
        output_item("c"),
    ]
    assert extract_assistant_text(items) == "two"
    assert extract_assistant_text([]) == ""
    assert [item.get("call_id") for item in strip_unresolved_tool_calls(items)[3:]] == ["c", "c"]
    assert estimate_item_tokens([]) == 0
    assert estimate_item_tokens(items[:1]) > 10
    assert item_text(items[0]) == "one"
    assert item_text(items[3]) == ""


# -- adapters ---------------------------------------------------------------------------------------

IMAGE = {"type": "image", "content": "aGk=", "mimetype": "image/png"}
FILE = {"type": "binary", "content": "aGk=", "mimetype": "text/plain", "filename": "a.txt"}

MESSAGES: list[Any] = [
    system_message("be kind"),
    user_message("hi", {"draft": "x"}),
    user_message([text_content("look"), IMAGE, FILE, {"type": "binary", "content": "aGk="}]),
    assistant_message(
        [
            {"type": "thinking", "text": "hm", "signature": "s"},
            {"type": "thinking", "text": "plain"},
            text_content("I will "),
            {"type": "text", "text": "call", "refusal": True},
            {"type": "tool_call", "call_id": "c1", "name": "f", "arguments": {"a": [1, True]}},
            {"type": "tool_call", "call_id": "c2", "name": "f", "arguments": "{broken", "partial": True},
            {"type": "new", "x": 1},
        ]
    ),
    tool_result_message("c1", "f", "done"),
    tool_result_message("c2", "f", [text_content("a"), IMAGE], error=True),
    assistant_message([]),
    {"type": 3, "content": [text_content("a")], "error": "cut"},
    {"type": 3, "content": [text_content("b")]},
    {"type": "note", "value": 1},
    {"type": "noetic:note", "id": "x", "status": "completed", "data": {}},
    {"type": 7, "content": []},
    {"type": 4, "content": [text_content("no id")]},
]


def test_messages_become_items_and_come_back_as_they_were() -> None:
    before = copy.deepcopy(MESSAGES)
    items = messages_to_items(MESSAGES)
    log = ItemLog(ItemSchemaRegistry(strict=False), items)
    assert before == MESSAGES
    assert items_to_messages(log.items) == MESSAGES
    kinds = [item["type"] for item in items]
    assert kinds[3:9] == ["reasoning", "reasoning", "message", "function_call", "function_call", "aiio:block"]


@given(contexts())
def test_any_context_comes_back_from_items_as_it_was(context: list[Any]) -> None:
    assert items_to_messages(messages_to_items(context)) == context


ITEMS: list[dict[str, Any]] = [
    create_message("sys", "system"),
    create_message("dev", "developer"),
    create_message("q"),
    new_item("reasoning", content=[], summary=[{"type": "summary_text", "text": "in short"}]),
    new_item("reasoning", content=[{"type": "reasoning_text", "text": "t"}], encrypted_content="e"),
    create_message("a", "assistant"),
    new_item("message", role="assistant", content=[{"type": "refusal", "refusal": "no"}], more=1),
    new_item("message", role="assistant", content=[], status="incomplete"),
    new_item(
        "message",
        role="assistant",
        content=[
            {"type": "output_text", "text": "a"},
            {"type": "output_text", "text": "b", "annotations": []},
        ],
    ),
    new_item("web_search_call", action={"type": "search"}),
    new_item("function_call", call_id="1", name="f", arguments=""),
    new_item("function_call", call_id="2", name="f", arguments="{nope"),
    new_item("function_call_output", call_id="1", output="r"),
    new_item("message", role="user", content=[{"type": "input_image", "image_url": "https://x.test/i.png"}]),
    new_item("message", role="user", content=[{"type": "input_file", "file_id": "f"}]),
    new_item("noetic:analytics", data={"a": 1}),
    *messages_to_items([{"type": "note"}, {"type": 9, "content": []}]),
    create_message("b", "assistant"),
]


def test_items_become_messages_and_come_back_as_they_were() -> None:
    messages = items_to_messages(ITEMS, keep=True)
    assert messages_to_items(messages) == ITEMS


def test_a_model_sees_an_answer_as_one_message_and_a_result_with_its_name() -> None:
    seen = items_to_messages(ITEMS)
    assert [message["type"] for message in seen] == [1, 2, 2, 3, 4, 2, 2, "noetic:analytics", "note", 9, 3]
    answer = seen[3]["content"]
    assert [block["type"] for block in answer] == [
        "thinking",
        "thinking",
        "text",
        "text",
        "text",
        "text",
        "web_search_call",
        "tool_call",
        "tool_call",
    ]
    assert answer[0]["text"] == "in short"
    assert answer[1]["signature"] == "e"
    assert (answer[7]["arguments"], answer[8]["arguments"]) == ({}, "{nope")
    assert seen[4]["name"] == "f"


def test_an_unparsable_block_is_kept_whole() -> None:
    odd = assistant_message(
        [
            {"type": "tool_call", "call_id": "c", "name": "f", "arguments": {"x": float("nan")}},
            {"type": "tool_call", "name": "no id"},
            {"type": "tool_call", "call_id": "o", "name": "f", "arguments": {"x": 1j}},
            {"type": "thinking", "text": None},
        ]
    )
    odd["content"].append("no block at all")
    back = items_to_messages(messages_to_items([odd]))
    assert repr(back) == repr([odd])


@given(st.lists(st.sampled_from(ITEMS), unique_by=lambda item: item["id"], max_size=8))
def test_any_items_come_back_from_messages_as_they_were(items: list[dict[str, Any]]) -> None:
    assert messages_to_items(items_to_messages(items, keep=True)) == items
