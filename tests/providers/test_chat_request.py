"""What a context and its settings become as a Chat Completions request."""

from __future__ import annotations

import base64
import json
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
from aiio.providers.openai_chat import OpenAIChat

from .fakes import FakeIO
from .manifest import replay_frames
from .strict_chat import check_chat_body
from .test_chat_stream import call as call_delta
from .test_chat_stream import chunk

PNG = {"type": "image", "content": "AAAA", "mimetype": "image/png"}


def binary(mimetype: str, content: str = "AAAA", **more: Any) -> dict[str, Any]:
    return {"type": "binary", "mimetype": mimetype, "content": content, **more}


def thinking(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "thinking", "text": text, **more}


def call(call_id: str = "call_1", arguments: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "tool_call", "call_id": call_id, "name": "f", "arguments": arguments or {"a": 1}, **more}


def body_of(context: list[Message], io: FakeIO | None = None, **quirks: Any) -> dict[str, Any]:
    io = io or FakeIO(quirks=quirks)
    _, body = OpenAIChat("http://x", io).request(context, io)
    check_chat_body(body)
    assert isinstance(body, dict)
    return body


def wire(context: list[Message], io: FakeIO | None = None, **quirks: Any) -> list[dict[str, Any]]:
    messages = body_of(context, io, **quirks)["messages"]
    assert isinstance(messages, list)
    return messages


def user(*blocks: dict[str, Any], **quirks: Any) -> Any:
    return wire([user_message([*blocks])], **quirks)[0]["content"]


# -- messages


def test_texts_are_plain_strings() -> None:
    context = [
        system_message("s"),
        user_message("u"),
        assistant_message([text_content("a")]),
        user_message("v"),
    ]
    assert wire(context) == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "v"},
    ]
    assert wire([system_message("s"), user_message("u")], system_role="developer")[0]["role"] == "developer"
    assert user(text_content("a\n"), text_content("b"), text_content("c")) == "a\nb\n\nc"


FILES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "image": (PNG, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}),
    "image without a type": (
        {"type": "image", "content": "AAAA"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ),
    "image with detail": (
        {**PNG, "detail": "low"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
    ),
    "image as binary": (
        {"type": "binary", "content": "AAAA", "mime": "image/webp"},
        {"type": "image_url", "image_url": {"url": "data:image/webp;base64,AAAA"}},
    ),
    "wav": (binary("audio/x-wav"), {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
    "mp3": (binary("audio/mpeg"), {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}),
    "video": (binary("video/mp4"), {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}),
    "pdf": (
        binary("application/pdf", filename="a.pdf"),
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}},
    ),
    "file without a name": (
        binary("application/ld+json"),
        {
            "type": "file",
            "file": {"filename": "attachment.ld", "file_data": "data:application/ld+json;base64,AAAA"},
        },
    ),
    "file without a type": (
        {"type": "binary", "content": "AAAA"},
        {
            "type": "file",
            "file": {
                "filename": "attachment.octet-stream",
                "file_data": "data:application/octet-stream;base64,AAAA",
            },
        },
    ),
}


@pytest.mark.parametrize(("block", "part"), FILES.values(), ids=FILES.keys())
def test_files_of_a_user_message(block: dict[str, Any], part: dict[str, Any]) -> None:
    assert user(text_content("look"), block) == [{"type": "text", "text": "look"}, part]


def test_text_like_files_are_put_into_the_text_where_there_are_no_file_parts() -> None:
    data = base64.b64encode("grün".encode()).decode()
    assert user(binary("text/plain", data, filename="a.txt"), files="inline") == "File a.txt:\ngrün"
    assert user(binary("image/svg+xml", data, filename="a.svg"), files="inline") == "File a.svg:\ngrün"


@pytest.mark.parametrize(
    "block", [binary("application/pdf", filename="a.pdf"), binary("text/plain", "A", filename="a.pdf")]
)
def test_a_file_that_can_not_be_sent_is_refused_by_name(block: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"a\.pdf"):
        user(block, files="inline")


def test_blocks_without_a_form_are_left_out_and_reported() -> None:
    io = FakeIO()
    assert wire([user_message([text_content("a"), {"type": "hologram"}])], io)[0]["content"] == "a"
    assert io.repair_names == ["block_dropped"]
    only = wire(
        [user_message("u"), user_message([{"type": "hologram"}]), assistant_message([binary("image/png")])],
        io,
    )
    assert len(only) == 1
    assert io.repair_names[-1] == "message_dropped"
    assert wire([system_message("s"), {"type": 1, "content": [PNG]}, user_message("u")]) == wire(
        [system_message("s"), user_message("u")]
    )


def test_tool_calls_and_results() -> None:
    context = [
        assistant_message([call(arguments={"b": "é"})]),
        tool_result_message("call_1", "f", "r"),
        assistant_message(
            [text_content("x"), call("call_2", extra_content={"google": {"thought_signature": "s"}})]
        ),
        tool_result_message("call_2", "f", "it broke", error=True),
    ]
    assert wire(context) == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"b":"é"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "r"},
        {
            "role": "assistant",
            "content": "x",
            "tool_calls": [
                {
                    "id": "call_2",
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"a":1}'},
                    "extra_content": {"google": {"thought_signature": "s"}},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_2", "content": "Error: it broke"},
    ]


def test_numbers_that_json_lacks_are_null_in_arguments() -> None:
    context = [assistant_message([call(arguments={"a": [float("nan"), float("-inf"), 1.5]})])]
    assert wire(context)[0]["tool_calls"][0]["function"]["arguments"] == '{"a":[null,null,1.5]}'


def test_content_of_a_message_that_only_calls() -> None:
    context = [assistant_message([call()]), tool_result_message("call_1", "f", "error: no", error=True)]
    assert "content" not in wire(context, empty_content="omit")[0]
    assert wire(context, empty_content="empty")[0]["content"] == ""
    assert wire(context)[1]["content"] == "error: no"


def test_files_of_results_follow_in_a_user_message() -> None:
    context = [
        assistant_message([call("a"), call("b")]),
        tool_result_message("a", "f", [PNG]),
        tool_result_message(
            "b", "f", [text_content("t"), {"type": "odd", "n": 1}, binary("application/pdf")]
        ),
    ]
    io = FakeIO(quirks={"files": "inline"})
    _, first, second, files = wire(context, io)
    assert first["content"] == "(see the files in the next message)"
    assert second["content"] == 't\n\n{"type": "odd", "n": 1}'
    assert files["role"] == "user"
    assert [part.get("text") for part in files["content"]] == [
        "Files from the result of f (call a):",
        None,
        "Files from the result of f (call b):",
        "(left out: this endpoint takes no files of type 'application/pdf' (file 'attachment.pdf'))",
    ]
    assert io.repair_names == ["files_moved_to_user", "files_moved_to_user"]


def test_order_rules_that_some_servers_have() -> None:
    context = [
        system_message("s"),
        assistant_message([call()]),
        tool_result_message("call_1", "f", "r"),
        system_message("t"),
        user_message("u"),
    ]
    quirks: dict[str, Any] = {"system_first": True, "tool_then_user": False, "tool_id": "mistral9"}
    messages = wire([*context[:3], context[4]], **quirks)
    assert [message["role"] for message in messages] == ["system", "assistant", "tool", "assistant", "user"]
    assert wire(context, system_first=True)[0] == {"role": "system", "content": "s\n\nt"}
    assert wire([user_message("u")], system_first=True) == [{"role": "user", "content": "u"}]
    call_id = messages[1]["tool_calls"][0]["id"]
    assert call_id == messages[2]["tool_call_id"] == wire(context, **quirks)[1]["tool_calls"][0]["id"]
    assert len(call_id) == 9
    assert call_id.isalnum()
    kept = wire([assistant_message([call("abcDEF123")])], tool_id="mistral9")
    assert kept[0]["tool_calls"][0]["id"] == "abcDEF123"


def test_refusals_go_back_as_such_or_as_text() -> None:
    refusal = {**text_content("no"), "refusal": True}
    assert wire([assistant_message([refusal])])[0] == {"role": "assistant", "content": None, "refusal": "no"}
    assert wire([assistant_message([text_content("a"), refusal])])[0]["content"] == "a"
    assert wire([assistant_message([refusal])], refusal="text")[0] == {"role": "assistant", "content": "no"}


def test_spoken_answers_go_back_by_id_until_they_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    spoken = binary("audio/wav", audio_id="audio_1", expires_at=100)
    context = [assistant_message([{**text_content("Hi"), "audio_transcript": True}, spoken])]
    monkeypatch.setattr(OpenAIChat, "now", lambda self: 99.0)
    assert wire(context) == [{"role": "assistant", "audio": {"id": "audio_1"}}]
    monkeypatch.setattr(OpenAIChat, "now", lambda self: 100.0)
    assert wire(context) == [{"role": "assistant", "content": "Hi"}]


def test_H3_lone_surrogates_pass_through_to_the_body_encoder() -> None:
    half = "\ud83d"
    named = {**call(half, arguments={half: half}), "name": half}
    context = [user_message(half), assistant_message([named]), tool_result_message(half, half, half)]
    for tool_id in (None, "mistral9"):
        messages = wire(context, tool_id=tool_id)
        assert [message["content"] for message in messages] == [half, None, half]
        assert messages[1]["tool_calls"][0]["function"] == {
            "name": half,
            "arguments": f'{{"{half}":"{half}"}}',
        }


# -- thinking


def test_thinking_does_not_go_back_unless_the_server_wants_it() -> None:
    context = [user_message("u"), assistant_message([thinking("hm"), text_content("a")]), user_message("v")]
    assert wire(context)[1] == {"role": "assistant", "content": "a"}
    only = [user_message("u"), assistant_message([thinking("hm")])]
    for replayed in (None, "reasoning_content", "thinking_parts", "reasoning_details"):
        assert len(wire(only, reasoning_replay=replayed)) == 1


def test_reasoning_content_goes_back_with_tool_calls() -> None:
    quirk = "reasoning_content"
    called = [assistant_message([thinking("h"), thinking("m"), call()])]
    assert wire(called, reasoning_replay=quirk)[0]["reasoning_content"] == "hm"
    assert wire([assistant_message([call()])], reasoning_replay=quirk)[0]["reasoning_content"] == ""
    plain = [assistant_message([thinking("hm"), text_content("a")])]
    assert "reasoning_content" not in wire(plain, reasoning_replay=quirk)[0]


def test_reasoning_details_go_back_merged_by_index() -> None:
    first = {"type": "reasoning.text", "index": 0, "text": "hm"}
    signature = {"type": "reasoning.text", "index": 0, "signature": "s"}
    blocks = [
        thinking("hm", reasoning_details=[first]),
        {**text_content("a"), "reasoning_details": [signature]},
        thinking("x"),
    ]
    [message] = wire([assistant_message(blocks)], reasoning_replay="reasoning_details")
    assert message["reasoning_details"] == [{**first, "signature": "s"}]
    assert first == {"type": "reasoning.text", "index": 0, "text": "hm"}
    plain = [assistant_message([text_content("a")])]
    assert "reasoning_details" not in wire(plain, reasoning_replay="reasoning_details")[0]


def test_thinking_parts_go_back_in_the_content() -> None:
    context = [assistant_message([thinking("hm"), text_content("a")])]
    assert wire(context, reasoning_replay="thinking_parts")[0]["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "a"},
    ]
    plain = [assistant_message([text_content("a")])]
    assert wire(plain, reasoning_replay="thinking_parts")[0]["content"] == "a"


# -- settings


def test_the_smallest_body_and_its_headers() -> None:
    io = FakeIO()
    headers, body = OpenAIChat("http://x/v1/", io).request([user_message("u")], io)
    assert body == {
        "model": "m1",
        "messages": [{"role": "user", "content": "u"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert headers == {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "Authorization": "Bearer key-1",
    }


def test_headers_by_quirk_and_setting() -> None:
    io = FakeIO(quirks={"auth_header": "api-key"}, extra_headers={"X-Title": "t"})
    headers, _ = OpenAIChat("http://x", io).request([user_message("u")], io)
    assert headers["api-key"] == "key-1"
    assert headers["X-Title"] == "t"
    assert "Authorization" not in headers
    io = FakeIO(token=None)
    headers, _ = OpenAIChat("http://x", io).request([user_message("u")], io)
    assert not {"Authorization", "api-key"} & headers.keys()


def test_settings_go_into_the_body() -> None:
    plain: dict[str, Any] = {
        "temperature": 0,
        "top_p": 0.5,
        "stop": ["a"],
        "seed": 1,
        "frequency_penalty": 1,
        "presence_penalty": -1.5,
        "reasoning_effort": "low",
        "verbosity": "low",
        "response_format": {"type": "json_object"},
        "service_tier": "flex",
        "modalities": ["text", "audio"],
        "audio": {"voice": "a", "format": "wav"},
        "prompt_cache_key": "k",
    }
    body = body_of([user_message("u")], FakeIO(**plain, max_tokens=5, extra_body={"top_k": 3, "seed": 2}))
    assert {key: body[key] for key in plain} == {**plain, "seed": 2}
    assert body["max_tokens"] == 5
    assert body["top_k"] == 3


def test_settings_by_quirk() -> None:
    quirks = {"max_tokens_field": "max_completion_tokens", "stream_options": False}
    body = body_of([user_message("u")], FakeIO(quirks=quirks, max_tokens=5))
    assert body["max_completion_tokens"] == 5
    assert "stream_options" not in body
    body = body_of([user_message("u")], FakeIO(quirks={"stream_options": "obfuscation"}))
    assert body["stream_options"] == {"include_usage": True, "include_obfuscation": False}


@pytest.mark.parametrize(
    ("think", "effort"),
    [(None, None), (True, None), ("default", None), (False, "none"), ("off", "none"), ("xhigh", "xhigh")],
)
def test_think_is_an_effort(think: Any, effort: str | None) -> None:
    assert body_of([user_message("u")], FakeIO(think=think)).get("reasoning_effort") == effort
    both = FakeIO(think=think, reasoning_effort="minimal")
    assert body_of([user_message("u")], both)["reasoning_effort"] == "minimal"


TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object"}, "safe": True}


def test_tools_are_function_tools() -> None:
    tools = [TOOL, {"name": "g", "strict": True}]
    io = FakeIO(tools=tools, tool_choice="auto", parallel_tool_calls=False)
    body = body_of([user_message("u")], io)
    assert body["tools"] == [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}},
        {
            "type": "function",
            "function": {"name": "g", "parameters": {"type": "object", "properties": {}}, "strict": True},
        },
    ]
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("auto", False)


def test_without_tools_nothing_about_tools_is_sent() -> None:
    body = body_of([user_message("u")], FakeIO(tool_choice="required", parallel_tool_calls=True))
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & body.keys()


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("none", "none"),
        ("f", {"type": "function", "function": {"name": "f"}}),
        ({"type": "allowed_tools"}, {"type": "allowed_tools"}),
    ],
)
def test_tool_choice(choice: Any, sent: Any) -> None:
    assert body_of([user_message("u")], FakeIO(tools=[TOOL], tool_choice=choice))["tool_choice"] == sent


@pytest.mark.parametrize(
    "settings",
    [
        {"max_tokens": 0},
        {"max_tokens": "5"},
        {"max_tokens": True},
        {"temperature": "hot"},
        {"temperature": float("nan")},
        {"top_p": True},
        {"seed": 1.5},
        {"stop": []},
        {"stop": [1]},
        {"stop": ""},
        {"response_format": "json"},
        {"modalities": "text"},
        {"verbosity": 1},
        {"think": 3},
        {"reasoning_effort": " "},
        {"tool_choice": "unknown"},
        {"tool_choice": ["f"]},
        {"parallel_tool_calls": 1},
        {"extra_body": []},
        {"extra_headers": "x"},
        {"quirks": {"nonsense": 1}},
        {"quirks": {"files": "zip"}},
        {"quirks": {"stream_options": 1}},
        {"quirks": ["x"]},
    ],
    ids=str,
)
def test_settings_that_can_not_be_sent_are_named(settings: dict[str, Any]) -> None:
    [(key, value)] = settings.items()
    io = FakeIO(tools=[TOOL], **settings)
    named = next(iter(value)) if key == "quirks" and isinstance(value, dict) else key
    with pytest.raises(ValueError, match=named):
        OpenAIChat("http://x", io).request([user_message("u")], io)


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://x/v1", "http://x/v1/chat/completions"),
        ("http://x/v1/chat/completions", "http://x/v1/chat/completions"),
        ("http://x/d/?api-version=1", "http://x/d/chat/completions?api-version=1"),
    ],
)
def test_the_url(base: str, url: str) -> None:
    assert OpenAIChat(base, FakeIO()).url == url


# -- partials go back (B6)


B6: dict[str, list[dict[str, Any]]] = {
    "nothing": [],
    "half a text": [{"content": "Hal"}],
    "text and half the arguments": [
        {"content": "Let me"},
        call_delta(index=0, id="a", name="f", arguments='{"x'),
    ],
    "thinking without its end": [
        {"reasoning_content": "hm", "reasoning_details": [{"type": "reasoning.text", "signature": "s"}]}
    ],
    "a full tool call": [call_delta(index=0, id="a", name="f", arguments='{"x":1}')],
    "a call without its name": [call_delta(index=0, arguments="{")],
}


@pytest.mark.parametrize("deltas", B6.values(), ids=B6.keys())
@pytest.mark.parametrize("replayed", [None, "reasoning_content", "reasoning_details", "thinking_parts"])
def test_B6_a_partial_can_be_sent_again(deltas: list[dict[str, Any]], replayed: str | None) -> None:
    partial = replay_frames(OpenAIChat("http://x", FakeIO()), map(chunk, deltas)).message
    context = [user_message("u"), *([partial] if partial else []), user_message("go on")]
    messages = wire(context, reasoning_replay=replayed)
    kept = "".join(str(message.get("content")) for message in messages)
    for delta in deltas:
        assert delta.get("content", "") in kept
    assert "signature" not in json.dumps(messages)


def test_what_the_server_of_another_dialect_did_is_left_out_and_reported() -> None:
    io = FakeIO()
    item = {"type": "server", "dialect": "anthropic", "item": {"type": "server_tool_use", "id": "s"}}
    heard = {"type": "binary", "content": "aGk=", "audio_id": "a"}
    answer = assistant_message([item, {"type": "text", "text": "Hi."}, heard])
    _, body = OpenAIChat("http://x", io).request([user_message("u"), answer, user_message("v")], io)
    assert body["messages"][1] == {"role": "assistant", "content": "Hi."}
    assert io.repair_names == ["block_dropped"]


SCHEMA = {"type": "object", "title": "An answer", "properties": {}}
NESTED = {"type": "json_schema", "json_schema": {"name": "An_answer", "schema": SCHEMA}}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (SCHEMA, NESTED),
        (NESTED, NESTED),
        ({"type": "json_schema", "name": "An_answer", "schema": SCHEMA}, NESTED),
        ({"type": "text"}, {"type": "text"}),
    ],
)
def test_an_output_format_is_understood_in_every_form(given: dict[str, Any], sent: dict[str, Any]) -> None:
    io = FakeIO(response_format=given)
    _, body = OpenAIChat("http://x", io).request([user_message("u")], io)
    assert body["response_format"] == sent
