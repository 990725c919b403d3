"""Sessions: what waits becomes a turn, what a turn adds is kept when it succeeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from aiio.runs.code_steps import run_code
from aiio.runs.context import RunContext
from aiio.runs.errors import RunConfigError, RunError, RunErrorKind
from aiio.runs.harness import Harness
from aiio.runs.items import create_message, item_text
from aiio.runs.layers import ContextLayer
from aiio.runs.model_step import call_model
from aiio.runs.sessions import Delivery
from aiio.runs.spawning import spawn
from aiio.runs.stores import MemoryStore
from tests.agents.peer import MODEL, answer, call, calling, peer
from tests.io.scripted import HANG, say


def said(body: dict[str, Any]) -> list[str]:
    return [message["content"][0]["text"] for message in body["messages"] if message["type"] == 2]


def answering(body: dict[str, Any]) -> Any:
    return answer(f"heard {len(body['messages'])}")


class Gate:
    """A step that notes its turns, and ends each when it is let through."""

    def __init__(self, end: Callable[[Any, RunContext], Any] = lambda input, context: input) -> None:
        self.turns: list[tuple[Any, RunContext]] = []
        self.open = trio.Semaphore(0)
        self.end = end

    @property
    def inputs(self) -> list[Any]:
        return [input for input, _ in self.turns]

    async def __call__(self, input: Any, context: RunContext) -> Any:
        self.turns.append((input, context))
        await self.open.acquire()
        return self.end(input, context)


async def test_B15_execute_only_enqueues_and_each_turn_is_a_new_context_with_the_threads_items() -> None:
    async with (
        peer(answering) as (env, found),
        Harness(env=env, model=MODEL, step=call_model("ask")) as harness,
    ):
        first = harness.execute("one", thread_id="t")
        assert found.bodies == []
        response = await harness.get_agent_response("t")
        assert response is not None
        assert (response.output, response.text, response.message_ids) == ("heard 1", "heard 1", (first,))
        assert (response.tokens.input, response.thread_id) == (10, "t")
        assert [item_text(item) for item in response.items] == ["one", "heard 1"]
        harness.execute("two", thread_id="t", message_id="mine")
        again = await harness.get_agent_response("t")
        assert again is not None
        assert again.execution_id != response.execution_id
        assert (again.output, again.message_ids) == ("heard 3", ("mine",))
        assert [item_text(item) for item in again.items] == ["two", "heard 3"]
        texts = [item_text(item) for item in harness.session_history("t")]
        assert texts == ["one", "heard 1", "two", "heard 3"]
        assert again.last_layer_usage.execution_id == again.execution_id
    assert [said(body) for body in found.bodies] == [["one"], ["one", "two"]]


async def test_B15_all_that_waits_is_one_turn_governed_by_the_options_of_the_first_message() -> None:
    layers: list[Any] = []
    gate = Gate(lambda input, context: layers.append([layer.id for layer in context.layers.ordered]))
    async with Harness(step=run_code("turn", gate)) as harness:
        harness.execute("first")
        await wait_all_tasks_blocked()
        layer = ContextLayer(id="own", slot=1)
        harness.execute("second", resource_id="r", state={"n": 1}, layers=[layer])
        harness.execute({"data": 3}, resource_id="other", state={"n": 2})
        harness.execute(create_message("fourth"))
        gate.open.release()
        gate.open.release()
        response = await harness.get_agent_response()
    assert response is not None
    assert len(response.message_ids) == 3
    (alone, _), (batch, context) = gate.turns
    assert alone == "first"  # one message's input is the step's, as it is
    assert [item_text(item) for item in batch] == ["second", '{"data":3}', "fourth"]
    assert (context.resource_id, context.state) == ("r", {"n": 1})
    assert layers == [[], ["own"]]
    assert {turn.thread_id for _, turn in gate.turns} == {harness.thread_id}


async def test_B15_items_are_committed_only_if_the_turn_succeeds_and_a_failed_turn_rejects_waiters() -> None:
    def end(input: Any, context: RunContext) -> Any:
        context.item_log.append(create_message(str(input)))
        if input == "bad":
            raise ValueError("no")
        return input

    gate = Gate(end)
    outcomes: list[Any] = []

    async def wait(harness: Harness) -> None:
        try:
            response = await harness.get_agent_response()
            outcomes.append(None if response is None else response.output)
        except RunError as exc:
            outcomes.append(exc.kind)

    async with Harness(step=run_code("turn", gate)) as harness:
        assert await harness.get_agent_response() is None
        harness.execute("good")
        gate.open.release()
        await wait(harness)
        harness.execute("bad")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, harness)
            nursery.start_soon(wait, harness)
            await wait_all_tasks_blocked()
            gate.open.release()
        await wait(harness)  # who asks later learns of it as well
        assert [item_text(item) for item in harness.session_history()] == ["good"]
        harness.execute("better")
        gate.open.release()
        await wait(harness)
        assert [item_text(item) for item in harness.session_history()] == ["good", "better"]
    failed = RunErrorKind.STEP_FAILED
    assert outcomes == ["good", failed, failed, failed, "better"]


async def test_B15_a_wait_is_over_when_the_queue_is_empty_not_when_the_next_turn_ends() -> None:
    gate = Gate()
    async with Harness(step=run_code("turn", gate)) as harness:
        harness.execute("one")
        await wait_all_tasks_blocked()
        harness.execute("two")
        outputs: list[Any] = []

        async def wait() -> None:
            response = await harness.get_agent_response()
            assert response is not None
            outputs.append(response.output)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            gate.open.release()
            await wait_all_tasks_blocked()
            assert (gate.inputs, outputs) == (["one", "two"], [])
            gate.open.release()
    assert outputs == ["two"]


async def test_B15_interrupt_aborts_the_turn_and_stands_at_the_head_of_the_queue() -> None:
    gate = Gate()
    told: list[str] = []
    async with Harness(step=run_code("turn", gate)) as harness:
        harness.on_event(lambda name, data: told.append(name) if "turn_" in name else None)
        harness.execute("slow")
        await wait_all_tasks_blocked()
        harness.execute("waits")
        harness.execute("now", delivery="interrupt")
        harness.execute("now too", delivery=Delivery.INTERRUPT)
        gate.open.release()
        response = await harness.get_agent_response()
        assert response is not None
    assert gate.turns[0][1].abort_reason == "interrupted by a message"
    assert [item_text(item) for item in gate.inputs[1]] == ["now", "now too", "waits"]
    names = ["turn_started", "turn_aborted", "turn_started", "turn_completed"]
    assert told == [f"aiio:{name}" for name in names]


async def test_B15_a_message_between_rounds_joins_the_log_after_the_calls_of_its_round() -> None:
    async with peer(calling(call("look")), answer("done")) as (env, found):
        asked = trio.Event()
        go = trio.Event()

        async def look() -> str:
            """Look."""
            asked.set()
            await go.wait()
            return "seen"

        store = MemoryStore()
        step = call_model("ask", tools=[look])
        async with Harness(env=env, model=MODEL, step=step, store=store) as harness:
            told: list[Any] = []
            harness.on_event(lambda name, data: told.append(data["items"]) if "inbox" in name else None)
            harness.execute("go")
            await asked.wait()
            harness.execute("also this", delivery=Delivery.BETWEEN_ROUNDS, message_id="second")
            harness.execute("later")
            go.set()
            await trio.testing.wait_all_tasks_blocked()
            response = await harness.get_agent_response()
            assert response is not None
            roles = [message["type"] for message in found.bodies[1]["messages"]]
            assert said(found.bodies[1]) == ["go", "also this"]
            assert roles == [2, 3, 4, 2]
            assert told == [1]
            assert said(found.bodies[2]) == ["go", "also this", "later"]
        # What was heard in between is part of what is recorded.
        execution = next(key.split(":")[1] for key in await store.keys("execution:"))
        again = Harness(env=env, model=MODEL, store=store)
        context = await again.restore(execution)
        assert context is not None
        assert await again.run(step, "go", context=context) == "done"
        assert len(found.bodies) == 3


async def test_B15_between_rounds_without_a_round_is_heard_by_the_next_turn_and_never_by_a_child() -> None:
    async with peer(calling(call("look")), answer("done")) as (env, found):

        def look() -> str:
            """Look."""
            return "seen"

        async with Harness(
            env=env, model=MODEL, step=spawn("child", call_model("ask", tools=[look]))
        ) as harness:
            harness.execute("go", delivery="between-rounds")
            harness.on_event(
                lambda name, data: (
                    harness.execute("more", delivery="between-rounds")
                    if name == "aiio:tool_round_started" and len(found.bodies) == 1
                    else None
                )
            )
            response = await harness.get_agent_response()
    assert response is not None
    assert [said(body) for body in found.bodies] == [["go"], ["go"], ["more"]]


async def test_B2_harness_abort_cuts_the_turn_of_a_thread_and_keeps_its_queue() -> None:
    gate = Gate()
    async with Harness(step=run_code("turn", gate)) as harness:
        assert harness.abort("t") is False
        harness.execute("cut", thread_id="t")
        harness.execute("other", thread_id="u")
        await wait_all_tasks_blocked()
        harness.execute("kept", thread_id="t")
        assert harness.abort("t", "enough") is True
        gate.open.release()
        gate.open.release()
        response = await harness.get_agent_response("t")
        assert response is not None
        assert response.output == "kept"
        assert [turn.abort_reason for input, turn in gate.turns if input == "cut"] == ["enough"]
        harness.execute("cut as well", thread_id="t")
        await wait_all_tasks_blocked()
        harness.abort("t")
        with pytest.raises(RunError) as caught:
            await harness.get_agent_response("t")
        assert caught.value.kind is RunErrorKind.CANCELLED
        assert harness.session_history("t") == ()


async def test_B15_seed_session_history_restores_a_log() -> None:
    async with (
        peer(answering) as (env, found),
        Harness(env=env, model=MODEL, step=call_model("ask")) as harness,
    ):
        harness.seed_session_history("t", [create_message("known"), create_message("yes", "assistant")])
        harness.execute("next", thread_id="t")
        with pytest.raises(trio.BusyResourceError):
            harness.seed_session_history("t", [])
        await harness.get_agent_response("t")
        assert said(found.bodies[0]) == ["known", "next"]
        with pytest.raises(RunError, match="an item is a dict"):
            harness.seed_session_history("t", [{"no": "item"}])
        harness.forget_session("t")
        assert harness.session_history("t") == ()


async def test_B15_leaving_the_harness_waits_for_all_turns() -> None:
    done: list[Any] = []

    async def work(input: Any, context: RunContext) -> None:
        await trio.lowlevel.checkpoint()
        done.append(input)

    harness = Harness(step=run_code("turn", work))
    async with harness:
        harness.execute("a", thread_id="1")
        harness.execute("b", thread_id="2")
        with pytest.raises(RuntimeError, match="entered already"):
            await harness.__aenter__()
    assert sorted(done) == ["a", "b"]
    with pytest.raises(RuntimeError, match="async with"):
        harness.execute("c")
    async with harness:
        harness.execute("d", thread_id="1")
    assert done[-1] == "d"


async def test_B15_leaving_by_an_exception_aborts_turns_drops_messages_and_raises_it_as_it_is() -> None:
    gate = Gate()
    error: list[Any] = []

    async def turn(input: Any, context: RunContext) -> None:
        try:
            await gate(input, context)
        finally:
            with pytest.raises(RuntimeError, match="async with"):
                context.harness.execute("never either")

    async with trio.open_nursery() as nursery:

        async def wait(harness: Harness) -> None:
            with pytest.raises(RunError) as caught:
                await harness.get_agent_response()
            error.append(caught.value.kind)

        with pytest.raises(KeyError):
            async with Harness(step=run_code("turn", turn)) as harness:
                harness.execute("slow")
                nursery.start_soon(wait, harness)
                await wait_all_tasks_blocked()
                harness.execute("never")
                raise KeyError("mine")
    assert gate.inputs == ["slow"]
    assert error == [RunErrorKind.CANCELLED]


async def test_B15_a_cancellation_of_the_harness_ends_its_turns_and_who_waits_is_told() -> None:
    gate = Gate()
    told: list[str] = []
    async with trio.open_nursery() as nursery:

        async def wait(harness: Harness) -> None:
            with pytest.raises(RunError, match="the harness was left"):
                await harness.get_agent_response()

        with trio.CancelScope() as scope:
            async with Harness(step=run_code("turn", gate)) as harness:
                harness.on_event(lambda name, data: told.append(name))
                harness.execute("slow")
                nursery.start_soon(wait, harness)
                await wait_all_tasks_blocked()
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
    assert told[-1] == "aiio:turn_aborted"


async def test_B15_what_is_no_exception_leaves_a_turn_and_the_harness_as_itself() -> None:
    def stop(input: Any, context: RunContext) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        async with Harness(step=run_code("turn", stop)) as harness:
            harness.execute("go")
            await trio.sleep_forever()


async def test_B16_a_harness_without_a_step_has_no_sessions() -> None:
    async with Harness() as harness:
        with pytest.raises(RunConfigError) as caught:
            harness.execute("hello")
    assert caught.value.code == "NO_STEP_CONFIGURED"
    async with Harness(step=run_code("turn", lambda input, context: input)) as harness:
        with pytest.raises(ValueError, match="someday"):
            harness.execute("hello", delivery="someday")


async def test_B15_a_turn_that_is_cut_in_mid_answer_leaves_nothing_in_the_thread(
    autojump_clock: MockClock,
) -> None:
    async with (
        peer([say("half an ans"), HANG], answer("whole")) as (env, _),
        Harness(env=env, model=MODEL, step=call_model("ask")) as harness,
    ):
        harness.execute("one")
        await trio.sleep(1)
        harness.execute("two", delivery="interrupt")
        response = await harness.get_agent_response()
        assert response is not None
        assert [item_text(item) for item in harness.session_history()] == ["two", "whole"]
