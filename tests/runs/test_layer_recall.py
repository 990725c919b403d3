"""Recall: now, kept from before, asked for again; and what a view makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from aiio.runs.anchoring import CachePolicy
from aiio.runs.budgets import ProjectionPolicy
from aiio.runs.code_steps import run_code
from aiio.runs.context import RunContext
from aiio.runs.errors import RunError, RunErrorKind
from aiio.runs.harness import Harness
from aiio.runs.item_schemas import ItemCategory
from aiio.runs.items import create_message, estimate_item_tokens, new_item
from aiio.runs.layer_tools import NewState
from aiio.runs.layers import (
    ContextLayer,
    HookCall,
    Hooks,
    Placement,
    RecallMode,
    RerenderScope,
    RerenderTiming,
    Ruling,
    Verdict,
)
from aiio.runs.model_step import call_model
from aiio.runs.recall import RERENDER_DEPTH, Recalls
from aiio.runs.spawning import spawn, with_context
from aiio.runs.stores import MemoryStore
from aiio.runs.view import preview
from tests.agents.peer import MODEL, answer, call, calling, peer
from tests.io.scripted import Head

NO_CACHE = CachePolicy(enabled=False)


def layer(id: str, slot: float = 100, **given: Any) -> ContextLayer:
    hooks = {name: given.pop(name) for name in list(given) if name in Hooks.__dataclass_fields__}
    return ContextLayer(id=id, slot=slot, hooks=Hooks(**hooks), **given)


def texts(body: dict[str, Any]) -> list[str]:
    return [message["content"][0]["text"] for message in body["messages"]]


def asking(*questions: str, between: float = 0.0) -> Any:
    """A step that asks one question after the other."""

    async def flow(input: Any, context: RunContext) -> None:
        for question in questions:
            await context.execute(call_model("ask"), question)
            await trio.sleep(between)

    return run_code("flow", flow)


class Told:
    """A recall that counts, and takes its time."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.times = 0

    async def __call__(self, call: HookCall) -> str:
        self.times += 1
        number = self.times
        await trio.sleep(self.seconds)
        return f"told {number}"


# -- eventual recall --------------------------------------------------------------------------------


async def test_B10_an_eventual_recall_never_blocks_and_is_used_at_the_next_view(
    autojump_clock: MockClock,
) -> None:
    slow = Told(seconds=3)
    eventual = layer("e", recall=slow, recall_mode=RecallMode.EVENTUAL)
    async with peer(answer("ok")) as (env, wire):
        harness = Harness(env=env, model=MODEL, layers=[eventual], prices=lambda *_: None)
        began = trio.current_time()
        await harness.run(asking("a", "b", between=1))
        assert trio.current_time() - began == 2  # nobody waited for the recall
        await harness.run(asking("a", "b", "c", between=4))
        assert texts(wire.bodies[0]) == ["a"]
        assert texts(wire.bodies[1]) == ["a", "ok", "b"]
        assert texts(wire.bodies[2]) == ["a"]  # another thread, another cache
        assert "told 2" in texts(wire.bodies[3])[-1]
        assert slow.times == 2  # warm: no need to recall it


async def test_B10_an_eventual_recall_is_kept_by_scope_and_layer_and_refreshed_when_store_wrote(
    autojump_clock: MockClock,
) -> None:
    told = Told(seconds=1)
    writes = [False]

    def store(call: HookCall) -> Any:
        return {"state": call.state} if writes[0] else None

    eventual = layer("e", recall=told, store=store, recall_mode=RecallMode.EVENTUAL)
    async with peer(answer("ok")) as (env, wire):
        harness = Harness(env=env, model=MODEL, layers=[eventual], cache=NO_CACHE, prices=lambda *_: None)

        async def turn() -> str:
            await harness.run(asking("q", between=2), context=harness.create_context(thread_id="t"))
            return texts(wire.bodies[-1])[0]

        assert [await turn() for _ in range(3)] == ["q", "told 1", "told 1"]
        writes[0] = True
        assert await turn() == "told 1"  # it is stale only now
        writes[0] = False
        assert await turn() == "told 1"  # recalled beside this one
        assert [await turn() for _ in range(2)] == ["told 2", "told 2"]
        assert told.times == 2


async def test_B10_a_recall_of_an_older_state_is_not_fresh_and_one_that_fails_keeps_the_old(
    autojump_clock: MockClock,
) -> None:
    told = Told(seconds=2)
    fails = [False]

    async def recall(call: HookCall) -> str:
        said = await told(call)
        if fails[0]:
            raise ValueError("gone")
        return said

    eventual = layer("e", recall=recall, store=lambda call: {"state": 1}, recall_mode=RecallMode.EVENTUAL)
    async with peer(answer("ok")) as (env, wire):
        harness = Harness(env=env, model=MODEL, layers=[eventual], cache=NO_CACHE, prices=lambda *_: None)
        context = harness.create_context()

        async def flow(input: Any, inner: RunContext) -> None:
            await inner.execute(asking("a", between=3))  # told 1, of the state before `store`
            await inner.execute(asking("b", between=3))  # so told 2
            fails[0] = True
            await inner.execute(asking("c", between=3))
            await inner.execute(asking("d", between=3))

        await harness.run(run_code("all", flow), context=context)
        assert [texts(body)[0] for body in wire.bodies] == ["a", "told 1", "told 2", "told 2"]
        assert told.times == 4  # a failed one is tried again


@pytest.mark.parametrize("way", ["forced", "no run"])
async def test_B10_forced_or_without_a_run_an_eventual_layer_is_recalled_at_once(way: str) -> None:
    told = Told()
    eventual = layer("e", recall=told, recall_mode=RecallMode.EVENTUAL)
    async with peer(answer("ok")) as (env, wire):
        harness = Harness(
            env=env, model=MODEL, layers=[eventual], cache=NO_CACHE, force_atomic_recall=way == "forced"
        )
        context = harness.create_context()
        if way == "forced":
            await harness.run(asking("a", "b"), context=context)
        else:
            await context.layers.begin()
            await context.execute(asking("a", "b"))
        assert [texts(body)[0] for body in wire.bodies] == [
            "told 1",
            "told 2" if way == "forced" else "told 1",
        ]


async def test_B10_a_recall_that_the_run_does_not_wait_for_ends_with_it(autojump_clock: MockClock) -> None:
    ended: list[float] = []

    async def recall(call: HookCall) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(trio.current_time())

    eventual = layer("e", recall=recall, recall_mode=RecallMode.EVENTUAL)
    async with peer(answer("ok")) as (env, _):
        harness = Harness(env=env, model=MODEL, layers=[eventual], prices=lambda *_: None)
        began = trio.current_time()
        await harness.run(asking("a"))
        assert ended == [began]
        kept = harness.recalls.of(harness.create_context(thread_id="x").layers, eventual)
        assert not kept.running


async def test_B10_kept_recalls_are_bounded_and_of_one_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiio.runs.recall.KEPT", 2)
    recalls, one, other = Recalls(), layer("l"), layer("l")
    a, b, c = (Harness().create_context(thread_id=name).layers for name in "abc")
    first = recalls.of(a, one)
    assert recalls.of(a, one) is first
    assert recalls.of(a, other) is not first  # the same id, another layer
    second = recalls.of(a, one)
    recalls.of(b, one)
    assert recalls.of(a, one) is second
    recalls.of(c, one)  # the least recently used goes
    assert recalls.of(a, one) is second


# -- asking for it again ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "again"),
    [
        (None, ["mid", "after"]),
        (RerenderScope.SLOT_AFTER, ["mid", "after"]),
        ("self", ["mid"]),
        ("all", ["before", "mid", "after"]),
        ("nonsense", []),
    ],
)
async def test_B10_an_append_hook_may_have_layers_recalled_again(scope: Any, again: list[str]) -> None:
    log: list[str] = []

    def noting(id: str) -> Callable[[HookCall], str]:
        def recall(call: HookCall) -> str:
            log.append(id)
            return f"{id} {len(log)}"

        return recall

    def append(call: HookCall) -> Any:
        return {"items": call.items, "rerender": True, **({} if scope is None else {"scope": scope})}

    layers = [
        layer("before", 1, recall=noting("before")),
        layer("mid", 2, recall=noting("mid"), on_item_append=append),
        layer("after", 3, recall=noting("after")),
    ]
    async with peer(answer("ok")) as (env, wire):
        await Harness(env=env, model=MODEL, layers=layers).run(asking("q"))
        assert log == ["before", "mid", "after", *again]
        shown = texts(wire.bodies[0])
        assert [text.split()[0] for text in shown] == ["before", "mid", "after", "q"]  # by slot as ever
        assert shown[1].endswith("4" if again[:1] == ["mid"] else "5" if again else "2")


@pytest.mark.parametrize(
    ("own", "default", "rounds"),
    [
        ("immediate", RerenderTiming.BATCHED, ["told 1", "told 2", "told 3"]),
        (None, RerenderTiming.IMMEDIATE, ["told 1", "told 2", "told 3"]),
        ("batched", RerenderTiming.IMMEDIATE, ["told 1", "told 1", "told 3"]),
    ],
)
async def test_B10_a_tools_result_has_it_recalled_before_the_next_request_or_the_next_view(
    own: str | None, default: RerenderTiming, rounds: list[str]
) -> None:
    told = Told()

    def tool() -> str:
        """Do it."""
        return "done"

    def append(call: HookCall) -> Any:
        if call.items[0]["type"] != "function_call_output":
            return None
        return {"items": call.items, "rerender": True, **({"timing": own} if own else {})}

    asks = layer("l", recall=told, on_item_append=append, rerender_timing=default)
    async with peer(calling(call("tool")), answer("ok"), answer("ok")) as (env, wire):
        harness = Harness(env=env, model=MODEL, layers=[asks], cache=NO_CACHE)
        context = harness.create_context()

        async def flow(input: Any, inner: RunContext) -> None:
            await inner.execute(call_model("a", tools=[tool]), "q")
            await inner.execute(call_model("b", tools=[]), "q")

        await harness.run(run_code("flow", flow), context=context)
        assert [body["messages"][0]["content"][0]["text"] for body in wire.bodies] == rounds
        assert wire.bodies[1]["messages"][-1]["content"][0]["text"] == "done"


async def test_B10_what_may_wait_for_the_next_view_does_when_something_else_may_not() -> None:
    log: list[str] = []

    def tool() -> str:
        """Do it."""
        return "done"

    def asking_again(id: str, timing: str) -> ContextLayer:
        def append(call: HookCall) -> Any:
            return {"items": call.items, "rerender": True, "scope": "self", "timing": timing}

        return layer(id, recall=lambda call: log.append(id), on_item_append=append)

    async def flow(input: Any, context: RunContext) -> None:
        await context.execute(call_model("a", tools=[tool]), "q")
        log.append("next view")
        await context.execute(call_model("b", tools=[]))

    layers = [asking_again("now", "immediate"), asking_again("later", "batched")]
    async with peer(calling(call("tool")), answer("ok")) as (env, _):
        await Harness(env=env, model=MODEL, layers=layers).run(run_code("flow", flow))
    assert log == ["now", "later"] * 2 + ["now", "next view", "now", "later", "later"]


async def test_B10_recalling_again_goes_three_deep_at_most() -> None:
    told: list[int] = []

    def recall(call: HookCall) -> Any:
        told.append(1)
        return {"items": [create_message(str(len(told)), "developer")], "rerender": True, "scope": "self"}

    async with peer(answer("ok")) as (env, wire):
        await Harness(env=env, model=MODEL, layers=[layer("l", recall=recall)]).run(asking("a"))
        assert len(told) == 1 + RERENDER_DEPTH == 4
        assert texts(wire.bodies[0]) == ["4", "a"]


async def test_B10_a_rerender_refreshes_an_eventual_layer_and_a_failed_one_keeps_what_it_said() -> None:
    told = Told()
    broken = Told()

    async def breaks(call: HookCall) -> Any:
        said = await broken(call)
        return said if broken.times == 1 else {"items": ["no item"]}

    def append(call: HookCall) -> Any:
        return {"items": call.items, "rerender": True, "scope": "all"}

    layers = [
        layer("asks", 1, on_item_append=append),
        layer("e", 2, recall=told, recall_mode=RecallMode.EVENTUAL),
        layer("b", 3, recall=breaks),
    ]
    async with peer(answer("ok")) as (env, wire):
        await Harness(env=env, model=MODEL, layers=layers, cache=NO_CACHE).run(asking("q"))
        assert texts(wire.bodies[0]) == ["told 1", "told 1", "q"]
        assert broken.times == 2


# -- items and ownership ----------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [["text"], [{"type": "message"}], 5])
async def test_B10_what_is_no_item_is_a_failure_of_its_layer(bad: Any) -> None:
    layers = [
        layer("r", 1, recall=lambda call: {"items": bad}),
        layer("a", 2, on_item_append=lambda call: {"items": bad}),
    ]
    async with peer(answer("ok")) as (env, wire):
        await Harness(env=env, model=MODEL, layers=layers).run(asking("q"))
        assert texts(wire.bodies[0]) == ["q"]


async def test_B13_history_tokens_count_items_that_no_layer_owns() -> None:
    ruled: list[Verdict] = [Verdict(Ruling.GUIDE, "be brief"), Verdict(Ruling.ALLOW)]
    extra = layer(
        "x",
        on_spawn=lambda call: {"child_state": 1, "items": [create_message("from the layer" * 50)]},
        on_item_append=lambda call: {"items": [*call.items, create_message("injected" * 50)]},
        after_model_call=lambda call: ruled.pop(0),
    )
    seen: list[Any] = []

    async def ask(input: Any, context: RunContext) -> None:
        await context.execute(call_model("ask"), "q")
        seen.append((context.item_log.items, context.last_layer_usage))

    async with peer(answer("ok")) as (env, _):
        await Harness(env=env, model=MODEL, layers=[extra]).run(spawn("s", run_code("ask", ask)))
    items, usage = seen[0]
    own = [item for item in items if item["content"][0]["text"] in ("q", "ok")]
    assert len(items) == 5
    assert usage.history_tokens == estimate_item_tokens(own)


async def test_B10_item_schemas_of_a_layer_are_for_logs_with_it() -> None:
    noted = new_item("mine:note", data={"a": 1})

    def schema(item: Any) -> bool:
        return bool(item["type"] == "mine:note")

    mine = layer("m", item_schemas={ItemCategory.ITEMS: [schema]}, on_spawn=lambda call: {"child_state": 1})

    def append(input: Any, context: RunContext) -> None:
        context.item_log.append(new_item("mine:note", data={}))

    strict = Harness()
    with pytest.raises(RunError) as caught:
        strict.create_context(items=[noted])
    assert caught.value.kind is RunErrorKind.ITEM_SCHEMA_MISMATCH
    await strict.run(with_context("w", run_code("a", append), [mine]))
    harness = Harness(layers=[mine])
    context = harness.create_context(items=[noted])
    await harness.run(spawn("child", run_code("a", append)), context=context)
    assert context.item_log.items == (noted,)
    assert harness.item_schemas.extended({}) is harness.item_schemas
    with pytest.raises(RunError):
        Harness(item_schemas=harness.item_schemas).create_context(items=[noted])


# -- the view ---------------------------------------------------------------------------------------


async def test_B11_updates_and_tail_take_from_the_history_never_from_the_anchor() -> None:
    turn = [0]

    def churn(call: HookCall) -> str:
        turn[0] += 1
        return f"page {turn[0]}"

    rulings = [Verdict(Ruling.ALLOW), Verdict(Ruling.GUIDE, "guidance " * 40), Verdict(Ruling.ALLOW)]
    layers = [
        layer("facts", 1, recall=lambda call: "f" * 400),
        layer("book", 2, recall=churn),
        layer("live", 3, recall=lambda call: "live", placement=Placement.LIVE),
        layer("judge", 4, after_model_call=lambda call: rulings.pop(0)),
    ]
    async with peer(answer("ok")) as (env, wire):
        policy = ProjectionPolicy(token_budget=430, response_reserve=20)
        harness = Harness(env=env, model=MODEL, layers=layers, projection=policy)
        await harness.run(asking("first", "second"))
        first, second, third = map(texts, wire.bodies)
        assert first == ["f" * 400, "page 1", "first", "live"]
        assert second[:2] == third[:2] == first[:2]  # whatever comes and goes behind it
        assert "first" in second
        assert third[2] == "live"  # nothing left for the history
        assert [text[:16] for text in third[3:]] == ["<context_updates", "guidance guidanc"]


async def test_B5_the_projection_of_a_step_wins_over_the_harness() -> None:
    async with peer(answer("ok")) as (env, wire):
        harness = Harness(env=env, model=MODEL, projection=ProjectionPolicy(max_items=3))
        items = [create_message(str(number)) for number in range(5)]
        one = call_model("a", projection=ProjectionPolicy(max_items=1))
        await harness.run(one, "q", context=harness.create_context(items=items))
        await harness.run(call_model("a"), "q", context=harness.create_context(items=items))
        nothing = call_model("a", projection=ProjectionPolicy(max_items=0))
        await harness.run(nothing, "q", context=harness.create_context(items=items))
        assert [texts(body) for body in wire.bodies] == [["q"], ["3", "4", "q"], []]


async def test_B12_the_ends_of_anchored_prefix_and_history_are_cache_points() -> None:
    def points(body: dict[str, Any]) -> list[str]:
        return [message["content"][0]["text"] for message in body["messages"] if message.get("cache_point")]

    layers = [
        layer("a", 1, recall=lambda call: "anchored"),
        layer("l", 2, recall=lambda call: "live", placement=Placement.LIVE),
    ]
    async with peer(answer("ok")) as (env, wire):
        harness = Harness(env=env, model=MODEL, layers=layers)
        await harness.run(call_model("ask", instructions="be kind"), "q")
        assert texts(wire.bodies[0]) == ["be kind", "anchored", "q", "live"]
        assert points(wire.bodies[0]) == ["anchored", "q"]
        await Harness(env=env, model=MODEL).run(call_model("ask", instructions="be kind"), "q")
        await Harness(env=env, model=MODEL).run(call_model("ask"), "q")
        assert [points(body) for body in wire.bodies[1:]] == [["be kind", "q"], ["q"]]
        await Harness(env=env, model=MODEL, layers=layers, cache=NO_CACHE).run(call_model("ask"), "q")
        assert points(wire.bodies[3]) == []


async def test_B12_a_preview_changes_no_pin_churn_age_or_state() -> None:
    eventual = Told()
    recalled: list[int] = []

    def count(call: HookCall) -> Any:
        recalled.append(call.state or 0)
        return {"items": [create_message(f"state {call.state}", "developer")], "state": (call.state or 0) + 1}

    layers = [
        layer("pinned", 1, recall=lambda call: f"now {len(recalled)}"),
        layer("count", 2, recall=count),
        layer("eventual", 3, recall=eventual, recall_mode=RecallMode.EVENTUAL),
    ]
    store = MemoryStore()
    seen: list[Any] = []

    async def flow(input: Any, context: RunContext) -> None:
        await context.execute(call_model("a"), "q")
        lineage = context.harness.lineage(context)
        before = (lineage.age, dict(lineage._pins), repr(lineage._churn), lineage._judged, eventual.times)
        seen.append([await preview(context) for _ in range(3)])
        assert before == (
            lineage.age,
            dict(lineage._pins),
            repr(lineage._churn),
            lineage._judged,
            eventual.times,
        )
        assert context.layers.states["count"] == 1
        assert not context.layers.copy().take_wishes(lambda wish: True)

    async with peer(answer("ok")) as (env, wire):
        harness = Harness(env=env, model=MODEL, layers=layers, store=store)
        await harness.run(run_code("flow", flow), context=harness.create_context(thread_id="t"))
        assert len(wire.bodies) == 1
        shown = [[message["content"][0]["text"] for message in one] for one in seen[0]]
        assert shown[0][:2] == ["now 0", "q"]  # the pin
        assert [one[3] for one in shown] == ["state 1"] * 3
        assert await store.get("layers/count/t/state") == b"1"
        plain = Harness(env=env, model=MODEL, layers=layers[:1], cache=NO_CACHE).create_context()
        assert await preview(plain) == []


# -- what hooks may do ------------------------------------------------------------------------------


async def test_B10_a_hook_may_ask_a_model_and_its_spend_rolls_up() -> None:
    said: list[str] = []

    async def store(call: HookCall) -> None:
        said.append(await call.context.call_model("sum it up", instructions="be brief"))
        said.append(await call.context.call_model("again", model=MODEL))

    asks = layer("l", store=store, on_spawn=lambda call: {"child_state": 1})
    async with peer(answer("ok"), answer("a summary")) as (env, wire):
        harness = Harness(env=env, model=MODEL, layers=[asks], prices=lambda *_: 0.5)
        context = harness.create_context()
        await harness.run(spawn("child", call_model("ask")), "q", context=context)
        assert said == ["a summary", "a summary"]
        assert texts(wire.bodies[1]) == ["be brief", "sum it up"]
        assert (wire.bodies[1]["tools"], len(context.item_log)) == ([], 0)
        assert (context.cost, context.tokens.total) == (1.5, 45)
        assert len(await harness.paid_calls(context.id)) == 3


async def test_B10_a_model_call_of_a_hook_that_is_cut_leaves_the_log_alone_and_needs_a_model(
    autojump_clock: MockClock,
) -> None:
    async def store(call: HookCall) -> None:
        await call.context.call_model("slow")

    slow = layer("l", store=store, timeouts={"store": "1s"})
    async with peer(answer("ok"), [Head(after=60), *answer("late")]) as (env, _):
        harness = Harness(env=env, model=MODEL, layers=[slow], prices=lambda *_: None)
        context = harness.create_context()
        assert await harness.run(call_model("ask"), "q", context=context) == "ok"
        assert len(context.item_log) == 2
    async with peer(answer("ok")) as (env, _):
        with pytest.raises(ValueError, match="no model to ask"):
            await Harness(env=env, layers=[slow]).run(call_model("ask", model=MODEL), "q")
    with pytest.raises(ValueError, match="no env to ask"):
        await Harness(layers=[layer("l", init=store)]).run(run_code("c", lambda input, ctx: 1))


async def test_B10_a_hook_sees_tokens_trace_and_the_states_of_other_layers() -> None:
    seen: list[Any] = []

    def init(call: HookCall) -> Any:
        call.context.trace.set_attribute("layer", "was here")
        seen.append((call.context.tokenize("12345"), dict(call.context.layer_states)))
        return {"state": 1}

    context = Harness(layers=[layer("a", init=init), layer("b", init=init)]).create_context()
    await context.harness.run(run_code("c", lambda input, ctx: 1), context=context)
    assert seen == [(2, {}), (2, {"a": 1})]
    assert context.span.attributes["layer"] == "was here"


async def test_B10_render_delta_has_the_states_the_budget_and_recalls_timeout() -> None:
    turn = [0]
    seen: list[HookCall] = []

    def recall(call: HookCall) -> str:
        turn[0] += 1
        return f"page {turn[0]}"

    def delta(call: HookCall) -> None:
        seen.append(call)

    def store(call: HookCall) -> Any:
        call.state["list"].append(1)  # in place: what was pinned must not change by it

    book = layer(
        "book",
        init=lambda call: {"state": {"list": []}},
        recall=recall,
        render_delta=delta,
        store=store,
        budget=50,
        timeouts={"recall": "9s"},
    )
    assert book.timeout("render_delta") == 9
    assert layer("x", timeouts={"recall": "9s", "render_delta": "1s"}).timeout("render_delta") == 1
    async with peer(answer("ok")) as (env, _):
        await Harness(env=env, model=MODEL, layers=[book]).run(asking("a", "b"))
    assert seen[0].previous_state == {"list": []}
    assert seen[0].budget == 50
    assert seen[0].previous[0]["content"][0]["text"] == "page 1"


async def test_B10_a_state_that_can_not_be_copied_is_none_for_render_delta() -> None:
    seen: list[Any] = []
    turn = [0]

    def recall(call: HookCall) -> str:
        turn[0] += 1
        return str(turn[0])

    odd = layer(
        "odd",
        init=lambda call: {"state": iter_of_nothing()},
        recall=recall,
        render_delta=lambda call: seen.append(call.previous_state),
    )
    async with peer(answer("ok")) as (env, _):
        await Harness(env=env, model=MODEL, layers=[odd]).run(asking("a", "b"))
    assert seen == [None]


def iter_of_nothing() -> Iterator[int]:
    """A generator: it can't be copied."""
    yield from ()


# -- states in the store ----------------------------------------------------------------------------


class Slow(MemoryStore):
    """Takes a second to store a layer's state, and remembers what."""

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[bytes] = []

    async def put(self, key: str, value: bytes) -> None:
        if key.startswith("layers/"):
            await trio.sleep(1)
            self.puts.append(value)
        await super().put(key, value)


async def test_B10_state_writes_are_mirrored_beside_the_run_and_coalesced(autojump_clock: MockClock) -> None:
    store = Slow()
    mine = layer("l", provides={"set": _set})

    async def flow(input: Any, context: RunContext) -> None:
        for number in range(5):
            context.context["l"].set(number)
            await trio.sleep(0.1)
        assert store.puts == []  # nobody waited
        await trio.sleep(3)
        assert store.puts == [b"0", b"4"]  # one at a time, the latest
        context.context["l"].set(9)
        await trio.sleep(0.5)  # it is being stored when the run ends
        kept.append(context.context["l"])

    kept: list[Any] = []
    await Harness(layers=[mine], store=store).run(run_code("flow", flow))
    assert store.puts == [b"0", b"4", b"9"]  # what was under way when the run ended is stored at its end
    kept[0].set(10)  # the layer is at work no more
    assert store.puts == [b"0", b"4", b"9"]


async def test_B10_states_are_flushed_when_a_child_has_returned(autojump_clock: MockClock) -> None:
    store = Slow()
    mine = layer(
        "l", on_spawn=lambda call: {"child_state": 1}, on_return=lambda call: {"state": call.child_id}
    )

    async def flow(input: Any, context: RunContext) -> None:
        await context.execute(spawn("s", run_code("c", lambda input, ctx: ctx.id)))
        assert store.puts == [f'"{context.layers.states["l"]}"'.encode()]

    await Harness(layers=[mine], store=store).run(run_code("flow", flow))


def _set(state: Any, value: Any) -> Any:
    return NewState(value)
