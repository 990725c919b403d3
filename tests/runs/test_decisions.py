"""What spec/runs.md says of contexts, steps, checkpoints and money, where no other file holds it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from aiio.runs import ledger as ledger_module
from aiio.runs.channels import Channel
from aiio.runs.children import child_of
from aiio.runs.code_steps import RunCode, run_code
from aiio.runs.context import RunContext
from aiio.runs.errors import RunError, RunErrorKind, error_kind
from aiio.runs.harness import Harness
from aiio.runs.items import create_message, item_text
from aiio.runs.ledger import Retention, ledger_prefix
from aiio.runs.looping import HISTORY, OnError, loop
from aiio.runs.model_step import call_model
from aiio.runs.paid import PaidState, paid_prefix
from aiio.runs.parallel import in_parallel
from aiio.runs.snapshot import SCHEMA_VERSION, snapshot_key
from aiio.runs.spawning import detached_spawn, spawn
from aiio.runs.stores import MemoryStore
from aiio.runs.until import LoopSnapshot, max_steps
from tests.agents.peer import MODEL, answer, call, calling, peer
from tests.io.scripted import Step, finish, frames, say


def flat(endpoint: str, model: str, usage: Any) -> float:
    return 0.01 * float(usage["input_tokens"]) + 0.02 * float(usage["output_tokens"])


def note(name: str = "note") -> RunCode:
    return run_code(name, lambda input, context: input)


async def fails(harness: Harness, step: Any, input: Any = None, **more: Any) -> RunError:
    with pytest.raises(RunError) as caught:
        await harness.run(step, input, **more)
    return caught.value


# -- B1, B2: contexts --------------------------------------------------------------------------------


async def test_B1_a_step_counts_after_the_depth_and_abort_checks() -> None:
    harness = Harness()
    context = harness.create_context()
    await harness.run(note(), context=context)
    assert context.step_count == 1
    context.abort()
    await fails(harness, note(), context=context)
    assert context.step_count == 1
    deep = harness.create_context()
    for _ in range(64):
        deep = child_of(deep)
    with pytest.raises(RunError, match="64 deep"):
        await deep.execute(note())
    assert deep.step_count == 0


async def test_B1_children_inherit_thread_and_resource_and_only_a_root_holds_cost() -> None:
    harness = Harness()
    context = harness.create_context(thread_id="t", resource_id="r")
    seen: list[Any] = []

    async def look(input: Any, child: RunContext) -> None:
        paid = child._execution.paid
        made = await paid.open(child, path="/x#0", round=0, provider="p", model="m", ceiling=2.0)
        await paid.change(made.call_id, PaidState.HELD)
        seen.append((child.thread_id, child.resource_id, child.held_cost, child.depth))
        assert child.parent is context
        assert child.id != context.id

    await harness.run(spawn("child", run_code("look", look)), context=context)
    assert seen == [("t", "r", 0.0, 1)]
    assert context.held_cost == 2.0
    assert (context.cost, context.billed_cost) == (0, 0)  # a bound, no part of either


async def test_B2_a_child_registers_when_made_and_is_forgotten_when_its_step_settles() -> None:
    harness = Harness()
    context = harness.create_context()
    seen: list[int] = []

    def look(input: Any, child: RunContext) -> None:
        seen.append(len(context.tree()))

    await harness.run(spawn("a", spawn("b", run_code("look", look))), context=context)
    assert seen == [3]
    assert context.tree() == [context]


async def test_B2_what_aborts_first_is_the_reason_of_the_whole_tree_pre_order() -> None:
    harness = Harness()
    root = harness.create_context()
    one, two = child_of(root), child_of(root)
    below = child_of(one)
    assert root.tree() == [root, one, below, two]
    one.abort("mine")
    root.abort("all")
    reasons = [node.abort_reason for node in (root, one, below, two)]
    assert reasons == ["all", "mine", "mine", "all"]


async def test_B2_cancel_of_a_root_waits_for_its_end_and_closes_its_channels() -> None:
    harness = Harness()
    context = harness.create_context()
    channel: Channel[int] = Channel("out", external=True)
    handle = harness.channel_handle(channel, context.id)
    ended: list[str] = []

    async def linger(input: Any, inner: RunContext) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
            ended.append("work")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fails, harness, spawn("child", run_code("work", linger)), None)
        nursery.cancel_scope.cancel()
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            error = await fails(harness, spawn("child", run_code("work", linger)), context=context)
            assert error.kind is RunErrorKind.CANCELLED
            ended.append("run")

        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        ended.clear()
        await harness.cancel(context, "enough")
        assert ended[0] == "work"
        assert handle.closed
        await harness.cancel(context, "again")  # a no-op
        assert context.abort_reason == "enough"


async def test_B_decided_16_a_context_owns_a_scope_and_nothing_outlives_its_run() -> None:
    harness = Harness()
    context = harness.create_context()
    scopes: list[int] = []

    async def sleep(input: Any, inner: RunContext) -> None:
        await trio.sleep_forever()

    async def work(input: Any, inner: RunContext) -> int:
        await inner.execute(detached_spawn("beside", run_code("sleep", sleep)))
        scopes.append(len(context._scopes))
        return 1

    async with trio.open_nursery() as nursery:
        assert await harness.run(run_code("work", work), context=context) == 1
        assert not nursery.child_tasks
    assert scopes == [1]
    assert (context._scopes, context._execution.nursery) == ([], None)


# -- B3: channels ------------------------------------------------------------------------------------


async def test_B3_receivers_of_a_queue_are_served_in_their_order() -> None:
    context = Harness().create_context()
    channel: Channel[str] = Channel("q")
    got: list[tuple[int, str]] = []

    async def receive(number: int) -> None:
        got.append((number, await context.recv(channel)))

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(receive, number)
            await wait_all_tasks_blocked()
        for value in "abc":
            await context.send(channel, value)
    assert sorted(got) == [(0, "a"), (1, "b"), (2, "c")]


async def test_B3_children_share_the_channels_of_their_harness_by_name() -> None:
    harness = Harness()

    async def send(input: Any, context: RunContext) -> None:
        await context.send(Channel("shared"), context.depth)

    async def flow(input: Any, context: RunContext) -> list[Any]:
        await context.execute(in_parallel("p", [run_code("a", send), run_code("b", send)]))
        await context.execute(spawn("s", run_code("c", send)))
        return [await context.recv(Channel("shared")) for _ in range(3)]

    assert await harness.run(run_code("flow", flow)) == [1, 1, 1]


async def test_B3_a_waiter_from_outside_never_times_out(autojump_clock: MockClock) -> None:
    harness = Harness()
    channel: Channel[int] = Channel("out", external=True)
    async with harness.channel_stream(channel, "run") as stream:
        with trio.move_on_after(100_000) as scope:
            await anext(stream)
    assert scope.cancelled_caught


async def test_B3_that_a_run_has_ended_is_known_only_of_those_somebody_asked_about() -> None:
    harness = Harness()
    channel: Channel[int] = Channel("out", external=True)
    asked, other = harness.create_context(), harness.create_context()
    handle = harness.channel_handle(channel, asked.id)
    for context in (asked, other):
        await harness.run(note(), context=context)
    assert handle.closed
    assert not harness.channel_handle(channel, other.id).closed
    assert harness._lifetimes._closed == {asked.id}


# -- B5: the loop of a model step ----------------------------------------------------------------------


async def test_B5_usage_is_summed_over_rounds_and_cached_is_absent_unless_some_round_said_it() -> None:
    def look() -> str:
        """Look."""
        return "seen"

    first: list[Step] = [call("look"), finish(usage={"input_tokens": 10, "output_tokens": 5})]
    told = {"input_tokens": 20, "output_tokens": 2, "cached_tokens": 8}
    for usage, cached in ((told, 8), ({"input_tokens": 20, "output_tokens": 2}, None)):
        async with peer(first, [say("done"), finish(usage=usage)]) as (env, _):
            harness = Harness(env=env, model=MODEL)
            context = harness.create_context()
            await harness.run(call_model("ask", tools=[look]), "q", context=context)
        assert (context.tokens.input, context.tokens.output, context.tokens.cached) == (30, 7, cached)
        assert context.last_step_meta is not None
        assert (context.last_step_meta.usage or {}).get("cached_tokens") == cached


@pytest.mark.parametrize(
    ("first", "text"),
    [
        ([finish()], "end"),
        ([say("half "), finish("length", finish="length")], "half end"),
        ([say("half "), finish("pause_turn", finish="paused")], "half end"),
    ],
)
async def test_B5_an_answer_that_is_empty_or_cut_goes_on_after_an_ephemeral_continue(
    first: list[Step], text: str
) -> None:
    async with peer(first, answer("end")) as (env, found):
        harness = Harness(env=env, model=MODEL, prices=flat)
        told: list[str] = []
        harness.on_event(lambda name, data: told.append(name) if "recovery" in name else None)
        context = harness.create_context()
        assert await harness.run(call_model("ask"), "q", context=context) == text
    assert found.bodies[1]["messages"][-1]["content"][0]["text"] == "continue"
    assert "continue" not in [item_text(item) for item in context.item_log.items]
    assert told == ["aiio:model_call_recovery_continue"]


async def test_B5_a_model_is_told_to_continue_at_most_three_times_and_never_when_it_refused() -> None:
    async with peer([finish()]) as (env, found):
        harness = Harness(env=env, model=MODEL)
        error = await fails(harness, call_model("ask"), "q")
        assert (error.kind, str(error)) == (RunErrorKind.STEP_FAILED, "empty response (stop)")
        assert len(found.bodies) == 4
        await fails(harness, call_model("ask", recoveries=0), "q")
        assert len(found.bodies) == 5
    async with peer([finish("refusal", finish="refusal")]) as (env, found):
        error = await fails(Harness(env=env, model=MODEL), call_model("ask"), "q")
        assert (error.kind, len(found.bodies)) == (RunErrorKind.MODEL_REFUSED, 1)


async def test_B5_a_recovered_answer_may_call_tools_and_replays() -> None:
    def look() -> str:
        """Look."""
        return "seen"

    cut = [say("I'll "), finish("length", finish="length")]
    broken = [True]

    def stop(input: Any, context: RunContext) -> Any:
        if broken:
            raise ValueError("stop here")
        return input

    store = MemoryStore()
    async with peer(cut, [frames([]), call("look"), finish()], cut, answer("end")) as (env, found):

        async def flow(input: Any, context: RunContext) -> Any:
            said = await context.execute(call_model("ask", tools=[look]), "q")
            return await context.execute(run_code("stop", stop), said)

        harness = Harness(env=env, model=MODEL, store=store)
        await fails(harness, run_code("flow", flow), context=harness.create_context(id="x"))
        broken.clear()
        again = await Harness(env=env, model=MODEL, store=store).restore("x")
        assert again is not None
        assert await again.harness.run(run_code("flow", flow), context=again) == "I'll end"
        assert len(found.bodies) == 4


# -- B6: steps -------------------------------------------------------------------------------------------


async def test_B6_parallel_of_nothing_merges_nothing_and_a_race_of_nothing_is_fork_partial() -> None:
    harness = Harness()
    merged: list[Any] = []

    def merge(results: list[Any], context: RunContext) -> str:
        merged.append(results)
        return "merged"

    for mode in ("all", "settle"):
        assert await harness.run(in_parallel("none", [], mode=mode, merge=merge)) == "merged"
    assert merged == [[], []]
    assert (await fails(harness, in_parallel("none", [], mode="race"))).kind is RunErrorKind.FORK_PARTIAL


async def test_B6_a_loop_keeps_100_outputs_and_skips_even_the_first() -> None:
    harness = Harness()
    seen: list[LoopSnapshot] = []

    def until(snapshot: LoopSnapshot) -> bool:
        seen.append(snapshot)
        return snapshot.iteration == 149

    def work(input: int, context: RunContext) -> int:
        if input == 0 and not seen and not failed:
            failed.append(1)
            raise ValueError("the first")
        return input + 1

    failed: list[int] = []
    step = loop("l", run_code("w", work), until, on_error=lambda error, iteration: OnError.SKIP)
    assert await harness.run(step, 0) == 149  # of 150 iterations one gave nothing
    assert HISTORY == len(seen[-1].history) == 100
    assert seen[-1].history[-1] == 149


async def test_B6_a_step_that_fails_leaves_the_frontier_and_is_not_recorded() -> None:
    store = MemoryStore()
    harness = Harness(store=store)
    context = harness.create_context(id="x")
    told: list[str] = []
    harness.on_event(lambda name, data: told.append(name.removeprefix("aiio:")))

    def fail(input: Any, inner: RunContext) -> None:
        raise ValueError("no")

    await fails(harness, run_code("bad", fail), context=context)
    assert told == ["step_started"]
    assert not context._execution.frontier
    assert await store.keys(ledger_prefix("x")) == []


# -- B7: checkpoints and the ledger ---------------------------------------------------------------------


class Counting(MemoryStore):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    async def get(self, key: str) -> bytes | None:
        self.calls.append("get")
        return await super().get(key)

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        self.calls.append("get_many")
        return await super().get_many(keys)


async def test_B7_a_snapshot_is_one_key_overwritten_whole_and_an_entry_says_what_it_is() -> None:
    store = MemoryStore()
    harness = Harness(store=store, clock=lambda: 1234.5)
    context = harness.create_context(id="x", thread_id="t", resource_id="r", state={"a": 1})
    steps = in_parallel("wide", [note("one"), note("one")])
    await harness.run(loop("l", [note("w"), steps], max_steps(2)), 7, context=context)
    snapshot = json.loads(await store.get("execution:x:snapshot") or b"")
    assert snapshot_key("x") == "execution:x:snapshot"
    assert snapshot["schema_version"] == SCHEMA_VERSION == 3
    named = ("execution_id", "thread_id", "resource_id", "state", "frontier", "captured_at")
    assert [snapshot[name] for name in named] == ["x", "t", "r", {"a": 1}, [], 1234.5]
    assert {"items", "layers", "cost", "tokens", "step_count", "paid_sequence"} <= snapshot.keys()
    keys = await store.keys(ledger_prefix("x"))
    assert keys == [f"execution:x:ledger:{number:08d}" for number in range(len(keys))]
    entries = [json.loads(await store.get(key) or b"") for key in keys]
    inner = ["/l#0/w#0", "/l#0/wide#0/[0]/one#0", "/l#0/wide#0/[1]/one#0", "/l#0/wide#0"]
    inner += [path.replace("w#0", "w#1").replace("wide#0", "wide#1") for path in inner]
    assert sorted(entry["path"] for entry in entries) == sorted([*inner, "/l#0"])
    assert (entries[0]["step_id"], entries[0]["kind"], entries[0]["output"]) == ("w", "run_code", 7)
    assert entries[0]["completed_at"] == 1234.5


async def test_B7_a_checkpoint_follows_what_was_appended_before_the_model_is_asked() -> None:
    store = MemoryStore()

    def reply(body: dict[str, Any]) -> list[Step]:
        snapshot = json.loads(store._values["execution:x:snapshot"])
        seen.append([item_text(item) for item in snapshot["items"]])
        return answer("ok")

    seen: list[list[str]] = []
    async with peer(reply) as (env, _):
        harness = Harness(env=env, model=MODEL, store=store)
        await harness.run(call_model("ask"), "asked", context=harness.create_context(id="x"))
    assert seen == [["asked"]]


async def test_B7_what_a_snapshot_holds_wins_and_the_ledger_is_read_at_once_and_goes_on() -> None:
    store = Counting()
    harness = Harness(store=store)
    context = harness.create_context(id="x", state={"from": "snapshot"}, items=[create_message("said")])
    await harness.run(loop("l", note("w"), max_steps(3)), 1, context=context)
    store.calls.clear()
    restored = await Harness(store=store).restore("x", state={"from": "caller"})
    assert restored is not None
    assert store.calls == ["get", "get_many", "get_many"]  # snapshot; results; paid calls
    assert restored.state == {"from": "snapshot"}
    assert restored.id == "x"
    assert [item_text(item) for item in restored.item_log.items] == ["said"]
    keys = await store.keys(ledger_prefix("x"))
    await restored.harness.run(note("more"), 1, context=restored)
    assert (await store.keys(ledger_prefix("x")))[len(keys) :] == [f"{ledger_prefix('x')}{len(keys):08d}"]


async def test_B7_what_can_not_be_recorded_is_worth_one_warning_of_its_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warned: list[str] = []

    class Log:
        def warning(self, event: str, **facts: Any) -> None:
            warned.append(facts["why"])

    monkeypatch.setattr(ledger_module, "get_logger", Log)
    harness = Harness(store=MemoryStore(), retention=Retention(max_entry_bytes=300))

    async def flow(input: Any, context: RunContext) -> None:
        for output in ("x" * 300, "y" * 300, object(), object(), (1,), (2,)):
            await context.execute(run_code("w", lambda *_, output=output: output))

    await harness.run(run_code("flow", flow))
    assert warned == ["too_big", "not_json", "unlike_json"]


async def test_B7_clear_checkpoint_drops_snapshot_ledger_and_paid_calls() -> None:
    store = MemoryStore()
    async with peer(answer("ok")) as (env, _):
        harness = Harness(env=env, model=MODEL, store=store)
        await harness.run(call_model("ask"), "q", context=harness.create_context(id="x"))
        other = harness.create_context(id="xy")
        await harness.run(note(), context=other)
    assert await store.keys(paid_prefix("x"))
    await harness.clear_checkpoint("x")
    assert {key.split(":")[1] for key in await store.keys("")} == {"xy"}
    assert await harness.restore("x") is None


# -- B8: money ---------------------------------------------------------------------------------------------


async def test_B_decided_2_a_call_is_open_in_the_store_before_it_is_sent_and_counted_in_the_snapshot() -> (
    None
):
    store = MemoryStore()
    seen: list[Any] = []

    def reply(body: dict[str, Any]) -> list[Step]:
        keys = [key for key in store._values if key.startswith(paid_prefix("x"))]
        seen.extend(json.loads(store._values[key]) for key in keys)
        return answer("ok")

    async with peer(reply) as (env, _):
        harness = Harness(env=env, model=MODEL, store=store, prices=flat)
        context = harness.create_context(id="x")
        await harness.run(call_model("ask", max_output=100), "q", context=context)
        (paid,) = await harness.paid_calls("x")
    (sent,) = seen
    assert (sent["state"], sent["cost_usd"], sent["attempt"], sent["round"]) == ("open", None, 0, 0)
    assert sent["ceiling_usd"] > 2.0  # 100 tokens out alone
    assert (sent["execution_id"], sent["context_id"], sent["path"]) == ("x", "x", "/ask#0")
    assert paid.state is PaidState.SETTLED
    assert paid.cost_usd == pytest.approx(0.2)
    snapshot = json.loads(store._values["execution:x:snapshot"])
    assert snapshot["cost"] == pytest.approx(0.2)
    assert snapshot["tokens"] == {"input": 10, "output": 5, "cached": None}
    assert (snapshot["step_count"], snapshot["paid_sequence"]) == (1, 1)


async def test_B8_spend_rolls_up_from_failed_paths_lost_races_and_detached_children() -> None:
    def look() -> str:
        """Look."""
        raise KeyError("tool")

    async with peer(calling(call("look")), answer("ok")) as (env, found):
        harness = Harness(env=env, model=MODEL, prices=flat)
        context = harness.create_context()

        async def bad(input: Any, inner: RunContext) -> None:
            await inner.execute(call_model("ask", tools=[look]), "q")
            raise ValueError("after that")

        async def flow(input: Any, inner: RunContext) -> None:
            step = in_parallel("p", [run_code("bad", bad), run_code("worse", bad)], mode="settle")
            await inner.execute(spawn("s", step))
            handle = await inner.execute(detached_spawn("d", call_model("more")), "q")
            await handle.wait()

        await harness.run(run_code("flow", flow), context=context)
        bills = [call.cost_usd for call in await harness.paid_calls(context.id)]
    assert len(bills) == len(found.bodies) >= 4
    assert context.cost == context.billed_cost == pytest.approx(sum(bill or 0 for bill in bills))


# -- B16: errors -----------------------------------------------------------------------------------------


def test_B16_the_kinds_of_errors_are_the_specs() -> None:
    assert [kind.value for kind in RunErrorKind] == [
        "step_failed",
        "model_refused",
        "model_parse_error",
        "model_rate_limit",
        "fork_partial",
        "channel_timeout",
        "channel_closed",
        "cancelled",
        "item_schema_mismatch",
        "budget_exceeded",
        "steering_denied",
        "handle_evicted",
        "system_one_failed",
    ]
    error = RunError(RunErrorKind.BUDGET_EXCEEDED, "too much", field="cost", limit=1.0, actual=2.0)
    assert error.detail == {"field": "cost", "limit": 1.0, "actual": 2.0}
    assert error_kind(ValueError()) is None
