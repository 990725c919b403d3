"""What Ollama is sent: every block, every setting, and nothing that it refuses."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import pytest

from aiio.context.types import (
    Message,
    assistant_message,
    system_message,
    text_content,
    tool_result_message,
    user_message,
)
from aiio.io.sanitize import encode_body
from aiio.providers.base import dialect_class
from aiio.providers.ollama import Ollama, models_request, read_models, read_show, show_request

from .fakes import FakeIO
from .strict_ollama import check_ollama_body

DATA = base64.b64encode(b"hello").decode()
TOOL = {"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}}


def body_of(context: Sequence[Message], io: FakeIO | None = None, **settings: Any) -> dict[str, Any]:
    io = io or FakeIO(**settings)
    _, body = Ollama("http://x", io).request(context, io)
    check_ollama_body(body)
    return body  # type: ignore[no-any-return]


def messages_of(context: Sequence[Message], **settings: Any) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = body_of(context, **settings)["messages"]
    return messages


def answer(*blocks: dict[str, Any]) -> Message:
    return assistant_message(list(blocks))


def call(call_id: str = "1", name: str = "look", arguments: Any = None, **more: Any) -> dict[str, Any]:
    arguments = {} if arguments is None else arguments
    return {"type": "tool_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def file(mimetype: str | None = None, kind: str = "binary", **more: Any) -> dict[str, Any]:
    return {"type": kind, "content": DATA, **({"mimetype": mimetype} if mimetype else {}), **more}


def test_where_it_goes() -> None:
    one = Ollama("http://127.0.0.1:11434/", FakeIO())
    assert one.url == "http://127.0.0.1:11434/api/chat"
    assert one.framing == "ndjson"
    assert one.request([user_message("a")], one.io)[0]["Authorization"] == "Bearer key-1"
    bare = FakeIO(token=None, extra_headers={"X-A": "b"})
    assert dict(Ollama("http://x", bare).request([user_message("a")], bare)[0]) == {
        "Content-Type": "application/json",
        "Accept": "application/x-ndjson",
        "X-A": "b",
    }
    assert dialect_class("ollama") is Ollama


def test_a_conversation_with_a_tool() -> None:
    thought = {"type": "thinking", "text": "hm", "ollama": True}
    body = body_of(
        [
            system_message("Be brief."),
            user_message("Look."),
            answer(thought, text_content("Well."), call("1", arguments={"a": 1}), call("2", arguments=[1])),
            tool_result_message("2", "look", "two", error=True),
            tool_result_message("1", "look", "one"),
            user_message("And?"),
        ]
    )
    assert body == {
        "model": "m1",
        "stream": True,
        "truncate": False,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Look."},
            {
                "role": "assistant",
                "content": "Well.",
                "thinking": "hm",
                "tool_calls": [
                    {"id": "1", "function": {"index": 0, "name": "look", "arguments": {"a": 1}}},
                    {"id": "2", "function": {"index": 1, "name": "look", "arguments": {"input": [1]}}},
                ],
            },
            {"role": "tool", "tool_name": "look", "tool_call_id": "1", "content": "one"},
            {"role": "tool", "tool_name": "look", "tool_call_id": "2", "content": "Error: two"},
            {"role": "user", "content": "And?"},
        ],
    }


@pytest.mark.parametrize(
    "block",
    [file("image/jpg"), file("image/png", "image"), file("image/WEBP; a=b"), file(None, "image")],
)
def test_images_go_beside_the_text(block: dict[str, Any]) -> None:
    assert messages_of([user_message([text_content("See."), block, text_content("So?")])]) == [
        {"role": "user", "content": "See.\n\nSo?", "images": [DATA]}
    ]
    assert messages_of([user_message([block])]) == [{"role": "user", "content": "", "images": [DATA]}]


def test_text_like_files_go_as_text() -> None:
    for mimetype in ("text/csv", "image/svg+xml"):
        [message] = messages_of([user_message([file(mimetype, filename="a.x")])])
        assert message == {"role": "user", "content": "File a.x:\nhello"}


@pytest.mark.parametrize("mimetype", [None, "application/pdf", "audio/wav", "image/gif", "video/mp4"])
def test_a_file_without_a_form_is_refused_by_name(mimetype: str | None) -> None:
    with pytest.raises(ValueError, match=r"a\.bin"):
        body_of([user_message([file(mimetype, filename="a.bin")])])


def test_images_of_results_go_after_them() -> None:
    odd = {"type": "odd", "x": 1}
    context = [
        user_message("Look."),
        answer(call("1"), call("2")),
        tool_result_message("1", "look", [text_content("see"), file("image/png"), odd]),
        tool_result_message("2", "look", [file("image/png")]),
    ]
    io = FakeIO()
    assert body_of(context, io)["messages"][2:] == [
        {
            "role": "tool",
            "tool_name": "look",
            "tool_call_id": "1",
            "content": 'see\n\n{"type": "odd", "x": 1}',
        },
        {
            "role": "tool",
            "tool_name": "look",
            "tool_call_id": "2",
            "content": "(see the images in the next message)",
        },
        {"role": "user", "content": "Images from the result of look (call 1):", "images": [DATA]},
        {"role": "user", "content": "Images from the result of look (call 2):", "images": [DATA]},
    ]
    assert io.repair_names == ["files_moved_to_user"] * 2
    failed = [
        *context[:2],
        tool_result_message("1", "look", [file("audio/wav")], error=True),
        user_message("?"),
    ]
    message = body_of(failed)["messages"][2]
    assert message["content"].startswith("Error: (left out: this endpoint takes no files of type 'audio/wav'")


def test_what_other_dialects_made_is_left_out_or_turned_to_text() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "text": "hm", "signature": "theirs"},
        {"type": "thinking", "text": "", "data": "x", "redacted": True},
        {"type": "thinking", "text": "mine", "ollama": True},
        {"type": "server", "dialect": "gemini", "item": {"toolCall": {}}},
        file("image/png"),
        text_content("Yes."),
    ]
    io = FakeIO()
    sent = body_of([user_message("a"), answer(*blocks)], io)["messages"][1]
    assert sent == {"role": "assistant", "content": "Yes.", "thinking": "mine"}
    assert io.repair_names == ["block_dropped"] * 4
    told = messages_of([user_message("a"), answer(*blocks)], foreign_thinking="text")[1]
    assert told == {"role": "assistant", "content": "hm\n\nYes.", "thinking": "mine"}
    with pytest.raises(ValueError, match="foreign_thinking"):
        body_of([user_message("a")], foreign_thinking="keep")


def test_messages_of_nothing_to_send_are_left_out() -> None:
    io = FakeIO()
    nothing = [
        answer({"type": "thinking", "text": "hm", "ollama": True}),
        user_message([{"type": "odd"}]),
        system_message([]),
    ]
    assert body_of([user_message("a"), *nothing, user_message("b")], io)["messages"] == [
        {"role": "user", "content": "a"},
        {"role": "system", "content": "[]"},
        {"role": "user", "content": "b"},
    ]
    assert io.repair_names == ["message_dropped", "block_dropped", "message_dropped"]


@pytest.mark.parametrize(
    "content",
    [
        [text_content("")],
        [text_content(" \n")],
        [{"type": "thinking", "text": ""}],
        [],
        None,
        [text_content(""), call("1")],
    ],
)
def test_F5_nothing_empty_is_sent(content: Any) -> None:
    body_of([user_message("a"), {"type": 3, "content": content}, user_message("b"), user_message("")])
    body_of([{"type": 2, "content": content}, user_message("a")])


@pytest.mark.parametrize(
    "context",
    [
        [user_message("a"), answer(call())],
        [user_message("a"), answer(call()), user_message("b")],
        [user_message("a"), tool_result_message("1", "look", "x"), user_message("b")],
        [user_message("a"), answer(call(), call()), tool_result_message("1", "look", "x")],
        [tool_result_message("1", "look", "x"), user_message("a"), answer(call())],
        [user_message("a"), answer(call()), user_message("b"), tool_result_message("1", "look", "x")],
        [user_message("a"), answer(call(), call("2")), tool_result_message("2", "look", "x")],
        [answer(call()), tool_result_message("1", "look", "x"), user_message("b")],
        [user_message("a"), answer(call("1", arguments='{"a', partial=True)), user_message("b")],
    ],
)
def test_F7_calls_and_results_are_paired(context: list[Message]) -> None:
    body_of(context)


def test_H3_half_surrogate_pairs_are_sent_as_replacements() -> None:
    sent = encode_body(
        body_of([user_message("x\ud83d"), answer(call("1", "a\udc00", {"k\ud83d": "\ude00"}))])
    )
    assert sent is not None
    assert "x\ufffd" in sent.decode()


def test_the_context_is_not_changed() -> None:
    context = [user_message("a"), answer(call()), tool_result_message("1", "look", [file("image/png")])]
    before = repr(context)
    body_of(context)
    assert repr(context) == before


# -- settings


def test_options_are_written_under_the_wires_names() -> None:
    body = body_of(
        [user_message("a")],
        max_tokens=5,
        temperature=0,
        top_p=0.5,
        top_k=3,
        min_p=0.1,
        seed=7,
        stop="x",
        presence_penalty=0.1,
        frequency_penalty=0.2,
        repeat_penalty=1.1,
        context_window=4096,
        options={"mirostat": 1, "top_k": 4},
        keep_alive="5m",
        truncate=True,
        shift=False,
    )
    assert body["options"] == {
        "num_predict": 5,
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 4,
        "min_p": 0.1,
        "seed": 7,
        "stop": ["x"],
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "repeat_penalty": 1.1,
        "num_ctx": 4096,
        "mirostat": 1,
    }
    assert (body["keep_alive"], body["truncate"], body["shift"]) == ("5m", True, False)
    other = body_of([user_message("a")], num_ctx=8192, context_window=4096, stop=["x", "y"], keep_alive=-1)
    assert other["options"] == {"num_ctx": 8192, "stop": ["x", "y"]}
    assert other["keep_alive"] == -1


@pytest.mark.parametrize(
    "settings",
    [
        {"num_ctx": 0},
        {"context_window": "large"},
        {"options": 3},
        {"truncate": "no"},
        {"shift": 1},
        {"keep_alive": []},
        {"think": 3},
        {"response_format": "json"},
        {"extra_headers": 3},
    ],
)
def test_a_setting_that_can_not_be_sent_is_named(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        body_of([user_message("a")], **settings)


def test_options_of_other_dialects_are_reported() -> None:
    io = FakeIO(tools=[TOOL], parallel_tool_calls=True, verbosity="low", tool_choice="look")
    assert "tools" in body_of([user_message("a")], io)
    assert [facts["setting"] for _, facts in io.repairs] == [
        "tool_choice",
        "parallel_tool_calls",
        "verbosity",
    ]


@pytest.mark.parametrize(
    ("settings", "think"),
    [
        ({}, None),
        ({"think": "default"}, None),
        ({"think": True}, True),
        ({"think": "on"}, True),
        ({"think": "off"}, False),
        ({"think": False}, False),
        ({"think": "off", "reasoning_effort": "minimal"}, "low"),
        ({"think": "medium"}, "medium"),
        ({"think": "xhigh"}, "max"),
        ({"think": "xhigh", "efforts": ["low", "medium", "high"]}, "high"),
    ],
)
def test_thinking(settings: dict[str, Any], think: Any) -> None:
    assert body_of([user_message("a")], **settings).get("think") == think


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (SCHEMA, SCHEMA),
        ({"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}, SCHEMA),
        ({"type": "json_object"}, "json"),
        ({"type": "text"}, None),
        (None, None),
    ],
)
def test_structured_output(given: Any, written: Any) -> None:
    assert body_of([user_message("a")], response_format=given).get("format") == written


@pytest.mark.parametrize(
    ("choice", "published"), [(None, True), ("auto", True), ("none", False), ("any", True)]
)
def test_tools_go_along_or_not(choice: Any, published: bool) -> None:
    body = body_of([user_message("a")], FakeIO(tools=[TOOL], tool_choice=choice))
    assert ("tools" in body) == published
    if published:
        function = {"name": "look", "description": "Look.", "parameters": TOOL["input_schema"]}
        assert body["tools"] == [{"type": "function", "function": function}]


def test_extra_fields_are_laid_over_the_body() -> None:
    io = FakeIO(top_k=3, seed=1, extra_body={"options": {"top_k": 4}, "logprobs": True})
    _, body = Ollama("http://x", io).request([user_message("a")], io)
    assert (body["options"], body["logprobs"]) == ({"top_k": 4, "seed": 1}, True)


# -- models


def test_the_provider_lists_models_with_its_credential() -> None:
    for url in ("http://x/", "http://x/api/chat"):
        asked = Ollama.models_request(url, {}, "key-1")
        assert asked == ("http://x/api/tags", {"Authorization": "Bearer key-1", "Accept": "application/json"})
    assert Ollama.models_request("http://x", {}, None)[1] == {"Accept": "application/json"}
    assert Ollama.read_models({"models": [{"name": "m"}]}) == {"m": {}}
    assert Ollama.next_models({}) is None


def test_models_are_listed() -> None:
    assert models_request({"extra_headers": {"X-A": "b"}}) == (
        "/api/tags",
        {"Accept": "application/json", "X-A": "b"},
    )
    details = {"family": "qwen3", "parameter_size": "8.2B", "format": "gguf"}
    listing = [
        {"name": "qwen3:8b", "model": "qwen3:8b", "details": details, "context_length": 4096},
        {"name": "old", "details": None, "context_length": True},
        {"name": ""},
        3,
    ]
    assert read_models({"models": listing}) == {
        "qwen3:8b": {"context_window": 4096, "family": "qwen3", "parameters": "8.2B"},
        "old": {},
    }
    bad: object
    for bad in ([], {}, {"models": 3}):
        with pytest.raises(ValueError, match="not a list of models"):
            read_models(bad)


def test_a_model_is_described() -> None:
    assert show_request("m") == ("/api/show", {"model": "m"})
    info = {"general.architecture": "qwen3", "x.context_length": None, "qwen3.context_length": 40960}
    assert read_show({"model_info": info, "capabilities": ["tools", 3]}) == {
        "trained_window": 40960,
        "capabilities": ["tools"],
    }
    assert read_show({"model_info": None}) == {}
    with pytest.raises(ValueError, match="not a description"):
        read_show([])
