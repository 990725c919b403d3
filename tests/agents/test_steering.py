"""What is said to a running agent: in the middle of its work, or after it."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock

from aiio.agents import Agent, Stopped
from aiio.context.types import system_message, user_message

from .peer import MODEL, answer, call, calling, peer, shape
from .strict import assert_linked


def texts(body: dict[str, Any]) -> list[str]:
    """What the user has said in a request."""
    return [entry["content"][0]["text"] for entry in body["messages"] if entry["type"] == 2]


async def test_A16_a_steering_message_reaches_the_model_after_the_results_of_running_tools() -> None:
    def look() -> str:
        agent.send("Only birds.")
        agent.send("Afterwards: fish?", steer=False)
        assert agent.pending == ("Only birds.", "Afterwards: fish?")
        return "seen"

    async with peer(calling(call("look")), answer("A wren."), answer("No fish.")) as (env, found):
        agent = Agent(env=env, model=MODEL, tools=[look])
        result = await agent.run("What is there?")
    assert [texts(body) for body in found.bodies] == [
        ["What is there?"],
        ["What is there?", "Only birds."],
        ["What is there?", "Only birds.", "Afterwards: fish?"],
    ]
    assert shape(agent) == [2, 3, 4, 2, 3, 2, 3]
    assert (result.text, result.rounds, agent.pending) == ("No fish.", 3, ())


async def test_queued_messages_are_answered_one_by_one_in_their_order_and_after_what_steers() -> None:
    scripts = [answer("one"), answer("steered"), answer("two"), answer("three")]
    async with peer(*scripts) as (env, found):
        agent = Agent(env=env, model=MODEL)

        def talk(event: Any) -> None:
            if event.text == "one":
                agent.send("2?", steer=False)
                agent.send("3?", steer=False)
                agent.send("wait")

        await agent.run("1?", {"on_text_delta": talk})
    assert [texts(body)[-1] for body in found.bodies] == ["1?", "wait", "2?", "3?"]
    assert shape(agent) == [2, 3] * 4


async def test_what_still_waits_joins_the_context_when_a_run_ends_early(autojump_clock: MockClock) -> None:
    async with peer(answer("one")) as (env, found):
        agent = Agent(env=env, model=MODEL, max_rounds=1)

        def talk(_: Any) -> None:
            agent.send("2?", steer=False)
            agent.send("3?", steer=False)

        result = await agent.run("1?", {"on_text_delta": talk})
        assert result.stopped is Stopped.MAX_ROUNDS
        assert agent.context[-1] == user_message("2?\n\n3?")
        agent.send("4?", steer=False)  # to an idle agent: at once
        assert agent.pending == ()
        assert agent.context[-1] == user_message("2?\n\n3?\n\n4?")
        assert len(found.bodies) == 1


# -- what a tool tells beside its result (A15) ------------------------------------------------------


async def test_A15_system_follows_all_results_and_display_goes_to_listeners_only() -> None:
    def read(at: int) -> Any:
        return {"result": {"line": at}, "system": f"{at} is old.", "display": [at]}

    def plain() -> Any:
        return {"result": "kept as it is"}

    calls = [
        call("read", '{"at": 1}', call_id="a"),
        call("plain", call_id="b", index=1),
        call("read", '{"at": 2}', call_id="c", index=2),
    ]
    shown: list[Any] = []
    async with peer(calling(*calls), answer("ok")) as (env, found):
        env.on_event(lambda event: shown.append(event.data["display"]) if event.name == "tool_done" else None)
        agent = Agent(env=env, model=MODEL, tools=[read, plain], tool_concurrency=1)
        await agent.run("Read.")
    assert shape(agent) == [2, 3, 4, 4, 4, 1, 3]
    said = [entry["content"][0]["text"] for entry in agent.context if entry["type"] == 4]
    assert said == ['{"line":1}', "kept as it is", '{"line":2}']
    assert agent.context[5] == system_message("1 is old.\n\n2 is old.")
    assert found.bodies[1]["messages"] == agent.context[:6]
    assert shown == [[1], None, [2]]
    assert_linked(agent.context)


@pytest.mark.parametrize("data", [{"result": 1, "more": 2}, {"result": 1, "system": 2}, {"system": "x"}])
async def test_A15_data_that_only_looks_like_it_is_a_result_as_any(data: Any) -> None:
    def tool() -> Any:
        return data

    async with peer(calling(call("tool")), answer("ok")) as (env, _):
        agent = Agent(env=env, model=MODEL, tools=[tool])
        await agent.run("Go.")
    assert shape(agent) == [2, 3, 4, 3]
    assert agent.context[2]["content"][0]["text"].startswith("{")
