"""Context layers: when their hooks run, what comes of them, and what their failures do not do."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from aiio.runs.anchoring import CachePolicy
from aiio.runs.budgets import ProjectionPolicy
from aiio.runs.code_steps import run_code
from aiio.runs.context import RunContext
from aiio.runs.errors import RunConfigError, RunError, RunErrorKind
from aiio.runs.harness import Harness
from aiio.runs.items import create_message
from aiio.runs.layers import ALLOW, ContextLayer, HookCall, Hooks, Placement, Ruling, Scope, Verdict
from aiio.runs.model_step import call_model
from aiio.runs.parallel import in_parallel
from aiio.runs.spawning import spawn, with_context
from aiio.runs.stores import MemoryStore
from tests.agents.peer import MODEL, answer, call, calling, peer


def layer(id: str, slot: float = 100, **hooks: Any) -> ContextLayer:
    options = {name: hooks.pop(name) for name in list(hooks) if name not in Hooks.__dataclass_fields__}
    return ContextLayer(id=id, slot=slot, hooks=Hooks(**hooks), **options)


def texts(body: dict[str, Any]) -> list[str]:
    return [message["content"][0]["text"] for message in body["messages"]]


def noting(log: list[str], id: str, slot: float = 100, **more: Any) -> ContextLayer:
    def note(hook: str, returned: Any = None) -> Any:
        def fn(call: HookCall) -> Any:
            log.append(f"{id}.{hook}" + (f"({call.outcome})" if call.outcome else ""))
            return returned

        return fn

    names = ["init", "on_item_append", "recall", "project_history", "after_model_call", "store"]
    names += ["on_complete", "dispose"]
    hooks = {name: note(name, {"state": 0} if name == "init" else None) for name in names}
    return layer(id, slot, **{**hooks, **more})


async def test_B10_hooks_run_in_their_orders() -> None:
    log: list[str] = []
    async with peer(answer("hi")) as (env, _):
        harness = Harness(env=env, model=MODEL, layers=[noting(log, "b", 2), noting(log, "a", 1)])
        assert await harness.run(call_model("ask"), "q") == "hi"
    assert log[:2] == ["b.init", "a.init"]
    assert log[2:-6] == [
        *("a.on_item_append", "b.on_item_append", "a.recall", "b.recall"),
        *("a.project_history", "b.project_history", "a.after_model_call", "b.after_model_call"),
    ]
    assert sorted(log[-6:-4]) == ["a.store", "b.store"]
    assert log[-4:] == ["b.on_complete(success)", "a.on_complete(success)", "a.dispose", "b.dispose"]


async def test_B11_recall_stands_before_the_history_or_after_it_and_never_joins_the_log() -> None:
    def facts(call: HookCall) -> Any:
        assert call.query in ("first", "second")
        assert call.context.depth == 0
        assert call.budget is not None
        return "the facts"

    def count(call: HookCall) -> Any:
        number = (call.state or 0) + 1
        items = [create_message(f"turn {number}", "developer")]
        return {"items": items, "token_count": 7, "state": number}

    layers = [layer("facts", 1, recall=facts), layer("count", 2, recall=count), layer("silent", 3)]
    async with peer(answer("one"), answer("two")) as (env, wire):
        harness = Harness(env=env, model=MODEL, layers=layers)
        context = harness.create_context()

        async def flow(input: Any, inner: RunContext) -> None:
            await inner.execute(call_model("a", instructions="be kind"), "first")
            await inner.execute(call_model("b", instructions="be kind"), "second")

        await harness.run(run_code("flow", flow), context=context)
        assert texts(wire.bodies[0]) == ["be kind", "the facts", "first", "turn 1"]
        assert texts(wire.bodies[1]) == ["be kind", "the facts", "first", "one", "second", "turn 2"]
        assert len(context.item_log) == 4
        usage = context.last_layer_usage
        assert [(entry.layer_id, entry.placement, entry.served) for entry in usage.layers] == [
            ("count", "live", "fresh"),
            ("facts", "anchor", "pinned"),
        ]
        assert usage.layers[0].token_count == 7
        assert (usage.system_prompt_tokens, usage.tools_tokens) == (2, 0)
        assert usage.history_tokens > 0
        layers_total = sum(entry.token_count for entry in usage.layers)
        assert usage.total_used_tokens == 2 + usage.history_tokens + layers_total
        assert (usage.epoch.age, usage.epoch.id) == (2, f"{context.thread_id}#1")
        assert (usage.model_id, usage.execution_id) == (MODEL, context.id)


async def test_B12_a_request_prefix_is_byte_identical_while_a_layer_churns() -> None:
    turn = [0]

    def churn(call: HookCall) -> str:
        turn[0] += 1
        return f"it is {turn[0]} o'clock"

    async def bodies(cache: CachePolicy) -> list[str]:
        async with peer(answer("ok")) as (env, wire):
            layers = [layer("steady", 1, recall=lambda call: "facts " * 50), layer("clock", 2, recall=churn)]
            harness = Harness(env=env, model=MODEL, layers=layers, cache=cache)
            context = harness.create_context()

            async def flow(input: Any, inner: RunContext) -> None:
                for number in range(30):
                    await inner.execute(call_model("ask", instructions="be kind", tools=[]), f"q{number}")

            await harness.run(run_code("flow", flow), context=context)
            return [json.dumps(body["messages"]) for body in wire.bodies]

    def kept(sent: list[str]) -> bool:
        """Whether each request begins with all of the one before, up to its updates."""
        return all(later.startswith(one[: one.index("q0") + 2]) for one, later in pairwise(sent))

    assert kept(await bodies(CachePolicy()))
    assert not kept(await bodies(CachePolicy(enabled=False)))


async def test_B10_a_layer_may_say_in_its_own_words_what_changed() -> None:
    turn = [0]

    def recall(call: HookCall) -> str:
        turn[0] += 1
        return f"page {turn[0]}"

    def delta(call: HookCall) -> str:
        return f"{call.previous[0]['content'][0]['text']} became {call.items[0]['content'][0]['text']}"

    async with peer(answer("ok")) as (env, wire):
        harness = Harness(env=env, model=MODEL, layers=[layer("book", recall=recall, render_delta=delta)])

        async def flow(input: Any, inner: RunContext) -> None:
            await inner.execute(call_model("a"), "q")
            await inner.execute(call_model("b"), "q")

        await harness.run(run_code("flow", flow))
        assert "\npage 1 became page 2\n" in texts(wire.bodies[1])[-1]


async def test_B10_without_a_store_a_layers_storage_forgets() -> None:
    async def begin(call: HookCall) -> Any:
        assert call.storage is not None
        await call.storage.put("k", 1)
        await call.storage.delete("k")
        return {"state": await call.storage.get("k")}

    seen: list[Any] = []
    harness = Harness(layers=[layer("l", init=begin, on_complete=lambda call: seen.append(call.state))])
    await harness.run(run_code("c", lambda input, ctx: 1))
    assert seen == [None]


async def test_B12_with_caching_off_everything_stands_before_the_history() -> None:
    live = layer("l", recall=lambda call: "hello", placement=Placement.LIVE)
    async with peer(answer("ok")) as (env, wire):
        harness = Harness(env=env, model=MODEL, layers=[live], cache=CachePolicy(enabled=False))
        context = harness.create_context()
        await harness.run(call_model("ask"), "q", context=context)
        assert texts(wire.bodies[0]) == ["hello", "q"]
        assert context.last_layer_usage.epoch is None


async def test_B12_a_child_has_its_own_epoch() -> None:
    recalls = layer("l", recall=lambda call: "hello", on_spawn=lambda call: {"child_state": 1})
    epochs: list[str] = []

    async def ask(input: Any, context: RunContext) -> None:
        await context.execute(call_model("ask", tools=[]), "q")
        epochs.append(context.last_layer_usage.epoch.id)

    async def flow(input: Any, context: RunContext) -> None:
        await ask(input, context)
        await context.execute(spawn("child", run_code("ask", ask)))
        await ask(input, context)

    async with peer(answer("ok")) as (env, _):
        harness = Harness(env=env, model=MODEL, layers=[recalls])
        context = harness.create_context(thread_id="t")
        await harness.run(run_code("flow", flow), context=context)
    assert (epochs[0], epochs[2]) == ("t#1", "t#1")
    assert epochs[1] != "t#1"


async def test_B12_lineages_are_forgotten_least_recently_used_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiio.runs.harness.LINEAGES", 2)
    harness = Harness()
    contexts = [harness.create_context(thread_id=name) for name in "abc"]
    first = harness.lineage(contexts[0])
    harness.lineage(contexts[1])
    assert harness.lineage(contexts[0]) is first
    harness.lineage(contexts[2])
    assert harness.lineage(contexts[0]) is first
    assert list(harness._lineages) == ["c", "a"]


# -- steering ---------------------------------------------------------------------------------------


async def test_B5_guidance_asks_again_with_the_reason_at_the_end_and_spend_counts() -> None:
    judged: list[Any] = []

    def judge(call: HookCall) -> Any:
        judged.append(call.response)
        return {
            "verdict": Verdict(Ruling.GUIDE, "be brief") if len(judged) < 3 else ALLOW,
            "state": len(judged),
        }

    live = layer("live", recall=lambda call: "live", placement=Placement.LIVE)
    async with peer(answer("long"), answer("longer"), answer("ok")) as (env, wire):
        harness = Harness(env=env, model=MODEL, layers=[layer("judge", after_model_call=judge), live])
        context = harness.create_context()
        assert await harness.run(call_model("ask", tools=[]), "q", context=context) == "ok"
        assert texts(wire.bodies[2]) == ["q", "live", "be brief", "be brief"]
        assert context.tokens.total == 45
        assert [item["role"] for item in context.item_log.items] == [
            "user",
            "developer",
            "developer",
            "assistant",
        ]


async def test_B5_a_layer_that_is_never_content_is_heard_three_times() -> None:
    never = layer("n", after_model_call=lambda call: Verdict(Ruling.GUIDE, "again"))
    async with peer(answer("same")) as (env, wire):
        harness = Harness(env=env, model=MODEL, layers=[never])
        assert await harness.run(call_model("ask"), "q") == "same"
        assert len(wire.bodies) == 4


async def test_B5_a_denied_answer_is_steering_denied_and_its_spend_counts() -> None:
    deny = layer("d", 1, after_model_call=lambda call: Verdict(Ruling.DENY, "no"))
    after = layer("e", 2, after_model_call=lambda call: pytest.fail("a denial is the last word"))
    async with peer(answer("bad")) as (env, _):
        harness = Harness(env=env, model=MODEL, layers=[deny, after])
        context = harness.create_context()
        with pytest.raises(RunError) as caught:
            await harness.run(call_model("ask"), "q", context=context)
        assert caught.value.kind is RunErrorKind.STEERING_DENIED
        assert context.tokens.total == 15


async def test_B10_a_gate_decides_about_calls_and_a_failed_one_denies_when_it_says_so() -> None:
    made: list[str] = []

    def tool(what: str) -> str:
        """Do it."""
        made.append(what)
        return "done"

    def gate(call: HookCall) -> Any:
        assert call.call is not None
        what = call.call["arguments"]["what"]
        if what == "broken":
            raise ValueError("the gate broke")
        return Verdict(Ruling.DENY, f"{what} is forbidden") if what == "bad" else None

    script = calling(
        *(
            call("tool", f'{{"what": "{what}"}}', call_id=what, index=at)
            for at, what in enumerate(["good", "bad"])
        ),
        call("tool", '{"what": "broken"}', call_id="broken", index=2),
    )
    for strict in (True, False):
        made.clear()
        async with peer(script, answer("ok")) as (env, _):
            layers = [layer("gate", before_tool_call=gate, deny_on_error=strict), layer("other")]
            harness = Harness(env=env, model=MODEL, layers=layers)
            context = harness.create_context()
            await harness.run(call_model("ask", tools=[tool]), "q", context=context)
            outputs = {item["call_id"]: item["output"] for item in context.item_log.items if "output" in item}
            assert outputs["bad"] == "not made: bad is forbidden"
            assert made == (["good"] if strict else ["good", "broken"])


# -- the log ----------------------------------------------------------------------------------------


async def test_B10_items_of_users_and_tools_pass_through_the_layers() -> None:
    def shout(call: HookCall) -> Any:
        items = [
            {**item, "content": [{"type": "input_text", "text": item["content"][0]["text"].upper()}]}
            for item in call.items
        ]
        return {"items": items}

    hidden = layer("hide", 1, project_history=lambda call: {"items": [call.items[-1]]})
    async with peer(answer("one"), answer("two")) as (env, wire):
        harness = Harness(env=env, model=MODEL, layers=[layer("shout", on_item_append=shout), hidden])
        context = harness.create_context(items=[create_message("kept as it is")])
        await harness.run(call_model("ask"), "quiet", context=context)
        assert texts(wire.bodies[0]) == ["QUIET"]
        assert len(context.item_log) == 3
    swallow = [
        layer("swallow", 1, on_item_append=lambda call: {"items": []}),
        layer("never", 2, on_item_append=lambda call: pytest.fail("nothing is left")),
    ]
    async with peer(answer("one")) as (env, wire):
        harness = Harness(env=env, model=MODEL, layers=swallow)
        await harness.run(
            call_model("ask"), "gone", context=harness.create_context(items=[create_message("a")])
        )
        assert texts(wire.bodies[0]) == ["a"]


async def test_B11_the_view_is_cut_to_its_budget_newest_history_first() -> None:
    big = layer("big", 1, recall=lambda call: "x" * 4000)
    small = layer("small", 2, recall=lambda call: "facts")
    policy = ProjectionPolicy(token_budget=420, response_reserve=20)
    async with peer(answer("ok")) as (env, wire):
        harness = Harness(env=env, model=MODEL, layers=[big, small], projection=policy)
        items = [create_message(f"message {number}") for number in range(30)]
        context = harness.create_context(items=items)
        await harness.run(call_model("ask"), "last", context=context)
        seen = texts(wire.bodies[0])
        assert seen[0] == "facts"
        assert seen[-1] == "last"
        assert 3 < len(seen) < 12
        assert seen[1:-1] == [f"message {number}" for number in range(30 - len(seen) + 2, 30)]
    windowed = ProjectionPolicy(max_items=2)
    async with peer(answer("ok")) as (env, wire):
        harness = Harness(env=env, model=MODEL, projection=windowed)
        await harness.run(call_model("ask"), "last", context=harness.create_context(items=items))
        assert texts(wire.bodies[0]) == ["message 29", "last"]


# -- state, failures --------------------------------------------------------------------------------


async def test_B10_states_are_stored_by_scope_and_come_back() -> None:
    store = MemoryStore()

    async def begin(call: HookCall) -> Any:
        assert call.storage is not None
        seen = await call.storage.get("seen") or 0
        await call.storage.put("seen", seen + 1)
        await call.storage.delete("missing")
        return {"state": seen}

    def keep(call: HookCall) -> Any:
        return {"state": {"heard": call.response[0]["content"][0]["text"]}}

    layers = [
        layer("thread", store=keep),
        layer("resource", store=keep, scope=Scope.RESOURCE),
        layer("global", store=keep, scope=Scope.GLOBAL),
        layer("execution", store=keep, scope=Scope.EXECUTION),
        layer("own", init=begin, store=lambda call: {"state": None}),
        layer("odd", store=lambda call: {"state": object()}),
    ]
    async with peer(answer("hi")) as (env, _):
        for attempt in range(2):
            harness = Harness(env=env, model=MODEL, layers=layers, store=store)
            context = harness.create_context(thread_id="t", resource_id="r")
            await harness.run(call_model("ask"), "q", context=context)
            assert context.layers.states["own"] is None
            assert await store.get("layers/own/t/seen") == str(attempt + 1).encode()
        keys = [key for key in await store.keys("layers/") if key.endswith("/state")]
        assert keys == ["layers/global/__global__/state", "layers/resource/r/state", "layers/thread/t/state"]
        again = Harness(layers=layers[:1], store=store).create_context(thread_id="t")
        seen: list[Any] = []
        await again.harness.run(
            run_code("look", lambda input, ctx: seen.append(ctx.layers.states["thread"])), context=again
        )
        assert seen == [{"heard": "hi"}]
        restored = await Harness(layers=layers[3:4], store=store).restore(context.id)
        assert restored is not None
        await restored.harness.run(
            run_code("look", lambda input, ctx: seen.append(ctx.layers.states["execution"])), context=restored
        )
        assert seen[1] == {"heard": "hi"}


async def test_B10_a_failed_init_fails_the_run_or_leaves_the_layer_out() -> None:
    def broken(call: HookCall) -> Any:
        raise ValueError("no disk")

    with pytest.raises(ValueError, match="no disk"):
        await Harness(layers=[layer("x", init=broken)]).run(run_code("c", lambda input, ctx: 1))
    seen: list[Any] = []
    never = layer(
        "x", init=broken, disable_on_init_error=True, on_complete=lambda call: pytest.fail("it is left out")
    )
    odd = layer("y", init=lambda call: "no mapping")
    step = run_code("c", lambda input, ctx: seen.append((dict(ctx.context), ctx.layers.states)))
    await Harness(layers=[never, odd]).run(step)
    assert list(seen[0][0]) == ["y"]
    with pytest.raises(ValueError, match="two layers"):
        Harness(layers=[odd, odd]).create_context()


async def test_B10_a_hook_that_fails_or_hangs_is_cancelled_and_passed_over(autojump_clock: MockClock) -> None:
    ended: list[str] = []

    async def hang(call: HookCall) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("really cancelled")

    def fail(call: HookCall) -> None:
        raise KeyError("bug")

    hooks: dict[str, Any] = {
        "recall": hang,
        "project_history": fail,
        "on_item_append": fail,
        "after_model_call": fail,
    }
    bad = layer("bad", **hooks, store=hang, on_complete=hang, dispose=fail, timeouts={"store": "1s"})
    async with peer(answer("ok")) as (env, wire):
        harness = Harness(env=env, model=MODEL, layers=[bad], prices=lambda *_: None)
        began = trio.current_time()
        assert await harness.run(call_model("ask"), "q") == "ok"
        assert trio.current_time() - began == 5 + 1 + 30
        assert texts(wire.bodies[0]) == ["q"]
    assert ended == ["really cancelled"] * 3


async def test_B10_a_config_error_of_a_hook_goes_through() -> None:
    def wrong(call: HookCall) -> None:
        raise RunConfigError("MISSING_MODEL", "no", hint="give one")

    async with peer(answer("ok")) as (env, _):
        harness = Harness(env=env, model=MODEL, layers=[layer("l", after_model_call=wrong)])
        with pytest.raises(RunConfigError):
            await harness.run(call_model("ask"), "q")


async def test_B10_what_layers_provide_is_read_through_the_context() -> None:
    notes = layer(
        "notes",
        init=lambda call: {"state": [1, 2]},
        provides={"count": lambda state: len(state), "at": lambda s, n: s[n]},
    )

    def look(input: Any, context: RunContext) -> Any:
        with pytest.raises(AttributeError, match="provides no 'size'"):
            context.context["notes"].size()
        return context.context["notes"].count(), context.context["notes"].at(1)

    harness = Harness(layers=[notes])
    context = harness.create_context()
    assert dict(context.context) == {}
    assert await harness.run(run_code("look", look), context=context) == (2, 2)


# -- children ---------------------------------------------------------------------------------------


async def test_B10_on_spawn_gives_state_and_items_and_on_return_may_change_the_result() -> None:
    def give(call: HookCall) -> Any:
        return {"child_state": [call.state], "items": [create_message("from the layer", "developer")]}

    def take(call: HookCall) -> Any:
        return {"state": call.child_state, "result": f"{call.result}!"}

    only_items = layer(
        "items", 1, on_spawn=lambda call: {"child_state": None, "items": [create_message("null")]}
    )
    kept = layer("kept", 2, init=lambda call: {"state": "s"}, on_spawn=give, on_return=take)
    absent = layer("absent", 3)

    def look(input: Any, child: RunContext) -> str:
        texts = [item["content"][0]["text"] for item in child.item_log.items]
        return f"{texts} {child.layers.states}"

    harness = Harness(layers=[only_items, kept, absent])
    context = harness.create_context()

    async def flow(input: Any, inner: RunContext) -> Any:
        one = await inner.execute(spawn("s", run_code("look", look)))
        own = layer("kept", init=lambda call: {"state": "its own"})
        two = await inner.execute(spawn("s", run_code("look", look), layers=[own]))
        three = await inner.execute(in_parallel("p", [run_code("look", look)]))
        return [one, two, three, inner.layers.states["kept"]]

    one, two, three, state = await harness.run(run_code("flow", flow), context=context)
    assert one == "['null', 'from the layer'] {'kept': ['s']}!"
    assert "'kept': 'its own'" in two
    assert three[0].startswith("[] {'kept': [")  # items are for isolated children
    assert isinstance(state, list)


async def test_B6_with_context_adds_layers_for_a_while_and_the_same_id_replaces() -> None:
    base = layer("a", recall=lambda call: "base")
    other = layer("a", recall=lambda call: "replaced")
    extra = layer("b", recall=lambda call: "extra")
    ask = call_model("ask", tools=[])

    async def flow(input: Any, context: RunContext) -> None:
        await context.execute(with_context("w", ask, [other, extra]), "1")
        await context.execute(ask, "2")

    async with peer(answer("ok")) as (env, wire):
        harness = Harness(env=env, model=MODEL, layers=[base], cache=CachePolicy(enabled=False))
        await harness.run(run_code("flow", flow))
        assert texts(wire.bodies[0])[:2] == ["replaced", "extra"]
        assert texts(wire.bodies[1])[:2] == ["base", "1"]


@pytest.mark.parametrize(("how", "word"), [("ok", "success"), ("fails", "failure"), ("abort", "aborted")])
async def test_B10_teardown_always_comes_and_says_how_it_ended(how: str, word: str) -> None:
    log: list[str] = []

    def work(input: Any, context: RunContext) -> None:
        if how == "fails":
            raise ValueError("x")
        if how == "abort":
            context.abort()

    harness = Harness(layers=[noting(log, "l")])
    with suppress(RunError):
        await harness.run(run_code("w", work))
    assert log == ["l.init", f"l.on_complete({word})", "l.dispose"]


async def test_B2_cancel_tears_down_bottom_up_and_waits_for_it(autojump_clock: MockClock) -> None:
    log: list[str] = []

    def slow(call: HookCall) -> Any:
        async def tear_down() -> None:
            await trio.sleep(2)
            log.append(f"depth {call.context.depth}")

        return tear_down()

    harness = Harness(
        layers=[layer("l", on_spawn=lambda call: {"child_state": 1}, on_complete=slow)], store=MemoryStore()
    )
    context = harness.create_context()

    async def park(input: Any, inner: RunContext) -> None:
        await trio.sleep_forever()

    async def run() -> None:
        with pytest.raises(RunError) as caught:
            await harness.run(spawn("a", spawn("b", run_code("park", park))), context=context)
        assert caught.value.detail["reason"] == "enough"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        began = trio.current_time()
        await harness.cancel(context, "enough")
        assert trio.current_time() - began == 6
        await harness.cancel(context)
    assert log == ["depth 2", "depth 1", "depth 0"]
