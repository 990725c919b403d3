"""Fleets: results as they come, one killed or all, and nothing of one agent reaches another."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from aiio.agents import Agent, AgentState, FleetResult, Stopped, open_fleet
from aiio.context.events import ErrorKind
from aiio.env.env import Env
from aiio.env.errors import ProviderError
from aiio.env.listeners import EnvEvent
from tests.io.scripted import HANG, Fail, Pause, Step, say

from .peer import MODEL, answer, call, calling, failed, peer
from .strict import assert_linked


def by_prompt(body: dict[str, Any]) -> Sequence[Step]:
    """`"3"` is answered after 3 s, `hang` never, `cut` breaks off, `loop` calls a tool for ever."""
    text = body["messages"][0]["content"][0]["text"]
    match text:
        case "hang":
            return [say("Half a"), HANG]
        case "cut":
            return [say("Half a"), Fail(ProviderError(ErrorKind.NETWORK, "reset"))]
        case "loop":
            return calling(call("nothing"))
    return [say(f"{text} "), Pause(float(text)), *answer("done")]


def agent_of(env: Env, **options: Any) -> Agent:
    return Agent(env=env, model=MODEL, max_rounds=2, **options)


async def test_results_come_as_agents_end(autojump_clock: MockClock) -> None:
    async with peer(by_prompt) as (env, _), open_fleet(env) as fleet:
        agents = [agent_of(env) for _ in range(3)]
        keys = [fleet.start(agent, text) for agent, text in zip(agents, ("3", "1", "2"), strict=True)]
        assert keys == ["agent-1", "agent-2", "agent-3"]
        found = [result async for result in fleet.results()]
    assert [result.key for result in found] == ["agent-2", "agent-3", "agent-1"]
    assert [result.elapsed_ms for result in found] == [1000, 2000, 3000]
    assert [result.agent for result in found] == [agents[1], agents[2], agents[0]]
    assert all(
        result.result is not None and result.result.ok and result.exception is None for result in found
    )
    assert [agent.name for agent in agents] == keys


async def test_results_may_be_iterated_again_after_more_starts(autojump_clock: MockClock) -> None:
    async with peer(by_prompt) as (env, _), open_fleet(env) as fleet:
        assert [result async for result in fleet.results()] == []
        fleet.start(agent_of(env), "2", key="a")
        async for result in fleet.results():
            if result.key == "a":
                fleet.start(agent_of(env), "1", key="b")  # joins the iteration that runs
        assert result.key == "b"
        fleet.start(agent_of(env), "1")
        assert [result.key async for result in fleet.results()] == ["agent-3"]


async def test_results_are_handed_out_once_and_survive_a_break(autojump_clock: MockClock) -> None:
    async with peer(by_prompt) as (env, _), open_fleet(env) as fleet:
        for seconds in ("1", "2", "3"):
            fleet.start(agent_of(env), seconds, key=seconds)
        async for result in fleet.results():
            assert result.key == "1"
            break
        with trio.move_on_after(0.5):
            await fleet.results().__anext__()
        await trio.sleep(1)
        with assert_checkpoints():
            assert (await fleet.results().__anext__()).key == "2"
        taken: list[str] = []

        async def take() -> None:
            async for result in fleet.results():
                taken.append(result.key)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            nursery.start_soon(take)
    assert taken == ["3"]


async def test_leaving_the_block_waits_for_all(autojump_clock: MockClock) -> None:
    async with peer(by_prompt) as (env, _):
        start = trio.current_time()
        async with open_fleet(env) as fleet:
            fleet.start(agent_of(env), "5")
            fleet.start(agent_of(env), "7")
        assert trio.current_time() - start == 7
        assert [result.key async for result in fleet.results()] == ["agent-1", "agent-2"]
        with pytest.raises(RuntimeError, match="not open"):
            fleet.start(agent_of(env), "1")


async def test_stats_count_every_end(autojump_clock: MockClock) -> None:
    def crash(_: Any) -> None:
        raise LookupError("a bug")

    async with peer(by_prompt, max_active=None) as (env, _), open_fleet(env, max_active=4) as fleet:
        assert env.max_active == 4
        fleet.start(agent_of(env), "1")
        fleet.start(agent_of(env), "cut")
        fleet.start(agent_of(env), "loop")
        fleet.start(agent_of(env, callbacks={"on_text_delta": crash}), "1", key="crash")
        fleet.start(agent_of(env), "hang", key="hang")
        fleet.start(agent_of(env), "3")
        await wait_all_tasks_blocked()
        assert (fleet.running, fleet.queued) == (3, 0)
        await trio.sleep(2)
        stats = fleet.stats()
        assert (stats.running, stats.queued, stats.done) == (2, 0, 1)
        assert stats.failed == {"network": 1, "max_rounds": 1, "crashed": 1}
        await fleet.kill("hang", "too slow")
        found = {result.key: result async for result in fleet.results()}
    stats = fleet.stats()
    assert (stats.running, stats.queued, stats.done) == (0, 0, 2)
    assert stats.failed == {"network": 1, "max_rounds": 1, "crashed": 1, "cancelled": 1}
    sums = [
        result.result.usage["output_tokens"]
        for result in found.values()
        if result.result and result.result.usage
    ]
    assert stats.output_tokens >= sum(sums) > 14
    assert (found["crash"].result, type(found["crash"].exception)) == (None, LookupError)
    killed = found["hang"].result
    assert killed is not None
    assert (killed.stopped, killed.text) == (Stopped.KILLED, "Half a")
    assert "too slow" in failed(killed.terminal).error


async def test_the_requests_of_agents_that_run_on_count(autojump_clock: MockClock) -> None:
    async def slow() -> None:
        await trio.sleep(10)

    async with peer(calling(call("slow")), answer("ok")) as (env, _), open_fleet(env) as fleet:
        fleet.start(agent_of(env, tools=[slow]), "Hello")
        await trio.sleep(1)
        assert fleet.stats().output_tokens == 7
    assert fleet.stats().output_tokens == 12


async def test_those_who_wait_for_a_slot_are_queued(autojump_clock: MockClock) -> None:
    async with peer(by_prompt) as (env, _), open_fleet(env, max_active=2) as fleet:
        agents = [agent_of(env) for _ in range(5)]
        for agent in agents:
            fleet.start(agent, "10")
        await wait_all_tasks_blocked()
        assert (fleet.running, fleet.queued, env.queued) == (2, 3, 3)
        last = next(agent for agent in agents if agent.state == AgentState.QUEUED)
        await fleet.kill(last.name)
        assert (fleet.running, fleet.queued, env.queued) == (2, 2, 2)
    assert fleet.stats().done == 4


async def test_kill_one_leaves_the_others(autojump_clock: MockClock) -> None:
    async with peer(by_prompt) as (env, _), open_fleet(env) as fleet:
        for key in ("a", "b"):
            fleet.start(agent_of(env), "hang" if key == "a" else "5", key=key)
        await trio.sleep(1)
        with assert_checkpoints():
            await fleet.kill("a")
        assert fleet.running == 1
        with assert_checkpoints():
            await fleet.kill("a")  # it has ended: left alone
        with pytest.raises(ValueError, match="no agent with the key 'c'"):
            await fleet.kill("c")
        found = [result async for result in fleet.results()]
    assert [(result.key, result.result and result.result.outcome) for result in found] == [
        ("a", "cancelled"),
        ("b", "done"),
    ]


async def test_kill_all_keeps_every_partial(autojump_clock: MockClock) -> None:
    async with peer(by_prompt) as (env, found), open_fleet(env) as fleet:
        agents = [agent_of(env) for _ in range(20)]
        for agent in agents:
            fleet.start(agent, "hang")
        await trio.sleep(1)
        await fleet.kill(reason="enough")
        assert (fleet.running, found.wire.open, len(env.active_io)) == (0, 0, 0)
    assert [agent.context[1]["content"][0]["text"] for agent in agents] == ["Half a"] * 20


async def test_an_agent_killed_before_its_task_began_has_a_result(autojump_clock: MockClock) -> None:
    async with peer(by_prompt) as (env, found), open_fleet(env) as fleet:
        fleet.start(agent_of(env), "1", key="a")
        fleet.kill_nowait("a", "changed my mind")
        [result] = [result async for result in fleet.results()]
    assert result.result is not None
    assert (result.result.stopped, result.result.rounds, found.bodies) == (Stopped.KILLED, 0, [])
    assert failed(result.result.terminal).error == "cancelled: changed my mind"


async def test_misuse_is_an_exception_at_once(autojump_clock: MockClock) -> None:
    async with peer(by_prompt) as (env, _):
        fleet = open_fleet(env)
        with pytest.raises(RuntimeError, match="async with"):
            fleet.start(agent_of(env), "1")
        async with fleet:
            agent = agent_of(env)
            fleet.start(agent, "1", key="a")
            with pytest.raises(ValueError, match="'a' is at work"):
                fleet.start(agent_of(env), "1", key="a")
            with pytest.raises(trio.BusyResourceError):
                fleet.start(agent, "1", key="b")
            with pytest.raises(ValueError, match="nothing to answer"):
                fleet.start(agent_of(env), key="b")
            assert fleet.running + fleet.queued == 1
            with pytest.raises(ValueError, match="'b'"):
                await fleet.kill("b")
            async for _ in fleet.results():
                pass
            assert fleet.start(agent_of(env), "1", key="a") == "a"  # the key is free again
            fleet.start(agent_of(env), "1", key="agent-2")
            assert fleet.start(agent_of(env, name="bob"), "1") == "agent-3"
            with pytest.raises(RuntimeError, match="entered once"):
                await fleet.__aenter__()
        with pytest.raises(ValueError, match="max_active"):
            await open_fleet(env, max_active=0).__aenter__()


async def test_agents_are_announced(autojump_clock: MockClock) -> None:
    seen: list[tuple[str, Any]] = []
    async with peer(by_prompt) as (env, _):
        env.on_event(lambda event: seen.append((event.name, event.data.get("key"))))
        async with open_fleet(env) as fleet:
            fleet.start(agent_of(env), "1", key="a")
    assert [seen[0], seen[-1]] == [("agent_added", "a"), ("agent_removed", "a")]


async def test_a_key_that_was_given_is_not_given_again(autojump_clock: MockClock) -> None:
    async with peer(by_prompt) as (env, _), open_fleet(env) as fleet:
        fleet.start(agent_of(env), "1", key="agent-2")
        assert fleet.start(agent_of(env), "1") == "agent-3"


async def test_a_fleet_that_is_being_left_takes_agents_until_its_last_one_has_ended(
    autojump_clock: MockClock,
) -> None:
    refused: list[str] = []

    async with peer(by_prompt) as (env, _):
        late = agent_of(env)

        def start_another(event: EnvEvent) -> None:
            if event.name != "agent_removed":
                return
            if event.data["key"] == "a":
                fleet.start(agent_of(env), "1", key="b")
            else:
                trio.lowlevel.spawn_system_task(too_late)

        async def too_late() -> None:
            with pytest.raises(RuntimeError, match="not open"):
                fleet.start(late, "1")
            refused.append(late.state)

        env.on_event(start_another)
        async with open_fleet(env) as fleet:
            fleet.start(agent_of(env), "1", key="a")
        await wait_all_tasks_blocked()
    assert fleet.stats().done == 2
    assert (refused, late.context) == ([AgentState.IDLE], [])


# -- leaving early --------------------------------------------------------------------------------


async def test_an_exception_of_the_body_ends_all_and_comes_out_as_itself(autojump_clock: MockClock) -> None:
    bug, cause = LookupError("a bug"), OSError("the cause")
    async with peer(by_prompt) as (env, found):
        agents = [agent_of(env) for _ in range(3)]
        start = trio.current_time()
        with pytest.raises(LookupError) as caught:
            async with open_fleet(env) as fleet:
                for agent in agents:
                    fleet.start(agent, "hang")
                await trio.sleep(1)
                raise bug from cause
        assert caught.value is bug
        assert bug.__cause__ is cause
        assert trio.current_time() - start == 1
        assert found.wire.open == 0
    for agent in agents:
        assert agent.context[1]["content"][0]["text"] == "Half a"
        assert_linked(agent.context)
    assert fleet.stats().failed == {"cancelled": 3}


async def test_a_cancellation_keeps_every_partial(autojump_clock: MockClock) -> None:
    async with peer(by_prompt) as (env, found):
        agents = [agent_of(env) for _ in range(3)]
        with trio.move_on_after(5) as scope:
            async with open_fleet(env) as fleet:
                for agent in agents:
                    fleet.start(agent, "hang")
                async for _ in fleet.results():
                    raise AssertionError("nobody ends")
        assert scope.cancelled_caught
        assert (found.wire.open, len(env.active_io)) == (0, 0)
        for agent in agents:
            assert agent.context[1]["content"][0]["text"] == "Half a"
            assert agent.state == AgentState.IDLE
        assert fleet.stats().failed == {"cancelled": 3}


async def test_a_cancellation_while_the_block_waits_is_a_plain_one(autojump_clock: MockClock) -> None:
    caught: list[BaseException] = []
    async with peer(by_prompt) as (env, _):
        with trio.move_on_after(5) as scope:
            try:
                async with open_fleet(env) as fleet:
                    for _ in range(3):
                        fleet.start(agent_of(env), "hang")
            except BaseException as exc:
                caught.append(exc)
                raise
        assert scope.cancelled_caught
    assert [type(exc) for exc in caught] == [trio.Cancelled]


async def test_an_exception_is_not_lost_when_a_cancellation_comes_while_it_leaves(
    autojump_clock: MockClock,
) -> None:
    caught: list[BaseException] = []
    async with peer(by_prompt) as (env, _):
        with trio.CancelScope() as scope:
            try:
                async with open_fleet(env) as fleet:
                    for _ in range(2):  # their tasks have not begun
                        fleet.start(agent_of(env), "hang")
                    scope.cancel()
                    raise LookupError("a bug")
            except BaseException as exc:  # noqa: BLE001  # whatever it is
                caught.append(exc)
    assert [type(exc) for exc in caught] == [LookupError]
    assert fleet.stats().failed == {"cancelled": 2}


async def test_ctrl_c_in_the_body_ends_all_and_comes_out_as_itself(autojump_clock: MockClock) -> None:
    async with peer(by_prompt) as (env, _):
        agent = agent_of(env)
        with pytest.raises(KeyboardInterrupt):
            async with open_fleet(env) as fleet:
                fleet.start(agent, "hang")
                await trio.sleep(1)
                raise KeyboardInterrupt
    assert agent.context[1]["content"][0]["text"] == "Half a"


async def test_ctrl_c_in_an_agent_ends_all_and_comes_out_as_itself(autojump_clock: MockClock) -> None:
    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    async with peer(by_prompt) as (env, _):
        other = agent_of(env)
        with pytest.raises(KeyboardInterrupt):
            async with open_fleet(env) as fleet:
                fleet.start(other, "hang")
                await trio.sleep(1)
                fleet.start(agent_of(env, callbacks={"on_text_delta": interrupt}), "1")
                await trio.sleep_forever()
    assert other.context[1]["content"][0]["text"] == "Half a"
    assert other.state == AgentState.IDLE


async def test_a_thousand_agents_all_end(autojump_clock: MockClock) -> None:
    async with peer(by_prompt) as (env, found):
        ended: list[FleetResult] = []
        async with open_fleet(env, max_active=50) as fleet:
            for number in range(1000):
                fleet.start(agent_of(env), str(1 + number % 3))
            async for result in fleet.results():
                ended.append(result)
                assert len(env.active_io) <= 50
        assert len({result.key for result in ended}) == 1000
        assert (fleet.stats().done, found.wire.open) == (1000, 0)


async def test_a_tool_may_start_more_agents(autojump_clock: MockClock) -> None:
    async with peer(calling(call("delegate")), answer("Helped."), answer("ok")) as (env, _):
        async with open_fleet(env) as fleet:

            async def delegate() -> str:
                helper = agent_of(env, tools=[])
                fleet.start(helper, "Help.", key="helper")
                await trio.sleep(1)
                return str(helper.context[-1]["content"][0]["text"])

            fleet.start(agent_of(env, tools=[delegate]), "Hello", key="boss")
        found = {result.key: result.result async for result in fleet.results()}
    assert {key: result and result.text for key, result in found.items()} == {
        "helper": "Helped.",
        "boss": "ok",
    }


async def test_results_may_be_taken_without_waiting() -> None:
    async with peer(answer("ok")) as (env, _), open_fleet(env) as fleet:
        fleet.start(agent_of(env), "1", key="a")
        results = fleet.results()
        with pytest.raises(trio.WouldBlock):
            results.next_nowait()
        await wait_all_tasks_blocked()
        assert results.next_nowait().key == "a"
        with pytest.raises(trio.WouldBlock):
            results.next_nowait()
        assert [result async for result in results] == []


async def test_every_line_logged_for_an_agent_has_its_name() -> None:
    lines: list[dict[str, Any]] = []

    def keep(logger: Any, method: str, line: MutableMapping[str, Any]) -> str:
        lines.append(dict(line))
        raise structlog.DropEvent

    async def look() -> str:
        structlog.get_logger().info("tool.looks")
        return "seen"

    def look_in_a_thread() -> str:
        structlog.get_logger().info("thread.looks")
        return "seen"

    structlog.configure(processors=[structlog.contextvars.merge_contextvars, keep])
    calls = calling(call("look"), call("look_in_a_thread", call_id="c2", index=1))

    def script(body: dict[str, Any]) -> Sequence[Step]:
        return answer("ok") if body["messages"][-1]["type"] == 4 else calls

    async with peer(script) as (env, _), open_fleet(env) as fleet:
        for key in "abc":
            fleet.start(Agent(env=env, model=MODEL, tools=[look, look_in_a_thread]), "Go.", key=key)
    for event, times in (
        ("request.settled", 2),
        ("tool.settled", 2),
        ("tool.looks", 1),
        ("thread.looks", 1),
        ("agent.settled", 1),
    ):
        named = sorted(line["agent"] for line in lines if line["event"] == event)
        assert named == sorted("abc" * times), event
    assert all("agent" in line for line in lines), lines
