"""The loop: asking, acting, asking again, and what is told to the model and to the caller."""

from __future__ import annotations

from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from aiio.agents import Agent, AgentState, Stopped
from aiio.context.events import ErrorKind
from aiio.context.types import Message, assistant_message, system_message, text_content, user_message
from aiio.env.errors import ProviderError
from tests.io.scripted import HANG, Fail, Head, Pause, finish, frames, say

from .peer import MODEL, answer, call, calling, done, failed, half_call, peer, results, shape
from .strict import assert_linked


def weather(city: str) -> str:
    """Return the weather.

    Args:
      city: where.
    """
    return f"Rain in {city}."


async def slow(seconds: float = 1.0) -> str:
    await trio.sleep(seconds)
    return f"slept {seconds:g}"


async def test_a_run_without_calls_is_one_request() -> None:
    async with peer(answer("Tit, wren, owl.")) as (env, found):
        agent = Agent(env=env, model=MODEL, system="Be brief.")
        result = await agent.run("Name three birds.")
    assert result.ok
    assert done(result.terminal).done_reason == "stop"
    assert (result.text, result.rounds, result.stopped, result.outcome) == (
        "Tit, wren, owl.",
        1,
        None,
        "done",
    )
    assert result.usage is not None
    assert (result.usage["input_tokens"], result.usage["output_tokens"]) == (10, 5)
    assert found.bodies[0]["messages"] == [system_message("Be brief."), user_message("Name three birds.")]
    assert agent.context[2]["content"] == [text_content("Tit, wren, owl.")]
    assert agent.state == AgentState.IDLE
    assert_linked(agent.context)


async def test_a_call_is_made_and_its_result_is_sent() -> None:
    async with peer(calling(call("weather", '{"city": "Rostock"}')), answer("Take a coat.")) as (env, found):
        agent = Agent(env=env, model=MODEL, tools=[weather])
        result = await agent.run("Coat?")
    assert (result.text, result.rounds) == ("Take a coat.", 2)
    assert result.usage is not None
    assert result.usage["input_tokens"] == 30
    assert shape(agent) == [2, 3, 4, 3]
    assert results(agent) == [("c1", "Rain in Rostock.", False)]
    assert found.bodies[1]["messages"] == agent.context[:3]
    assert found.bodies[0]["tools"] == [
        {
            "name": "weather",
            "description": "Return the weather.",
            "input_schema": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "where."}},
                "required": ["city"],
            },
        }
    ]


async def test_calls_run_side_by_side_and_their_results_join_in_call_order(autojump_clock: MockClock) -> None:
    calls = [
        call("slow", f'{{"seconds": {seconds}}}', call_id=f"c{seconds}", index=index)
        for index, seconds in enumerate((4, 3, 2, 1, 5))
    ]
    async with peer(calling(*calls), answer("ok")) as (env, _):
        agent = Agent(env=env, model=MODEL, tools=[slow], tool_concurrency=4)
        start = trio.current_time()
        await agent.run("Sleep.")
    assert trio.current_time() - start == 6  # the fifth begins when the shortest has ended, after 1 s
    assert [call_id for call_id, _, _ in results(agent)] == ["c4", "c3", "c2", "c1", "c5"]
    assert_linked(agent.context)


@pytest.mark.parametrize("repeated", ["", "c1"])
async def test_ids_that_are_missing_or_taken_are_replaced(repeated: str) -> None:
    twice = [call("weather", '{"city": "Ulm"}', call_id=repeated, index=index) for index in (0, 1)]
    async with peer(calling(*twice), calling(*twice), answer("ok")) as (env, found):
        agent = Agent(env=env, model=MODEL, tools=[weather])
        await agent.run("Weather?")
    assert len({call_id for call_id, _, _ in results(agent)}) == 4
    assert_linked(agent.context)
    for body in found.bodies:
        assert_linked(body["messages"])


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([call("wheather")], "there is no tool 'wheather'; tools you may call: weather"),
        ([call("weather", "[1]")], "must be a JSON object"),
        (
            [call("weather", '{"town": "Ulm"}')],
            "missing a required argument: 'city'; call it again to match {",
        ),
        ([call("weather", '{"city": "Ulm", "unit": 1}')], "unexpected keyword argument 'unit'"),
    ],
)
async def test_what_is_wrong_with_a_call_is_told_to_the_model(steps: list[Any], said: str) -> None:
    async with peer(calling(*steps), answer("Sorry.")) as (env, found):
        agent = Agent(env=env, model=MODEL, tools=[weather])
        result = await agent.run("Weather?")
    assert result.ok
    [(_, text, error)] = results(agent)
    assert said in text
    assert error
    assert found.bodies[1]["messages"][-1]["content"][0]["text"] == text


@pytest.mark.parametrize(
    ("finish_word", "said"), [("tool_use", "no complete JSON"), ("length", "cut off at the")]
)
async def test_a_call_with_half_its_arguments_is_not_made_and_the_model_hears_why(
    finish_word: str, said: str
) -> None:
    steps = [call("weather", '{"city": "Ro'), finish(finish_word, finish=finish_word)]
    async with peer(steps, answer("Sorry.")) as (env, found):
        agent = Agent(env=env, model=MODEL, tools=[weather])
        await agent.run("Weather?")
    [(_, text, error)] = results(agent)
    assert said in text
    assert error
    assert agent.context[1]["content"][0]["partial"] is True
    # Dialects leave such a call out, and its result with it: the model is told in words.
    note = found.bodies[1]["messages"][-1]
    assert note == user_message(f"Tool calls that were not made:\n{text}")
    assert_linked(agent.context)


async def test_a_call_without_a_name_is_told_in_words_too() -> None:
    async with peer(
        calling(call(""), call("weather", '{"city": "Ulm"}', call_id="c2", index=1)), answer("ok")
    ) as (
        env,
        _,
    ):
        agent = Agent(env=env, model=MODEL, tools=[weather])
        await agent.run("Weather?")
    assert shape(agent) == [2, 3, 4, 4, 2, 3]
    assert "there is no tool ''" in agent.context[4]["content"][0]["text"]


async def test_only_the_calls_of_a_whole_answer_are_made() -> None:
    made: list[str] = []

    def act() -> str:
        made.append("act")
        return "acted"

    async with peer([call("act"), Fail(ProviderError(ErrorKind.NETWORK, "reset"))]) as (env, _):
        agent = Agent(env=env, model=MODEL, tools=[act])
        result = await agent.run("Act.")
    assert failed(result.terminal).kind is ErrorKind.NETWORK
    assert (made, result.stopped, result.outcome, result.ok) == ([], None, "network", False)
    assert results(agent) == [("c1", "not made: the answer with this call ended early", True)]
    assert_linked(agent.context)


async def test_a_failed_request_keeps_its_partial_message_and_is_not_retried() -> None:
    async with peer([say("Half a"), Fail(ProviderError(ErrorKind.NETWORK, "reset"))], answer("All.")) as (
        env,
        found,
    ):
        agent = Agent(env=env, model=MODEL)
        result = await agent.run("Tell me.")
        assert (result.text, len(found.bodies)) == ("Half a", 1)
        assert agent.context[1]["error"] == "reset"
        again = await agent.run()
    assert again.ok
    assert found.bodies[1]["messages"] == agent.context[:2]


async def test_a_request_that_fails_before_anything_came_leaves_no_message() -> None:
    async with peer([Fail(ProviderError(ErrorKind.NETWORK, "reset"))]) as (env, _):
        agent = Agent(env=env, model=MODEL)
        result = await agent.run("Tell me.")
    assert (shape(agent), result.text) == ([2], "")


async def test_too_many_rounds_are_a_result() -> None:
    async with peer(calling(call("weather", '{"city": "Ulm"}'))) as (env, found):
        agent = Agent(env=env, model=MODEL, tools=[weather], max_rounds=3)
        result = await agent.run("Weather?")
    assert (result.stopped, result.rounds, len(found.bodies)) == (Stopped.MAX_ROUNDS, 3, 3)
    assert result.outcome == "max_rounds"
    assert not result.ok
    assert results(agent)[2][1:] == ("not made: the agent had used up its rounds", True)
    assert_linked(agent.context)


# -- saying more ----------------------------------------------------------------------------------


async def test_what_is_sent_meanwhile_joins_after_the_results(autojump_clock: MockClock) -> None:
    async with peer(calling(call("slow")), answer("ok")) as (env, found):
        agent = Agent(env=env, model=MODEL, tools=[slow])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.run, "Sleep.")
            await wait_all_tasks_blocked()
            assert agent.state == AgentState.ACTING
            agent.send("And then?")
            agent.send([text_content("Well?")])
            assert list(agent.pending) == ["And then?", [text_content("Well?")]]
            assert shape(agent) == [2, 3]
    assert shape(agent) == [2, 3, 4, 2, 3]
    assert list(agent.pending) == []
    assert found.bodies[1]["messages"][3] == user_message("And then?\n\nWell?")


async def test_what_is_sent_during_the_final_turn_causes_one_more_request() -> None:
    async with peer(answer("First."), answer("Second.")) as (env, found):
        agent = Agent(env=env, model=MODEL)
        result = await agent.run(
            "One?", {"on_text_delta": lambda event: agent.send("Two?") if event.text == "First." else None}
        )
    assert (result.text, result.rounds, len(found.bodies)) == ("Second.", 2, 2)
    assert shape(agent) == [2, 3, 2, 3]


async def test_what_is_sent_in_the_last_round_is_not_lost() -> None:
    async with peer(answer("First.")) as (env, _):
        agent = Agent(env=env, model=MODEL, max_rounds=1)
        result = await agent.run("One?", {"on_text_delta": lambda _: agent.send("Two?")})
    assert result.stopped is Stopped.MAX_ROUNDS
    assert agent.context[2] == user_message("Two?")
    assert agent.pending == ()


async def test_an_idle_agent_takes_what_is_sent_at_once() -> None:
    async with peer(answer("ok")) as (env, found):
        agent = Agent(env=env, model=MODEL)
        agent.send("One.")
        assert agent.context == [user_message("One.")]
        agent.send("Two.")
        await agent.run()
    assert found.bodies[0]["messages"] == [user_message("One.\n\nTwo.")]


# -- the context ----------------------------------------------------------------------------------


async def test_the_callers_list_is_the_context() -> None:
    context: list[Message] = [
        system_message("Be brief."),
        user_message("Hello"),
        assistant_message([text_content("Hi")]),
    ]
    async with peer(answer("ok")) as (env, found):
        agent = Agent(env=env, model=MODEL, context=context, system="Be brief.")
        assert agent.context is context
        await agent.run([text_content("How"), text_content("are you?")])
    assert [message["type"] for message in context] == [1, 2, 3, 2, 3]
    assert found.bodies[0]["messages"] == context[:4]


async def test_the_system_text_goes_to_the_head() -> None:
    context: list[Message] = [{"type": "note"}, system_message("Old."), user_message("Hello")]
    async with peer(answer("ok")) as (env, _):
        Agent(env=env, model=MODEL, context=context, system="New.")
    assert context[0] == system_message("New.")
    assert len(context) == 4


async def test_a_broken_context_is_repaired_before_it_is_sent() -> None:
    context: list[Message] = [
        user_message("Hello"),
        assistant_message([{"type": "tool_call", "call_id": "x", "name": "f", "arguments": {}}]),
    ]
    async with peer(answer("ok")) as (env, found):
        agent = Agent(env=env, model=MODEL, context=context)
        with structlog.testing.capture_logs() as lines:
            await agent.run("Go on.")
    assert_linked(found.bodies[0]["messages"])
    assert_linked(context)
    assert [line["repairs"] for line in lines if line["event"] == "agent.linkage_repaired"] == [1]


# -- callbacks, events, logs ----------------------------------------------------------------------


async def test_callbacks_of_a_run_are_laid_over_those_of_the_agent() -> None:
    heard: list[str] = []
    async with peer(calling(call("weather", '{"city": "Ulm"}')), answer("ok")) as (env, _):
        agent = Agent(
            env=env,
            model=MODEL,
            tools=[weather],
            callbacks={
                "on_text_delta": lambda _: heard.append("own"),
                "on_done": lambda event: heard.append(event.type),
            },
        )
        await agent.run("Weather?", {"on_text_delta": lambda event: heard.append(event.text)})
    assert heard == ["done", "ok", "done"]


async def test_the_books_are_kept_before_done_is_announced() -> None:
    async with peer(answer("ok")) as (env, _):
        agent = Agent(env=env, model=MODEL)
        seen: list[list[int]] = []
        await agent.run("Hello", {"on_done": lambda _: seen.append(shape(agent))})
    assert seen == [[2, 3]]


@pytest.mark.parametrize("callback", ["on_text_delta", "on_tool_call_end", "on_done"])
async def test_what_a_callback_raises_comes_out_and_the_context_stays_valid(callback: str) -> None:
    def crash(_: Any) -> None:
        raise LookupError("a bug")

    steps = [say("Well."), call("weather", '{"city": "Ulm"}', index=1), finish("tool_calls")]
    async with peer(steps, answer("ok")) as (env, _):
        agent = Agent(env=env, model=MODEL, tools=[weather])
        with pytest.raises(LookupError, match="a bug"):
            await agent.run("Weather?", {callback: crash})
        assert agent.state == AgentState.IDLE
        assert shape(agent)[:2] == [2, 3]
        assert_linked(agent.context)
        assert (await agent.run("Again.")).ok


async def test_a_run_is_told_to_the_env_and_to_the_log() -> None:
    events: list[tuple[str, Any]] = []
    async with peer(calling(call("weather", '{"city": "Ulm"}')), answer("secret words")) as (env, _):
        env.on_event(lambda event: events.append((event.name, event.data)))
        agent = Agent(env=env, model=MODEL, tools=[weather], name="bob")
        with structlog.testing.capture_logs() as lines:
            result = await agent.run("secret question")
    names = [name for name, _ in events]
    asking, acting = ["io_start", "io_done"], ["tool_start", "tool_done"]
    assert names == ["agent_start", *asking, *acting, *asking, "agent_done"]
    done = events[names.index("tool_done")][1]
    assert (done["agent"], done["call"]["name"], done["outcome"]) == (agent, "weather", "done")
    assert done["result"] == agent.context[2]
    assert events[-1][1] == {"agent": agent, "result": result, "outcome": "done"}
    ours = [line for line in lines if line["event"] in ("tool.settled", "agent.settled")]
    assert [line["agent"] for line in ours] == ["bob", "bob"]
    assert (ours[0]["tool"], ours[0]["outcome"]) == ("weather", "done")
    assert (ours[1]["outcome"], ours[1]["rounds"], ours[1]["tool_calls"]) == ("done", 2, 1)
    assert (ours[1]["model"], ours[1]["output_tokens"]) == (MODEL, 12)
    assert "secret" not in str(ours)


async def test_the_name_is_bound_for_what_others_log_during_a_run() -> None:
    seen: list[Any] = []
    async with peer(answer("ok")) as (env, _):
        agent = Agent(env=env, model=MODEL, name="bob")
        await agent.run("Hello", {"on_done": lambda _: seen.append(structlog.contextvars.get_contextvars())})
        assert Agent(env=env, model=MODEL).name.startswith("agent-")
    assert seen == [{"agent": "bob"}]
    assert structlog.contextvars.get_contextvars() == {}


# -- states and misuse ----------------------------------------------------------------------------


async def test_states(autojump_clock: MockClock) -> None:
    async with peer(
        [Head(after=1), say("Hm."), Pause(1), *calling(call("slow", index=1))], answer("ok"), max_active=1
    ) as (env, _):
        agent, other = (Agent(env=env, model=MODEL, tools=[slow], name=name) for name in ("bob", "eve"))
        assert repr(agent) == "<aiio.Agent bob peer/m idle>"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.run, "Hello")
            await wait_all_tasks_blocked()
            assert repr(agent).endswith(" asking>")
            nursery.start_soon(other.run, "Hello")
            await wait_all_tasks_blocked()
            assert repr(other).endswith(" queued>")
            await trio.sleep(2.5)
            assert repr(agent).endswith(" acting>")
    assert repr(agent).endswith(" idle>")
    await agent.kill()
    assert repr(agent).endswith(" closed>")


async def test_one_run_at_a_time() -> None:
    async with peer([HANG]) as (env, _):
        agent = Agent(env=env, model=MODEL)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.run, "Hello")
            await wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError):
                await agent.run("Hello?")
            assert len(agent.context) == 1
            await agent.kill()
        with pytest.raises(trio.ClosedResourceError):
            await agent.run("Hello?")
        with pytest.raises(trio.ClosedResourceError):
            agent.send("Hello?")


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"env": None}, TypeError, "needs an env"),
        ({"model": "peer"}, ValueError, "peer"),
        ({"system": 1}, TypeError, "system is text"),
        ({"max_rounds": 0}, ValueError, "max_rounds must be an int >= 1, not 0"),
        ({"tool_concurrency": True}, ValueError, "tool_concurrency"),
        ({"tool_timeout": "soon"}, ValueError, "tool_timeout: not a duration: 'soon'"),
        ({"tool_timeout": None}, TypeError, "tool_timeout"),
        ({"timeout": -1}, ValueError, "timeout"),
        ({"context": [1]}, TypeError, r"context\[0\]"),
        ({"callbacks": {"on_smell": print}}, TypeError, "on_smell"),
        ({"tools": ["wheather"]}, ValueError, "unknown tool 'wheather'; the Env has: known"),
        ({"tools": "known"}, TypeError, "tools are a list"),
        ({"tools": [weather, weather]}, ValueError, "weather"),
        ({"tools": [lambda x: x]}, ValueError, "<lambda>"),
    ],
)
async def test_misuse_is_an_exception_at_once(
    options: dict[str, Any], error: type[Exception], said: str
) -> None:
    async with peer(answer("ok")) as (env, _):
        env.register_tool(weather, name="known")
        with pytest.raises(error, match=said):
            Agent(**{"env": env, "model": MODEL, **options})


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", ValueError),
        ([], ValueError),
        ([""], TypeError),
        (3, TypeError),
        (None, ValueError),
        (b"x", TypeError),
    ],
)
async def test_nothing_to_say_is_misuse(text: Any, error: type[Exception]) -> None:
    async with peer(answer("ok")) as (env, found):
        agent = Agent(env=env, model=MODEL)
        with pytest.raises(error):
            await agent.run(text)
        if text is not None:
            with pytest.raises(error):
                agent.send(text)
        assert (agent.context, agent.pending, found.bodies) == ([], (), [])
        assert agent.state == AgentState.IDLE


async def test_run_and_kill_are_checkpoints(autojump_clock: MockClock) -> None:
    async with peer(answer("ok")) as (env, _):
        agent = Agent(env=env, model=MODEL)
        with assert_checkpoints():
            await agent.run("Hello")
        with assert_checkpoints():
            await agent.kill()
        with assert_checkpoints():
            await agent.kill()


async def test_the_limits_of_a_request_are_the_agents(autojump_clock: MockClock) -> None:
    async with peer([say("Hm"), HANG]) as (env, _):
        agent = Agent(env=env, model=MODEL, stuck_timeout="20s", timeout="5m", settings={"note": "x"})
        start = trio.current_time()
        result = await agent.run("Hello")
    assert failed(result.terminal).limit == "stuck"
    assert (trio.current_time() - start, result.elapsed_ms, result.text) == (20, 20_000, "Hm")


async def test_a_partial_thought_and_a_half_call_are_left_in_pairs() -> None:
    thought = frames([{"type": "thinking_delta", "content_index": 0, "text": "Hmm"}])
    async with peer(
        [thought, half_call("weather", index=1), Fail(ProviderError(ErrorKind.NETWORK, "cut"))]
    ) as (env, _):
        agent = Agent(env=env, model=MODEL, tools=[weather])
        await agent.run("Weather?")
    assert agent.context[1]["content"][1]["partial"] is True
    assert results(agent)[0][0] == "half"
    assert_linked(agent.context)


async def test_the_calls_of_a_refused_answer_are_not_made() -> None:
    made: list[str] = []

    def forecast(city: str) -> str:
        made.append(city)
        return "sunny"

    steps = [call("forecast", '{"city": "Rome"}'), finish("refusal", finish="refusal")]
    async with peer(steps) as (env, found):
        agent = Agent(env=env, model=MODEL, tools=[forecast])
        result = await agent.run("Weather?")
    assert made == []
    assert (result.rounds, len(found.bodies)) == (1, 1)
    assert agent.context[-1]["error"] is True
    assert "refused" in agent.context[-1]["content"][0]["text"]
