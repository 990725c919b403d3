"""Decisions of spec/runs.md about layers, each from its text: timeouts, orders, failures, states, views."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from aiio.runs.anchoring import MISSES_TO_BLIND, PRESSURE_FLOOR, CachePolicy
from aiio.runs.budgets import LAYER_SHARE, ProjectionPolicy
from aiio.runs.code_steps import run_code
from aiio.runs.context import RunContext
from aiio.runs.errors import RunError
from aiio.runs.harness import LINEAGES, Harness
from aiio.runs.items import create_message, new_item
from aiio.runs.layers import HOOK_TIMEOUTS, ContextLayer, HookCall, Hooks, Placement, Ruling, Slot, Verdict
from aiio.runs.layers import Scope as LayerScope
from aiio.runs.model_step import call_model
from aiio.runs.spawning import spawn
from aiio.runs.stores import MemoryStore
from aiio.runs.view import preview
from tests.agents.peer import MODEL, answer, call, calling, peer
from tests.io.scripted import Step, finish, say
from tests.providers.dialects import DIALECTS
from tests.providers.fakes import FakeIO


def layer(id: str, slot: float = 100, **given: Any) -> ContextLayer:
    hooks = {name: given.pop(name) for name in list(given) if name in Hooks.__dataclass_fields__}
    return ContextLayer(id=id, slot=slot, hooks=Hooks(**hooks), **given)


def texts(body: dict[str, Any]) -> list[str]:
    return [message["content"][0].get("text", "") for message in body["messages"]]


def nothing(input: Any, context: RunContext) -> None:
    """A step that does nothing."""


# -- the figures ------------------------------------------------------------------------------------


def test_B10_slots_and_default_timeouts_are_the_specs() -> None:
    slots = [Slot.REMINDER, Slot.STEERING, Slot.SCRATCHPAD, Slot.ENTITY, Slot.OBSERVATIONS, Slot.PROCEDURAL]
    slots += [Slot.EPISODIC, Slot.RAG, Slot.SEMANTIC]
    assert slots == [80, 90, 100, 150, 200, 250, 300, 350, 400]
    assert HOOK_TIMEOUTS == {
        "init": 10,
        "on_item_append": 5,
        "recall": 5,
        "project_history": 5,
        "after_model_call": 10,
        "before_tool_call": 5,
        "store": 30,
        "on_spawn": 10,
        "on_return": 10,
        "on_complete": 30,
        "dispose": 5,
        "render_delta": 5,
    }
    assert HOOK_TIMEOUTS.keys() == {field.name for field in dataclasses.fields(Hooks)}


def test_B11_the_default_policy_and_shares_are_the_specs() -> None:
    policy = ProjectionPolicy()
    assert (policy.token_budget, policy.response_reserve, policy.cap) == (128_000, 4_000, 124_000)
    assert LAYER_SHARE == 0.6


def test_B12_the_default_policy_and_constants_are_the_specs() -> None:
    assert dataclasses.asdict(CachePolicy()) == {
        "enabled": True,
        "min_cached_tokens": 100,
        "min_epoch_assemblies": 2,
        "max_epoch_assemblies": 50,
        "delta_budget_fraction": 0.15,
        "auto_demote_churn": 0.5,
        "auto_promote_churn": 0.2,
        "min_churn_samples": 3,
        "churn_decay": 0.5,
    }
    assert (PRESSURE_FLOOR, MISSES_TO_BLIND, LINEAGES) == (256, 3, 256)


# -- orders -----------------------------------------------------------------------------------------


async def test_B10_slots_ascend_and_ties_are_in_list_order_spawn_and_return_too() -> None:
    log: list[str] = []

    def noting(id: str, slot: float) -> ContextLayer:
        return layer(
            id,
            slot,
            on_spawn=lambda call: log.append(f"spawn {id}"),
            on_return=lambda call: log.append(f"return {id}"),
        )

    layers = [noting("c", 2), noting("a", 1), noting("d", 2), noting("b", 1)]
    await Harness(layers=layers).run(spawn("s", run_code("c", nothing)))
    assert log == [f"{hook} {id}" for hook in ("spawn", "return") for id in "abcd"]


async def test_B10_stores_run_at_the_same_time_each_with_its_own_snapshot(autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    async def store(call: HookCall) -> Any:
        await trio.sleep(5)
        seen.append(dict(call.context.layer_states))
        return {"state": "stored"}

    layers = [layer("a", store=store), layer("b", store=store)]
    async with peer(answer("ok")) as (env, _):
        harness = Harness(env=env, model=MODEL, layers=layers, prices=lambda *_: None)
        began = trio.current_time()
        context = harness.create_context()
        await harness.run(call_model("ask"), "q", context=context)
        assert trio.current_time() - began == 5
        assert seen == [{"a": None, "b": None}] * 2
        assert context.layers.states == {"a": "stored", "b": "stored"}


async def test_B10_the_append_pipeline_hands_on_what_the_layer_before_made() -> None:
    def adding(text: str) -> Any:
        return lambda call: {"items": [*call.items, create_message(text)]}

    async with peer(answer("ok")) as (env, wire):
        layers = [layer("b", 2, on_item_append=adding("b")), layer("a", 1, on_item_append=adding("a"))]
        await Harness(env=env, model=MODEL, layers=layers).run(call_model("ask"), "q")
        assert texts(wire.bodies[0]) == ["q", "a", "b"]


async def test_B10_what_a_model_says_is_not_appended_through_the_layers() -> None:
    seen: list[str] = []

    def tool() -> str:
        """Do it."""
        return "done"

    def note(call: HookCall) -> None:
        seen.extend(item["type"] for item in call.items)

    async with peer(calling(call("tool")), answer("ok")) as (env, _):
        harness = Harness(env=env, model=MODEL, layers=[layer("l", on_item_append=note)])
        await harness.run(call_model("ask", tools=[tool]), "q")
    assert seen == ["message", "function_call_output"]


# -- failures ---------------------------------------------------------------------------------------


async def test_B10_a_failed_on_spawn_leaves_the_layer_out_and_a_failed_on_return_the_parent_alone() -> None:
    def fail(call: HookCall) -> Any:
        raise ValueError("no")

    layers = [
        layer("out", 1, init=lambda call: {"state": 1}, on_spawn=fail),
        layer(
            "kept",
            2,
            init=lambda call: {"state": 1},
            on_spawn=lambda call: {"child_state": 2},
            on_return=fail,
        ),
        layer("last", 3, on_return=lambda call: {"result": f"{call.result}!"}),
    ]
    context = Harness(layers=layers).create_context()
    step = spawn("s", run_code("look", lambda input, child: sorted(child.layers.states.items())))
    assert await context.harness.run(step, context=context) == "[('kept', 2)]!"
    assert context.layers.states == {"out": 1, "kept": 1, "last": None}


@pytest.mark.parametrize("how", ["raises", "hangs", "says nothing"])
async def test_B10_a_render_delta_that_fails_republishes_the_whole(
    how: str, autojump_clock: MockClock
) -> None:
    turn = [0]

    def recall(call: HookCall) -> str:
        turn[0] += 1
        return f"page {turn[0]}"

    async def delta(call: HookCall) -> Any:
        if how == "raises":
            raise ValueError("no")
        if how == "hangs":
            await trio.sleep_forever()

    async def flow(input: Any, context: RunContext) -> None:
        await context.execute(call_model("a"), "q")
        await context.execute(call_model("b"), "q")

    async with peer(answer("ok")) as (env, wire):
        harness = Harness(
            env=env,
            model=MODEL,
            layers=[layer("l", recall=recall, render_delta=delta)],
            prices=lambda *_: None,
        )
        began = trio.current_time()
        await harness.run(run_code("flow", flow))
        assert '<update layer="l" action="replace">\npage 2\n</update>' in texts(wire.bodies[1])[-1]
        assert trio.current_time() - began == (5 if how == "hangs" else 0)


async def test_B10_a_disabled_layer_is_skipped_by_every_hook_and_a_cleared_one_is_not() -> None:
    called: list[str] = []

    def note(id: str) -> dict[str, Any]:
        names = [
            field.name for field in dataclasses.fields(Hooks) if field.name not in ("init", "render_delta")
        ]
        return {name: lambda call, name=name: called.append(f"{id}.{name}") for name in names}

    def fail(call: HookCall) -> Any:
        raise ValueError("no")

    layers = [
        layer("disabled", **note("disabled"), init=fail, disable_on_init_error=True, provides={"f": _one}),
        layer("cleared", **note("cleared"), init=lambda call: {"state": None}),
    ]

    def tool() -> None:
        """Do it."""

    async def flow(input: Any, context: RunContext) -> None:
        await context.execute(call_model("ask", tools=[tool]), "q")
        await context.execute(call_model("all"), "q")
        await context.execute(spawn("s", run_code("c", nothing)))
        assert list(context.context) == ["cleared"]

    async with peer(calling(call("tool")), answer("ok")) as (env, wire):
        await Harness(env=env, model=MODEL, layers=layers).run(run_code("flow", flow))
        assert [body["tools"] for body in wire.bodies[2:]] == [[]]
    assert {entry.partition(".")[0] for entry in called} == {"cleared"}
    assert len(set(called)) == len(note("x"))


def _one(state: Any) -> int:
    return 1


async def test_B10_clearing_a_state_deletes_what_is_stored() -> None:
    store = MemoryStore()
    await store.put("layers/l/t/state", b'"old"')
    clears = layer("l", on_complete=lambda call: {"state": None})
    context = Harness(layers=[clears], store=store).create_context(thread_id="t")
    assert (
        await context.harness.run(run_code("c", lambda input, ctx: ctx.layers.states["l"]), context=context)
        == "old"
    )
    assert await store.keys("layers/") == []


@pytest.mark.parametrize(
    ("scope", "resource", "key"),
    [
        (LayerScope.THREAD, "r", "layers/l/t/state"),
        (LayerScope.RESOURCE, "r", "layers/l/r/state"),
        (LayerScope.RESOURCE, None, "layers/l/t/state"),
        (LayerScope.GLOBAL, "r", "layers/l/__global__/state"),
        (LayerScope.EXECUTION, "r", None),
    ],
)
async def test_B10_storage_keys_hold_layer_and_scope(
    scope: LayerScope, resource: str | None, key: str | None
) -> None:
    store = MemoryStore()
    mine = layer("l", scope=scope, on_complete=lambda call: {"state": 1})
    context = Harness(layers=[mine], store=store).create_context(thread_id="t", resource_id=resource)
    await context.harness.run(run_code("c", nothing), context=context)
    assert await store.keys("layers/") == ([] if key is None else [key])


async def test_B17_teardown_hooks_are_shielded_and_have_their_own_deadline(autojump_clock: MockClock) -> None:
    log: list[Any] = []

    async def complete(call: HookCall) -> None:
        await trio.sleep(7)
        log.append(call.outcome)
        await trio.sleep_forever()

    slow = layer("l", on_complete=complete, dispose=lambda call: log.append("disposed"))

    async def park(input: Any, context: RunContext) -> None:
        await trio.sleep_forever()

    began = trio.current_time()
    with trio.move_on_after(1) as scope:
        await Harness(layers=[slow]).run(run_code("park", park))
    assert scope.cancelled_caught
    assert log == ["aborted", "disposed"]
    assert trio.current_time() - began == 1 + 30


async def test_B10_a_hooks_context_is_a_snapshot() -> None:
    seen: list[HookCall] = []

    async with peer(answer("ok")) as (env, _):
        harness = Harness(env=env, model=MODEL, layers=[layer("l", recall=seen.append)])
        context = harness.create_context(thread_id="t", resource_id="r")
        await harness.run(call_model("ask"), "q", context=context)
    told = seen[0].context
    assert (told.tokens.total, told.cost, told.step_number) == (0, 0.0, 1)
    assert (told.execution_id, told.thread_id, told.resource_id, told.depth) == (context.id, "t", "r", 0)
    assert told.fs is context.fs
    assert context.tokens.total == 15
    with pytest.raises(dataclasses.FrozenInstanceError):
        told.cost = 5.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        told.layer_states["l"] = 1  # type: ignore[index]


# -- the view ---------------------------------------------------------------------------------------


async def test_B5_system_messages_of_the_log_join_the_instructions_by_blank_lines() -> None:
    async with peer(answer("ok")) as (env, wire):
        harness = Harness(env=env, model=MODEL)
        items = [create_message("first", "system"), create_message("hi"), create_message("second", "system")]
        context = harness.create_context(items=items)
        await harness.run(call_model("ask", instructions="be kind"), "q", context=context)
        assert texts(wire.bodies[0]) == ["be kind\n\nfirst\n\nsecond", "hi", "q"]


async def test_B11_the_newest_history_that_fits_is_contiguous_and_without_orphans() -> None:
    items = [
        create_message("small and old"),
        create_message("x" * 1000),
        new_item("function_call", call_id="cut", name="f", arguments="{}"),
        create_message("y" * 1000),
        new_item("function_call_output", call_id="cut", output="of a call that is cut off"),
        new_item("function_call", call_id="whole", name="f", arguments="{}"),
        new_item("function_call_output", call_id="whole", output="kept"),
    ]
    policy = ProjectionPolicy(token_budget=300, response_reserve=0)
    async with peer(answer("ok")) as (env, wire):
        harness = Harness(env=env, model=MODEL, projection=policy)
        context = harness.create_context(items=items)
        await harness.run(call_model("ask", instructions="s" * 200), "q", context=context)
        assert texts(wire.bodies[0]) == ["s" * 200, "", "kept", "q"]
        assert wire.bodies[0]["messages"][1]["content"][0]["call_id"] == "whole"


async def test_B11_an_item_that_does_not_fit_is_skipped_alone_in_anchor_and_live() -> None:
    def said(*lengths: int) -> Any:
        return lambda call: {"items": [create_message("z" * length, "developer") for length in lengths]}

    layers = [
        layer("a", 1, recall=said(100, 4000, 100)),
        layer("l", 2, recall=said(4000, 100), placement=Placement.LIVE),
    ]
    policy = ProjectionPolicy(token_budget=500, response_reserve=0)
    async with peer(answer("ok")) as (env, wire):
        await Harness(env=env, model=MODEL, layers=layers, projection=policy).run(call_model("ask"), "q")
        assert [len(text) for text in texts(wire.bodies[0])] == [100, 100, 1, 100]


async def test_B11_layers_are_told_their_budgets_with_the_instructions_reserved() -> None:
    budgets: list[float | None] = []

    def recall(call: HookCall) -> None:
        budgets.append(call.budget)

    policy = ProjectionPolicy(token_budget=1100, response_reserve=0)
    layers = [layer("a", recall=recall, budget=60), layer("b", recall=recall)]
    async with peer(answer("ok")) as (env, _):
        harness = Harness(env=env, model=MODEL, layers=layers, projection=policy)
        await harness.run(call_model("ask", instructions="i" * 400), "q")
    assert budgets == [60, 540]


async def test_B12_a_recall_that_returned_state_is_live_even_where_it_says_anchor() -> None:
    def recall(call: HookCall) -> Any:
        return {"items": [create_message("mine", "developer")], "state": None}

    placed = layer("l", recall=recall, placement=Placement.ANCHOR)
    async with peer(answer("ok")) as (env, wire):
        await Harness(env=env, model=MODEL, layers=[placed]).run(call_model("ask"), "q")
        assert texts(wire.bodies[0]) == ["q", "mine"]


async def test_B12_only_the_first_round_is_judged_and_a_figure_that_is_missing_is_blind() -> None:
    def tool() -> None:
        """Do it."""

    def used(cached: int | None) -> dict[str, int]:
        usage = {"input_tokens": 10, "output_tokens": 5}
        return usage if cached is None else {**usage, "cached_tokens": cached}

    wants: list[Step] = [call("tool"), finish("tool_calls", usage=used(5))]
    ends: list[Step] = [say("ok"), finish(usage=used(None))]
    async with peer(wants, ends) as (env, _):
        harness = Harness(env=env, model=MODEL, layers=[layer("l", recall=lambda call: "facts")])
        context = harness.create_context()
        await harness.run(call_model("ask", tools=[tool]), "q", context=context)
        assert not harness.lineage(context).blind  # the second round tells nothing, and is not asked
        await harness.run(call_model("ask", tools=[]), "q", context=context)
        assert harness.lineage(context).blind


async def test_B13_usage_is_that_of_the_last_accepted_call() -> None:
    rulings = [Verdict(Ruling.DENY, "no"), Verdict(Ruling.ALLOW), Verdict(Ruling.ALLOW)]
    judge = layer("judge", after_model_call=lambda call: rulings.pop(0))
    usages: list[Any] = []

    async def flow(input: Any, context: RunContext) -> None:
        for name in ("denied", "first", "second"):
            try:
                await context.execute(call_model(name, model=MODEL), "q")
            except RunError:
                assert name == "denied"
            usages.append(context.last_layer_usage)

    async with peer(answer("ok")) as (env, _):
        await Harness(env=env, layers=[judge]).run(run_code("flow", flow))
    assert usages[0] is None
    assert usages[1] is not usages[2]
    assert [usage.epoch.age for usage in usages[1:]] == [2, 3]
    assert [usage.epoch.reanchor_reason for usage in usages[1:]] == [None, None]


@pytest.mark.parametrize("name", sorted(DIALECTS))
async def test_B12_the_cache_directive_is_on_the_wire_of_anthropic_and_of_no_other(name: str) -> None:
    layers = [
        layer("facts", recall=lambda call: "anchored"),
        layer("now", recall=lambda call: "live", placement=Placement.LIVE),
    ]

    async def body(cache: CachePolicy) -> str:
        context = Harness(layers=layers, cache=cache).create_context(items=[create_message("q")])
        await context.layers.begin()
        messages = await preview(context, "be kind")
        dialect = DIALECTS[name]
        _, made = dialect.provider().request(messages, FakeIO(model=dialect.model))
        return json.dumps(made)

    sent = await body(CachePolicy())
    assert "cache_point" not in sent
    if name == "anthropic":
        assert json.loads(sent)["messages"] == [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "anchored", "cache_control": {"type": "ephemeral"}},
                    {"type": "text", "text": "q", "cache_control": {"type": "ephemeral"}},
                    {"type": "text", "text": "live"},
                ],
            }
        ]
    else:
        assert "cache" not in sent
    assert "cache" not in await body(CachePolicy(enabled=False))
