"""The real model over the three dialects of its server: a tool loop, a kill that it notices, a hand-off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import aiio
from aiio.agents import Agent
from aiio.context.events import Done, Error
from aiio.context.types import Message, user_message
from aiio.env.env import Env, open_env
from tests.model import RealModel, real_model

pytestmark = [pytest.mark.model, pytest.mark.timeout(240)]

__all__ = ["real_model"]

PROTOCOLS = ("openai_chat", "openai_responses", "anthropic")
each = pytest.mark.parametrize("protocol", PROTOCOLS)

IDLE_WITHIN = 1.0
"""Seconds the server may take to notice; the judge's patience, on the real clock."""


@asynccontextmanager
async def env_of(model: RealModel) -> AsyncIterator[Env]:
    """Yield an env with one endpoint a protocol, named after it."""
    async with open_env() as env:
        for protocol in PROTOCOLS:
            url = model.url.removesuffix("/v1") if protocol == "anthropic" else model.url
            env.register_endpoint(protocol, provider=protocol, url=url, auth=model.key)
        yield env


async def becomes_idle(model: RealModel) -> bool:
    """Tell whether the server's slots are all idle in time, as it says itself."""
    with trio.move_on_after(IDLE_WITHIN):
        while any(slot["is_processing"] for slot in await trio.to_thread.run_sync(model.slots)):
            await trio.sleep(0.02)
        return True
    return False


@each
async def test_a_tool_loop(real_model: RealModel, protocol: str) -> None:
    asked: list[str] = []

    def get_weather(city: str) -> str:
        """Get the weather in a city."""
        asked.append(city)
        return "sunny, 21 degrees"

    async with env_of(real_model) as env:
        env.register_tool(get_weather)
        agent = Agent(
            env=env,
            model=f"{protocol}/{real_model.model}",
            tools=["get_weather"],
            settings={"max_tokens": 48, "temperature": 0},
            max_rounds=4,
        )
        result = await agent.run("What is the weather in Paris?")
    assert isinstance(result.terminal, Done), result.terminal
    assert asked
    assert result.text
    assert [entry["type"] for entry in agent.context][:3] == [2, 3, 4]
    assert result.usage is not None
    assert result.usage["source"] == "provider"


@each
async def test_the_server_is_idle_after_a_kill(real_model: RealModel, protocol: str) -> None:
    async with env_of(real_model) as env:
        io = aiio.IO(env=env, model=f"{protocol}/{real_model.model}", settings={"max_tokens": 400})
        pieces: list[str] = []

        def heard(event: Any) -> None:
            pieces.append(event.text)
            if len(pieces) == 5:
                io.kill_nowait("heard enough")

        terminal = await io.write(
            [user_message("Tell a long story about a lighthouse.")], {"on_text_delta": heard}
        )
        assert isinstance(terminal, Error)
        assert terminal.cancelled
        assert terminal.message is not None
        assert terminal.message["content"][0]["text"] == "".join(pieces)
        assert await becomes_idle(real_model)


async def test_a_conversation_goes_from_dialect_to_dialect_with_a_killed_answer_in_it(
    real_model: RealModel,
) -> None:
    context: list[Message] = [user_message("Tell a long story about a fox.")]
    async with env_of(real_model) as env:
        for protocol in (*PROTOCOLS, PROTOCOLS[0]):
            io = aiio.IO(env=env, model=f"{protocol}/{real_model.model}", settings={"max_tokens": 60})

            def heard(event: Any, io: aiio.IO = io) -> None:
                io.kill_nowait()

            killed = await io.write(context, {"on_text_delta": heard})
            assert isinstance(killed, Error)
            assert killed.message is not None
            context += [killed.message, user_message("Go on, in one sentence.")]
            io = aiio.IO(env=env, model=f"{protocol}/{real_model.model}", settings={"max_tokens": 12})
            whole = await io.write(context)
            assert isinstance(whole, Done), whole
            assert whole.message is not None
            context += [whole.message, user_message("And then?")]
    assert await becomes_idle(real_model)
