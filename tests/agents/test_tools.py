"""What tools may do: fail, hang, return anything, come and go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock

from aiio.agents import Agent
from aiio.context.types import text_content
from aiio.env.env import Env
from aiio.env.groups import first_leaf
from aiio.env.tool_calls import NO_OUTPUT, THREADS

from .peer import MODEL, Peer, answer, call, calling, peer, results
from .strict import assert_linked


async def act_with(tool: Callable[..., Any], **options: Any) -> tuple[Agent, Peer]:
    """Run an agent whose model calls *tool* (registered as `tool`) once."""
    async with peer(calling(call("tool")), answer("ok")) as (env, found):
        env.register_tool(tool, {"description": "", "input_schema": {"type": "object"}}, name="tool")
        agent = Agent(env=env, model=MODEL, **options)
        assert (await agent.run("Act.")).ok
        assert_linked(agent.context)
        return agent, found


class Callable_:
    """A callable object."""

    async def __call__(self) -> str:
        await trio.lowlevel.checkpoint()
        return "called"


async def coroutine(value: str) -> str:
    await trio.lowlevel.checkpoint()
    return value


def hidden(value: str) -> Coroutine[Any, Any, str]:
    return coroutine(value)


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ("plain", "plain"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (4.5, "4.5"),
        (True, "true"),
        ([], "[]"),
        ([{"type": "thing"}], '[{"type":"thing"}]'),
        (None, NO_OUTPUT),
        ("", NO_OUTPUT),
        ([text_content("")], NO_OUTPUT),
        (object, "<class 'object'>"),
        ("half \ud83d", "half \ud83d"),
    ],
)
async def test_any_value_becomes_a_result_that_says_something(returned: Any, text: str) -> None:
    agent, _ = await act_with(lambda: returned)
    assert results(agent) == [("c1", text, False)]


async def test_blocks_are_the_content_as_they_are() -> None:
    blocks = [text_content("A picture:"), {"type": "image", "content": "aGk=", "mimetype": "image/png"}]
    agent, _ = await act_with(lambda: blocks)
    assert agent.context[2]["content"] == blocks


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        (Callable_(), "called"),
        (partial(coroutine, "partial"), "partial"),
        (partial(hidden, "hidden"), "hidden"),
        (partial(str, "builtin"), "builtin"),
    ],
)
async def test_async_tools_are_awaited_however_they_are_dressed(tool: Callable[..., Any], text: str) -> None:
    agent, _ = await act_with(tool)
    assert results(agent) == [("c1", text, False)]


async def test_sync_tools_run_in_a_thread() -> None:
    agent, _ = await act_with(lambda: str(threading.current_thread() is threading.main_thread()))
    assert results(agent) == [("c1", "False", False)]


async def test_a_tool_without_a_signature_is_called_all_the_same() -> None:
    async with peer(calling(call("tool", '{"a": 1}')), answer("ok")) as (env, _):
        env.register_tool(dict, {"input_schema": {"type": "object"}}, name="tool")
        agent = Agent(env=env, model=MODEL)
        await agent.run("Act.")
    assert results(agent) == [("c1", '{"a":1}', False)]


async def fails() -> None:
    raise ConnectionError("no route; key sk-verysecretkey-123456")


async def fails_silently() -> None:
    raise AssertionError


async def fails_in_a_nursery() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fails_silently)


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        (fails_silently, "AssertionError"),
        (fails_in_a_nursery, "AssertionError"),
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
async def test_what_a_tool_raises_is_told_to_the_model(tool: Callable[..., Any], text: str) -> None:
    agent, _ = await act_with(tool)
    assert results(agent) == [("c1", f"the tool 'tool' failed: {text}", True)]


async def test_a_credential_in_an_exception_is_masked() -> None:
    async with peer(calling(call("fails")), answer("ok")) as (env, _):
        env.register_endpoint("other", url="http://127.0.0.1/v1", auth="sk-verysecretkey-123456")
        agent = Agent(env=env, model=MODEL, tools=[fails])
        await agent.run("Act.")
    [(_, text, _)] = results(agent)
    assert "no route" in text
    assert "verysecret" not in text


async def test_a_tool_that_takes_too_long_is_stopped(autojump_clock: MockClock) -> None:
    ended: list[float] = []

    async def hang() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(trio.current_time())

    start = trio.current_time()
    with structlog.testing.capture_logs() as lines:
        agent, _ = await act_with(hang, tool_timeout="90s")
    assert ended == [start + 90]
    [(_, text, error)] = results(agent)
    assert text.startswith("the tool 'tool' was stopped after 90 s without a result")
    assert error
    assert [(line["outcome"], line["elapsed_ms"]) for line in lines if line["event"] == "tool.settled"] == [
        ("timeout", 90_000)
    ]


async def test_without_a_limit_a_tool_may_take_its_time(autojump_clock: MockClock) -> None:
    async def day() -> str:
        await trio.sleep(86_400)
        return "a day later"

    agent, _ = await act_with(day, tool_timeout="never")
    assert results(agent) == [("c1", "a day later", False)]


async def test_an_abandoned_thread_keeps_nobody_waiting(mock_clock: MockClock) -> None:
    """Killing does not wait for a sync tool, and what it returns later is dropped."""
    release, begun = threading.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    def hang() -> str:
        token.run_sync_soon(begun.set)
        release.wait(60)
        return "too late"

    async with peer(calling(call("hang")), answer("ok")) as (env, _):
        agent = Agent(env=env, model=MODEL, tools=[hang])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.run, "Act.")
            await begun.wait()
            await agent.kill()
            assert not release.is_set()
            release.set()
    assert results(agent)[0][1].startswith("cancelled")
    assert_linked(agent.context)


async def test_sync_tools_of_all_agents_share_a_bounded_number_of_threads(mock_clock: MockClock) -> None:
    most, now, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        threading.Event().wait(0.002)
        with lock:
            now -= 1

    many = [call("work", call_id=f"c{index}", index=index) for index in range(60)]
    async with peer(calling(*many), answer("ok")) as (env, _):
        agent = Agent(env=env, model=MODEL, tools=[work], tool_concurrency=60)
        await agent.run("Work.")
    assert len(results(agent)) == 60
    assert 1 < most <= THREADS


# -- the catalog ----------------------------------------------------------------------------------


def here() -> str:
    return "here"


def there() -> str:
    return "there"


def names(found: Peer) -> list[str]:
    return [tool["name"] for tool in found.bodies[-1]["tools"]]


@pytest.mark.parametrize(
    ("tools", "offered"),
    [
        (None, ["here", "there"]),
        (["*"], ["here", "there"]),
        (["there"], ["there"]),
        ([], []),
        (["there", here], ["there", "here"]),
        (["*", here], ["there", "here"]),
        ((), []),
    ],
)
async def test_the_selection_is_what_is_published(tools: Any, offered: list[str]) -> None:
    async with peer(answer("ok")) as (env, found):
        env.register_tool(here)
        env.register_tool(there)
        await Agent(env=env, model=MODEL, tools=tools).run("Hello")
    assert names(found) == offered


async def test_two_tools_of_one_name_are_refused() -> None:
    async with peer(answer("ok")) as (env, _):
        env.register_tool(here)
        with pytest.raises(ValueError, match="two tools named 'here'"):
            Agent(env=env, model=MODEL, tools=["here", here])


@pytest.mark.parametrize("tools", [["there"], []])
async def test_a_tool_outside_the_selection_can_t_be_called(tools: list[str]) -> None:
    async with peer(calling(call("here")), answer("ok")) as (env, _):
        env.register_tool(here)
        env.register_tool(there)
        agent = Agent(env=env, model=MODEL, tools=tools)
        await agent.run("Where?")
    assert results(agent)[0][1].startswith("there is no tool 'here'; tools you may call: ")
    assert results(agent)[0][2]


async def test_a_secret_tool_can_t_be_called() -> None:
    async with peer(calling(call("here")), answer("ok")) as (env, _):
        env.register_tool(here, secret=True)
        agent = Agent(env=env, model=MODEL)
        await agent.run("Where?")
    assert results(agent)[0][1] == "there is no tool 'here'; tools you may call: none"


async def test_a_tool_that_became_unavailable_is_refused() -> None:
    open_now = True

    def available(_: Env) -> bool:
        return open_now

    def close(_: Any) -> None:
        nonlocal open_now
        open_now = False

    async with peer(calling(call("here")), answer("ok")) as (env, found):
        env.register_tool(here, available=available)
        agent = Agent(env=env, model=MODEL)
        await agent.run("Where?", {"on_tool_call_end": close})
    assert found.bodies[0]["tools"][0]["name"] == "here"
    assert found.bodies[1]["tools"] == []
    assert results(agent) == [("c1", "the tool 'here' is not available now; go on without it", True)]


async def test_a_tool_that_is_available_runs() -> None:
    async with peer(calling(call("here")), answer("ok")) as (env, _):
        env.register_tool(here, available=lambda _: True)
        agent = Agent(env=env, model=MODEL)
        await agent.run("Where?")
    assert results(agent) == [("c1", "here", False)]


# -- groups ---------------------------------------------------------------------------------------


def test_the_leaf_most_worth_raising_is_found() -> None:
    bug, stop = ValueError(), KeyboardInterrupt()
    assert first_leaf(bug) is bug
    assert first_leaf(BaseExceptionGroup("", [ExceptionGroup("", [bug]), stop])) is stop
    assert first_leaf(ExceptionGroup("", [bug, TypeError()])) is bug


async def test_ctrl_c_inside_a_tool_comes_out_as_itself() -> None:
    async def interrupted() -> None:
        raise KeyboardInterrupt

    async with peer(calling(call("interrupted")), answer("ok")) as (env, _):
        agent = Agent(env=env, model=MODEL, tools=[interrupted])
        with pytest.raises(KeyboardInterrupt):
            await agent.run("Act.")
    assert_linked(agent.context)


async def test_ctrl_c_inside_a_nursery_of_a_tool_comes_out_as_itself() -> None:
    async def interrupted() -> None:
        raise KeyboardInterrupt

    async def nested() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(interrupted)

    async with peer(calling(call("nested")), answer("ok")) as (env, _):
        agent = Agent(env=env, model=MODEL, tools=[nested])
        with pytest.raises(KeyboardInterrupt):
            await agent.run("Act.")


async def test_a_tool_that_fails_while_it_is_cancelled_does_not_hide_the_cancellation(
    autojump_clock: MockClock,
) -> None:
    async def fails_at_the_end() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise LookupError("clean-up failed")

    async def tool() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails_at_the_end)
            nursery.start_soon(trio.sleep_forever)

    async with peer(calling(call("tool"), call("tool", call_id="c2", index=1)), answer("ok")) as (env, _):
        agent = Agent(env=env, model=MODEL, tools=[tool])
        with trio.move_on_after(5) as scope:
            await agent.run("Act.")
        assert scope.cancelled_caught
    assert [text.partition(":")[0] for _, text, _ in results(agent)] == ["cancelled", "cancelled"]
    assert_linked(agent.context)
