"""However a run ends, its context is left in pairs and holds all that had come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from aiio.agents import Agent, AgentResult, AgentState, Stopped
from aiio.context.events import ErrorKind
from aiio.env.env import Env
from aiio.env.errors import ProviderError
from tests.io.scripted import HANG, Fail, Head, Pause, Step, finish, say

from .peer import MODEL, Peer, answer, call, calling, done, failed, half_call, peer, results, shape
from .strict import assert_linked

CUT = Fail(ProviderError(ErrorKind.NETWORK, "reset"))
QUICK = call("quick", call_id="quick")
HANGS = call("hangs", call_id="hangs", index=1)


async def quick() -> str:
    await trio.lowlevel.checkpoint()
    return "quickly done"


async def hangs() -> None:
    await trio.sleep_forever()


def agent_of(env: Env, **options: Any) -> Agent:
    return Agent(env=env, model=MODEL, tools=[quick, hangs], name="bob", **options)


# At one second on the clock, a run is in the midst of...
MOMENTS: dict[str, list[Sequence[Step]]] = {
    "connecting": [[Head(after=99)]],
    "waiting for the first word": [[HANG]],
    "text": [[say("Half a"), HANG]],
    "half a call": [[say("Well."), half_call("quick", index=1), HANG]],
    "a whole call of an answer that goes on": [[QUICK, HANG]],
    "tools": [calling(QUICK, HANGS)],
    "tools of the second round": [calling(QUICK), calling(call("quick", call_id="quick-2"), HANGS)],
    "the second answer": [calling(QUICK), [say("Half a"), HANG]],
}


async def kill(agent: Agent, scope: trio.CancelScope) -> None:
    await agent.kill("enough")
    assert agent.state == AgentState.CLOSED


async def cancel(agent: Agent, scope: trio.CancelScope) -> None:
    scope.cancel()


async def kill_and_cancel(agent: Agent, scope: trio.CancelScope) -> None:
    agent.kill_nowait()
    scope.cancel()
    await agent.kill()


async def interrupt(
    env: Env, stop: Callable[[Agent, trio.CancelScope], Any], at: float = 1.0
) -> tuple[Agent, AgentResult | None, bool]:
    """Run an agent and stop it; returns it, its result, and whether it was cancelled from outside."""
    agent = agent_of(env)
    found: list[AgentResult] = []
    scope = trio.CancelScope()

    async def run() -> None:
        with scope:
            found.append(await agent.run("Hello"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.sleep(at)
        agent.send("One more thing.")
        await stop(agent, scope)
    return agent, found[0] if found else None, scope.cancelled_caught


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("stop", [kill, cancel, kill_and_cancel])
async def test_B6_whatever_had_come_is_kept_and_replays(
    moment: str, stop: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with peer(*MOMENTS[moment]) as (env, found):
        agent, result, cancelled = await interrupt(env, stop)
        assert found.wire.open == 0
        assert_linked(agent.context)
        assert (result is None) == cancelled
        assert cancelled == (stop is not kill)
        if result is not None:
            assert result.stopped is Stopped.KILLED
            assert result.outcome == "cancelled"
        assert agent.context[-1]["content"][0]["text"].endswith("One more thing.")
        assert agent.pending == ()
        kept = str(agent.context)
        for expected, where in [
            ("Half a", ("text", "the second answer")),
            ("quickly done", ("tools", "second")),
        ]:
            if any(part in moment for part in where):
                assert expected in kept
        # The context goes on with a new agent, and nothing in it needs a repair.
        before, asked = list(agent.context), len(found.bodies)
        successor = Agent(env=env, model=MODEL, context=agent.context)
        with trio.move_on_after(1):
            await successor.run()
        assert found.bodies[asked]["messages"] == before


async def test_killed_tools_get_a_result_and_those_that_had_ended_keep_theirs(
    autojump_clock: MockClock,
) -> None:
    async with peer(calling(QUICK, HANGS)) as (env, _):
        agent, result, _ = await interrupt(env, kill)
    assert result is not None
    assert done(result.terminal).done_reason == "tool_calls"
    assert [(call_id, text.partition(":")[0], error) for call_id, text, error in results(agent)] == [
        ("quick", "quickly done", False),
        ("hangs", "cancelled", True),
    ]


async def test_the_reason_of_a_kill_is_in_the_terminal_event(autojump_clock: MockClock) -> None:
    async with peer([say("Half a"), HANG]) as (env, _):
        _, result, _ = await interrupt(env, kill)
    assert result is not None
    terminal = failed(result.terminal)
    assert (terminal.cancelled, terminal.kind) == (True, ErrorKind.CANCELLED)
    assert "enough" in terminal.error
    assert result.text == "Half a"


async def test_a_killed_agent_in_the_queue_ends_without_a_request(autojump_clock: MockClock) -> None:
    async with peer([HANG], max_active=1) as (env, found):
        first = agent_of(env)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.run, "Hello")
            await trio.sleep(1)
            agent, result, _ = await interrupt(env, kill)
            assert env.queued == 0
            await first.kill()
    assert result is not None
    assert (result.stopped, result.text, len(found.bodies)) == (Stopped.KILLED, "", 1)
    assert shape(agent) == [2]


async def test_kill_from_a_callback_and_from_a_tool() -> None:
    async def suicidal() -> None:
        agent.kill_nowait()
        await trio.lowlevel.checkpoint()

    async with peer([say("Half"), say(" a"), finish()], calling(call("suicidal"))) as (env, _):
        agent = agent_of(env)
        result = await agent.run("Hello", {"on_text_delta": lambda _: agent.kill_nowait("heard enough")})
        assert (result.stopped, result.text) == (Stopped.KILLED, "Half")
        agent = Agent(env=env, model=MODEL, tools=[suicidal])
        result = await agent.run("Hello")
    assert result.stopped is Stopped.KILLED
    assert results(agent)[0][1].startswith("cancelled")
    assert_linked(agent.context)


async def test_awaiting_kill_inside_a_tool_is_no_deadlock(autojump_clock: MockClock) -> None:
    async def suicidal() -> None:
        await agent.kill()

    async with peer(calling(call("suicidal"))) as (env, _):
        agent = Agent(env=env, model=MODEL, tools=[suicidal])
        result = await agent.run("Hello")
    assert result.stopped is Stopped.KILLED


async def test_a_kill_that_comes_with_the_last_word_changes_nothing() -> None:
    async with peer(answer("All.")) as (env, _):
        agent = agent_of(env)
        result = await agent.run("Hello", {"on_done": lambda _: agent.kill_nowait()})
    assert result.ok
    assert agent.state == AgentState.CLOSED


async def test_a_kill_that_comes_with_the_calls_prevents_them() -> None:
    async with peer(calling(QUICK)) as (env, _):
        agent = agent_of(env)
        result = await agent.run("Hello", {"on_done": lambda _: agent.kill_nowait()})
    assert (result.stopped, result.rounds) == (Stopped.KILLED, 1)
    assert results(agent)[0][1].startswith("cancelled")
    assert_linked(agent.context)


async def test_a_killed_request_that_had_failed_before_is_a_failure() -> None:
    async with peer([say("Half"), CUT]) as (env, _):
        agent = agent_of(env)
        result = await agent.run("Hello", {"on_error": lambda _: agent.kill_nowait()})
    assert (result.stopped, result.outcome) == (None, "network")


@pytest.mark.parametrize(
    "steps",
    [
        [CUT],
        [say("Half"), CUT],
        [half_call("quick"), CUT],
        [QUICK, CUT],
        [QUICK, half_call("quick", index=1), CUT],
        [say("Half")],  # a polite close without an end signal
        [QUICK, HANG],
        [finish()],  # nothing at all
    ],
)
async def test_a_failed_answer_leaves_pairs(steps: list[Step], autojump_clock: MockClock) -> None:
    async with peer(calling(call("quick", call_id="first")), steps) as (env, _):
        agent = agent_of(env, stuck_timeout="5s")
        result = await agent.run("Hello")
    failed(result.terminal)
    assert result.rounds == 2
    assert_linked(agent.context)


async def test_a_cancelled_agent_may_run_again(autojump_clock: MockClock) -> None:
    async with peer([say("Half a"), HANG], answer("All.")) as (env, _):
        agent, result, cancelled = await interrupt(env, cancel)
        assert (result, cancelled, agent.state) == (None, True, AgentState.IDLE)
        assert (await agent.run("Go on.")).ok
    assert shape(agent) == [2, 3, 2, 3]


async def test_a_deadline_around_a_run_is_the_callers(autojump_clock: MockClock) -> None:
    async with peer([say("Half a"), Pause(30), finish()]) as (env, found):
        agent = agent_of(env)
        start = trio.current_time()
        with trio.move_on_after(10) as scope:
            await agent.run("Hello")
        assert scope.cancelled_caught
        assert trio.current_time() - start == 10
        assert_peer_idle(env, found)


def assert_peer_idle(env: Env, found: Peer) -> None:
    assert (len(env.active_io), env.queued, found.wire.open) == (0, 0, 0)
