"""`call_model` over IO: rounds, tools, money, and what is left when it is cut."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from aiio.context.events import Error
from aiio.env.errors import HttpStatusError, ProviderError
from aiio.env.toolbox import Toolbox
from aiio.io.io import IO
from aiio.runs.code_steps import run_code
from aiio.runs.context import RunContext
from aiio.runs.errors import RunConfigError, RunError, RunErrorKind
from aiio.runs.harness import Harness
from aiio.runs.items import create_message, new_item
from aiio.runs.looping import loop, schedule
from aiio.runs.model_step import call_model
from aiio.runs.paid import MOVES, PaidCalls, PaidState, paid_prefix
from aiio.runs.spawning import spawn
from aiio.runs.stores import MemoryStore
from aiio.runs.tools import invoke_tool
from aiio.runs.until import max_cost, max_steps
from tests.agents.peer import MODEL, answer, call, calling, half_call, peer
from tests.io.scripted import HANG, Head, Step, finish, frames, say


def flat(endpoint: str, model: str, usage: Any) -> float:
    """A cent for a token in, two for one out."""
    return 0.01 * float(usage["input_tokens"]) + 0.02 * float(usage["output_tokens"])


def weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


async def fails(harness: Harness, step: Any, input: Any = "q", *, context: Any = None) -> RunError:
    with pytest.raises(RunError) as caught:
        await harness.run(step, input, context=context)
    return caught.value


async def test_B5_the_answer_is_the_output_and_the_log_holds_both_sides() -> None:
    async with peer(answer("Hello.")) as (env, wire):
        harness = Harness(env=env, model=MODEL, prices=flat)
        context = harness.create_context(items=[create_message("known", "system")])
        step = call_model("ask", instructions=lambda ctx: f"run {ctx.depth}")
        assert await harness.run(step, "Hi", context=context) == "Hello."
        sent = wire.bodies[0]["messages"]
        assert [message["type"] for message in sent] == [1, 2]
        assert sent[0]["content"][0]["text"] == "run 0\n\nknown"
        assert [item["role"] for item in context.item_log.items] == ["system", "user", "assistant"]
        assert (context.tokens.input, context.tokens.output, context.tokens.cached) == (10, 5, None)
        assert context.cost == context.billed_cost == pytest.approx(0.2)
        meta = context.last_step_meta
        assert meta is not None
        assert meta.usage == {"input_tokens": 10, "output_tokens": 5}
        assert meta.cost == meta.billed_cost == pytest.approx(0.2)
        assert (meta.tool_calls, meta.decision) == (None, None)
        assert meta.response_items == context.item_log.items[2:]
        (paid,) = await harness.paid_calls(context.id)
        assert paid.cost_usd == pytest.approx(0.2)
        assert (paid.state.value, paid.provider, paid.model) == ("settled", "peer", "m")
        assert paid.path == "/ask#0"


async def test_B5_tools_are_called_in_order_and_trouble_is_told_to_the_model() -> None:
    async def fail(why: str) -> None:
        """Fail."""
        raise ValueError(why)

    script = calling(
        call("weather", '{"city": "Ros"}', call_id="a", index=0),
        call("weather", "{}", call_id="b", index=1),
        call("fail", '{"why": "bad"}', call_id="c", index=2),
        call("nothing", call_id="d", index=3),
        call("weather", "[1]", call_id="e", index=4),
    )
    async with peer(script, answer("ok")) as (env, wire):
        harness = Harness(env=env)
        context = harness.create_context()
        step = call_model("ask", model=MODEL, tools=[weather, fail])
        assert await harness.run(step, "q", context=context) == "ok"
        outputs = {item["call_id"]: item["output"] for item in context.item_log.items if "output" in item}
        assert outputs["a"] == "sunny in Ros"
        assert "missing a required argument" in outputs["b"]
        assert outputs["c"] == "the tool 'fail' failed: ValueError: bad"
        assert outputs["d"] == "there is no tool 'nothing'; tools you may call: weather, fail"
        assert "no JSON object" in outputs["e"]
        assert [tool["name"] for tool in wire.bodies[0]["tools"]] == ["weather", "fail"]
        sent = wire.bodies[1]["messages"]
        assert [message["type"] for message in sent] == [2, 3, 4, 4, 4, 4, 4]
        assert [message.get("error", False) for message in sent[2:]] == [False, True, True, True, True]
        assert context.last_step_meta is not None
        assert context.last_step_meta.usage == {"input_tokens": 30, "output_tokens": 12}
        assert len(context.last_step_meta.tool_calls or ()) == 5


async def test_tools_of_the_env_and_what_they_return() -> None:
    def silent() -> None:
        """Say nothing."""

    def data() -> dict[str, int]:
        """Give data."""
        return {"a": 1}

    def odd() -> Any:
        """Give an object."""
        return object

    async def aware(context: Any = None) -> Any:
        """See the run."""
        return context.depth

    def late() -> Any:
        """Return a coroutine."""

        async def value() -> str:
            return ""

        return value()

    names = ["silent", "data", "odd", "aware", "late", "hidden"]
    script = calling(*(call(name, call_id=name, index=at) for at, name in enumerate(names)))
    async with peer(script, answer("ok")) as (env, _):
        for fn in (silent, data, odd, late):
            env.register_tool(fn)
        env.register_tool(
            aware, schema={"description": "", "input_schema": {"type": "object", "properties": {}}}
        )
        env.register_tool(lambda: 1, name="hidden", schema={"type": "object"}, secret=True)
        harness = Harness(env=env, model=MODEL)
        context = harness.create_context()
        await harness.run(call_model("ask"), "q", context=context)
        outputs = {item["call_id"]: item["output"] for item in context.item_log.items if "output" in item}
        assert outputs["silent"] == outputs["late"] == "(no output)"
        assert (outputs["data"], outputs["aware"]) == ('{"a":1}', "0")
        assert outputs["odd"] == "<class 'object'>"
        assert "there is no tool 'hidden'" in outputs["hidden"]
        with pytest.raises(ValueError, match="unknown tool 'x'"):
            await harness.run(call_model("ask", tools=["x"]), "q")
        with pytest.raises(ValueError, match="two tools named"):
            await harness.run(call_model("ask", tools=["data", data]), "q")
        assert await harness.run(call_model("ask", tools=["data"]), "q") == "ok"


async def test_B2_a_tool_that_aborts_the_run_is_cancelled_and_not_told_to_the_model() -> None:
    async def stop(context: Any = None) -> None:
        """Stop."""
        context.abort("by a tool")
        context.check()

    async with peer(calling(call("stop", "{}")), answer("never")) as (env, wire):
        env.register_tool(stop, schema={"type": "object", "properties": {}})
        error = await fails(Harness(env=env, model=MODEL), call_model("ask"))
        assert (error.kind, len(wire.bodies)) == (RunErrorKind.CANCELLED, 1)


async def test_B5_the_rounds_have_a_limit() -> None:
    async with peer(calling(call("weather", '{"city": "x"}'))) as (env, wire):
        harness = Harness(env=env, model=MODEL)
        error = await fails(harness, call_model("ask", tools=[weather], max_rounds=2))
        assert (error.kind, len(wire.bodies)) == (RunErrorKind.STEP_FAILED, 2)
    with pytest.raises(ValueError, match="max_rounds"):
        call_model("ask", max_rounds=0)


async def test_B5_input_may_be_nothing_text_data_or_items() -> None:
    async with peer(answer("ok")) as (env, _):
        harness = Harness(env=env, model=MODEL)
        context = harness.create_context(items=[create_message("begin")])
        for input in (
            None,
            "",
            "text",
            {"data": 1},
            create_message("item"),
            [create_message("in a list")],
            [1],
        ):
            await harness.run(call_model("ask"), input, context=context)
        said = [item["content"][0]["text"] for item in context.item_log.items if item.get("role") == "user"]
        assert said == ["begin", "text", '{"data":1}', "item", "in a list", "[1]"]


async def test_B16_a_missing_model_or_env_is_a_config_error() -> None:
    with pytest.raises(RunConfigError) as caught:
        await Harness().run(call_model("ask"), "q")
    assert caught.value.code == "NO_LLM_PROVIDER"
    async with peer(answer("ok")) as (env, _):
        with pytest.raises(RunConfigError) as caught:
            await Harness(env=env).run(call_model("ask"), "q")
        assert caught.value.code == "MISSING_MODEL"


async def test_B5_an_answer_is_decoded_by_its_schema_or_is_model_parse_error_with_the_raw_text() -> None:
    class City(msgspec.Struct):
        name: str

    def shout(text: str) -> str:
        if "name" not in text:
            raise ValueError("no name")
        return text.upper()

    async with peer(answer('{"name":"Ros"}'), answer('{"name":"Ros"}'), answer("no JSON")) as (env, _):
        harness = Harness(env=env, model=MODEL)
        assert await harness.run(call_model("ask", schema=City), "q") == City("Ros")
        assert await harness.run(call_model("ask", schema=shout), "q") == '{"NAME":"ROS"}'
        for schema in (City, shout):
            error = await fails(harness, call_model("ask", schema=schema))
            assert (error.kind, error.detail["raw"]) == (RunErrorKind.MODEL_PARSE_ERROR, "no JSON")


async def test_B16_a_refusal_is_model_refused_and_its_calls_are_not_made() -> None:
    script = [say("I can't."), finish("refusal", finish="refusal")]
    async with peer(script) as (env, _):
        error = await fails(Harness(env=env, model=MODEL), call_model("ask"))
        assert (error.kind, error.detail["text"]) == (RunErrorKind.MODEL_REFUSED, "I can't.")


@pytest.mark.parametrize(
    ("fault", "kind", "state"),
    [
        (HttpStatusError(429, "Too Many"), RunErrorKind.MODEL_RATE_LIMIT, "void"),
        (HttpStatusError(401), RunErrorKind.STEP_FAILED, "void"),
        (HttpStatusError(500), RunErrorKind.STEP_FAILED, "held"),
        (ProviderError("network", "no route", phase="connect"), RunErrorKind.STEP_FAILED, "void"),
        (ProviderError("network", "reset", phase="head"), RunErrorKind.STEP_FAILED, "held"),
    ],
)
async def test_B8_a_failed_request_is_void_or_held_by_what_may_have_been_billed(
    fault: Exception, kind: RunErrorKind, state: str
) -> None:
    def refuse(body: Any) -> Any:
        raise fault

    async with peer(refuse) as (env, _):
        harness = Harness(env=env, model=MODEL, prices=flat)
        context = harness.create_context()
        error = await fails(harness, call_model("ask", max_output=100), context=context)
        assert error.kind is kind
        assert isinstance(error.detail["error"], Error)
        (paid,) = await harness.paid_calls(context.id)
        assert paid.state == state
        assert context.cost == 0
        assert (context.held_cost > 2) is (state == "held")


async def test_B_decided_14_a_killed_io_inside_a_run_is_cancelled_and_the_partial_is_kept_as_incomplete() -> (
    None
):
    script: list[Step] = [say("Half an ans"), half_call("weather", index=1), HANG]
    async with peer(script) as (env, _):
        harness = Harness(env=env, model=MODEL, prices=flat)
        context = harness.create_context()

        async def run() -> None:
            error = await fails(harness, call_model("ask", max_output=10), context=context)
            assert error.kind is RunErrorKind.CANCELLED

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await wait_all_tasks_blocked()
            (io,) = env.active_io
            assert isinstance(io, IO)
            io.kill_nowait("by hand")
        partial = context.item_log.items[1:]
        assert [item["type"] for item in partial] == ["message", "function_call"]
        assert {item["status"] for item in partial} == {"incomplete"}
        assert not context.aborted
        assert context.held_cost > 0.2
        assert (context.cost, context.billed_cost) == (0, 0)


async def test_B2_abort_cuts_the_stream_books_what_was_used_and_raises_cancelled() -> None:
    async with peer([say("Half"), HANG]) as (env, wire):
        harness = Harness(env=env, model=MODEL, store=MemoryStore(), prices=flat)
        context = harness.create_context()

        async def run() -> None:
            error = await fails(harness, spawn("child", call_model("ask", max_output=10)), context=context)
            assert error.detail["reason"] == "enough"

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await wait_all_tasks_blocked(0.01)
            (child,) = context.tree()[1:]
            context.abort("enough")
        assert wire.wire.open == 0
        assert child.item_log.items[-1]["status"] == "incomplete"
        assert context.held_cost > 0
        assert child.held_cost == 0
        assert context.tokens.output > 0  # an estimate of what came


async def test_B2_a_whole_answer_to_an_aborted_run_is_booked_and_recorded_but_not_returned() -> None:
    class Aborting(MemoryStore):
        context: RunContext | None = None

        async def put(self, key: str, value: bytes) -> None:
            await super().put(key, value)
            if b'"settled"' in value and self.context is not None:
                self.context.abort("while it was settled")

    def refuse(body: Any) -> Any:
        context.abort("while it was asked")
        raise HttpStatusError(500)

    store = Aborting()
    async with peer(answer("whole"), refuse) as (env, _):
        harness = Harness(env=env, model=MODEL, store=store, prices=flat)
        store.context = context = harness.create_context()
        error = await fails(harness, call_model("ask"), context=context)
        assert error.kind is RunErrorKind.CANCELLED
        assert context.cost == pytest.approx(0.2)
        store.context, context = None, harness.create_context()
        error = await fails(harness, call_model("ask"), context=context)
        assert error.detail["reason"] == "while it was asked"


async def test_B8_a_call_cancelled_in_the_queue_is_void() -> None:
    async with peer([HANG], max_active=1) as (env, _):
        harness = Harness(env=env, model=MODEL, prices=flat)
        first, second = harness.create_context(), harness.create_context()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: harness.run(call_model("a", max_output=1), "q", context=first))
            await wait_all_tasks_blocked()
            with trio.move_on_after(0.01):
                await harness.run(call_model("b", max_output=1), "q", context=second)
            nursery.cancel_scope.cancel()
        assert [paid.state for paid in await harness.paid_calls(second.id)] == ["void"]
        assert (first.held_cost > 0, second.held_cost) == (True, 0)


async def test_B8_an_answer_without_usage_is_held_and_one_cut_by_an_error_with_usage_is_settled() -> None:
    cut = {"type": "error", "error": "overloaded", "usage": {"input_tokens": 10, "output_tokens": 5}}
    async with peer([say("Hi"), finish()], [say("Hi"), frames([cut])]) as (env, _):
        harness = Harness(env=env, model=MODEL, prices=flat)
        context = harness.create_context()
        assert await harness.run(call_model("a", max_output=5), "q", context=context) == "Hi"
        await fails(harness, call_model("b"), context=context)
        states = [paid.state for paid in await harness.paid_calls(context.id)]
        assert states[0] == "held"
        assert states[1] == "settled"
        assert context.cost == pytest.approx(0.2)


async def test_B8_an_unknown_price_or_output_limit_stays_unknown() -> None:
    async with peer([say("Hi"), HANG]) as (env, _):
        harness = Harness(env=env, model=MODEL, prices=lambda *_: None)
        context = harness.create_context()
        with trio.move_on_after(0.01):
            await harness.run(call_model("a", max_output=5), "q", context=context)
        with trio.move_on_after(0.01):
            await harness.run(call_model("b"), "q", context=context)
        assert context.held_cost == 0
        assert len(context._execution.paid.unpriced) == 2


async def test_B8_a_window_bounds_an_answer_whose_limit_nobody_told() -> None:
    async with peer([say("Hi"), HANG]) as (env, _):
        env.register_endpoint(
            "wide", provider="agent-scripted", url="peer://x", models={"m": {"context_window": 1000}}
        )
        harness = Harness(env=env, model="wide/m", prices=flat)
        context = harness.create_context()
        with trio.move_on_after(0.01):
            await harness.run(call_model("a"), "q", context=context)
        assert context.held_cost in (0, pytest.approx(20, rel=0.1))


# -- money ------------------------------------------------------------------------------------------


async def test_B8_a_restored_run_bills_nothing_for_replayed_steps_and_rounds() -> None:
    store = MemoryStore()

    class Crash(BaseException):
        pass

    ran: list[str] = []
    crash = [True]

    def tool(city: str) -> str:
        """Tell."""
        ran.append(city)
        if city == "second" and crash:
            raise Crash
        return "fine"

    script = [
        answer("plan"),
        calling(call("tool", '{"city": "first"}', call_id="1")),
        calling(call("tool", '{"city": "second"}', call_id="2")),
        answer("end"),
    ]

    async def flow(input: Any, context: RunContext) -> Any:
        await context.execute(call_model("plan", tools=[]), "think")
        return await context.execute(call_model("act", tools=[tool]), "go")

    async with peer(*script) as (env, wire):
        harness = Harness(env=env, model=MODEL, store=store, prices=flat)
        context = harness.create_context()
        with pytest.raises(Crash):
            await harness.run(run_code("flow", flow), context=context)
        spent = context.cost
        crash.clear()
        again = Harness(env=env, model=MODEL, store=store, prices=flat)
        restored = await again.restore(context.id)
        assert restored is not None
        assert restored.cost == pytest.approx(spent)  # also what no snapshot had yet
        assert (restored.tokens.input, restored.billed_cost) == (50, 0)
        assert await again.run(run_code("flow", flow), context=restored) == "end"
        assert len(wire.bodies) == 4
        assert ran == ["first", "second", "second"]
        assert restored.billed_cost == pytest.approx(0.2)
        bills = [paid.cost_usd or 0.0 for paid in await again.paid_calls(context.id)]
        assert restored.cost == pytest.approx(sum(bills))
        meta = restored.last_step_meta
        assert meta is not None
        assert meta.billed_cost == pytest.approx(0.2)
        assert meta.cost == pytest.approx(0.2 + 2 * 0.34)
        kinds = [item["type"] for item in restored.item_log.items]
        assert kinds == [
            *("message", "message", "message", "function_call", "function_call_output"),
            *("function_call", "function_call_output", "message"),
        ]


async def test_B8_open_calls_of_a_dead_attempt_are_held_and_reconcile_brings_them_to_zero() -> None:
    store = MemoryStore()
    async with peer([say("Hi"), HANG]) as (env, _):
        harness = Harness(env=env, model=MODEL, store=store, prices=flat)
        context = harness.create_context()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: harness.run(call_model("a", max_output=100), "q", context=context))
            await wait_all_tasks_blocked(0.01)
            # Nobody of a killed process cleans up: what is stored now is all there is.
            stored = MemoryStore()
            stored._values.update(store._values)
            nursery.cancel_scope.cancel()
    other = Harness(store=stored, prices=flat)
    assert [paid.state for paid in await other.paid_calls(context.id)] == ["open"]
    again = await other.restore(context.id)
    if again is None:  # it died before its first checkpoint
        again = other.create_context(id=context.id)
        await again._execution.paid.load(0)
    assert again.held_cost > 2
    asked: list[str] = []

    async def lookup(paid: Any) -> float | None:
        asked.append(paid.call_id)
        return None if len(asked) == 1 else 0.75

    assert await other.reconcile(context.id, lookup) == ()
    (settled,) = await other.reconcile(context.id, lookup)
    assert await other.reconcile(context.id, lookup) == ()
    assert (settled.state, again.held_cost, again.cost, again.billed_cost) == ("reconciled", 0, 0.75, 0)
    assert len(asked) == 2
    assert not await other.write_off(context.id, settled.call_id)


async def test_B8_a_call_of_this_attempt_is_billed_when_reconciled_and_may_be_written_off(
    autojump_clock: MockClock,
) -> None:
    async with peer([say("Hi"), HANG]) as (env, _):
        harness = Harness(env=env, model=MODEL, prices=flat)
        context = harness.create_context()
        for id in ("a", "b"):
            with trio.move_on_after(1):
                await harness.run(call_model(id, max_output=100), "q", context=context)
        first, second = await harness.paid_calls(context.id)
        tokens = context.tokens.total
        await harness.reconcile(context.id, lambda paid: 0.5 if paid.call_id == first.call_id else None)
        assert (context.cost, context.billed_cost) == (0.5, 0.5)
        assert context.tokens.total == tokens
        assert await harness.write_off(context.id, second.call_id)
        assert context.held_cost == 0
        with pytest.raises(KeyError):
            await harness.write_off(context.id, "unknown")


async def test_B8_a_bill_that_came_while_nothing_ran_is_in_the_cost_of_the_next_restore() -> None:
    store = MemoryStore()
    async with peer([say("Hi"), HANG]) as (env, _):
        harness = Harness(env=env, model=MODEL, store=store, prices=flat)
        context = harness.create_context()
        await context.checkpoint()
        with trio.move_on_after(0.01):
            await harness.run(call_model("a", max_output=100), "q", context=context)
        other = Harness(store=store)
        await other.reconcile(context.id, lambda paid: 0.5)
        restored = await Harness(store=store).restore(context.id)
        assert restored is not None
        assert (restored.cost, restored.billed_cost, restored.held_cost) == (0.5, 0, 0)


async def test_B8_every_move_of_a_paid_call() -> None:
    for before in PaidState:
        for after in PaidState:
            paid = PaidCalls("x", None, lambda: 0.0)
            context = Harness().create_context()
            call_ = await paid.open(context, path="", round=0, provider="p", model="m", ceiling=1.0)
            if before in (PaidState.RECONCILED, PaidState.WRITTEN_OFF):
                await paid.change(call_.call_id, PaidState.HELD)
            if before is not PaidState.OPEN:
                await paid.change(call_.call_id, before)
            allowed = after in MOVES.get(before, ())
            assert await paid.change(call_.call_id, after) is allowed
            assert paid.calls[0].state is (after if allowed else before)


async def test_B8_a_store_that_fails_stops_a_call_before_it_is_made_but_not_its_settling() -> None:
    class Failing(MemoryStore):
        broken = False

        async def put(self, key: str, value: bytes) -> None:
            await trio.lowlevel.checkpoint()
            if self.broken and ":paid:" in key:
                raise OSError("disk full")
            await super().put(key, value)

    store = Failing()

    def scripted(body: Any) -> Any:
        store.broken = True
        return answer("ok")

    async with peer(scripted) as (env, wire):
        harness = Harness(env=env, model=MODEL, store=store, prices=flat)
        context = harness.create_context()
        assert await harness.run(call_model("a"), "q", context=context) == "ok"
        assert context.cost == pytest.approx(0.2)
        with pytest.raises(OSError, match="disk full"):
            await harness.run(call_model("b"), "q", context=context)
        assert len(wire.bodies) == 1


async def test_B8_unreadable_paid_calls_are_passed_over() -> None:
    store = MemoryStore()
    await store.put(paid_prefix("x") + "1", b"torn")
    assert await Harness(store=store).paid_calls("x") == ()
    assert await Harness().paid_calls("x") == ()


async def test_B8_max_cost_counts_what_is_held_when_asked() -> None:
    async with peer([say("Hi"), finish()]) as (env, wire):
        harness = Harness(env=env, model=MODEL, prices=flat)
        step = loop("l", call_model("a", max_output=100), max_cost(1.0, held=True), max_iterations=5)
        await harness.run(step, "q")
        assert len(wire.bodies) == 1
        await harness.run(loop("l", call_model("a", max_output=100), max_steps(2)), "q")
        assert len(wire.bodies) == 3


async def test_B5_a_slow_head_is_limited_by_the_options_of_the_step(autojump_clock: MockClock) -> None:
    async with peer([Head(50), *answer("late")]) as (env, _):
        harness = Harness(env=env, model=MODEL)
        error = await fails(harness, call_model("ask", connect_timeout="5s"))
        assert error.detail["error"].limit == "connect"


async def test_a_silent_refusal_leaves_nothing_in_the_log() -> None:
    async with peer([finish("refusal", finish="refusal")]) as (env, _):
        harness = Harness(env=env, model=MODEL)
        context = harness.create_context()
        error = await fails(harness, call_model("ask"), context=context)
        assert (error.kind, error.detail["text"]) == (RunErrorKind.MODEL_REFUSED, "")
        assert len(context.item_log) == 1


async def test_B7_rounds_in_a_schedule_are_not_recorded() -> None:
    store = MemoryStore()
    async with peer(answer("ok")) as (env, wire):
        harness = Harness(env=env, model=MODEL, store=store)
        context = harness.create_context()
        await harness.run(schedule("s", call_model("ask"), "1ms", max_runs=1), "q", context=context)
        restored = await Harness(env=env, model=MODEL, store=store).restore(context.id)
        assert restored is not None
        paths = list(restored._execution.ledger._entries)
        assert paths == ["/s#0"]
        assert len(wire.bodies) == 1


async def test_a_tool_without_a_signature_and_a_call_without_a_name() -> None:
    schema = {"type": "object", "properties": {}}
    async with peer(calling(call("made", call_id="a"), call("", call_id="b", index=1)), answer("ok")) as (
        env,
        _,
    ):
        env.register_tool(dict, name="made", schema=schema)
        harness = Harness(env=env, model=MODEL)
        context = harness.create_context()
        await harness.run(call_model("ask"), "q", context=context)
        outputs = {item["call_id"]: item["output"] for item in context.item_log.items if "output" in item}
        assert outputs["a"] == "{}"
        assert Toolbox(env, None).find(None) is None


async def test_invoke_tool_of_the_env_by_name_unavailable_or_stopping_its_run() -> None:
    async def stop(context: Any = None) -> None:
        """Stop."""
        context.abort("stop")
        context.check()

    schema = {"type": "object", "properties": {}}
    async with peer(answer("ok")) as (env, _):
        env.register_tool(stop, schema=schema)
        env.register_tool(lambda: 1, name="later", schema=schema, available=lambda env: False)
        error = await fails(Harness(env=env), invoke_tool("t", "later", {}))
        assert "not available now" in str(error)
        assert (await fails(Harness(env=env), invoke_tool("t", "stop", {}))).kind is RunErrorKind.CANCELLED


async def test_the_log_of_a_run_is_json() -> None:
    async with peer(calling(call("weather", '{"city": "x"}')), answer("ok")) as (env, _):
        harness = Harness(env=env, model=MODEL)
        context = harness.create_context(items=[new_item("openrouter:x", data={})])
        await harness.run(call_model("ask", tools=[weather]), "q", context=context)
        assert json.loads(json.dumps(context.item_log.items)) == list(context.item_log.items)
