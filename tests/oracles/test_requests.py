"""What aiio sends is what the official SDKs' own types allow: hand-offs of every pair, tools, settings."""

from __future__ import annotations

from typing import Any

import pytest

from aiio.context.types import user_message
from tests.handoff.contexts import PAIRS, every_context
from tests.providers.dialects import DIALECTS, Dialect
from tests.providers.fakes import FakeIO

from .request_types import sdk_judge

UNKNOWN_TO_THE_SDK = {
    "responses-unknown-events.sse": "an item of a type made up for the test goes back as it came",
    "anthropic-unknown-and-dataonly.sse": "a block of a type made up for the test goes back as it came",
}
"""Recordings after which their own dialect sends what its SDK's types can't know, and why that is right."""

TOOLS = [
    {
        "name": "look",
        "description": "Look at a thing.",
        "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    }
]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"max_tokens": 4096, "temperature": 0.5, "top_p": 0.9},
    {"max_tokens": 4096, "reasoning_effort": "high"},
    {"think": False},
    {"tool_choice": "required"},
    {"tool_choice": "look"},
    {"response_format": {"type": "object", "title": "Answer", "properties": {"x": {"type": "string"}}}},
]


@pytest.mark.parametrize(
    ("maker", "taker"), PAIRS, ids=[f"{maker.name}-to-{taker.name}" for maker, taker in PAIRS]
)
def test_every_context_of_the_one_is_a_request_by_the_types_of_the_others_sdk(
    maker: Dialect, taker: Dialect
) -> None:
    judge = sdk_judge(taker.name)
    for name, context in every_context(maker):
        body = taker.body(context)
        if maker is taker and name.partition(" ")[0] in UNKNOWN_TO_THE_SDK:
            continue
        try:
            judge(body)
        except ValueError as exc:
            raise AssertionError(f"{name}: {exc}") from exc


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("settings", SETTINGS, ids=repr)
def test_tools_and_settings_are_written_as_the_sdk_does(dialect: Dialect, settings: dict[str, Any]) -> None:
    judge = sdk_judge(dialect.name)
    body = dialect.body([user_message("Hi.")], FakeIO(model=dialect.model, tools=TOOLS, **settings))
    if (
        dialect.name == "anthropic"
    ):  # this SDK has only what the newest models take; older ones take these too
        body = {key: value for key, value in body.items() if key not in ("temperature", "top_p")}
    judge(body)


@pytest.mark.parametrize("name", ["chat", "responses", "anthropic", "gemini"])  # Ollama's models take any key
def test_a_key_that_the_sdk_does_not_know_is_refused_by_these_judges(name: str) -> None:
    judge = sdk_judge(name)
    body = DIALECTS[name].body([user_message("Hi.")])
    judge(body)
    turns = next(body[key] for key in ("messages", "input", "contents") if key in body)
    turns[0]["unheard_of"] = 1
    with pytest.raises(ValueError, match="unheard_of"):
        judge(body)
