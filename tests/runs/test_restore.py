"""Checkpoint, restore, replay: what had ended is handed back, once, and nothing else is."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from aiio.runs.code_steps import RunCode, conditional, run_code
from aiio.runs.context import RunContext
from aiio.runs.errors import RunConfigError, RunError
from aiio.runs.harness import Harness
from aiio.runs.items import create_message
from aiio.runs.ledger import Retention, ledger_prefix
from aiio.runs.looping import loop, schedule
from aiio.runs.parallel import in_parallel
from aiio.runs.snapshot import SCHEMA_VERSION, snapshot_key
from aiio.runs.spawning import spawn
from aiio.runs.stores import CheckpointStore, MemoryStore
from aiio.runs.until import max_steps


class Crash(BaseException):
    """Ends a run as a kill of the process would."""


class Workshop:
    """Makes steps that note that they ran, and crash on demand."""

    def __init__(self, store: CheckpointStore | None = None, **options: Any) -> None:
        self.store = MemoryStore() if store is None else store
        self.options = options
        self.ran: list[str] = []
        self.crash_at: str | None = None

    def harness(self) -> Harness:
        return Harness(store=self.store, **self.options)

    def note(self, name: str, output: Any = None, *, label: str | None = None) -> RunCode:
        def work(input: Any, context: RunContext) -> Any:
            told = f"{name}({input})" if label is None else label
            if self.crash_at == told:
                raise Crash
            self.ran.append(told)
            return input + 1 if output is None and isinstance(input, int) else output

        return run_code(name, work)

    async def crash(self, step: Any, input: Any, at: str) -> RunContext:
        harness = self.harness()
        context = harness.create_context()
        self.crash_at = at
        with pytest.raises(Crash):
            await harness.run(step, input, context=context)
        self.crash_at = None
        return context

    async def resume(self, step: Any, input: Any, id: str) -> tuple[Any, RunContext]:
        context = await self.harness().restore(id)
        assert context is not None
        self.ran.clear()
        return await context.harness.run(step, input, context=context), context


async def test_B7_loop_iterations_keep_separate_entries() -> None:
    shop = Workshop()
    step = loop("l", shop.note("w"), max_steps(4))
    crashed = await shop.crash(step, 0, "w(2)")
    output, context = await shop.resume(step, 0, crashed.id)
    assert (output, shop.ran) == (4, ["w(2)", "w(3)"])
    assert context.id == crashed.id


async def test_B7_parallel_siblings_keep_separate_entries_whatever_settles_first(
    autojump_clock: MockClock,
) -> None:
    shop = Workshop()

    def slow(seconds: float, value: str) -> Any:
        async def work(input: Any, context: RunContext) -> str:
            await trio.sleep(seconds)
            if shop.crash_at == value:
                raise Crash
            shop.ran.append(value)
            return value

        return run_code("same", work)

    step = in_parallel("p", [slow(3, "a"), slow(1, "b"), slow(2, "c")])
    crashed = await shop.crash(step, None, "a")
    output, _ = await shop.resume(step, None, crashed.id)
    assert (output, shop.ran) == (["a", "b", "c"], ["a"])


async def test_B7_children_of_a_spawn_are_replayed_with_their_items_and_state() -> None:
    shop = Workshop()

    def work(input: Any, child: RunContext) -> Any:
        shop.ran.append("work")
        child.item_log.append(create_message("said by the child"))
        child.state["done"] = [1]
        return None

    def look(input: Any, child: RunContext) -> Any:
        if shop.crash_at == "look":
            raise Crash
        return [len(child.item_log), child.state]

    async def both(input: Any, child: RunContext) -> Any:
        await child.execute(run_code("work", work))
        return await child.execute(run_code("look", look))

    step = spawn("child", run_code("both", both))
    crashed = await shop.crash(step, None, "look")
    output, _ = await shop.resume(step, None, crashed.id)
    assert output == [1, {"done": [1]}]
    assert shop.ran == []


async def test_B_decided_9_failed_steps_run_again_and_ended_ones_tell_step_replayed_only_and_count() -> None:
    shop = Workshop()

    async def flow(input: Any, context: RunContext) -> Any:
        value = await context.execute(shop.note("a"), input)
        return await context.execute(shop.note("b"), value)

    step = run_code("flow", flow)
    crashed = await shop.crash(step, 0, "b(1)")
    told: list[tuple[str, str]] = []
    context = await shop.harness().restore(crashed.id)
    assert context is not None
    assert context.step_count == 2  # as of the last checkpoint: flow, a
    context.harness.on_event(lambda name, data: told.append((name, data["step_id"])))
    shop.ran.clear()
    assert await context.harness.run(step, 0, context=context) == 2
    assert shop.ran == ["b(1)"]
    assert [entry for entry in told if entry[1] == "a"] == [("aiio:step_replayed", "a")]
    assert context.step_count == 5


async def test_B7_a_changed_step_id_discards_its_subtree() -> None:
    shop = Workshop()

    async def inner(input: Any, context: RunContext) -> Any:
        return await context.execute(shop.note("leaf", label="leaf"), input)

    async def flow(input: Any, context: RunContext) -> Any:
        first = await context.execute(conditional("same", lambda value, ctx: run_code("in", inner)), input)
        return await context.execute(shop.note("end", label="end"), first)

    async def changed(input: Any, context: RunContext) -> Any:
        first = await context.execute(run_code("same", inner), input)  # another kind in the same place
        return await context.execute(shop.note("end", label="end"), first)

    crashed = await shop.crash(run_code("flow", flow), 1, "end")
    await shop.resume(run_code("flow", changed), 1, crashed.id)
    assert shop.ran == ["leaf", "end"]
    keys = await shop.store.keys(ledger_prefix(crashed.id))
    rows = [json.loads((await shop.store.get(key)) or b"") for key in keys]
    assert len({row["path"] for row in rows}) == len(rows)  # the old ones are gone
    assert "/flow#0/same#0/in#0/leaf#0" not in [row["path"] for row in rows]


class Huge:
    """A value that is no JSON."""


@pytest.mark.parametrize("output", ["x" * 2000, Huge(), (1, 2), {1: 2}, math.nan])
async def test_B7_an_output_that_is_too_big_or_would_not_come_back_as_it_was_runs_again(output: Any) -> None:
    shop = Workshop(retention=Retention(max_entry_bytes=1000))

    async def flow(input: Any, context: RunContext) -> Any:
        for _ in range(2):  # the warning comes once
            await context.execute(shop.note("big", output, label="big"), input)
        return await context.execute(shop.note("end", 1, label="end"), None)

    crashed = await shop.crash(run_code("flow", flow), None, "end")
    await shop.resume(run_code("flow", flow), None, crashed.id)
    assert shop.ran == ["big", "big", "end"]


async def test_B7_the_ledger_keeps_the_newest_entries() -> None:
    shop = Workshop(retention=Retention(max_entries=2))
    step = loop("l", shop.note("w"), max_steps(6))
    crashed = await shop.crash(step, 0, "w(5)")
    assert [key[-8:] for key in await shop.store.keys(ledger_prefix(crashed.id))] == ["00000003", "00000004"]
    await shop.resume(step, 0, crashed.id)
    assert shop.ran == [f"w({n})" for n in range(6)]  # what runs again pushes the old ones out
    await shop.harness().run(loop("l", shop.note("w"), max_steps(2)), 0)
    endless = Workshop(retention=Retention(max_entries=math.inf, max_entry_bytes=math.inf))
    await endless.harness().run(loop("l", endless.note("w"), max_steps(3)), 0)


@pytest.mark.parametrize("limit", [0, -1, math.nan, True, "many"])
@pytest.mark.parametrize("name", ["max_entry_bytes", "max_entries"])
def test_B7_a_retention_that_makes_no_sense_is_refused_at_construction(name: str, limit: Any) -> None:
    with pytest.raises(RunConfigError) as caught:
        Retention(**{name: limit})
    assert caught.value.code == "STEP_LEDGER_RETENTION_INVALID"


async def test_B_decided_15_restoring_brings_back_tokens_step_count_cost_and_items_but_not_elapsed_and_billed(
    autojump_clock: MockClock,
) -> None:
    shop = Workshop()
    harness = shop.harness()
    context = harness.create_context(thread_id="t", resource_id="r", items=[create_message("hi")])

    async def work(input: Any, inner: RunContext) -> None:
        inner._book({"input_tokens": 5, "output_tokens": 2, "cached_tokens": 1}, 0.5)
        await trio.sleep(10)

    await harness.run(run_code("w", work), context=context)
    restored = await shop.harness().restore(context.id)
    assert restored is not None
    assert (restored.cost, restored.billed_cost, restored.elapsed) == (0.5, 0, 0)
    assert restored.tokens == context.tokens
    assert restored.step_count == 1
    assert restored.item_log.items == context.item_log.items
    assert (restored.thread_id, restored.resource_id) == ("t", "r")
    assert await restored.harness.run(run_code("w", work), context=restored) is None
    assert restored.cost == 0.5  # a replayed step adds nothing


async def test_B7_state_that_is_no_json_is_given_anew() -> None:
    shop = Workshop()
    harness = shop.harness()
    context = harness.create_context(state={"live": Huge()})
    await harness.run(shop.note("w", 1), Huge(), context=context)
    restored = await shop.harness().restore(context.id, state={"live": "again"})
    assert restored is not None
    assert restored.state == {"live": "again"}


async def test_B7_nothing_to_restore_is_none_and_a_broken_checkpoint_is_a_config_error() -> None:
    store = MemoryStore()
    assert await Harness().restore("x") is None
    assert await Harness(store=store).restore("x") is None
    await Harness().clear_checkpoint("x")
    for raw in (b"", b"[]", b'{"schema_version":2}', json.dumps({"schema_version": SCHEMA_VERSION}).encode()):
        await store.put(snapshot_key("x"), raw)
        with pytest.raises(RunConfigError) as caught:
            await Harness(store=store).restore("x")
        assert caught.value.code == "CHECKPOINT_SCHEMA_MISMATCH"
    await Harness(store=store).clear_checkpoint("x")
    assert await Harness(store=store).restore("x") is None


async def test_B7_a_ledger_without_a_snapshot_is_enough_and_unreadable_rows_are_passed_over() -> None:
    shop = Workshop()
    step = loop("l", shop.note("w"), max_steps(3))
    crashed = await shop.crash(step, 0, "w(2)")
    await shop.store.delete([snapshot_key(crashed.id)])
    prefix = ledger_prefix(crashed.id)
    await shop.store.put(f"{prefix}00000000", b"torn{")
    await shop.store.put(f"{prefix}00000007", b'{"path":1}')
    await shop.store.put(f"{prefix}odd", b"")
    output, _ = await shop.resume(step, 0, crashed.id)
    assert (output, shop.ran) == (3, ["w(0)", "w(2)"])
    assert f"{prefix}00000008" in await shop.store.keys(prefix)


class Failing(MemoryStore):
    """Cannot write."""

    async def put(self, key: str, value: bytes) -> None:
        await trio.lowlevel.checkpoint()
        raise OSError("disk full")


async def test_B7_a_failed_save_never_raises() -> None:
    harness = Harness(store=Failing())
    context = harness.create_context()
    assert await harness.run(run_code("w", lambda input, ctx: 1), context=context) == 1
    await context.checkpoint()


async def test_B7_checkpoint_without_a_store_is_a_no_op() -> None:
    await Harness().create_context().checkpoint()


class Slow(MemoryStore):
    """Counts snapshots, and takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshots = 0

    async def put(self, key: str, value: bytes) -> None:
        self.snapshots += key.endswith("snapshot")
        await trio.sleep(1)
        await super().put(key, value)

    async def delete(self, keys: Iterable[str]) -> None:
        await trio.sleep(1)
        await super().delete(keys)


async def test_B7_checkpoints_that_wait_are_saved_as_one(autojump_clock: MockClock) -> None:
    store = Slow()
    context = Harness(store=store).create_context()
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(context.checkpoint)
        await trio.sleep(0.5)
        for _ in range(5):  # what is being written does not count for these
            nursery.start_soon(context.checkpoint)
    assert store.snapshots == 2


async def test_B_decided_9_children_checkpoint_through_their_root() -> None:
    shop = Workshop()

    async def work(input: Any, child: RunContext) -> None:
        assert child.parent is not None
        child.parent.item_log.append(create_message("new"))
        await child.checkpoint()

    harness = shop.harness()
    context = harness.create_context()
    await harness.run(spawn("s", run_code("w", work)), context=context)
    raw = json.loads((await shop.store.get(snapshot_key(context.id))) or b"")
    assert len(raw["items"]) == 1
    keys = [key for key in await shop.store.keys("") if key.endswith("snapshot")]
    assert keys == [snapshot_key(context.id)]


async def test_B7_a_step_that_had_ended_is_recorded_although_the_run_is_cancelled(
    autojump_clock: MockClock,
) -> None:
    store = Slow()
    harness = Harness(store=store)
    context = harness.create_context()
    with trio.move_on_after(0.5) as scope:
        await harness.run(run_code("w", lambda input, ctx: "done"), context=context)
    assert scope.cancelled_caught
    restored = await Harness(store=store).restore(context.id)
    assert restored is not None
    assert len(restored._execution.ledger) == 1


async def test_B7_the_snapshot_names_the_steps_in_progress() -> None:
    shop = Workshop()

    async def work(input: Any, context: RunContext) -> None:
        await context.checkpoint()

    harness = shop.harness()
    context = harness.create_context()
    await harness.run(spawn("s", run_code("w", work)), {"in": 1}, context=context)
    shop.store = MemoryStore()
    harness = shop.harness()
    context = harness.create_context()

    async def park(input: Any, inner: RunContext) -> None:
        await inner.checkpoint()
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: harness.run(spawn("s", run_code("w", park)), {"in": 1}, context=context))
        await wait_all_tasks_blocked()
        raw = json.loads((await shop.store.get(snapshot_key(context.id))) or b"")
        nursery.cancel_scope.cancel()
    assert raw["frontier"] == [
        {"step_id": "s", "path": "/s#0", "input": {"in": 1}},
        {"step_id": "w", "path": "/s#0/w#0", "input": {"in": 1}},
    ]


async def test_B7_a_schedule_is_not_replayed(autojump_clock: MockClock) -> None:
    shop = Workshop()

    async def flow(input: Any, context: RunContext) -> Any:
        await context.execute(schedule("s", shop.note("w", 1, label="w"), "1s", max_runs=2))
        return await context.execute(shop.note("end", 1, label="end"))

    step = schedule("outer", run_code("flow", flow), "1s", max_runs=1)
    crashed = await shop.crash(step, None, "end")
    await shop.resume(step, None, crashed.id)
    assert shop.ran == ["w", "w", "end"]


async def test_B7_a_race_winners_state_comes_back() -> None:
    shop = Workshop()

    def win(input: Any, context: RunContext) -> str:
        context.state["won"] = True
        return "x"

    async def flow(input: Any, context: RunContext) -> Any:
        await context.execute(in_parallel("race", [run_code("a", win)], mode="race"))
        await context.execute(shop.note("end", 1, label="end"))
        return context.state

    crashed = await shop.crash(run_code("flow", flow), None, "end")
    await shop.store.delete([snapshot_key(crashed.id)])  # the ledger alone must do
    output, _ = await shop.resume(run_code("flow", flow), None, crashed.id)
    assert output == {"won": True}


def test_B16_run_error_is_not_a_config_error() -> None:
    assert not issubclass(RunConfigError, RunError)
