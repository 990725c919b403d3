"""Budgets of tokens, money and time: they stop a run cleanly, and the result says which one did."""

from __future__ import annotations

import math
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from aiio.agents import Agent, Budget, Stopped, open_fleet
from aiio.context.events import ErrorKind
from aiio.env.errors import ProviderError
from aiio.observe.otel_ends import end_of_agent
from tests.io.scripted import HANG, Fail, Pause, finish, say

from .peer import MODEL, answer, call, calling, done, failed, half_call, peer, results, shape
from .strict import assert_linked


def weather() -> str:
    return "Rain."


def cent_a_token(endpoint: str, model: str, usage: Any) -> float | None:
    assert (endpoint, model) == ("peer", "m")
    return float(usage["output_tokens"]) / 100


async def test_tokens_that_are_used_up_stop_a_run_between_two_requests() -> None:
    async with peer(calling(call("weather"))) as (env, found):
        agent = Agent(env=env, model=MODEL, tools=[weather], budget=Budget(tokens=50))
        result = await agent.run("Weather?")
        assert (result.stopped, result.outcome, result.ok) == (Stopped.TOKEN_BUDGET, "token_budget", False)
        assert done(result.terminal).done_reason == "tool_calls"
        assert (result.rounds, len(found.bodies)) == (2, 2)  # 27 tokens each
        assert results(agent)[-1][1] == "not made: the agent had used up its budget of 50 tokens"
        assert_linked(agent.context)
        assert (await agent.run("Again.")).rounds == 2  # the budget is a run's


async def test_a_budget_that_the_last_answer_uses_up_stops_nothing() -> None:
    async with peer(answer("Rain.")) as (env, _):
        assert (await Agent(env=env, model=MODEL, budget=Budget(tokens=1, cost=1e-9)).run("Weather?")).ok


async def test_what_a_request_costs_is_counted_by_the_prices_given() -> None:
    async with peer(calling(call("weather"))) as (env, _):
        budget = Budget(cost=0.20, prices=cent_a_token)
        result = await Agent(env=env, model=MODEL, tools=[weather], budget=budget).run("Weather?")
    assert (result.stopped, result.rounds, result.unpriced) == (Stopped.COST_BUDGET, 3, 0)
    assert result.cost == pytest.approx(0.21)


async def test_an_unknown_price_is_told_and_is_not_0() -> None:
    async with peer(calling(call("weather")), answer("Rain.")) as (env, _):
        budget = Budget(cost=0.01, prices=lambda *_: None)
        with structlog.testing.capture_logs() as lines:
            result = await Agent(env=env, model=MODEL, tools=[weather], budget=budget).run("Weather?")
    assert (result.ok, result.cost, result.unpriced) == (True, None, 2)
    told = [line for line in lines if line["event"] == "agent.price_unknown"]
    assert [line["model"] for line in told] == [MODEL]  # once


async def test_a_providers_own_figure_counts_without_any_budget() -> None:
    steps = [say("x"), finish(usage={"input_tokens": 1, "output_tokens": 1, "cost": 0.5})]
    async with peer(steps) as (env, _):
        result = await Agent(env=env, model=MODEL).run("Hello")
        assert (result.cost, result.unpriced) == (0.5, 0)
        result = await Agent(env=env, model=MODEL, budget=Budget(cost=math.inf)).run("Hello")
        assert (result.cost, result.unpriced) == (0.5, 0)


async def test_a_request_that_was_refused_has_no_cost() -> None:
    async with peer([Fail(ProviderError(ErrorKind.NETWORK, "refused"))]) as (env, _):
        budget = Budget(cost=math.inf, prices=cent_a_token)
        result = await Agent(env=env, model=MODEL, budget=budget).run("Hello")
    assert (failed(result.terminal).kind, result.cost, result.unpriced) == (ErrorKind.NETWORK, None, 0)


async def test_time_cuts_a_request_and_keeps_its_partial_message(autojump_clock: MockClock) -> None:
    heard: list[Any] = []
    async with peer([say("Half"), half_call("weather", index=1), HANG]) as (env, _):
        agent = Agent(env=env, model=MODEL, tools=[weather], budget=Budget(time="5s"))
        result = await agent.run("Weather?", {"on_error": heard.append})
        assert trio.current_time() == 5
        error = failed(result.terminal)
        assert (result.stopped, result.text, heard) == (Stopped.TIME_BUDGET, "Half", [error])
        assert (error.kind, error.cancelled) == (ErrorKind.CANCELLED, True)
        assert error.error == "cancelled: the agent had used up its time of 5 s"
        assert_linked(agent.context)
        assert (await agent.run("Again.")).stopped is Stopped.TIME_BUDGET  # it was not killed
        assert trio.current_time() == 10


async def test_time_cuts_tools_and_their_calls_have_results(autojump_clock: MockClock) -> None:
    async with peer(calling(call("sleep"))) as (env, found):
        agent = Agent(env=env, model=MODEL, tools=[sleep], budget=Budget(time=2000))
        result = await agent.run("Sleep.")
    assert (trio.current_time(), result.stopped, len(found.bodies)) == (2, Stopped.TIME_BUDGET, 1)
    assert results(agent)[0][1].startswith("cancelled:")


async def sleep() -> None:
    await trio.sleep(60)


async def test_time_includes_the_wait_for_a_slot(autojump_clock: MockClock) -> None:
    async with peer([Pause(60), *answer("x")], max_active=1) as (env, found), open_fleet(env) as fleet:
        fleet.start(Agent(env=env, model=MODEL), "Hello", key="slow")
        await wait_all_tasks_blocked()
        fleet.start(Agent(env=env, model=MODEL, budget=Budget(time="1s")), "Hello", key="quick")
        ended = {result.key: result.result async for result in fleet.results()}
    quick = ended["quick"]
    assert quick is not None
    assert (quick.stopped, len(found.bodies)) == (Stopped.TIME_BUDGET, 1)
    assert quick.elapsed_ms == 1000
    assert fleet.stats().failed == {"time_budget": 1}


async def test_a_kill_is_a_kill_whatever_the_budget_says(autojump_clock: MockClock) -> None:
    async with peer([say("Half"), HANG]) as (env, _):
        agent = Agent(env=env, model=MODEL, budget=Budget(time="5s"))
        async with trio.open_nursery() as nursery:

            async def kill() -> None:
                await trio.sleep(5)
                agent.kill_nowait("enough")

            nursery.start_soon(kill)
            result = await agent.run("Hello")
    assert result.stopped is Stopped.KILLED


async def test_time_that_is_up_while_it_is_saved_makes_no_request(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow() -> None:
        await trio.sleep(3)

    async with peer(answer("x")) as (env, found):
        agent = Agent(env=env, model=MODEL, budget=Budget(time="1s"))
        monkeypatch.setattr(agent._conversation, "save", slow)
        result = await agent.run("Hello")
    assert (result.stopped, found.bodies) == (Stopped.TIME_BUDGET, [])
    assert failed(result.terminal).error == "cancelled: the agent had used up its time of 1 s"
    assert shape(agent) == [2]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"tokens": 0}, ValueError),
        ({"tokens": True}, TypeError),
        ({"cost": "1"}, TypeError),
        ({"cost": math.nan}, ValueError),
        ({"time": "soon"}, ValueError),
        ({"prices": {}}, TypeError),
    ],
)
def test_a_budget_that_is_none_is_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        Budget(**options)


async def test_what_is_no_budget_is_refused() -> None:
    async with peer(answer("x")) as (env, _):
        with pytest.raises(TypeError, match="budget"):
            Agent(env=env, model=MODEL, budget=5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="guard"):
            Agent(env=env, model=MODEL, guard=0.9)  # type: ignore[arg-type]


async def test_a_span_says_which_budget_it_was(autojump_clock: MockClock) -> None:
    async with peer([say("Half"), HANG]) as (env, _):
        result = await Agent(env=env, model=MODEL, budget=Budget(time="5s")).run("Hello")
    assert end_of_agent(result, result.outcome, words=False).error_type == "time_budget"
