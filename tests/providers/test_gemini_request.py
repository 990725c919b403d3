"""What Gemini is sent: every block, every setting, and nothing that it refuses."""

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
from aiio.providers.gemini import Gemini, models_request, next_page, read_models
from aiio.providers.gemini_contents import OPENING, SKIP_SIGNATURE, generation

from .fakes import FakeIO
from .strict_gemini import check_gemini_body

DATA = base64.b64encode(b"hello").decode()
TOOL = {"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}}


def body_of(context: Sequence[Message], io: FakeIO | None = None, **settings: Any) -> dict[str, Any]:
    io = io or FakeIO(model="gemini-3-pro", **settings)
    _, body = Gemini("http://x", io).request(context, io)
    check_gemini_body(body, signatures="gemini-3" in io.current_model)
    return body  # type: ignore[no-any-return]


def contents_of(context: Sequence[Message], **settings: Any) -> list[dict[str, Any]]:
    contents: list[dict[str, Any]] = body_of(context, **settings)["contents"]
    return contents


def answer(*blocks: dict[str, Any]) -> Message:
    return assistant_message(list(blocks))


def call(call_id: str = "1", name: str = "look", arguments: Any = None, **more: Any) -> dict[str, Any]:
    arguments = {} if arguments is None else arguments
    return {"type": "tool_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def file(mimetype: str | None = None, kind: str = "binary", **more: Any) -> dict[str, Any]:
    return {"type": kind, "content": DATA, **({"mimetype": mimetype} if mimetype else {}), **more}


# -- where it goes


@pytest.mark.parametrize(
    ("url", "model", "expected"),
    [
        (
            "https://g/v1beta/",
            "gemini-3-pro",
            "https://g/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse",
        ),
        (
            "https://g/v1",
            "tunedModels/a b?",
            "https://g/v1/tunedModels/a%20b%3F:streamGenerateContent?alt=sse",
        ),
        ("https://g/v1?x=1", "m@001", "https://g/v1/models/m@001:streamGenerateContent?x=1&alt=sse"),
        (
            "https://g/m:streamGenerateContent?alt=sse",
            "m",
            "https://g/m:streamGenerateContent?alt=sse",
        ),
    ],
)
def test_the_url_names_model_and_method(url: str, model: str, expected: str) -> None:
    assert Gemini(url, FakeIO(model=model)).url == expected


def test_the_credential_is_in_a_header() -> None:
    def headers(io: FakeIO) -> dict[str, Any]:
        return dict(Gemini("http://x", io).request([user_message("Hi")], io)[0])

    assert headers(FakeIO())["x-goog-api-key"] == "key-1"
    assert headers(FakeIO(quirks={"auth_header": "bearer"}))["Authorization"] == "Bearer key-1"
    bare = headers(FakeIO(token=None, extra_headers={"X-A": "b"}))
    assert bare == {"Content-Type": "application/json", "Accept": "text/event-stream", "X-A": "b"}
    for quirks in ({"auth_header": "api-key"}, "bearer"):
        with pytest.raises(ValueError, match="auth_header"):
            headers(FakeIO(quirks=quirks))  # type: ignore[arg-type]


def test_it_is_a_built_in_dialect() -> None:
    assert dialect_class("gemini") is Gemini


# -- messages


def test_a_conversation_with_a_tool() -> None:
    body = body_of(
        [
            system_message("Be brief."),
            user_message("Look."),
            answer(text_content("Well."), call("1", arguments={"a": 1}), call("2")),
            tool_result_message("2", "look", "two", error=True),
            tool_result_message("1", "look", "one"),
            system_message("Be kind."),
            user_message("And?"),
        ]
    )
    assert body == {
        "systemInstruction": {"parts": [{"text": "Be brief.\n\nBe kind."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "Look."}]},
            {
                "role": "model",
                "parts": [
                    {"text": "Well."},
                    {
                        "functionCall": {"id": "1", "name": "look", "args": {"a": 1}},
                        "thoughtSignature": SKIP_SIGNATURE,
                    },
                    {"functionCall": {"id": "2", "name": "look", "args": {}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "1", "name": "look", "response": {"output": "one"}}},
                    {"functionResponse": {"id": "2", "name": "look", "response": {"error": "two"}}},
                ],
            },
            {"role": "user", "parts": [{"text": "And?"}]},
        ],
    }


def test_neighbours_of_one_role_become_one() -> None:
    contents = contents_of(
        [user_message("a"), user_message("b"), answer(text_content("c")), answer(text_content("d"))]
    )
    assert contents == [
        {"role": "user", "parts": [{"text": "a"}, {"text": "b"}]},
        {"role": "model", "parts": [{"text": "c"}, {"text": "d"}]},
    ]


def test_system_text_alone_becomes_the_users() -> None:
    io = FakeIO()
    assert body_of([system_message("Write a poem.")], io) == {
        "contents": [{"role": "user", "parts": [{"text": "Write a poem."}]}]
    }
    assert io.repair_names == ["system_sent_as_user"]


def test_a_context_that_begins_with_an_answer_gets_a_users_turn() -> None:
    io = FakeIO()
    contents = body_of([answer(text_content("b"))], io)["contents"]
    assert contents[0] == {"role": "user", "parts": [{"text": OPENING}]}
    assert io.repairs == [("message_made_up", {"role": "user", "where": "first"})]


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (file("image/jpg", "image"), ("image/jpeg", DATA)),
        (file(None, "image"), ("image/png", DATA)),
        (file("image/heic"), ("image/heic", DATA)),
        (file("audio/wav"), ("audio/wav", DATA)),
        (file("Video/mp4; codecs=x"), ("video/mp4", DATA)),
        (file("application/pdf", filename="a.pdf"), ("application/pdf", DATA)),
        (file("text/csv"), ("text/csv", DATA)),
        (file("text/tsx"), ("text/plain", DATA)),
    ],
)
def test_files_of_every_kind_go_inline(block: dict[str, Any], part: tuple[str, str]) -> None:
    [content] = contents_of([user_message([block])])
    assert content["parts"] == [{"inlineData": {"mimeType": part[0], "data": part[1]}}]


@pytest.mark.parametrize("mimetype", ["application/json", "image/svg+xml"])
def test_text_like_files_go_as_text(mimetype: str) -> None:
    [content] = contents_of([user_message([file(mimetype, filename="a.x")])])
    assert content["parts"] == [{"text": "File a.x:\nhello"}]


@pytest.mark.parametrize("mimetype", [None, "application/zip"])
def test_a_file_without_a_form_is_refused_by_name(mimetype: str | None) -> None:
    with pytest.raises(ValueError, match=r"a\.zip"):
        body_of([user_message([file(mimetype, filename="a.zip")])])


def test_files_of_results_go_in_the_result_or_after_it() -> None:
    context = [
        user_message("Look."),
        answer(call("1"), call("2", "hear.it")),
        tool_result_message("1", "look", [text_content("see"), file("image/png"), {"type": "odd", "x": 1}]),
        tool_result_message("2", "hear.it", [file("audio/wav"), file("application/zip", filename="z")]),
        user_message("So?"),
    ]
    io = FakeIO(model="gemini-3-flash")
    results, lifted = body_of(context, io)["contents"][2:]
    assert results["parts"][0]["functionResponse"] == {
        "id": "1",
        "name": "look",
        "response": {"output": 'see\n\n{"type": "odd", "x": 1}'},
        "parts": [{"inlineData": {"mimeType": "image/png", "data": DATA}}],
    }
    assert results["parts"][1]["functionResponse"]["response"] == {
        "output": "(see the files in the next message)"
    }
    assert lifted["parts"] == [
        {"text": "Files from the result of hear.it (call 2):"},
        {"inlineData": {"mimeType": "audio/wav", "data": DATA}},
        {"text": "(left out: this endpoint takes no files of type 'application/zip' (file 'z'))"},
        {"text": "So?"},
    ]
    assert io.repairs == [("files_moved_to_user", {"call_id": "2", "count": 2})]
    older = FakeIO(model="gemini-2.5-flash")
    contents = body_of(context, older)["contents"]
    assert "parts" not in contents[2]["parts"][0]["functionResponse"]
    assert len(contents[3]["parts"]) == 6
    assert "thoughtSignature" not in str(contents)


def test_signatures_go_back_on_the_part_they_came_with() -> None:
    signed = {"thought_signature": "UzE="}
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "abcd", **signed, "thought_signature_span": [1, 3]},
        {"type": "text", "text": "ab", **signed, "thought_signature_span": [2, 2]},
        {"type": "text", "text": "ab", **signed},
        {"type": "text", "text": "ab", **signed, "thought_signature_span": [0, 9]},
        {"type": "text", "text": "ab", **signed, "thought_signature_span": ["0", 1]},
        {"type": "thinking", "text": "hm", "thought": True, **signed},
        {"type": "thinking", "text": "", "thought": True, **signed},
        {"type": "thinking", "text": "unsigned", "thought": True},
        {"type": "binary", "mimetype": "image/png", "content": DATA, **signed},
        call("1", **signed),
    ]
    sign = {"thoughtSignature": "UzE="}
    context = [user_message("a"), answer(*blocks)]
    contents = contents_of(context)
    assert contents[1]["parts"] == [
        {"text": "a"},
        {"text": "bc", **sign},
        {"text": "d"},
        {"text": "ab"},
        {"text": "", **sign},
        {"text": "ab", **sign},
        {"text": "ab", **sign},
        {"text": "ab", **sign},
        {"text": "hm", "thought": True, **sign},
        {"text": "", "thought": True, **sign},
        {"inlineData": {"mimeType": "image/png", "data": DATA}, **sign},
        {"functionCall": {"id": "1", "name": "look", "args": {}}, **sign},
    ]
    bare = contents_of(context, replay_reasoning=False)
    assert [part["thoughtSignature"] for part in bare[1]["parts"] if "thoughtSignature" in part] == [
        SKIP_SIGNATURE
    ]


def test_what_other_dialects_made_is_left_out_or_turned_to_text() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "text": "hm", "signature": "theirs"},
        {"type": "thinking", "text": "", "data": "x", "redacted": True},
        {"type": "thinking", "text": "mine", "thought": True},
        {"type": "server", "dialect": "anthropic", "item": {"type": "web_search"}},
        {"type": "server", "dialect": "gemini", "item": {"executableCode": {"code": "1"}}},
        {"type": "binary", "mimetype": "audio/wav", "content": DATA},
        {"type": "image", "content": DATA, "thought": True},
        text_content("Yes."),
    ]
    io = FakeIO(model="gemini-3-pro")
    parts = [{"executableCode": {"code": "1"}}, {"text": "Yes."}]
    assert body_of([user_message("a"), answer(*blocks)], io)["contents"][1]["parts"] == parts
    assert io.repair_names == ["block_dropped"] * 4
    told = contents_of([user_message("a"), answer(*blocks)], foreign_thinking="text")
    assert told[1]["parts"] == [{"text": "hm"}, *parts]
    with pytest.raises(ValueError, match="foreign_thinking"):
        body_of([user_message("a")], foreign_thinking="keep")


def test_items_of_this_dialect_may_stand_in_a_users_turn() -> None:
    item = {"fileData": {"mimeType": "video/mp4", "fileUri": "https://g/files/1"}}
    odd = {"type": "odd"}
    io = FakeIO()
    context = [
        user_message([text_content("See."), {"type": "server", "dialect": "gemini", "item": item}, odd])
    ]
    assert body_of(context, io)["contents"][0]["parts"] == [{"text": "See."}, item]
    assert io.repair_names == ["block_dropped"]


def test_an_answer_of_nothing_to_send_is_left_out() -> None:
    io = FakeIO(model="gemini-3-pro")
    thought = answer({"type": "thinking", "text": "hm", "thought": True})
    contents = body_of([user_message("a"), thought, user_message("b")], io)["contents"]
    assert contents == [{"role": "user", "parts": [{"text": "a"}, {"text": "b"}]}]
    assert io.repair_names == ["message_dropped"]


def test_calls_of_other_dialects_are_written_as_this_one_has_them() -> None:
    made = answer(call("x/1", "9 lives", [1]), call("2", "patch", "free text", free_text=True))
    contents = contents_of([user_message("a"), made])
    calls = [part["functionCall"] for part in contents[1]["parts"]]
    assert calls == [
        {"id": "x/1", "name": "_9_lives", "args": {"input": [1]}},
        {"id": "2", "name": "patch", "args": {"input": "free text"}},
    ]
    assert [part["functionResponse"]["name"] for part in contents[2]["parts"]] == ["_9_lives", "patch"]


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
    context = [user_message("a"), {"type": 3, "content": content}, user_message("b"), user_message("")]
    body_of(context)
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
    body = body_of([user_message("x\ud83d"), answer(call("1", "a\udc00", {"k\ud83d": "\ude00"}))])
    sent = encode_body(body)
    assert sent is not None
    assert "x\ufffd" in sent.decode()
    assert '"name":"a_"' in sent.decode()


# -- settings


def test_options_are_written_under_the_wires_names() -> None:
    safety = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]
    body = body_of(
        [user_message("a")],
        max_tokens=5,
        temperature=0,
        top_p=0.5,
        top_k=3,
        seed=7,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        stop="x",
        modalities=["text", "image"],
        media_resolution="MEDIA_RESOLUTION_LOW",
        image_config={"aspectRatio": "1:1"},
        audio={"voice": "Kore"},
        safety_settings=safety,
        service_tier="flex",
    )
    assert body["generationConfig"] == {
        "maxOutputTokens": 5,
        "temperature": 0,
        "topP": 0.5,
        "topK": 3,
        "seed": 7,
        "presencePenalty": 0.1,
        "frequencyPenalty": 0.2,
        "stopSequences": ["x"],
        "responseModalities": ["TEXT", "IMAGE"],
        "mediaResolution": "MEDIA_RESOLUTION_LOW",
        "imageConfig": {"aspectRatio": "1:1"},
        "speechConfig": {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "Kore"}}},
    }
    assert (body["safetySettings"], body["serviceTier"]) == (safety, "flex")
    config = body_of([user_message("a")], stop=["x", "y"], speech_config={"a": 1})["generationConfig"]
    assert config == {"stopSequences": ["x", "y"], "speechConfig": {"a": 1}}


@pytest.mark.parametrize(
    "settings",
    [
        {"max_tokens": 0},
        {"temperature": "hot"},
        {"stop": 3},
        {"safety_settings": [3]},
        {"audio": "Kore"},
        {"response_format": "json"},
        {"think": "deep"},
        {"thinking_budget": 0.5},
        {"think": "low", "efforts": ["much"]},
        {"server_tools": {"googleSearch": {}}},
        {"extra_body": 3},
    ],
)
def test_a_setting_that_can_not_be_sent_is_named(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(settings))}|none of the levels"):
        body_of([user_message("a")], **settings)


def test_options_of_other_dialects_are_reported() -> None:
    io = FakeIO(parallel_tool_calls=True, verbosity="low", prompt_cache_key="k")
    assert "generationConfig" not in body_of([user_message("a")], io)
    assert [facts["setting"] for _, facts in io.repairs] == [
        "parallel_tool_calls",
        "verbosity",
        "prompt_cache_key",
    ]


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        (SCHEMA, SCHEMA),
        ({"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}, SCHEMA),
        ({"type": "json_schema", "name": "n", "schema": SCHEMA}, SCHEMA),
        ({"type": "json_object"}, None),
        ({"type": "json_schema"}, None),
    ],
)
def test_structured_output(given: dict[str, Any], schema: Any) -> None:
    config = body_of([user_message("a")], response_format=given)["generationConfig"]
    assert config.pop("responseMimeType") == "application/json"
    assert config == ({} if schema is None else {"responseJsonSchema": schema})


def test_structured_output_may_be_none() -> None:
    assert "generationConfig" not in body_of([user_message("a")], response_format={"type": "text"})


@pytest.mark.parametrize(
    ("model", "settings", "thinking"),
    [
        ("gemini-3-pro", {}, None),
        ("gemini-3-pro", {"think": "default"}, None),
        ("gemini-3-pro", {"think": True}, {"includeThoughts": True}),
        ("gemini-3-pro", {"think": "medium"}, {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        ("gemini-3-pro", {"think": "off"}, {"includeThoughts": False, "thinkingLevel": "LOW"}),
        ("gemini-3.1-pro-preview", {"think": "medium"}, {"includeThoughts": True, "thinkingLevel": "MEDIUM"}),
        ("gemini-3-flash", {"think": False}, {"includeThoughts": False, "thinkingLevel": "MINIMAL"}),
        ("gemini-3-flash", {"think": "xhigh"}, {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        (
            "gemini-flash-latest",
            {"think": "off", "reasoning_effort": "xhigh", "efforts": ["high", "xhigh"]},
            {"includeThoughts": True, "thinkingLevel": "XHIGH"},
        ),
        ("gemini-2.5-flash", {"think": "off"}, {"includeThoughts": False, "thinkingBudget": 0}),
        ("gemini-2.5-pro", {"think": "off"}, {"includeThoughts": False, "thinkingBudget": 128}),
        ("gemini-2.5-pro", {"think": "medium"}, {"includeThoughts": True, "thinkingBudget": 8192}),
        ("gemini-2.5-pro", {"think": "max"}, {"includeThoughts": True, "thinkingBudget": 24576}),
        ("gemini-2.5-pro", {"thinking_budget": -1}, {"includeThoughts": True, "thinkingBudget": -1}),
        ("gemini-2.5-flash", {"thinking_budget": 0}, {"includeThoughts": False, "thinkingBudget": 0}),
        ("gemini-2.0-flash", {"think": "off"}, None),
    ],
)
def test_thinking_is_asked_for_as_the_model_has_it(
    model: str, settings: dict[str, Any], thinking: Any
) -> None:
    io = FakeIO(model=model, **settings)
    assert body_of([user_message("a")], io).get("generationConfig", {}).get("thinkingConfig") == thinking
    assert io.repairs == []


def test_a_model_that_can_not_think_is_not_asked_to() -> None:
    io = FakeIO(model="gemini-2.0-flash", think="high")
    assert "generationConfig" not in body_of([user_message("a")], io)
    assert io.repair_names == ["setting_dropped"]
    assert generation("gemma-3") == (0, 0)


def test_tools_are_declared_with_their_json_schema() -> None:
    io = FakeIO(
        tools=[TOOL, {"name": "bare"}],
        tool_choice="auto",
        server_tools=[{"googleSearch": {}}],
        model="gemini-3-pro",
    )
    body = body_of([user_message("a")], io)
    assert body["tools"] == [
        {
            "functionDeclarations": [
                {"name": "look", "description": "Look.", "parametersJsonSchema": TOOL["input_schema"]},
                {"name": "bare", "description": "bare"},
            ]
        },
        {"googleSearch": {}},
    ]
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "AUTO"}}
    alone = body_of([user_message("a")], server_tools=[{"urlContext": {}}], tool_choice="none")
    assert (alone["tools"], "toolConfig" in alone) == ([{"urlContext": {}}], False)


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        (None, None),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ({"type": "any"}, {"mode": "ANY"}),
        ("look", {"mode": "ANY", "allowedFunctionNames": ["look"]}),
        (
            {"type": "function", "function": {"name": "look"}},
            {"mode": "ANY", "allowedFunctionNames": ["look"]},
        ),
        ({"mode": "VALIDATED"}, {"mode": "VALIDATED"}),
    ],
)
def test_tool_choice(choice: Any, config: Any) -> None:
    body = body_of([user_message("a")], FakeIO(tools=[TOOL], tool_choice=choice))
    assert body.get("toolConfig", {}).get("functionCallingConfig") == config


@pytest.mark.parametrize("choice", ["elsewhere", 3, {"type": "function", "name": "elsewhere"}])
def test_a_choice_of_no_tool_is_refused(choice: Any) -> None:
    with pytest.raises(ValueError, match="tool_choice"):
        body_of([user_message("a")], FakeIO(tools=[TOOL], tool_choice=choice))


def test_a_tool_whose_name_the_wire_refuses_is_named() -> None:
    with pytest.raises(ValueError, match="9lives"):
        body_of([user_message("a")], FakeIO(tools=[{"name": "9lives"}]))


def test_cached_content_takes_the_place_of_what_it_holds() -> None:
    io = FakeIO(tools=[TOOL], cached_content="cachedContents/1")
    body = body_of([system_message("s"), user_message("a")], io)
    assert body == {
        "contents": [{"role": "user", "parts": [{"text": "a"}]}],
        "cachedContent": "cachedContents/1",
    }
    assert [facts["field"] for _, facts in io.repairs] == ["systemInstruction", "tools"]


def test_extra_fields_are_laid_over_the_body() -> None:
    extra = {
        "generationConfig": {"thinkingConfig": {"includeThoughts": False}, "topK": 4},
        "labels": {"a": "b"},
    }
    io = FakeIO(model="gemini-3-pro", think=True, top_k=3, extra_body=extra)
    _, body = Gemini("http://x", io).request([user_message("a")], io)
    assert body["generationConfig"] == {"thinkingConfig": {"includeThoughts": False}, "topK": 4}
    assert body["labels"] == {"a": "b"}


def test_the_context_is_not_changed() -> None:
    context = [
        user_message("a"),
        answer(call(), {"type": "server", "dialect": "gemini", "item": {"toolCall": {}}}),
        tool_result_message("1", "look", [file("image/png")]),
    ]
    before = repr(context)
    body_of(context)
    assert repr(context) == before


# -- models


@pytest.mark.parametrize(
    ("url", "listing"),
    [
        ("https://g/v1beta/", "https://g/v1beta/models?pageSize=1000"),
        ("https://g/v1beta?x=1", "https://g/v1beta/models?pageSize=1000&x=1"),
        ("https://g/v1/models/m:streamGenerateContent", "https://g/v1/models?pageSize=1000"),
    ],
)
def test_the_provider_lists_models_with_its_credential(url: str, listing: str) -> None:
    asked = Gemini.models_request(url, {}, "key-1")
    assert asked == (listing, {"x-goog-api-key": "key-1", "Accept": "application/json"})
    asked = Gemini.models_request(url, {"quirks": {"auth_header": "bearer"}}, "key-1", "t")
    assert "&pageToken=t" in asked[0]
    assert asked[1]["Authorization"] == "Bearer key-1"
    assert Gemini.models_request(url, {}, None)[1] == {"Accept": "application/json"}
    assert Gemini.read_models({"models": [{"name": "models/m"}]}) == {"m": {}}
    assert Gemini.next_models({"nextPageToken": "t"}) == "t"


def test_models_are_listed_page_by_page() -> None:
    assert models_request({})[0] == "/models?pageSize=1000"
    path, headers = models_request({"extra_headers": {"X-A": "b"}}, page="a/b=")
    assert path == "/models?pageSize=1000&pageToken=a%2Fb%3D"
    assert headers == {"Accept": "application/json", "X-A": "b"}
    listing = {
        "models": [
            {
                "name": "models/gemini-3-pro",
                "displayName": "Gemini 3 Pro",
                "inputTokenLimit": 1048576,
                "outputTokenLimit": 65536,
                "thinking": True,
                "supportedGenerationMethods": ["generateContent", "countTokens"],
            },
            {"name": "models/embedder", "supportedGenerationMethods": ["embedContent"]},
            {"name": "bare", "inputTokenLimit": True, "outputTokenLimit": -1},
            {"displayName": "nameless"},
            3,
        ],
        "nextPageToken": "t",
    }
    assert read_models(listing) == {
        "gemini-3-pro": {
            "context_window": 1048576,
            "max_output": 65536,
            "name": "Gemini 3 Pro",
            "thinking": True,
        },
        "bare": {},
    }
    assert next_page(listing) == "t"
    assert next_page({}) is None
    assert read_models({}) == {}
    bad: object
    for bad in ([], {"models": 3}):
        with pytest.raises(ValueError, match="not a list of models"):
            read_models(bad)


def test_a_signature_on_a_text_without_words_goes_back_unless_none_is_to() -> None:
    block = {"type": "text", "text": "", "thought_signature": "c2ln"}
    context = [user_message("u"), {"type": 3, "content": [{"type": "text", "text": "Hi."}, block]}]
    for replayed, parts in (
        (True, [{"text": "Hi."}, {"text": "", "thoughtSignature": "c2ln"}]),
        (False, [{"text": "Hi."}]),
    ):
        io = FakeIO(model="gemini-3-pro", replay_reasoning=replayed)
        _, body = Gemini("http://x", io).request(context, io)
        assert body["contents"][1]["parts"] == parts
