"""What a context and its settings become as a Responses request."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from aiio.context.assemble import create_assembler
from aiio.context.types import (
    Message,
    assistant_message,
    system_message,
    text_content,
    tool_result_message,
    user_message,
)
from aiio.env.errors import ErrorKind
from aiio.providers.base import dialect_class
from aiio.providers.openai_chat import OpenAIChat
from aiio.providers.openai_models import models_request, read_models
from aiio.providers.openai_responses import OpenAIResponses
from aiio.providers.responses_plan import plan_of, quota_of

from .fakes import FakeIO
from .manifest import Row, replay, rows
from .strict_chat import check_chat_body
from .strict_responses import check_responses_body
from .test_history import F7

PNG = {"type": "image", "content": "AAAA", "mimetype": "image/png"}
SIGNED = {"summary": [{"type": "summary_text", "text": "s"}], "id": "rs_1", "encrypted_content": "c1ph3r"}
STREAMS = rows("responses")


def binary(mimetype: str, content: str = "AAAA", **more: Any) -> dict[str, Any]:
    return {"type": "binary", "mimetype": mimetype, "content": content, **more}


def thinking(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "thinking", "text": text, **more}


def call(call_id: str = "call_1", arguments: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "tool_call", "call_id": call_id, "name": "f", "arguments": arguments or {"a": 1}, **more}


def server(item: dict[str, Any], dialect: str = "openai_responses") -> dict[str, Any]:
    return {"type": "server", "dialect": dialect, "item": item}


def body_of(context: list[Message], io: FakeIO | None = None, **settings: Any) -> dict[str, Any]:
    io = io or FakeIO(**settings)
    before = json.dumps(context)
    _, body = OpenAIResponses("http://x", io).request(context, io)
    assert json.dumps(context) == before
    check_responses_body(body)
    assert isinstance(body, dict)
    return body


def wire(context: list[Message], io: FakeIO | None = None, **settings: Any) -> list[dict[str, Any]]:
    items = body_of(context, io, **settings)["input"]
    assert isinstance(items, list)
    return items


def answer(*blocks: dict[str, Any], io: FakeIO | None = None, **settings: Any) -> list[dict[str, Any]]:
    """Return the items that one assistant message becomes."""
    return wire([user_message("u"), assistant_message([*blocks])], io, **settings)[1:]


def options(io: FakeIO | None = None, **settings: Any) -> dict[str, Any]:
    return body_of([user_message("u")], io, **settings)


def said(text: str, **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "content": [part], "status": "completed", **more}


def asked(*parts: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [*parts]}


def words(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


# -- messages


def test_texts_are_messages_and_system_texts_the_instructions() -> None:
    context = [
        system_message("s"),
        user_message("u"),
        assistant_message([text_content("a")]),
        system_message("t"),
        user_message("v"),
    ]
    body = body_of(context)
    assert body["instructions"] == "s\n\nt"
    assert body["input"] == [asked(words("u")), said("a"), asked(words("v"))]
    in_place = body_of([*context, {"type": 1, "content": [PNG]}], system_as="developer")
    assert "instructions" not in in_place
    assert in_place["input"][0] == asked(words("s"), role="developer")
    assert in_place["input"][3] == asked(words("t"), role="developer")
    assert len(in_place["input"]) == 5


FILES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "image": (PNG, {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}),
    "image without a type": (
        {"type": "image", "content": "AAAA", "detail": "low"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"},
    ),
    "binary image": (
        binary("image/webp"),
        {"type": "input_image", "image_url": "data:image/webp;base64,AAAA", "detail": "auto"},
    ),
    "pdf": (
        binary("application/pdf", filename="a.pdf"),
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"},
    ),
    "drawing": (
        binary("image/svg+xml"),
        {"type": "input_file", "filename": "attachment.svg", "file_data": "data:image/svg+xml;base64,AAAA"},
    ),
    "nameless bytes": (
        {"type": "binary", "content": "AAAA"},
        {
            "type": "input_file",
            "filename": "attachment.octet-stream",
            "file_data": "data:application/octet-stream;base64,AAAA",
        },
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_files_by_media_type(name: str) -> None:
    block, part = FILES[name]
    assert wire([user_message([text_content("see"), block])]) == [asked(words("see"), part)]


def test_files_as_text_where_the_server_takes_none() -> None:
    block = binary("text/plain", base64.b64encode(b"hello").decode(), filename="a.txt")
    items = wire([user_message([block])], quirks={"files": "inline"})
    assert items == [asked(words("File a.txt:\nhello"))]
    with pytest.raises(ValueError, match="application/pdf"):
        wire([user_message([binary("application/pdf")])], quirks={"files": "inline"})


@pytest.mark.parametrize("mimetype", ["audio/wav", "video/mp4"])
def test_sound_and_film_are_refused_by_name(mimetype: str) -> None:
    with pytest.raises(ValueError, match=f"no form for '{mimetype}' .block 'x.bin'."):
        wire([user_message([binary(mimetype, filename="x.bin")])])


def test_sound_for_a_model_that_takes_it() -> None:
    io = FakeIO(input_audio=True)
    context = [
        user_message([binary("audio/mpeg")]),
        assistant_message([call()]),
        tool_result_message("call_1", "f", [binary("audio/wav")]),
    ]
    _, body = OpenAIResponses("http://x", io).request(context, io)
    assert body["input"][0]["content"] == [
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}
    ]
    assert body["input"][2]["output"] == "(left out: results hold no audio)"
    with pytest.raises(ValueError, match="audio/flac"):
        wire([user_message([binary("audio/flac")])], input_audio=True)


def test_blocks_without_a_form_are_left_out_and_reported() -> None:
    io = FakeIO()
    context = [
        user_message([{"type": "map"}, text_content("u"), {"type": "map"}]),
        user_message([{"type": "map"}]),
    ]
    assert wire(context, io) == [asked(words("u"))]
    assert io.repair_names == ["block_dropped"] * 3


def test_cache_marks_go_along() -> None:
    mark = {"prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}
    marked = {**text_content("a"), **mark}
    result = tool_result_message("call_1", "f", [marked])
    items = wire([user_message([marked, {**PNG, **mark}]), assistant_message([call()]), result])
    assert items[0] == asked({**words("a"), **mark}, {**FILES["image"][1], **mark})
    assert items[2]["output"] == [{**words("a"), **mark}]


def test_item_of_this_dialect_in_a_user_message_stands_by_itself() -> None:
    approval = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    context = [
        user_message([text_content("u"), server(approval), text_content("v")]),
        user_message([server(approval)]),
    ]
    assert wire(context) == [asked(words("u")), approval, asked(words("v")), approval]


# -- assistant


def test_blocks_keep_their_order() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    context = [
        user_message("u"),
        assistant_message(
            [
                thinking("s", **SIGNED),
                server(search),
                text_content("a"),
                text_content("b"),
                thinking("", summary=[], reasoning=[{"type": "reasoning_text", "text": "r"}]),
                call(),
            ]
        ),
        tool_result_message("call_1", "f", "r"),
    ]
    items = wire(context)[1:]
    two = said("a")
    two["content"].append({"type": "output_text", "text": "b", "annotations": []})
    assert items == [
        {"type": "reasoning", **SIGNED},
        search,
        two,
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "r"},
    ]


def test_phases_go_back() -> None:
    comment = {"type": "text", "text": "a", "phase": "commentary"}
    items = answer(comment, {**comment, "text": "b"}, {"type": "text", "text": "c", "phase": "final_answer"})
    assert [item["phase"] for item in items] == ["commentary", "final_answer"]
    assert [len(item["content"]) for item in items] == [2, 1]


def test_refusal_goes_back_as_such_or_as_text() -> None:
    refusal = {"type": "text", "text": "No.", "refusal": True}
    assert answer(refusal)[0]["content"] == [{"type": "refusal", "refusal": "No."}]
    assert answer(refusal, quirks={"refusal": "text"}) == [said("No.")]


def test_annotations_of_any_dialect_stay_behind() -> None:
    assert answer({"type": "text", "text": "a", "annotations": [{"type": "url_citation"}]}) == [said("a")]


FOREIGN = [
    thinking("hm", signature="sig"),
    thinking("hm", reasoning_details=[{"type": "reasoning.text", "text": "hm"}]),
    thinking("hm", redacted=True, data="d"),
    thinking("hm", thought_signature="sig"),
    thinking("hm"),
    thinking("hm", summary=[], id="rs_1"),
]


@pytest.mark.parametrize("block", FOREIGN)
def test_thinking_of_others_is_left_out_or_turned_to_text(block: dict[str, Any]) -> None:
    io = FakeIO()
    assert answer(block, text_content("a"), io=io) == [said("a")]
    assert io.repair_names == ["block_dropped"]
    [item] = answer(block, text_content("a"), foreign_thinking="text")
    assert [part["text"] for part in item["content"]] == ["hm", "a"]


def test_empty_thinking_of_others_is_no_text() -> None:
    block = thinking("", signature="sig")
    assert answer(block, text_content("a"), foreign_thinking="text") == [said("a")]


def test_id_alone_goes_back_where_responses_are_stored() -> None:
    block = thinking("hm", summary=[], id="rs_1")
    io = FakeIO(store=True)
    _, body = OpenAIResponses("http://x", io).request([assistant_message([block, text_content("a")])], io)
    assert body["input"][0] == {"type": "reasoning", "summary": [], "id": "rs_1"}


def test_reasoning_can_be_left_out() -> None:
    assert answer(thinking("s", **SIGNED), text_content("a"), replay_reasoning=False) == [said("a")]


def test_reasoning_that_led_to_nothing_is_left_out() -> None:
    io = FakeIO()
    assert answer(text_content("a"), thinking("s", **SIGNED), thinking("s", **SIGNED), io=io) == [said("a")]
    assert answer(thinking("s", **SIGNED), io=io) == []
    assert io.repair_names == ["block_dropped"] * 3 + ["message_dropped"]


def test_unknown_fields_of_reasoning_go_back() -> None:
    extra = {"signature": "sig", "type": "x"}
    [item, _] = answer(thinking("s", **SIGNED, item_extra=extra), text_content("a"))
    assert item == {"type": "reasoning", **SIGNED, "signature": "sig"}
    assert answer(thinking("s", **SIGNED, item_extra="junk"), text_content("a"))[0] == {
        "type": "reasoning",
        **SIGNED,
    }


def test_what_others_placed_is_left_out() -> None:
    io = FakeIO()
    foreign = server({"type": "server_tool_use"}, "anthropic")
    assert answer(foreign, binary("image/png"), text_content("a"), server({}), io=io) == [said("a")]
    assert io.repair_names == ["block_dropped"] * 3


def test_generated_picture_goes_back_with_its_item() -> None:
    picture = {
        **binary("image/webp"),
        "dialect": "openai_responses",
        "item": {"type": "image_generation_call", "id": "ig_1", "status": "completed"},
    }
    assert answer(picture) == [
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AAAA"}
    ]


# -- calls and results


def test_calls_keep_namespace_and_caller() -> None:
    more: dict[str, Any] = {"namespace": "crm", "caller": {"type": "program", "id": "p"}}
    assert answer(call(**more))[0] == {
        "type": "function_call",
        "call_id": "call_1",
        "name": "f",
        "arguments": '{"a":1}',
        **more,
    }


def test_custom_tools_have_text_on_both_sides() -> None:
    context = [
        user_message("u"),
        assistant_message([call(arguments="SELECT 1", free_text=True), call("call_2")]),
        tool_result_message("call_1", "f", "one"),
        tool_result_message("call_2", "f", "two"),
        assistant_message([call("call_1")]),
        tool_result_message("call_1", "f", "three"),
    ]
    kinds = [(item["type"], item.get("input")) for item in wire(context)[1:]]
    assert kinds == [
        ("custom_tool_call", "SELECT 1"),
        ("function_call", None),
        ("custom_tool_call_output", None),
        ("function_call_output", None),
        ("function_call", None),
        ("function_call_output", None),
    ]


def test_free_text_goes_to_other_dialects_as_json() -> None:
    io = FakeIO()
    context = [user_message("u"), assistant_message([call(arguments="SELECT 1", free_text=True)])]
    _, body = OpenAIChat("http://x", io).request(context, io)
    check_chat_body(body)
    assert body["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"input":"SELECT 1"}'


def test_long_call_ids_are_shortened_alike() -> None:
    long = "c" * 65
    items = wire([user_message("u"), assistant_message([call(long)]), tool_result_message(long, "f", "r")])
    assert items[1]["call_id"] == items[2]["call_id"]
    assert answer(call("c" * 64))[0]["call_id"] == "c" * 64


RESULTS: list[tuple[Any, bool, Any]] = [
    ("r", False, "r"),
    ("r", True, "Error: r"),
    ("error: r", True, "error: r"),
    ([text_content("a"), text_content("b")], False, "a\n\nb"),
    ([{"type": "map", "x": 1}], False, '{"type": "map", "x": 1}'),
    ([text_content("a"), PNG], False, [words("a"), FILES["image"][1]]),
    ([PNG], True, [words("Error:"), FILES["image"][1]]),
    (
        [binary("video/mp4")],
        False,
        "(left out: the Responses wire has no form for 'video/mp4' (block 'attachment.mp4'))",
    ),
]


@pytest.mark.parametrize(("value", "error", "output"), RESULTS)
def test_results(value: Any, error: bool, output: Any) -> None:
    result = tool_result_message("call_1", "f", value, error=error)
    assert wire([user_message("u"), assistant_message([call()]), result])[2]["output"] == output


EMPTY: dict[str, list[Message]] = {
    "empty text": [assistant_message([text_content("")])],
    "empty thinking": [assistant_message([thinking("")])],
    "empty list": [assistant_message([])],
    "null content": [{"type": 3, "content": None}],
    "empty text and a call": [
        assistant_message([text_content(""), call()]),
        tool_result_message("call_1", "f", ""),
    ],
    "whitespace only": [assistant_message([text_content(" \n")]), user_message("\t")],
}


@pytest.mark.parametrize("name", EMPTY)
def test_F5_nothing_empty_is_sent(name: str) -> None:
    items = wire([user_message("u"), *EMPTY[name], user_message("v")])
    kinds = [item["type"] for item in items]
    called = ["function_call", "function_call_output"] if "call" in name else []
    assert kinds in (["message", *called, "message"], ["message"])


@pytest.mark.parametrize("name", F7)
def test_F7_calls_and_results_are_paired(name: str) -> None:
    context, _, _ = F7[name]
    body_of(context)


def test_F3_cut_call_is_left_out_with_its_result() -> None:
    cut = call(arguments='{"a', partial=True)
    context = [
        user_message("u"),
        assistant_message([text_content("a"), cut]),
        tool_result_message("call_1", "f", "r"),
    ]
    assert wire(context) == [asked(words("u")), said("a")]


@pytest.mark.parametrize("row", STREAMS, ids=lambda row: row.file)
def test_what_was_received_goes_back_as_it_came(row: Row) -> None:
    io = FakeIO()
    result = replay(OpenAIResponses("http://x", io), row.data)
    if result.message is None:
        return
    context = [user_message("u"), result.message]
    _, body = OpenAIResponses("http://x", io).request(context, io)
    sent = [
        item
        for item in body["input"][1:]
        if item["type"] not in ("function_call_output", "custom_tool_call_output")
    ]
    lines = [
        line[5:] for line in row.data.decode().replace("\r\n", "\n").split("\n") if line.startswith("data:")
    ]
    events = [json.loads(line) for line in lines if line.strip() != "[DONE]" and line.strip().endswith("}")]
    received = {
        event["output_index"]: event["item"]
        for event in events
        if event["type"] == "response.output_item.done"
    }
    for item in received.values():
        kind = item["type"]
        if kind == "reasoning":
            [again] = [one for one in sent if one["type"] == kind] or [None]
            kept = item.get("encrypted_content") or item.get("content")
            assert again == ({key: item[key] for key in again} if kept else None)
            assert not kept or again["summary"] == item["summary"]
        elif kind == "message":
            texts = [part.get("text") or part.get("refusal") for part in item["content"]]
            found = [
                part.get("text") or part.get("refusal")
                for one in sent
                if one["type"] == kind
                for part in one["content"]
            ]
            assert found == [text for text in texts if text]
        elif kind in ("function_call", "custom_tool_call"):
            [again] = [one for one in sent if one.get("call_id") == item["call_id"]]
            assert (again["type"], again["name"]) == (kind, item["name"])
        else:
            assert item in sent


@pytest.mark.parametrize("row", STREAMS, ids=lambda row: row.file)
def test_every_answer_and_every_cut_of_it_can_be_sent_again(row: Row) -> None:
    one = OpenAIResponses("http://x", FakeIO())
    data = row.data
    for cut in {len(data), *range(1, len(data), max(1, len(data) // 40))}:
        events = replay(one, data[:cut]).events
        assembler = create_assembler()
        for event in events:
            assembler.consume(event)
        message = assembler.seal(cut=cut < len(data))
        context = [user_message("u"), *([message] if message else [])]
        body_of([*context, user_message("and?")])
        io = FakeIO()
        _, body = OpenAIChat("http://x", io).request(context, io)
        check_chat_body(body)


# -- options


def test_plain_request_stores_nothing_and_asks_for_ciphertext() -> None:
    headers, body = OpenAIResponses("http://x", FakeIO()).request([user_message("u")], FakeIO())
    assert headers == {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "Authorization": "Bearer key-1",
    }
    assert body == {
        "model": "m1",
        "input": [asked(words("u"))],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "stream": True,
    }


def test_options_under_their_own_or_another_name() -> None:
    own: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 0.9,
        "service_tier": "flex",
        "truncation": "auto",
        "max_tool_calls": 3,
        "prompt_cache_key": "k",
        "prompt_cache_options": {"ttl": "30m"},
        "context_management": [{"type": "compaction", "compact_threshold": 1000}],
        "safety_identifier": "u1",
        "metadata": {"a": "b"},
    }
    body = options(
        **own, max_tokens=10, verbosity="low", store=True, include=["message.output_text.logprobs"]
    )
    assert {key: body[key] for key in own} == own
    assert (body["max_output_tokens"], body["text"], body["store"]) == (10, {"verbosity": "low"}, True)
    assert body["include"] == ["message.output_text.logprobs"]


def test_options_that_the_wire_lacks_are_left_out_and_reported() -> None:
    io = FakeIO(stop=["x"], seed=1, frequency_penalty=0.1)
    assert not options(io).keys() & {"stop", "seed", "frequency_penalty"}
    assert io.repairs[0] == (
        "setting_dropped",
        {"setting": "stop", "why": "the Responses wire has no such option"},
    )
    assert len(io.repairs) == 3


@pytest.mark.parametrize(
    ("settings", "include"),
    [
        ({"encrypted_reasoning": False}, None),
        ({"encrypted_reasoning": True, "store": True}, ["reasoning.encrypted_content"]),
        ({"include": ["reasoning.encrypted_content"]}, ["reasoning.encrypted_content"]),
        ({"model": "gpt-4.1-mini"}, None),
        ({"model": "openai/gpt-4o"}, None),
        ({"model": "o4-mini"}, ["reasoning.encrypted_content"]),
    ],
)
def test_ciphertext_is_asked_for_where_it_can_be(settings: dict[str, Any], include: list[str] | None) -> None:
    assert options(FakeIO(**settings)).get("include") == include


@pytest.mark.parametrize(
    ("settings", "effort"),
    [
        ({}, None),
        ({"think": True}, None),
        ({"think": "default"}, None),
        ({"think": False}, "none"),
        ({"think": "off"}, "none"),
        ({"think": "xhigh"}, "xhigh"),
        ({"think": "ultra"}, "max"),
        ({"think": "low", "reasoning_effort": "high"}, "high"),
        ({"think": "off", "efforts": ["low", "high"]}, "low"),
        ({"think": "medium", "efforts": ["low", "high"]}, "high"),
        ({"think": "xhigh", "efforts": ["low", "medium"]}, "medium"),
    ],
)
def test_thinking_levels(settings: dict[str, Any], effort: str | None) -> None:
    assert options(**settings).get("reasoning", {}).get("effort") == effort


def test_summaries_are_asked_for_on_demand() -> None:
    assert options(reasoning_summary="auto")["reasoning"] == {"summary": "auto"}


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
FLAT = {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}, FLAT),
        (FLAT, FLAT),
        ({"type": "json_object"}, {"type": "json_object"}),
        (SCHEMA, {"type": "json_schema", "name": "answer", "schema": SCHEMA}),
        (
            {"title": "My answer!", **SCHEMA},
            {"type": "json_schema", "name": "My_answer_", "schema": {"title": "My answer!", **SCHEMA}},
        ),
    ],
)
def test_structured_output(given: dict[str, Any], sent: dict[str, Any]) -> None:
    assert options(response_format=given)["text"] == {"format": sent}


TOOLS: list[dict[str, Any]] = [
    {"name": "f", "description": "d", "input_schema": SCHEMA, "strict": True},
    {"name": "g"},
    {"name": "sql", "format": {"type": "text"}},
]


def test_tools_are_flat_and_strict_only_on_demand() -> None:
    io = FakeIO(tools=TOOLS, server_tools=[{"type": "web_search"}], parallel_tool_calls=False)
    body = options(io)
    assert body["tools"] == [
        {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": True},
        {
            "type": "function",
            "name": "g",
            "parameters": {"type": "object", "properties": {}},
            "strict": False,
        },
        {"type": "custom", "name": "sql", "format": {"type": "text"}},
        {"type": "web_search"},
    ]
    assert body["parallel_tool_calls"] is False
    assert "tools" not in options(tool_choice="auto", parallel_tool_calls=True)


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("required", "required"),
        ("any", "required"),
        ("f", {"type": "function", "name": "f"}),
        ("sql", {"type": "custom", "name": "sql"}),
        ("web_search", {"type": "web_search"}),
        ({"type": "function", "function": {"name": "f"}}, {"type": "function", "name": "f"}),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": []},
            {"type": "allowed_tools", "mode": "auto", "tools": []},
        ),
    ],
)
def test_tool_choice(choice: Any, sent: Any) -> None:
    io = FakeIO(tools=TOOLS, server_tools=[{"type": "web_search"}], tool_choice=choice)
    assert options(io)["tool_choice"] == sent


def test_padding_is_declined_where_the_server_knows_how() -> None:
    assert options(quirks={"stream_options": "obfuscation"})["stream_options"] == {
        "include_obfuscation": False
    }
    assert "stream_options" not in options()


def test_extras_come_last() -> None:
    io = FakeIO(
        quirks={"auth_header": "api-key"},
        think="low",
        extra_body={"store": True, "x": 1, "reasoning": {"mode": "pro"}},
        extra_headers={"Accept": "*/*"},
    )
    headers, body = OpenAIResponses("http://x", io).request([user_message("u")], io)
    assert (body["store"], body["x"]) == (True, 1)
    assert body["reasoning"] == {"effort": "low", "mode": "pro"}
    assert headers == {"Content-Type": "application/json", "Accept": "*/*", "api-key": "key-1"}
    headers, _ = OpenAIResponses("http://x", FakeIO(token=None)).request([], FakeIO(token=None))
    assert headers.keys() == {"Content-Type", "Accept"}


BAD: list[dict[str, Any]] = [
    {"temperature": "hot"},
    {"max_tokens": 0},
    {"think": 3},
    {"think": "turbo"},
    {"efforts": ["turbo"]},
    {"efforts": "low"},
    {"reasoning_effort": " "},
    {"tool_choice": "nobody"},
    {"server_tools": ["web_search"]},
    {"include": "all"},
    {"system_as": "user"},
    {"foreign_thinking": True},
    {"store": "yes"},
    {"response_format": "json"},
    {"extra_body": []},
    {"quirks": {"nope": 1}},
]


@pytest.mark.parametrize("settings", BAD, ids=lambda settings: next(iter(settings)))
def test_bad_settings_are_named(settings: dict[str, Any]) -> None:
    name = next(iter(settings))
    with pytest.raises(ValueError, match=name.rstrip("s")):
        options(FakeIO(tools=TOOLS, **settings))


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://h/v1", "https://h/v1/responses"),
        ("https://h/v1/responses/", "https://h/v1/responses"),
        ("https://h/openai/v1?api-version=1", "https://h/openai/v1/responses?api-version=1"),
    ],
)
def test_url(base: str, url: str) -> None:
    assert OpenAIResponses(base, FakeIO()).url == url


def test_dialect_is_known_by_name() -> None:
    assert dialect_class("responses") is dialect_class("openai_responses") is OpenAIResponses


# -- errors, limits, models


def test_what_is_no_http_answer_is_classified_as_ever() -> None:
    assert OpenAIResponses("http://x", FakeIO()).classify_error(OSError("gone")).kind is ErrorKind.NETWORK


def test_G3_reset_times_in_any_form() -> None:
    io = FakeIO()
    one = OpenAIResponses("http://x", io)
    for value, seconds in (("6m0s", 360.0), ("17ms", 0.017), ("1.5", 1.5), ("1h2m3s", 3723.0)):
        one.now = lambda: 1000.0  # type: ignore[method-assign]
        one.report_plan_usage({"x-ratelimit-limit-tokens": "9", "x-ratelimit-reset-tokens": value}, io)
        assert io.plan_usage[-1]["tokens"]["reset"] == pytest.approx(1000 + seconds)
    one.report_plan_usage({"x-ratelimit-reset-tokens": "-1", "x-request-id": "r"}, io)
    assert len(io.plan_usage) == 4


def test_plan_windows() -> None:
    assert quota_of({"used_percent": "120", "reset_after_seconds": 60}, 1000.0) == {
        "total": 100,
        "used": 120.0,
        "remaining": 0.0,
        "reset": 1060.0,
    }
    for junk in ({}, {"used_percent": "x"}, {"used_percent": "nan"}, {"used_percent": -1}):
        assert quota_of(junk, 0.0) == {}
    headers = {
        "x-codex-plan-type": "pro",
        "x-codex-primary-used-percent": "5",
        "x-codex-odd-used-percent": "?",
    }
    assert plan_of(headers, 0.0) == ("pro", {"primary": {"total": 100, "used": 5.0, "remaining": 95.0}})


def test_models_are_listed_with_what_is_known_of_them() -> None:
    assert models_request({"extra_headers": {"X": "1"}}) == (
        "/models",
        {"Accept": "application/json", "X": "1"},
    )
    listing = {
        "data": [
            {"id": "gpt-x", "object": "model", "owned_by": "openai"},
            {"id": "vllm", "max_model_len": 4096},
            {"id": "groq", "context_window": 8192, "max_completion_tokens": 1024},
            {"id": "r/m", "name": "M", "context_length": 100, "top_provider": {"context_length": 90}},
            {"id": "odd", "context_length": True, "max_output_tokens": -1, "display_name": "Odd"},
            {"id": ""},
            "junk",
        ]
    }
    assert read_models(listing) == {
        "gpt-x": {"owner": "openai"},
        "vllm": {"context_window": 4096},
        "groq": {"context_window": 8192, "max_output": 1024},
        "r/m": {"context_window": 90, "name": "M"},
        "odd": {"name": "Odd"},
    }
    assert read_models([{"id": "a"}]) == read_models({"models": [{"id": "a"}]}) == {"a": {}}
    for junk in ({"error": "no"}, "no", None):
        with pytest.raises(ValueError, match="not a list of models"):
            read_models(junk)
