"""Steps without a model: code, branches, children, repetition."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from aiio.runs.channels import Channel
from aiio.runs.code_steps import Retry, RunCode, conditional, run_code
from aiio.runs.context import RunContext
from aiio.runs.errors import RunError, RunErrorKind
from aiio.runs.harness import Harness
from aiio.runs.items import create_message
from aiio.runs.looping import loop, schedule
from aiio.runs.parallel import in_parallel
from aiio.runs.spawning import DetachedHandle, DetachedStatus, detached_spawn, spawn
from aiio.runs.tools import invoke_tool
from aiio.runs.totals import StepMeta
from aiio.runs.until import (
    LoopSnapshot,
    all_of,
    any_of,
    converged,
    max_cost,
    max_duration,
    max_steps,
    never,
    no_tool_calls,
    output_contains,
    output_equals,
    verified,
)

BOX: Channel[Any] = Channel("box")


async def fails(
    step: Any, input: Any = None, *, context: RunContext | None = None, harness: Harness | None = None
) -> RunError:
    harness = context.harness if context is not None else harness or Harness()
    with pytest.raises(RunError) as caught:
        await harness.run(step, input, context=context)
    return caught.value


def plus(number: int = 1, name: str = "plus") -> RunCode:
    return run_code(name, lambda input, context: input + number)


def sleeps(seconds: float, value: Any = None, name: str = "sleeps") -> RunCode:
    async def sleep(input: Any, context: RunContext) -> Any:
        await trio.sleep(seconds)
        return value

    return run_code(name, sleep)


def raises(error: Exception, name: str = "raises") -> RunCode:
    def fail(input: Any, context: RunContext) -> None:
        raise error

    return run_code(name, fail)


# -- run_code, conditional --------------------------------------------------------------------------


async def test_B6_code_is_plain_or_async_and_counts_as_a_step() -> None:
    harness = Harness()
    context = harness.create_context()
    assert await harness.run(plus(), 1, context=context) == 2
    assert await harness.run(sleeps(0, "x"), context=context) == "x"
    assert context.step_count == 2


async def test_B6_a_failure_is_step_failed_and_wraps_its_cause() -> None:
    cause = ValueError("why")
    error = await fails(raises(cause))
    assert error.kind is RunErrorKind.STEP_FAILED
    assert error.__cause__ is cause
    assert error.detail == {"step_id": "raises", "retries_exhausted": False, "cause_kind": None}


@pytest.mark.parametrize(
    ("backoff", "seconds"), [("fixed", 1 + 1 + 1), ("linear", 1 + 2 + 3), ("exponential", 1 + 2 + 3)]
)
async def test_B6_code_is_retried_by_its_policy(
    backoff: str, seconds: float, autojump_clock: MockClock
) -> None:
    tries: list[int] = []

    def flaky(input: Any, context: RunContext) -> int:
        tries.append(1)
        if len(tries) < 4:
            raise OSError("not yet")
        return len(tries)

    retry = Retry(max_attempts=4, backoff=backoff, initial_delay="1s", max_delay="3s")
    began = trio.current_time()
    assert await Harness().run(run_code("flaky", flaky, retry=retry)) == 4
    assert trio.current_time() - began == seconds
    error = await fails(run_code("never", raises(OSError("x")).fn, retry=retry))
    assert error.detail["retries_exhausted"] is True


async def test_B2_cancelled_is_never_retried() -> None:
    tries: list[int] = []

    def work(input: Any, context: RunContext) -> None:
        tries.append(1)
        context.abort("stop")
        context.check()

    error = await fails(run_code("work", work, retry=Retry(max_attempts=3)))
    assert (error.kind, tries) == (RunErrorKind.CANCELLED, [1])


@pytest.mark.parametrize(
    "policy", [{"max_attempts": 0}, {"max_attempts": True}, {"backoff": "wild"}, {"initial_delay": -1}]
)
def test_B6_a_retry_policy_that_makes_no_sense_is_refused(policy: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Retry(**policy)


@pytest.mark.parametrize("id", ["", "a/b", "a#1", "[0]", "~x", None])
def test_B6_an_id_that_can_not_be_part_of_a_path_is_refused(id: Any) -> None:
    with pytest.raises(ValueError, match="a step's id"):
        run_code(id, lambda input, context: None)


async def test_B6_conditional_runs_the_chosen_step_or_passes_the_input_through() -> None:
    async def route(input: int, context: RunContext) -> RunCode | None:
        return plus() if input > 0 else None

    assert await Harness().run(conditional("if", route), 1) == 2
    assert await Harness().run(conditional("if", route), 0) == 0


# -- in_parallel ------------------------------------------------------------------------------------


async def test_B6_parallel_all_gives_outputs_in_order_and_copies_log_and_state(
    autojump_clock: MockClock,
) -> None:
    harness = Harness()
    context = harness.create_context(state={"n": 0}, items=[create_message("hi")])

    async def change(input: Any, child: RunContext) -> int:
        child.state["n"] += input
        child.item_log.append(create_message("mine"))
        await trio.sleep(1)
        return len(child.item_log)

    step = in_parallel(
        "all", [run_code("a", change), run_code("b", change)], merge=lambda results, _: results
    )
    assert await harness.run(step, 5, context=context) == [2, 2]
    assert context.state == {"n": 0}
    assert len(context.item_log) == 1
    assert context.tree() == [context]  # children are forgotten when they settle


async def test_B6_parallel_all_stops_siblings_at_the_first_failure_and_skips_the_queue(
    autojump_clock: MockClock,
) -> None:
    begun: list[str] = []

    def noting(name: str) -> RunCode:
        return run_code(name, lambda input, context: begun.append(name))

    paths = [sleeps(1, "ok", "quick"), raises(ValueError("bad")), sleeps(100, name="slow"), noting("queued")]
    began = trio.current_time()
    error = await fails(in_parallel("all", paths, concurrency=3))
    assert trio.current_time() == began
    assert error.kind is RunErrorKind.FORK_PARTIAL
    assert isinstance(error.__cause__, RunError)
    assert error.detail["succeeded"] == []
    told = [(path["index"], path["status"], path["error"]["kind"]) for path in error.detail["failed"]]
    assert told == [
        (0, "cancelled", "cancelled"),
        (1, "failed", "step_failed"),
        (2, "cancelled", "cancelled"),
        (3, "cancelled", "cancelled"),
    ]
    assert begun == []


async def test_B6_parallel_settle_never_fails(autojump_clock: MockClock) -> None:
    results = await Harness().run(in_parallel("s", [plus(), raises(ValueError("bad"))], mode="settle"), 1)
    assert results[0] == {"step_id": "plus", "status": "succeeded", "value": 2}
    assert results[1]["status"] == "failed"
    assert results[1]["error"]["kind"] == "step_failed"
    assert await Harness().run(in_parallel("none", [], mode="settle")) == []
    assert await Harness().run(in_parallel("none", lambda input, context: [])) == []


async def test_B_decided_7_race_losers_are_cancelled_and_awaited_and_the_winner_replaces_the_state(
    autojump_clock: MockClock,
) -> None:
    cleaned: list[float] = []

    async def loses(input: Any, context: RunContext) -> None:
        context._book({"input_tokens": 7}, 0.25)
        try:
            await trio.sleep(100)
        finally:
            with trio.move_on_after(5, shield=True):
                await trio.sleep(2)
            cleaned.append(trio.current_time() - began)

    async def wins(input: Any, context: RunContext) -> str:
        await trio.sleep(1)
        context.state["winner"] = True
        return "won"

    harness = Harness()
    context = harness.create_context()
    began = trio.current_time()
    step = in_parallel("race", [run_code("l", loses), run_code("w", wins)], mode="race")
    assert await harness.run(step, context=context) == "won"
    assert cleaned == [3]
    assert context.state == {"winner": True}
    assert (context.tokens.input, context.cost) == (7, 0.25)  # the loser's spend counts


async def test_B6_a_race_that_nobody_wins_is_fork_partial() -> None:
    error = await fails(in_parallel("race", [raises(ValueError("a")), raises(ValueError("b"))], mode="race"))
    assert error.kind is RunErrorKind.FORK_PARTIAL
    assert (await fails(in_parallel("race", [], mode="race"))).kind is RunErrorKind.FORK_PARTIAL


async def test_B6_concurrency_limits_the_paths_at_a_time(autojump_clock: MockClock) -> None:
    began = trio.current_time()
    await Harness().run(in_parallel("p", [sleeps(1, n, f"s{n}") for n in range(5)], concurrency=2))
    assert trio.current_time() - began == 3
    with pytest.raises(ValueError, match="concurrency"):
        in_parallel("p", [], concurrency=0)


async def test_B6_an_abort_of_the_parent_is_cancelled_not_fork_partial() -> None:
    harness = Harness()
    context = harness.create_context()

    async def run() -> None:
        error = await fails(in_parallel("p", [sleeps(9), sleeps(9)]), context=context)
        assert error.kind is RunErrorKind.CANCELLED

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        context.abort()


async def test_B6_what_is_no_exception_leaves_a_parallel_step_as_itself() -> None:
    class Stop(BaseException):
        pass

    def stop(input: Any, context: RunContext) -> None:
        raise Stop

    with pytest.raises(Stop):
        await Harness().run(in_parallel("p", [run_code("s", stop), sleeps(9)]))


# -- spawn ------------------------------------------------------------------------------------------


async def test_B6_a_spawned_child_is_isolated() -> None:
    def look(input: Any, child: RunContext) -> Any:
        child.state["x"] = 1
        return len(child.item_log), child.depth, child.parent is context

    harness = Harness()
    context = harness.create_context(items=[create_message("hi")], state={"x": 0})
    assert await harness.run(spawn("s", run_code("look", look)), context=context) == (0, 1, True)
    assert context.state == {"x": 0}


async def test_B_decided_4_spawn_timeout_cancels_the_child_and_is_step_failed_with_a_timeout_cause(
    autojump_clock: MockClock,
) -> None:
    began = trio.current_time()
    error = await fails(spawn("s", sleeps(100), timeout="3s"))
    assert trio.current_time() - began == 3
    assert (error.kind, error.detail["cause"]) == (RunErrorKind.STEP_FAILED, "timeout")
    assert isinstance(error.__cause__, trio.TooSlowError)


async def test_B6_an_exception_that_is_no_run_error_leaves_a_child_as_it_is() -> None:
    class Bare:
        id, kind = "bare", "own"

        async def run(self, context: RunContext, input: Any) -> Any:
            raise KeyError("own")

    with pytest.raises(KeyError):
        await Harness().run(spawn("s", Bare()))


async def test_B6_a_detached_child_runs_beside_and_is_awaited_through_its_handle(
    autojump_clock: MockClock,
) -> None:
    async def work(_: Any, context: RunContext) -> Any:
        good: DetachedHandle = await context.execute(detached_spawn("good", sleeps(5, "x")))
        bad: DetachedHandle = await context.execute(detached_spawn("bad", raises(ValueError("no"))))
        slow = await context.execute(detached_spawn("slow", sleeps(500)))
        assert good.status is DetachedStatus.RUNNING
        with pytest.raises(RunError) as caught:
            await good.wait("1s")
        assert caught.value.detail["cause"] == "timeout"
        assert await good.wait() == good.result == "x"
        with pytest.raises(RunError, match="no"):
            await bad.wait()
        assert (good.status, bad.status) == (DetachedStatus.COMPLETED, DetachedStatus.FAILED)
        return slow

    began = trio.current_time()
    slow = await Harness().run(run_code("work", work))
    assert trio.current_time() - began == 5
    assert slow.status is DetachedStatus.EVICTED  # nothing outlives its run
    with pytest.raises(RunError) as caught:
        await slow.wait()
    assert caught.value.kind is RunErrorKind.HANDLE_EVICTED


async def test_B6_a_detached_spawn_outside_of_a_run_is_misuse() -> None:
    with pytest.raises(RuntimeError, match=r"harness\.run"):
        await Harness().create_context().execute(detached_spawn("d", plus()))


# -- loop -------------------------------------------------------------------------------------------


async def test_B6_a_loop_pipes_its_body_until_the_predicate_says_so() -> None:
    assert await Harness().run(loop("l", [plus(1, "a"), plus(2, "b")], output_equals(9)), 0) == 9


async def test_B6_a_loop_has_a_ceiling() -> None:
    error = await fails(loop("l", plus(), never(), max_iterations=3), 0)
    assert error.kind is RunErrorKind.STEP_FAILED
    assert "3 iterations" in str(error)
    with pytest.raises(ValueError, match="max_iterations"):
        loop("l", plus(), never(), max_iterations=0)


@pytest.mark.parametrize(("answer", "outputs"), [("retry", [1, 2, 3]), ("skip", [1, 2, 3])])
async def test_B6_a_loop_asks_what_to_do_about_a_failure(answer: str, outputs: list[int]) -> None:
    seen: list[int] = []
    failed: list[int] = []

    def work(input: int, context: RunContext) -> int:
        if input == 1 and not failed:
            failed.append(1)
            raise ValueError("once")
        seen.append(input + 1)
        return input + 1

    async def decide(error: Exception, iteration: int) -> str:
        return answer

    assert await Harness().run(loop("l", run_code("w", work), output_equals(3), on_error=decide), 0) == 3
    assert seen == outputs


async def test_B6_a_loop_without_a_policy_or_told_to_abort_fails() -> None:
    assert (await fails(loop("l", raises(ValueError("x")), never()))).kind is RunErrorKind.STEP_FAILED
    policy: Callable[..., str] = lambda error, iteration: "abort"  # noqa: E731
    assert (await fails(loop("l", raises(ValueError("x")), never(), on_error=policy))).detail[
        "step_id"
    ] == "raises"


async def test_B2_cancelled_is_never_passed_to_on_error_nor_taken_for_a_predicates_failure() -> None:
    def stop(input: Any, context: RunContext) -> None:
        context.abort("stop")
        context.check()

    asked: list[Any] = []

    def note(error: Exception, iteration: int) -> str:
        asked.append(error)
        return "skip"

    step = loop("l", run_code("s", stop), never(), on_error=note)
    assert (await fails(step)).kind is RunErrorKind.CANCELLED

    def until(snapshot: LoopSnapshot) -> bool:
        snapshot.context.abort("in the predicate")
        snapshot.context.check()
        return False

    assert (await fails(loop("l", plus(), until), 0)).detail["reason"] == "in the predicate"
    assert asked == []


async def test_B6_a_predicate_that_raises_ends_the_loop() -> None:
    assert await Harness().run(loop("l", plus(), verified(lambda output: output < 1 / 0)), 0) == 1


async def test_B6_an_inbox_keeps_a_loop_alive(autojump_clock: MockClock) -> None:
    harness = Harness()
    context = harness.create_context()
    await context.send(BOX, "more")
    await context.send(BOX, {"even": "more"})
    began = trio.current_time()
    step = loop("l", plus(), max_steps(1), inbox=BOX, park_timeout="2s")
    assert await harness.run(step, 0, context=context) == 3
    assert trio.current_time() - began == 2
    assert [item["role"] for item in context.item_log.items] == ["developer", "developer"]
    assert context.item_log.items[1]["content"][0]["text"] == '{"even":"more"}'
    assert await harness.run(loop("polls", plus(), max_steps(1), inbox=BOX), 0, context=context) == 1


async def test_B6_an_abort_while_a_loop_waits_for_its_inbox_is_cancelled() -> None:
    harness = Harness()
    context = harness.create_context()

    async def run() -> None:
        error = await fails(
            loop("l", plus(), max_steps(1), inbox=BOX, park_timeout="never"), 0, context=context
        )
        assert error.kind is RunErrorKind.CANCELLED

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        context.abort()


async def verdict(until: Any, *, outputs: tuple[Any, ...] = ("x",), **more: Any) -> bool:
    context = Harness().create_context()
    context.last_step_meta = more.pop("meta", None)
    values = {"iteration": len(outputs) - 1, "elapsed_ms": 0.0, "cost": 0.0, **more}
    snapshot = LoopSnapshot(context=context, output=outputs[-1], history=outputs, **values)
    found = until(snapshot)
    return bool(await found if isinstance(found, Awaitable) else found)


async def test_B6_predicates() -> None:
    called = StepMeta(tool_calls=({"type": "function_call"},))
    assert not await verdict(no_tool_calls())  # never on iteration 0
    assert await verdict(no_tool_calls(), iteration=1)
    assert not await verdict(no_tool_calls(), iteration=1, meta=called)
    assert await verdict(no_tool_calls(), iteration=1, meta=StepMeta())
    assert await verdict(max_steps(1))
    assert not await verdict(max_steps(2))
    assert await verdict(max_cost(1.0), cost=1.0)
    assert not await verdict(max_cost(1.0, held=True), cost=0.5)
    assert await verdict(max_duration("1s"), elapsed_ms=1000.0)
    assert await verdict(verified(lambda output: bool(output == "x")))
    assert await verdict(output_contains("b"), outputs=("abc",))
    assert await verdict(output_contains('"b":1'), outputs=({"b": 1},))
    assert await verdict(output_contains("object"), outputs=(object(),))
    assert await verdict(output_equals([1]), outputs=([1],))
    assert not await verdict(never())
    assert await verdict(any_of(never(), max_steps(1)))
    assert not await verdict(any_of(never()))
    assert await verdict(all_of(max_steps(1), output_equals("x")))
    assert not await verdict(all_of(max_steps(1), never()))
    with pytest.raises(ValueError, match="nothing"):
        all_of()


async def test_B6_converged_is_equality_or_a_cosine() -> None:
    assert not await verdict(converged())
    assert await verdict(converged(), outputs=("a", "b", "b"))
    assert not await verdict(converged(rounds=3), outputs=("a", "b", "b"))
    embed: dict[str, list[float]] = {"a": [1.0, 0.0], "b": [0.99, 0.01], "c": [0.0, 1.0], "z": [0.0, 0.0]}
    assert await verdict(converged(embed=embed.__getitem__), outputs=("a", "b"))
    assert not await verdict(converged(embed=embed.__getitem__), outputs=("a", "c"))
    assert not await verdict(converged(embed=embed.__getitem__), outputs=("z", "c"))


# -- schedule ---------------------------------------------------------------------------------------


async def test_B6_a_schedule_runs_at_its_interval_and_goes_on_after_failures(
    autojump_clock: MockClock,
) -> None:
    times: list[float] = []

    def work(input: Any, context: RunContext) -> int:
        times.append(trio.current_time())
        if len(times) == 2:
            raise ValueError("once")
        return len(times)

    assert await Harness().run(schedule("s", run_code("w", work), "10s", max_runs=3)) == 3
    assert [at - times[0] for at in times] == [0, 10, 20]


async def test_B6_a_schedule_told_to_fail_fails() -> None:
    error = await fails(schedule("s", raises(ValueError("x")), "1s", on_error="fail"))
    assert error.kind is RunErrorKind.STEP_FAILED
    with pytest.raises(ValueError, match="on_error"):
        schedule("s", plus(), "1s", on_error="hope")


async def test_B6_a_schedule_wakes_by_its_inbox_and_ends_by_abort(autojump_clock: MockClock) -> None:
    harness = Harness()
    context = harness.create_context()
    times: list[float] = []
    step = schedule(
        "s",
        run_code("w", lambda input, context: times.append(trio.current_time())),
        "1h",
        jitter="1m",
        inbox=BOX,
    )

    async def run() -> None:
        assert (await fails(step, context=context)).kind is RunErrorKind.CANCELLED

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.sleep(1)
        await context.send(BOX, "now")
        await trio.sleep(1)
        assert context.try_recv(BOX) == "now"  # consumes nothing
        context.abort()
    assert [at - times[0] for at in times] == [0, 1]


async def test_B2_cancelled_is_never_swallowed_by_a_schedule() -> None:
    def stop(input: Any, context: RunContext) -> None:
        context.abort("x")
        context.check()

    assert (await fails(schedule("s", run_code("w", stop), "1s"))).kind is RunErrorKind.CANCELLED


# -- invoke_tool ------------------------------------------------------------------------------------


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_B6_invoke_tool_calls_a_function_with_the_input_or_given_arguments() -> None:
    async def shout(text: str, context: Any) -> str:
        """Shout."""
        return f"{text.upper()} at depth {context.depth}"

    assert await Harness().run(invoke_tool("t", add), {"a": 1, "b": 2}) == 3
    assert await Harness().run(invoke_tool("t", add, {"a": 2, "b": 2})) == 4
    error = await fails(invoke_tool("t", shout, {"text": "hi"}))
    assert error.kind is RunErrorKind.STEP_FAILED  # `context` is published by its schema, so it must be given


@pytest.mark.parametrize(("tool", "input"), [(add, {"a": 1}), (add, "no mapping"), ("unknown", {})])
async def test_B6_invoke_tool_fails_with_what_was_wrong(tool: Any, input: Any) -> None:
    step = invoke_tool("t", tool)
    if tool == "unknown":
        with pytest.raises(ValueError, match="unknown tool"):
            await Harness().run(step, input)
    else:
        assert (await fails(step, input)).__cause__ is not None
