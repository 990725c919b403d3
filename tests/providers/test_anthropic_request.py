"""What a context and its settings become as an Anthropic Messages request."""

from __future__ import annotations

import base64
import math
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
from aiio.providers.anthropic import Anthropic, models_request, next_page, read_models
from aiio.providers.anthropic_messages import GO_ON, OPENING

from .fakes import FakeIO
from .strict_anthropic import check_anthropic_body

PNG = {"type": "image", "content": "AAAA", "mimetype": "image/png"}
U, V = user_message("u"), user_message("v")
TOOLS = ({"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}},)


def binary(mimetype: str, content: str = "AAAA", **more: Any) -> dict[str, Any]:
    return {"type": "binary", "mimetype": mimetype, "content": content, **more}


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def thinking(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "thinking", "text": text, **more}


def call(call_id: str = "t1", arguments: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "tool_call", "call_id": call_id, "name": "f", "arguments": arguments or {"a": 1}, **more}


def result(call_id: str = "t1", value: Any = "r", *, error: bool = False) -> Message:
    return tool_result_message(call_id, "f", value, error=error)


def server(**item: Any) -> dict[str, Any]:
    return {"type": "server", "dialect": "anthropic", "item": item}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def body_of(context: list[Message], io: FakeIO | None = None, **settings: Any) -> dict[str, Any]:
    io = io or FakeIO(**settings)
    _, body = Anthropic("http://x", io).request(context, io)
    check_anthropic_body(body)
    encode_body(body)
    assert isinstance(body, dict)
    return body


def wire(context: list[Message], io: FakeIO | None = None, **settings: Any) -> list[dict[str, Any]]:
    messages = body_of(context, io, **settings)["messages"]
    assert isinstance(messages, list)
    return messages


def user(*blocks: dict[str, Any]) -> Any:
    return wire([user_message([*blocks])])[0]["content"]


def answered(*blocks: dict[str, Any], io: FakeIO | None = None, **settings: Any) -> Any:
    """Return the wire content of an answer of *blocks* in the middle of a conversation."""
    return wire([U, assistant_message([*blocks]), V], io, **settings)[1]["content"]


# -- turns


def test_messages_are_turns_of_blocks() -> None:
    context = [system_message("s"), U, assistant_message([text_content("a")]), V]
    assert body_of(context) == {
        "model": "m1",
        "max_tokens": 8192,
        "system": "s",
        "stream": True,
        "messages": [
            {"role": "user", "content": [text("u")]},
            {"role": "assistant", "content": [text("a")]},
            {"role": "user", "content": [text("v")]},
        ],
    }


def test_turns_of_one_role_become_one() -> None:
    answer = assistant_message([text_content("a")])
    assert wire([U, V, answer, answer, U]) == [
        {"role": "user", "content": [text("u"), text("v")]},
        {"role": "assistant", "content": [text("a"), text("a")]},
        {"role": "user", "content": [text("u")]},
    ]


def test_system_texts_stand_at_the_top_or_where_they_came() -> None:
    head = [system_message("s"), system_message("t"), {"type": 1, "content": [PNG]}]
    context: list[Message] = [*head, U, assistant_message([call()]), result(), system_message("later"), V]
    assert body_of(context)["system"] == [text("s"), text("t")]
    assert wire(context)[2]["content"][1:] == [text("later"), text("v")]
    top = body_of(context, later_system="top")
    assert top["system"] == [text("s"), text("t"), text("later")]
    assert top["messages"][2]["content"][1:] == [text("v")]
    turns = wire(context, later_system="message")
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "system", "user"]
    assert turns[3]["content"] == [text("later")]
    io = FakeIO()
    assert len(wire([U, {"type": 1, "content": [PNG]}], io)) == 1
    assert io.repair_names == ["message_dropped"]


def test_the_first_turn_is_the_users_and_the_last_one_too() -> None:
    io = FakeIO()
    answer = assistant_message([text_content("a \n")])
    first, second, third = wire([answer], io)
    assert [first, third] == [
        {"role": "user", "content": [text(OPENING)]},
        {"role": "user", "content": [text(GO_ON)]},
    ]
    assert second["content"] == [text("a \n")]
    assert io.repair_names == ["message_made_up", "message_made_up"]
    assert wire([], io) == [first]
    assert wire([system_message("s")], io) == [first]
    assert wire([U, answer], prefill=True)[1:] == [{"role": "assistant", "content": [text("a")]}]
    called = [U, assistant_message([call()]), result(), assistant_message([server(type="compaction")])]
    assert wire(called, prefill=True)[-1]["role"] == "assistant"


def test_a_paused_turn_goes_back_as_it_came() -> None:
    use = server(type="server_tool_use", id="s1", name="web_search", input={"query": "a"})
    context = [U, assistant_message([text_content("a"), use])]
    assert wire(context)[1:] == [{"role": "assistant", "content": [text("a"), use["item"]]}]
    half = {**use, "partial": True}
    cut = assistant_message([text_content("a"), server(type="fallback"), half])
    assert wire([U, cut], prefill=True)[1]["content"] == [text("a"), {"type": "fallback"}]
    assert wire([U, cut])[2]["content"] == [text(GO_ON)]


# -- parts of a user's turn


FILES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "image": (
        PNG,
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
    ),
    "jpeg without a type": (
        {"type": "image", "content": "/9j/AAAA"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "/9j/AAAA"}},
    ),
    "image without a type": (
        {"type": "image", "content": "AAAA"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
    ),
    "image as binary": (
        {"type": "binary", "content": "AAAA", "mime": "image/jpg"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "AAAA"}},
    ),
    "image by address": (
        {"type": "image_url", "url": "https://x/a.png"},
        {"type": "image", "source": {"type": "url", "url": "https://x/a.png"}},
    ),
    "pdf": (
        binary("application/pdf", filename="a.pdf"),
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
            "title": "a.pdf",
        },
    ),
    "pdf without a name": (
        binary("application/pdf"),
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}},
    ),
    "text": (
        binary("text/plain; charset=utf-8", b64("grün"), filename="a.txt"),
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "grün"},
            "title": "a.txt",
        },
    ),
    "text-like": (
        binary("image/svg+xml", b64("<svg/>")),
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "<svg/>"},
            "title": "attachment.svg",
        },
    ),
    "empty text": (
        binary("text/csv", b64(" ")),
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "(an empty file)"},
            "title": "attachment.csv",
        },
    ),
}


@pytest.mark.parametrize(("block", "part"), FILES.values(), ids=FILES.keys())
def test_files_of_a_user_message(block: dict[str, Any], part: dict[str, Any]) -> None:
    assert user(text_content("look"), block) == [text("look"), part]
    context = [U, assistant_message([call()]), result(value=[block])]
    [sent] = wire(context)[2]["content"]
    assert sent["content"] == [part]


REFUSED = {
    "audio": binary("audio/wav", filename="a.wav"),
    "video": binary("video/mp4", filename="a.mp4"),
    "odd image": {"type": "image", "content": "AAAA", "mimetype": "image/tiff", "filename": "a.tiff"},
    "office": binary("application/msword", filename="a.doc"),
    "no type": {"type": "binary", "content": "AAAA", "filename": "a.bin"},
    "no base64": binary("text/plain", "A", filename="a.txt"),
}


@pytest.mark.parametrize("block", REFUSED.values(), ids=REFUSED.keys())
def test_a_file_that_can_not_be_sent_is_refused_by_name(block: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=block["filename"]):
        user(block)
    [sent] = wire([U, assistant_message([call()]), result(value=[block])])[2]["content"]
    assert sent["content"].startswith("(left out: ")


def test_blocks_without_a_form_are_left_out_and_reported() -> None:
    io = FakeIO()
    assert wire([user_message([text_content("a"), {"type": "hologram"}])], io)[0]["content"] == [text("a")]
    assert io.repair_names == ["block_dropped"]
    foreign = {"type": "server", "dialect": "openai_responses", "item": {"type": "web_search_call"}}
    half = {**server(type="server_tool_use", id="s"), "partial": True}
    io = FakeIO()
    assert answered(text_content("a"), foreign, half, server(), PNG, io=io) == [text("a")]
    assert io.repair_names == ["block_dropped"] * 4
    io = FakeIO()
    assert len(wire([U, assistant_message([PNG]), V], io)) == 1
    assert io.repair_names == ["block_dropped", "message_dropped"]


# -- calls and results


def test_tool_calls_and_results() -> None:
    context = [
        U,
        assistant_message([text_content("x"), call("a"), call("b", "[1]")]),
        result("b", "it broke", error=True),
        result("a", [text_content("one"), PNG, {"type": "odd", "x": 1}, {"type": "odd", "text": "t"}]),
        V,
    ]
    assert wire(context)[1:] == [
        {
            "role": "assistant",
            "content": [
                text("x"),
                {"type": "tool_use", "id": "a", "name": "f", "input": {"a": 1}},
                {"type": "tool_use", "id": "b", "name": "f", "input": {"input": [1]}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "a",
                    "content": [text("one"), FILES["image"][1], text('{"type": "odd", "x": 1}'), text("t")],
                },
                {"type": "tool_result", "tool_use_id": "b", "content": "it broke", "is_error": True},
                text("v"),
            ],
        },
    ]


def test_ids_and_names_are_made_to_fit() -> None:
    odd = {**call("call.1|x"), "name": "ns.tool é" + "x" * 200}
    turns = wire([U, assistant_message([odd]), result("call.1|x")])
    [use], [answer] = turns[1]["content"], turns[2]["content"]
    assert use["id"] == answer["tool_use_id"] == wire([U, assistant_message([odd])])[1]["content"][0]["id"]
    assert use["name"] == "ns_tool__" + "x" * 119
    assert use["id"].startswith("toolu_")


def test_prose_for_a_tool_of_another_dialect_is_wrapped() -> None:
    free = {**call(arguments="ls -l"), "free_text": True}
    assert wire([U, assistant_message([free]), result()])[1]["content"][0]["input"] == {"input": "ls -l"}


def test_who_called_goes_back() -> None:
    caller = {"type": "code_execution_20250825", "tool_id": "s1"}
    use = server(type="server_tool_use", id="s1", name="code_execution", input={})
    made = call(anthropic={"caller": caller, "toolset_name": "browser", "id": "no"})
    turns = wire([U, assistant_message([use, made]), result(), V])
    assert turns[1]["content"] == [
        use["item"],
        {
            "type": "tool_use",
            "id": "t1",
            "name": "f",
            "input": {"a": 1},
            "caller": caller,
            "toolset_name": "browser",
        },
    ]
    assert turns[2]["content"][0]["toolset_name"] == "browser"
    assert wire([U, assistant_message([call(anthropic="x")]), result()])[1]["content"][0].keys() == {
        "type",
        "id",
        "name",
        "input",
    }


def test_server_side_calls_and_results_go_in_pairs() -> None:
    use = server(type="server_tool_use", id="s1", name="web_search", input={})
    found = server(type="web_search_tool_result", tool_use_id="s1", content=[])
    orphan = server(type="web_search_tool_result", tool_use_id="s9", content=[])
    unused = server(type="mcp_tool_use", id="s2", name="x", input={})
    assert answered(use, found, text_content("a")) == [use["item"], found["item"], text("a")]
    io = FakeIO()
    assert answered(orphan, unused, text_content("a"), io=io) == [text("a")]
    assert io.repair_names == ["block_dropped"] * 2
    later = [U, assistant_message([use, call(anthropic={"caller": {"tool_id": "s1"}})]), result()]
    assert wire([*later, assistant_message([found, text_content("a")]), V])[3]["content"][0] == found["item"]


F7: dict[str, tuple[list[Message], str]] = {
    "a call at the end": ([U, assistant_message([call()])], "uc r"),
    "a call in the middle": ([U, assistant_message([call()]), V], "uc rt"),
    "a result without its call": ([U, result()], "u"),
    "ids twice": ([U, assistant_message([call("a"), call("a")]), result("a"), result("a"), V], "ucc rrt"),
    "a result before its call": ([U, result(), assistant_message([call()]), V], "uc rt"),
    "a result after a user message": ([U, assistant_message([call()]), V, result()], "uc rt"),
    "two calls, one result": ([U, assistant_message([call("a"), call("b")]), result("b")], "ucc rr"),
    "a head that was cut off": ([result(), V, assistant_message([text_content("a")]), V], "utat"),
}


@pytest.mark.parametrize(("context", "shape"), F7.values(), ids=F7.keys())
def test_F7_calls_and_results_are_paired(context: list[Message], shape: str) -> None:
    before = [{**message} for message in context]
    io = FakeIO()
    turns = wire(context, io)
    assert context == before
    letters = {"tool_use": "c", "tool_result": "r", "text": "t"}
    found = [[letters[part["type"]] for part in turn["content"]] for turn in turns]
    assert [kinds.count("c") for kinds in found] == [kinds.count("r") for kinds in found[1:]] + [0]
    assert "c" not in shape or sum(kinds.count("c") for kinds in found) == shape.count("c")
    assert io.repairs or shape == "ucc rrt"


F5: dict[str, Any] = {
    "empty text": [text_content("")],
    "white space": [text_content(" \n")],
    "empty thinking": [thinking("")],
    "empty list": [],
    "null": None,
}


@pytest.mark.parametrize("content", F5.values(), ids=F5.keys())
def test_F5_nothing_empty_is_sent(content: Any) -> None:
    message = {"type": 3, "content": content}
    assert wire([U, message, V]) == [{"role": "user", "content": [text("u"), text("v")]}]
    both = {"type": 3, "content": [*(content or []), call()]}
    assert [part["type"] for part in wire([U, both, result(value=[text_content("")])])[1]["content"]] == [
        "tool_use"
    ]
    assert wire([{"type": 2, "content": content}, V])[0]["content"] == [text("v")]
    assert "system" not in body_of([{"type": 1, "content": content}, V])


def test_H3_lone_surrogates_are_replaced_in_what_is_sent_only() -> None:
    half = "\ud83d"
    named = {**call(half, arguments={half: half}), "name": half}
    context = [user_message(half), assistant_message([named]), tool_result_message(half, half, half)]
    io = FakeIO()
    _, body = Anthropic("http://x", io).request(context, io)
    sent = encode_body(body)
    assert sent is not None
    assert "\ufffd" in sent.decode()
    assert context[0]["content"][0]["text"] == half
    assert body["messages"][1]["content"][0]["name"] == "_"
    data = base64.b64encode(b"\xed\xa0\xbd").decode()
    assert user(binary("text/plain", data))[0]["source"]["data"] == "\ufffd" * 3


# -- thinking and citations


def test_own_thinking_goes_back_byte_for_byte_in_its_place() -> None:
    signed, hidden = thinking("hm", signature="s+/="), thinking("", signature="t")
    redacted = thinking("", redacted=True, data="d")
    blocks = (signed, text_content(" \n"), redacted, hidden, call())
    assert wire([U, assistant_message([*blocks]), result()])[1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s+/="},
        {"type": "redacted_thinking", "data": "d"},
        {"type": "thinking", "thinking": "", "signature": "t"},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
    ]
    odd = {"type": "thinking", "text": None, "signature": "s"}
    assert answered(odd, text_content("a"))[0] == {"type": "thinking", "thinking": "", "signature": "s"}


def test_foreign_thinking_is_left_out_or_made_text() -> None:
    foreign = [
        thinking("plain"),
        thinking("chat", reasoning_details=[{"signature": "x"}]),
        thinking("items", id="rs_1", encrypted_content="x", summary=[]),
        thinking("gemini", thought_signature="x"),
        thinking("", encrypted_content="x"),
        thinking("half", redacted=True),
    ]
    io = FakeIO()
    assert answered(*foreign, text_content("a"), io=io) == [text("a")]
    assert io.repair_names == ["block_dropped"] * 6
    shown = answered(*foreign, text_content("a"), foreign_thinking="text")
    assert [part["text"] for part in shown] == ["plain", "chat", "items", "gemini", "half", "a"]


def test_an_answer_does_not_end_with_thinking() -> None:
    io = FakeIO()
    signed = thinking("hm", signature="s")
    assert answered(text_content("a"), signed, signed, io=io) == [text("a")]
    assert io.repair_names == ["block_dropped"] * 2
    assert len(wire([U, assistant_message([signed]), V])) == 1


def test_own_citations_go_back() -> None:
    cited = {"type": "char_location", "cited_text": "x", "file_id": None}
    block = {**text_content("a"), "citations": [cited, "https://x", {"type": "url_citation"}]}
    [part] = answered(block)
    assert part["citations"] == [{"type": "char_location", "cited_text": "x"}]
    assert answered({**text_content("a"), "citations": "x"}) == [text("a")]


# -- prompt-cache marks


MARK = {"type": "ephemeral"}


def test_cache_marks_are_passed_on() -> None:
    marked = {**text_content("a"), "cache_control": MARK}
    context: list[Message] = [
        {"type": 1, "content": [text_content("s")], "cache_control": MARK},
        user_message([marked, {**PNG, "cache_control": MARK}]),
        assistant_message([thinking("t", signature="s"), call(cache_control=MARK)]),
    ]
    body = body_of(context)
    assert body["system"] == [{**text("s"), "cache_control": MARK}]
    assert [part.get("cache_control") for part in body["messages"][0]["content"]] == [MARK, MARK]
    assert body["messages"][1]["content"][1]["cache_control"] == MARK
    assert user_message([marked])["content"][0] is marked
    late = {**assistant_message([text_content("a")]), "cache_control": MARK}
    assert wire([U, late, V])[1]["content"][0]["cache_control"] == MARK
    alone = {**assistant_message([server(type="fallback")]), "cache_control": MARK}
    assert wire([U, alone, V])[1]["content"][0]["cache_control"] == MARK
    assert alone["content"][0]["item"] == {"type": "fallback"}


def test_a_cache_point_is_marked_as_prompt_cache_has_it() -> None:
    point = {"cache_point": True}
    context: list[Message] = [
        {**system_message("s"), **point},
        {**user_message([{**text_content("own"), "cache_control": {"type": "other"}}]), **point},
        {**assistant_message([text_content("a")]), **point},
        {**user_message("b"), "cache_point": "yes"},
    ]
    for setting, mark in ((None, MARK), (True, MARK), ("1h", {**MARK, "ttl": "1h"}), (False, None)):
        body = body_of(context, prompt_cache=setting)
        found = [part.get("cache_control") for turn in body["messages"] for part in turn["content"]]
        assert found == [{"type": "other"}, mark, None]
        assert body["system"] == ([{**text("s"), "cache_control": mark}] if mark else "s")
    assert "cache_point" not in str(body_of(context))


def test_of_too_many_cache_marks_the_first_of_the_messages_go() -> None:
    io = FakeIO(prompt_cache="1h", tools=[{"name": "f", "cache_control": MARK}])
    blocks = [{**text_content(str(number)), "cache_control": MARK} for number in range(4)]
    inner = {**result(value=[blocks[0]]), "cache_control": MARK}
    context: list[Message] = [
        {**system_message("s"), "cache_control": MARK},
        user_message(blocks),
        assistant_message([call()]),
        inner,
    ]
    body = body_of(context, io)
    assert body["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert io.repair_names == ["cache_mark_dropped"] * 5
    assert "cache_control" in body["tools"][0]
    assert "cache_control" in body["system"][0]
    assert body["messages"][2]["content"][0]["cache_control"] == MARK
    assert blocks[0]["cache_control"] == MARK
    assert io.tools()[0]["cache_control"] == MARK
    assert body_of([U], prompt_cache=True)["cache_control"] == MARK
    assert "cache_control" not in body_of([U], prompt_cache=False)


# -- headers and settings


def headers_of(token: str | None = "key-1", **settings: Any) -> dict[str, Any]:
    io = FakeIO(token=token, **settings)
    headers, _ = Anthropic("http://x", io).request([U], io)
    return dict(headers)


def test_headers() -> None:
    assert headers_of() == {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "anthropic-version": "2023-06-01",
        "x-api-key": "key-1",
    }
    assert headers_of(auth_header="bearer")["Authorization"] == "Bearer key-1"
    assert headers_of("sk-ant-oat01-x")["Authorization"] == "Bearer sk-ant-oat01-x"
    assert headers_of("sk-ant-oat01-x", auth_header="x-api-key")["x-api-key"] == "sk-ant-oat01-x"
    assert headers_of(None).keys() == {"Content-Type", "Accept", "anthropic-version"}
    assert headers_of(betas=["a", "b"])["anthropic-beta"] == "a,b"
    assert headers_of(betas="a")["anthropic-beta"] == "a"
    last = headers_of(anthropic_version="2026-10-21", extra_headers={"anthropic-version": "x"})
    assert last["anthropic-version"] == "x"


def test_settings_go_into_the_body() -> None:
    body = body_of(
        [U],
        max_tokens=100,
        temperature=0.5,
        top_p=0.9,
        top_k=5,
        stop=["a", " ", "b"],
        metadata={"user_id": "u"},
        service_tier="auto",
        speed="fast",
        inference_geo="eu",
        extra_body={"container": "c", "top_k": 7},
    )
    assert {key: body[key] for key in body if key not in ("model", "messages", "stream")} == {
        "max_tokens": 100,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "stop_sequences": ["a", "b"],
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
        "speed": "fast",
        "inference_geo": "eu",
        "container": "c",
    }
    assert body_of([U], stop="x")["stop_sequences"] == ["x"]
    assert "stop_sequences" not in body_of([U], stop=" ")


def test_settings_of_other_dialects_are_reported() -> None:
    io = FakeIO(seed=1, frequency_penalty=0.5, modalities=["text"])
    assert body_of([U], io).keys() == {"model", "max_tokens", "messages", "stream"}
    assert [facts["setting"] for _, facts in io.repairs] == ["frequency_penalty", "seed", "modalities"]


def test_sampling_is_left_out_where_it_is_refused() -> None:
    io = FakeIO(temperature=1, top_p=0.9, anthropic_version="2026-10-21")
    assert body_of([U], io).keys() == {"model", "max_tokens", "messages", "stream"}
    io = FakeIO(temperature=0.2, top_p=0.96, top_k=3, think="low")
    body = body_of([U], io)
    assert body["top_p"] == 0.96
    assert [facts["setting"] for _, facts in io.repairs] == ["temperature", "top_k"]
    assert body_of([U], temperature=0.2, think="off")["temperature"] == 0.2


OLD, NEW, NEWER, OTHER = "claude-sonnet-4-5-20250929", "claude-opus-4-6", "claude-fable-5", "kimi-k3"


@pytest.mark.parametrize(
    ("model", "think", "sent", "effort", "limit"),
    [
        (OLD, None, None, None, 8192),
        (OLD, "default", None, None, 8192),
        (OLD, "off", {"type": "disabled"}, None, 8192),
        (OLD, "none", {"type": "disabled"}, None, 8192),
        (OLD, False, {"type": "disabled"}, None, 8192),
        (OLD, True, {"type": "enabled", "budget_tokens": 16_384}, None, 24_576),
        (OLD, "on", {"type": "enabled", "budget_tokens": 16_384}, None, 24_576),
        (OLD, "minimal", {"type": "enabled", "budget_tokens": 2048}, None, 10_240),
        (OLD, "low", {"type": "enabled", "budget_tokens": 2048}, None, 10_240),
        (OLD, "medium", {"type": "enabled", "budget_tokens": 8192}, None, 16_384),
        (OLD, "xhigh", {"type": "enabled", "budget_tokens": 32_768}, None, 40_960),
        (OLD, "ultra", {"type": "enabled", "budget_tokens": 49_152}, None, 57_344),
        (OTHER, "high", {"type": "enabled", "budget_tokens": 16_384}, None, 24_576),
        (NEW, "low", {"type": "adaptive"}, "low", 10_240),
        (NEW, "xhigh", {"type": "adaptive"}, "max", 40_960),
        (NEW, True, {"type": "adaptive"}, None, 24_576),
        (NEWER, "xhigh", {"type": "adaptive"}, "xhigh", 40_960),
        (NEWER, "minimal", {"type": "adaptive"}, "low", 10_240),
        (NEWER, "off", {"type": "disabled"}, None, 8192),
    ],
)
def test_thinking_levels(model: str, think: Any, sent: Any, effort: str | None, limit: int) -> None:
    body = body_of([U], FakeIO(model=model, think=think))
    assert body.get("thinking") == sent
    assert body.get("output_config") == (None if effort is None else {"effort": effort})
    assert body["max_tokens"] == limit


@pytest.mark.parametrize(
    "model",
    [
        "claude-3-7-sonnet-20250219",
        "claude-opus-4-20250514",
        "claude-sonnet-4-0",
        "claude-opus-4-1",
        "claude-haiku-4-5",
    ],
)
def test_models_before_4_6_take_a_budget(model: str) -> None:
    assert body_of([U], FakeIO(model=model, think="low"))["thinking"]["type"] == "enabled"


def test_what_the_listing_says_of_a_model_counts() -> None:
    def body(entry: Any, **settings: Any) -> dict[str, Any]:
        io = FakeIO(model="m", models={"m": entry}, **settings)
        found = body_of([U], io)
        found["repairs"] = io.repair_names
        return found

    able = {"thinking": ["adaptive"], "efforts": ["low", "high"], "max_output": 9000}
    both = body(able, think="medium")
    assert (both["thinking"], both["output_config"]) == ({"type": "adaptive"}, {"effort": "high"})
    assert both["max_tokens"] == 9000
    none = body(able, think="off")
    assert "thinking" not in none
    assert none["repairs"] == ["setting_dropped"]
    unable = body({"thinking": [], "max_output": 4096}, think="high")
    assert unable["repairs"] == ["setting_dropped"]
    assert unable["max_tokens"] == 4096
    small = body({"thinking": ["enabled"], "max_output": 4096}, think="high")
    assert small["thinking"] == {"type": "enabled", "budget_tokens": 2048}
    assert small["max_tokens"] == 4096
    odd = body({"thinking": ["enabled"], "efforts": 5, "max_output": "x"}, think="low")
    assert (odd["thinking"]["budget_tokens"], odd["max_tokens"]) == (2048, 10_240)
    assert body("x", think="low")["thinking"]["type"] == "enabled"
    told = body({"thinking": ["adaptive"]}, think="medium", efforts=["low", "high"])
    assert told["output_config"] == {"effort": "high"}


def test_a_budget_leaves_room_for_the_answer() -> None:
    body = body_of([U], max_tokens=4000, reasoning_effort="high", thinking_display="omitted")
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 2000, "display": "omitted"}
    assert body["max_tokens"] == 4000
    assert body_of([U], max_tokens=1025, think="high")["thinking"]["budget_tokens"] == 1024
    io = FakeIO(max_tokens=1024, think="high")
    assert "thinking" not in body_of([U], io)
    assert io.repairs == [("setting_dropped", {"setting": "think", "why": "max_tokens"})]


def test_thinking_is_left_out_where_it_is_refused() -> None:
    io = FakeIO(model=NEW, think="low", tools=TOOLS, tool_choice="required")
    body = body_of([U], io)
    assert "thinking" not in body
    assert body["tool_choice"] == {"type": "any"}
    assert io.repair_names == ["setting_dropped"]
    under_way = [U, assistant_message([call()]), result()]
    signed = [U, assistant_message([thinking("t", signature="s"), call()]), result()]
    over = [*under_way, assistant_message([text_content("a")]), V]
    for model, context, on in (
        (OLD, under_way, False),
        (OLD, signed, True),
        (OLD, over, True),
        (NEW, under_way, True),
    ):
        io = FakeIO(model=model, think="low", tools=TOOLS)
        assert ("thinking" in body_of(context, io)) is on
        assert bool(io.repairs) is not on


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    "given",
    [
        SCHEMA,
        {"type": "json_schema", "schema": SCHEMA, "name": "x"},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}},
    ],
)
def test_structured_output(given: Any) -> None:
    body = body_of([U], response_format=given)
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}


def test_formats_that_are_no_schema() -> None:
    assert "output_config" not in body_of([U], response_format={"type": "text"})
    for given in ({"type": "json_object"}, {"type": "json_schema"}):
        io = FakeIO(response_format=given)
        assert "output_config" not in body_of([U], io)
        assert io.repair_names == ["setting_dropped"]


# -- tools


def test_tools() -> None:
    tools: list[dict[str, Any]] = [
        {"name": "f"},
        {
            "name": "g",
            "description": "d",
            "input_schema": {"properties": {"a": {}}},
            "strict": True,
            "safe": True,
        },
    ]
    search = {"type": "web_search_20260209", "name": "web_search"}
    nameless = {"type": "mcp_toolset", "mcp_server_name": "x"}
    body = body_of([U], FakeIO(tools=tools, server_tools=[search]))
    assert body["tools"] == [
        {"name": "f", "input_schema": {"type": "object", "properties": {}}},
        {
            "name": "g",
            "description": "d",
            "input_schema": {"type": "object", "properties": {"a": {}}},
            "strict": True,
        },
        search,
    ]
    assert "tool_choice" not in body
    alone = body_of([U], server_tools=[search, nameless], tool_choice="web_search")
    assert alone["tools"] == [search, nameless]
    assert alone["tool_choice"] == {"type": "tool", "name": "web_search"}


def test_without_tools_nothing_about_tools_is_sent() -> None:
    body = body_of([U], tool_choice="auto", parallel_tool_calls=False)
    assert not body.keys() & {"tools", "tool_choice"}


ALONE = {"disable_parallel_tool_use": True}


@pytest.mark.parametrize(
    ("choice", "parallel", "sent"),
    [
        (None, None, None),
        (None, True, None),
        (None, False, {"type": "auto", **ALONE}),
        ("auto", None, {"type": "auto"}),
        ("none", False, {"type": "none"}),
        ("required", False, {"type": "any", **ALONE}),
        ("any", None, {"type": "any"}),
        ("f", None, {"type": "tool", "name": "f"}),
        ({"type": "tool", "name": "f"}, None, {"type": "tool", "name": "f"}),
        ({"type": "function", "function": {"name": "f"}}, None, {"type": "tool", "name": "f"}),
        ({"type": "auto", **ALONE}, None, {"type": "auto", **ALONE}),
        ({"type": "function", "name": "f"}, None, {"type": "tool", "name": "f"}),
    ],
)
def test_tool_choice(choice: Any, parallel: bool | None, sent: Any) -> None:
    body = body_of([U], FakeIO(tools=TOOLS, tool_choice=choice, parallel_tool_calls=parallel))
    assert body.get("tool_choice") == sent


@pytest.mark.parametrize(
    "settings",
    [
        {"max_tokens": 0},
        {"max_tokens": True},
        {"temperature": "hot"},
        {"top_p": math.nan},
        {"top_k": 1.5},
        {"stop": 5},
        {"metadata": []},
        {"service_tier": ""},
        {"think": "deeply"},
        {"think": 5},
        {"reasoning_effort": 1.5},
        {"response_format": []},
        {"efforts": "low", "think": "low"},
        {"prompt_cache": "2h"},
        {"tool_choice": "nobody"},
        {"tool_choice": {"type": "function"}},
        {"parallel_tool_calls": 1},
        {"server_tools": {}},
        {"server_tools": [1]},
        {"anthropic_version": 5},
        {"betas": 5},
        {"auth_header": "basic"},
        {"later_system": "x"},
        {"foreign_thinking": True},
        {"prefill": "yes"},
        {"prefill": 1},
        {"extra_body": []},
        {"extra_headers": "x"},
    ],
    ids=str,
)
def test_settings_that_can_not_be_sent_are_named(settings: dict[str, Any]) -> None:
    io = FakeIO(tools=TOOLS, **settings)
    with pytest.raises(ValueError, match=next(iter(settings))):
        Anthropic("http://x", io).request([U], io)


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com/v1/", "https://api.anthropic.com/v1/messages"),
        ("http://x/v1/messages", "http://x/v1/messages"),
        ("http://x/anthropic?a=1", "http://x/anthropic/v1/messages?a=1"),
    ],
)
def test_the_url(base: str, url: str) -> None:
    assert Anthropic(base, FakeIO()).url == url


def test_other_errors_are_classified_as_ever() -> None:
    verdict = Anthropic("http://x", FakeIO()).classify_error(ConnectionError("gone"))
    assert (verdict.kind, verdict.message) == ("network", "gone [fake]")
    assert Anthropic("http://x", FakeIO()).now() > 1.7e9


# -- models


def test_models() -> None:
    assert models_request({}) == ("/v1/models?limit=1000", {"anthropic-version": "2023-06-01"})
    assert models_request({"betas": "b"}, "m2") == (
        "/v1/models?limit=1000&after_id=m2",
        {"anthropic-version": "2023-06-01", "anthropic-beta": "b"},
    )
    yes, no = {"supported": True}, {"supported": False}
    data = {
        "data": [
            {
                "id": "claude-fable-5",
                "display_name": "Fable 5",
                "lifecycle": "active",
                "max_input_tokens": 1_000_000,
                "max_tokens": 128_000,
                "capabilities": {
                    "thinking": {
                        "supported": True,
                        "types": {"adaptive": yes, "enabled": no, "disabled": True},
                    },
                    "effort": {"supported": True, "low": yes, "high": yes, "xhigh": None},
                    "image_input": yes,
                    "pdf_input": no,
                    "structured_outputs": yes,
                },
            },
            {"id": "bare", "max_tokens": None, "max_input_tokens": True, "display_name": 5},
            {"id": ""},
            {"id": 5},
            "x",
        ],
        "has_more": True,
        "last_id": "bare",
    }
    assert read_models(data) == {
        "claude-fable-5": {
            "label": "Fable 5",
            "lifecycle": "active",
            "context_window": 1_000_000,
            "max_output": 128_000,
            "thinking": ["adaptive", "disabled"],
            "efforts": ["low", "high"],
            "images": True,
            "files": False,
            "structured_output": True,
        },
        "bare": {},
    }
    assert next_page(data) == "bare"
    assert next_page({**data, "has_more": False}) is None
    assert next_page({"has_more": True}) is None
    assert next_page([]) is None
    assert read_models([]) == {}
