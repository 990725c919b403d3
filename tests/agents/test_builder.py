"""A builder as an agent's source of context: called before each request, over what was said so far."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from aiio.agents import Agent
from aiio.builder import ContextBuilder, ContextBuildError, ContextFragment, define_context_fragments
from aiio.context.types import system_message, user_message

from .peer import MODEL, answer, call, calling, peer, shape
from .strict import assert_linked


def policy(**fields: Any) -> dict[str, Any]:
    return {
        "id": "policy",
        "source_id": "author",
        "trust": "system",
        "role": "system",
        "max_chars": 100,
        "format": lambda input: "Be brief.",
        **fields,
    }


def said(**fields: Any) -> dict[str, Any]:
    return {
        "id": "said",
        "source_id": "conversation",
        "trust": "user",
        "max_chars": 1000,
        "format": lambda input: {"messages": input},
        **fields,
    }


def made(*definitions: dict[str, Any], **options: Any) -> ContextBuilder[Any]:
    return define_context_fragments(definitions, **options)


def weather(city: str) -> str:
    """Return the weather."""
    return f"Rain in {city}."


async def test_a_builder_is_called_before_each_request() -> None:
    rounds: list[int] = []

    def note(input: list[Any]) -> str:
        rounds.append(len(input))
        return f"{len(input)} so far."

    builder = made(policy(), said(), {**said(), "id": "note", "trust": "app", "format": note})
    async with peer(calling(call("weather", '{"city": "Ulm"}')), answer("Take a coat.")) as (env, found):
        agent = Agent(env=env, model=MODEL, tools=[weather], builder=builder)
        result = await agent.run("Coat?")
    assert result.ok
    assert rounds == [1, 3]
    assert shape(agent) == [2, 3, 4, 3]  # what was said, and no more
    assert_linked(agent.context)
    first, second = (body["messages"] for body in found.bodies)
    assert first == [system_message("Be brief."), user_message("Coat?"), user_message("1 so far.")]
    assert second == [system_message("Be brief."), *agent.context[:3], user_message("3 so far.")]


async def test_the_input_of_the_builder_can_be_made_of_the_context() -> None:
    def last(context: list[Any]) -> dict[str, Any]:
        question = context[-1]
        context.clear()  # a list of its own
        return {"said": [question]}

    builder = made(policy(), said(format=lambda input: {"messages": input["said"]}))
    async with peer(answer("one"), answer("two")) as (env, found):
        agent = Agent(env=env, model=MODEL, tools=[], builder=builder, builder_input=last)
        await agent.run("First?")
        await agent.run("Second?")
    assert shape(agent) == [2, 3, 2, 3]
    assert found.bodies[1]["messages"] == [system_message("Be brief."), user_message("Second?")]


async def test_what_is_too_large_is_raised_and_what_was_said_is_kept() -> None:
    builder = made(policy(), said(), max_input_chars=20)
    async with peer(answer("Yes."), answer("No.")) as (env, found):
        context: list[Any] = []
        agent = Agent(env=env, model=MODEL, tools=[], builder=builder, context=context)
        assert (await agent.run("Short?")).ok
        with pytest.raises(ContextBuildError, match="30 characters, 20 at most") as caught:
            await agent.run("And longer?")
        assert caught.value.fragment_usage is not None
        assert shape(agent) == [2, 3, 2]
        assert len(found.bodies) == 1
        del context[:2]
        assert (await agent.run()).text == "No."
    assert shape(agent) == [2, 3]


async def test_a_transform_may_keep_the_tail_of_the_context() -> None:
    def tail(fragments: tuple[ContextFragment, ...], input: Any) -> list[ContextFragment]:
        return [
            dataclasses.replace(one, messages=one.messages[-1:]) if one.messages else one for one in fragments
        ]

    async with peer(answer("one"), answer("two")) as (env, found):
        agent = Agent(env=env, model=MODEL, tools=[], builder=made(policy(), said(), transforms=[tail]))
        await agent.run("First?")
        await agent.run("Second?")
    assert found.bodies[1]["messages"] == [system_message("Be brief."), user_message("Second?")]


async def test_a_builder_has_the_system_text_and_an_input_needs_a_builder() -> None:
    async with peer(answer("ok")) as (env, _):
        with pytest.raises(ValueError, match="system is a fragment of the builder"):
            Agent(env=env, model=MODEL, system="Be brief.", builder=made(policy()))
        with pytest.raises(ValueError, match="there is none"):
            Agent(env=env, model=MODEL, builder_input=lambda context: context)
