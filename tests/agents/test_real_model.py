"""Agents on the embedded model: real tokens, a real server, its own slots as the judge."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from aiio.agents import Agent, Stopped, open_fleet
from aiio.context.events import Done
from aiio.env.env import Env, open_env
from tests.model import RealModel, real_model  # noqa: F401  # a fixture

from .strict import assert_linked

pytestmark = pytest.mark.model


@asynccontextmanager
async def env_of(model: RealModel) -> AsyncIterator[tuple[Env, str]]:
    async with open_env() as env:
        env.register_endpoint("llamacpp", url=model.url, auth=model.key)
        yield env, f"llamacpp/{model.model}"


async def test_twelve_agents_all_end_and_the_killed_one_keeps_its_partial(real_model: RealModel) -> None:  # noqa: F811
    async with env_of(real_model) as (env, model):

        def agent_of(max_tokens: int, **options: Any) -> Agent:
            return Agent(env=env, model=model, tools=[], settings={"max_tokens": max_tokens}, **options)

        def stop_after_five(_: Any) -> None:
            heard.append(1)
            if len(heard) == 5:
                talker.kill_nowait("heard enough")

        heard: list[int] = []
        talker = agent_of(400, callbacks={"on_text_delta": stop_after_five})
        async with open_fleet(env, max_active=4) as fleet:
            for number in range(11):
                fleet.start(agent_of(12), f"Say a word that rhymes with {['cat', 'hat', 'sun'][number % 3]}.")
            fleet.start(talker, "Tell me a long story about a fox.", key="talker")
            results = {}
            async for result in fleet.results():
                results[result.key] = result.result
                assert len(env.active_io) <= 4
        assert len(results) == 12
        killed = results.pop("talker")
        assert killed is not None
        assert killed.stopped is Stopped.KILLED
        assert killed.text
        assert talker.context[1]["content"][0]["text"] == killed.text
        for found in results.values():
            assert found is not None
            assert isinstance(found.terminal, Done)
            assert found.text
        assert fleet.stats().done == 11
        with trio.fail_after(10):
            while any(slot["is_processing"] for slot in await trio.to_thread.run_sync(real_model.slots)):
                await trio.lowlevel.checkpoint()


async def test_a_second_turn_sees_the_first(real_model: RealModel) -> None:  # noqa: F811
    async with env_of(real_model) as (env, model):
        agent = Agent(env=env, model=model, tools=[], system="Be brief.", settings={"max_tokens": 8})
        first = await agent.run("My name is Ada. Say hello.")
        second = await agent.run("What is my name?")
    assert isinstance(first.terminal, Done)
    assert isinstance(second.terminal, Done)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage["input_tokens"] > first.usage["input_tokens"]
    assert [entry["type"] for entry in agent.context] == [1, 2, 3, 2, 3]
    assert_linked(agent.context)
