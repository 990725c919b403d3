"""One execution: how it is stopped, what it counts, what its spans say."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
import structlog
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from aiio.runs import spans
from aiio.runs.channels import Channel
from aiio.runs.children import child_of
from aiio.runs.code_steps import run_code
from aiio.runs.context import RunContext
from aiio.runs.errors import RunConfigError, RunError, RunErrorKind, error_kind, is_run_error
from aiio.runs.harness import Harness
from aiio.runs.ids import new_id
from aiio.runs.parallel import in_parallel
from aiio.runs.spawning import spawn
from aiio.runs.totals import TokenTotals

BOX: Channel[Any] = Channel("box")


async def forever(_: Any, context: RunContext) -> None:
    await trio.sleep_forever()


async def stops(fn: Any, *args: Any, **more: Any) -> RunError:
    with pytest.raises(RunError) as caught:
        await fn(*args, **more)
    assert caught.value.kind is RunErrorKind.CANCELLED
    return caught.value


async def test_B_decided_1_an_id_is_a_uuid_v7_and_sorts_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    monkeypatch.setattr("time.time_ns", lambda: 1_000_000_000)
    first = new_id()
    monkeypatch.setattr("time.time_ns", lambda: 2_000_000_000)
    assert re.fullmatch(pattern, first)
    assert first < new_id()
    assert re.fullmatch(pattern, Harness().create_context().id)


async def test_B1_a_fresh_root_has_the_defaults_of_the_seed(autojump_clock: MockClock) -> None:
    harness = Harness(params={"a": 1})
    context = harness.create_context(resource_id="res")
    await trio.sleep(2)
    assert (context.step_count, context.depth, context.parent) == (0, 0, None)
    assert context.tokens == TokenTotals(0, 0, 0, None)
    assert (context.cost, context.billed_cost, context.held_cost) == (0, 0, 0)
    assert context.elapsed == 2000
    assert (context.state, dict(context.context), context.item_log.items) == ({}, {}, ())
    assert (context.last_step_meta, context.last_layer_usage) == (None, None)
    assert (context.completed, context.completion_value) == (False, None)
    assert (context.aborted, context.abort_reason) == (False, None)
    assert (context.resource_id, context.harness) == ("res", harness)
    assert context.harness.params == {"a": 1}
    assert context.fs is harness.fs
    assert context.id in repr(context)


async def test_B2_abort_reaches_grandchildren_not_parents_nor_siblings_and_the_first_reason_wins() -> None:
    root = Harness().create_context()
    child, sibling = child_of(root), child_of(root)
    grandchild = child_of(child)
    child.abort("enough")
    child.abort("again")
    child.complete(1)
    assert (child.aborted, child.abort_reason, child.completed) == (True, "enough", False)
    assert (grandchild.aborted, grandchild.abort_reason) == (True, "enough")
    assert not root.aborted
    assert not sibling.aborted
    assert grandchild.depth == 2
    assert grandchild.thread_id == root.thread_id


async def test_B2_an_abort_without_a_reason_is_attributed_and_late_children_start_aborted() -> None:
    root = Harness().create_context()
    early = child_of(root)
    root.abort()
    late = child_of(root)
    assert root.abort_reason is None
    assert early.abort_reason == late.abort_reason == "parent context aborted"
    assert str(root.stopped) == "context aborted"
    with pytest.raises(RunError, match="parent context aborted"):
        late.check()


async def test_B_decided_5_complete_stops_the_run_and_the_run_returns_the_completion_value() -> None:
    harness = Harness()

    async def work(_: Any, context: RunContext) -> None:
        context.complete({"answer": 42})
        context.complete("later")
        context.abort("later")
        await trio.sleep_forever()

    context = harness.create_context()
    children: list[RunContext] = []

    def note(_: Any, child: RunContext) -> None:
        children.append(child)

    assert await harness.run(run_code("work", work), context=context) == {"answer": 42}
    assert (context.completed, context.completion_value, context.aborted) == (True, {"answer": 42}, False)
    await stops(context.recv, BOX)
    assert child_of(context).abort_reason == "parent context completed"
    assert await harness.run(run_code("again", note), context=context) == {"answer": 42}
    assert children == []


async def test_B_decided_5_complete_without_another_wait_ends_the_run_too_even_with_none() -> None:
    harness = Harness()
    assert await harness.run(run_code("work", lambda _, context: context.complete(None))) is None

    def fail(_: Any, context: RunContext) -> None:
        context.complete(1)
        raise ValueError("after that")

    with pytest.raises(RunError, match="after that"):
        await harness.run(run_code("work", fail))


async def test_B_decided_5_complete_of_a_child_ends_the_child_only() -> None:
    inner = run_code("inner", lambda _, context: context.complete("early"))
    assert await Harness().run(spawn("child", inner)) == "early"


async def test_B17_an_abort_becomes_cancelled_at_the_boundary_of_the_run() -> None:
    harness = Harness()
    context = harness.create_context()
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            error = await stops(harness.run, run_code("work", forever), context=context)
            assert error.detail["reason"] == "enough"

        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        context.abort("enough")


async def test_B17_a_cancellation_from_outside_goes_through() -> None:
    harness = Harness()
    context = harness.create_context()
    with trio.move_on_after(0.001) as scope:
        await harness.run(run_code("work", forever), context=context)
    assert scope.cancelled_caught
    assert not context.aborted


async def test_B17_abort_and_outer_cancellation_at_once_stay_a_cancellation() -> None:
    harness = Harness()
    context = harness.create_context()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: harness.run(run_code("work", forever), context=context))
            await wait_all_tasks_blocked()
            context.abort()
            scope.cancel()
    assert scope.cancelled_caught


async def test_B_decided_14_abort_is_sync_and_flags_the_whole_subtree_before_anybody_wakes() -> None:
    harness = Harness()
    context = harness.create_context()
    seen: list[bool] = []

    async def watch(_: Any, child: RunContext) -> None:
        try:
            await trio.sleep_forever()
        finally:
            seen.extend(node.aborted for node in everybody)

    everybody: list[RunContext] = []
    step = in_parallel("many", [run_code(f"p{n}", watch) for n in range(3)])

    async def run() -> None:
        await stops(harness.run, step, context=context)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        everybody = context.tree()
        assert len(everybody) == 4
        context.abort("now")
        assert all(node.aborted for node in everybody)
    assert seen == [True] * 12


async def test_B2_a_code_step_that_ignores_the_flag_runs_to_its_next_boundary() -> None:
    harness = Harness()
    done: list[str] = []

    def work(_: Any, context: RunContext) -> None:
        context.abort("stop")
        done.append("finished its work")

    async def both(_: Any, context: RunContext) -> None:
        await context.execute(run_code("first", work))
        done.append("never")

    error = await stops(harness.run, run_code("both", both))
    assert error.detail["reason"] == "stop"
    assert done == ["finished its work"]


async def test_B1_a_step_below_depth_64_is_refused() -> None:
    harness = Harness()
    step: Any = run_code("leaf", lambda input, context: context.depth)
    for _ in range(63):
        step = spawn("deeper", step)
    assert await harness.run(step) == 63
    with pytest.raises(RunError, match="64 deep") as caught:
        await harness.run(spawn("one more", step))
    assert caught.value.kind is RunErrorKind.STEP_FAILED


async def test_B_decided_6_spend_rolls_up_to_every_ancestor_also_of_failed_children() -> None:
    harness = Harness()
    context = harness.create_context()

    def spend(_: Any, child: RunContext) -> None:
        child._book({"input_tokens": 10, "output_tokens": 5, "cached_tokens": 0}, 0.5)
        raise ValueError("after the money was spent")

    with pytest.raises(RunError):
        await harness.run(spawn("outer", spawn("inner", run_code("spend", spend))), context=context)
    assert context.tokens == TokenTotals(10, 5, 15, 0)
    assert context.cost == context.billed_cost == 0.5
    context._book({"input_tokens": None}, None)
    assert context.tokens.cached == 0


async def test_B1_children_get_a_deep_copy_of_the_state_and_a_big_one_is_worth_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = Harness().create_context(state={"list": [1]})
    child = child_of(context)
    child.state["list"].append(2)
    assert context.state == {"list": [1]}
    monkeypatch.setattr("aiio.runs.context.STATE_WARNING_BYTES", 5)
    structlog.reset_defaults()
    with capture_logs() as lines:
        child_of(context)
        context.state = {"unlike": object()}
        child_of(context)
    assert [line["event"] for line in lines if line["log_level"] == "warning"] in ([], ["run.state_is_big"])


async def test_B17_an_abort_of_the_root_reaches_10000_contexts_in_one_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcomes: Counter[str] = Counter()

    class Log:
        def info(self, event: str, **facts: Any) -> None:
            outcomes[f"{facts['span']} {facts['outcome']}"] += 1

    monkeypatch.setattr(spans, "get_logger", Log)  # the test's own costs more than all the rest
    harness = Harness()
    context = harness.create_context()
    ended = 0

    async def park(_: Any, child: RunContext) -> None:
        nonlocal ended
        try:
            await trio.sleep_forever()
        finally:
            ended += 1

    wide = in_parallel("wide", [run_code(f"leaf{n}", park) for n in range(99)])
    step = in_parallel("tree", [wide] * 100)

    async def run() -> None:
        await stops(harness.run, step, context=context)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        everybody = context.tree()
        assert len(everybody) == 10_001
        context.abort("all of you")
        assert all(node.aborted for node in everybody)
        assert ended == 0  # flags first: nobody has run yet
        # One pass of the scheduler runs every task that was ready when it began. This one was among them, so
        # at the latest when it runs for the second time all the others have.
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        assert ended == 9_900
    assert outcomes["child cancelled"] == 10_000


async def test_B3_nested_runs_on_one_root_are_one_execution() -> None:
    harness = Harness()

    async def outer(_: Any, context: RunContext) -> Any:
        return await harness.run(run_code("inner", lambda input, inner: inner is context), context=context)

    assert await harness.run(run_code("outer", outer)) is True


async def test_B2_harness_cancel_aborts_and_is_a_checkpoint() -> None:
    harness = Harness()
    context = harness.create_context()
    await harness.cancel(context, "done with it")
    assert context.abort_reason == "done with it"


async def test_B5_events_are_told_and_a_listener_that_raises_is_logged() -> None:
    harness = Harness(name="mine")
    told: list[tuple[str, Any]] = []

    def bad(name: str, data: Any) -> None:
        raise RuntimeError("listener")

    forget_bad = harness.on_event(bad)
    forget = harness.on_event(lambda name, data: told.append((name, data.get("step_id"))))
    await harness.run(run_code("a", lambda input, context: 1))
    forget()
    forget_bad()
    await harness.run(run_code("b", lambda input, context: 1))
    assert told == [("mine:step_started", "a"), ("mine:step_completed", "a")]


# -- errors -----------------------------------------------------------------------------------------


def test_B16_a_foreign_error_with_a_string_kind_is_a_run_error() -> None:
    class Foreign(Exception):
        kind = "model_refused"

    assert is_run_error(Foreign())
    assert not is_run_error(ValueError())
    assert error_kind(RunError(RunErrorKind.CANCELLED, "x")) == "cancelled"
    config = RunConfigError("MISSING_MODEL", "no model", hint="give one", docs_url="https://x.test")
    assert (config.code, config.hint, config.docs_url) == ("MISSING_MODEL", "give one", "https://x.test")
    assert str(config) == "no model (give one)"
