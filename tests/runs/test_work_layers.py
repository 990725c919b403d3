"""The built-in layers for long work: task-state, observations, plan, filesystem, tool-calls."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import trio

from aiio.context.text import compact_json
from aiio.runs.anchoring import CachePolicy
from aiio.runs.budgets import ProjectionPolicy
from aiio.runs.builtin_layers import scratchpad_layer
from aiio.runs.code_steps import run_code
from aiio.runs.context import RunContext
from aiio.runs.errors import RunError
from aiio.runs.file_layer import filesystem_layer
from aiio.runs.fs import MemoryFs
from aiio.runs.harness import Harness
from aiio.runs.layers import ContextLayer, LayerBudget, Placement, Scope, Slot
from aiio.runs.model_step import call_model
from aiio.runs.parallel import in_parallel
from aiio.runs.plan_layer import PlanPhase, plan_layer
from aiio.runs.spawning import spawn
from aiio.runs.stores import MemoryStore
from aiio.runs.tools import invoke_tool
from aiio.runs.work_layers import (
    CHECKPOINTS,
    ToolState,
    observations_layer,
    task_state_layer,
    tool_calls_layers,
    with_tool_state,
    within,
)
from tests.agents.peer import MODEL, answer, call, calling, peer

ASK = call_model("ask", tools=[])
NO_CACHE = CachePolicy(enabled=False)


def texts(body: dict[str, Any]) -> list[str]:
    return [message["content"][0].get("text", "") for message in body["messages"]]


def test_B10_built_in_layers_have_the_slots_placements_and_budgets_of_the_spec() -> None:
    made = [task_state_layer(), observations_layer(), plan_layer(), filesystem_layer()]
    assert [(layer.id, layer.slot) for layer in made] == [
        ("task-state", 110),
        ("observations", Slot.OBSERVATIONS),
        ("plan", 240),
        ("filesystem", 350),
    ]
    assert made[3].placement is Placement.ANCHOR
    assert made[3].hooks.render_delta is not None
    assert [layer.limits for layer in made[:3]] == [
        LayerBudget(min=100, max=800),
        LayerBudget(min=500, max=2500),
        LayerBudget(min=100, max=3000),
    ]
    assert task_state_layer(budget=5).limits == observations_layer(budget=5).limits == LayerBudget(max=5)
    assert plan_layer(budget=5).limits == LayerBudget(max=5)


def test_B10_what_is_shown_is_the_newest_that_the_budget_holds() -> None:
    assert within(["a" * 7, "b" * 7, "c" * 7], 4) == ["b" * 7, "c" * 7]
    assert within(["a", "b"], None) == ["a", "b"]
    assert within(["a", "b"], float("inf")) == ["a", "b"]
    assert within(["a"], 0) == []


# -- task-state -------------------------------------------------------------------------------------


async def test_B10_task_state_keeps_files_data_checkpoints_and_outcome_of_a_thread() -> None:
    store = MemoryStore()
    script = calling(
        call("task-state_record_artifact", '{"path": "out.csv"}', call_id="a"),
        call("task-state_set_task_data", '{"key": "rows", "value": [1]}', call_id="b", index=1),
    )
    async with peer(answer("ok"), script, answer("ok")) as (env, wire):
        kept: list[Any] = []

        async def flow(input: Any, inner: RunContext) -> None:
            await inner.execute(call_model("ask", tools=input), "q")
            task = inner.context["task-state"]
            kept.append((task.files, task.data, task.outcome, task.checkpoints[-1]))

        choices: list[Any] = [[], None, []]
        for tools in choices:
            layers = [task_state_layer(now=lambda: 7.0)]
            harness = Harness(env=env, model=MODEL, store=store, layers=layers, cache=NO_CACHE)
            context = harness.create_context(thread_id="t")
            await harness.run(run_code("flow", flow), tools, context=context)
        assert texts(wire.bodies[0]) == ["q"]
        shown = "<task_state>\nrows: [1]\nfile: out.csv\n</task_state>"
        assert texts(wire.bodies[3]) == [shown, "q"]
        assert kept[0] == ([], {}, None, {"at": 7.0, "depth": 0})
        assert kept[2] == (["out.csv"], {"rows": [1]}, "success", {"at": 7.0, "depth": 0})
        assert len(context.layers.states["task-state"]["checkpoints"]) == 6  # an answer and an end each


@pytest.mark.parametrize("namespaced", [False, True])
async def test_B10_task_state_takes_what_children_added_and_nothing_they_were_only_given(
    namespaced: bool,
) -> None:
    ids: list[str] = []

    def write(name: str, **data: Any) -> Any:
        def work(input: Any, child: RunContext) -> None:
            ids.append(child.id)
            kept = child.context["task-state"]
            assert kept.data == {"old": 1, "same": [1]}
            kept.record_artifact(name)
            kept.record_artifact("shared")
            for key, value in data.items():
                kept.set_task_data(key, value)

        return run_code(name, work)

    async def flow(input: Any, context: RunContext) -> Any:
        kept = context.context["task-state"]
        kept.set_task_data("old", 1)
        kept.set_task_data("same", [1])
        await context.execute(in_parallel("p", [write("a", old=2, mine=[3]), write("b", other=4)]))
        return kept.files, kept.data

    layers = [task_state_layer(namespaced=namespaced)]
    files, data = await Harness(layers=layers).run(run_code("flow", flow))
    assert sorted(files) == ["a", "b", "shared"]
    if namespaced:
        assert sorted(map(str, [data[id] for id in ids])) == ["{'old': 2, 'mine': [3]}", "{'other': 4}"]
        assert (data["old"], data["same"]) == (1, [1])
    else:
        assert data == {"old": 2, "same": [1], "mine": [3], "other": 4}


async def test_B10_task_state_keeps_the_newest_checkpoints_only() -> None:
    times = iter(range(1000))
    layer = task_state_layer(now=lambda: float(next(times)))
    store = MemoryStore()
    state: dict[str, Any] = {"files": [], "checkpoints": [{"at": -1.0, "depth": 0}] * 60, "other": "ours"}
    await store.put("layers/task-state/t/state", compact_json(state).encode())
    harness = Harness(layers=[layer], store=store)
    context = harness.create_context(thread_id="t")
    step = spawn("s", run_code("c", lambda input, ctx: None))
    await harness.run(step, context=context)
    kept = context.layers.states["task-state"]["checkpoints"]
    assert len(kept) == CHECKPOINTS
    assert kept[-1] == {"at": 1.0, "depth": 0}
    assert context.layers.states["task-state"]["outcome"] == "success"


# -- observations -----------------------------------------------------------------------------------


async def test_B10_observations_are_distilled_when_enough_was_said() -> None:
    given: list[Sequence[str]] = []

    async def observe(said: Sequence[str]) -> list[str]:
        await trio.lowlevel.checkpoint()
        given.append(said)
        return [f"fact {len(given)}", f"fact {len(given)}"]

    def tool() -> str:
        """Look."""
        return "a tool's output"

    layer = observations_layer(observe, threshold=6, max_observations=2, scope=Scope.THREAD)
    store = MemoryStore()
    async with peer(answer("ok"), calling(call("tool")), answer("long enough by now")) as (env, wire):
        for question, tools in (("q", []), ("r", [tool]), ("s", []), ("t", [])):
            harness = Harness(env=env, model=MODEL, store=store, layers=[layer], cache=NO_CACHE)
            context = harness.create_context(thread_id="t")
            await harness.run(call_model("ask", tools=tools), question, context=context)
        assert given[0] == ("q", "ok", "r", "a tool's output", "long enough by now")
        assert [texts(body)[0] for body in wire.bodies] == [
            "q",
            "r",
            "r",
            "<observations>\n- fact 1\n</observations>",
            "<observations>\n- fact 1\n- fact 2\n</observations>",
        ]
        state = context.layers.states["observations"]
        assert (state["observations"], state["version"], state["buffer"]) == (["fact 2", "fact 3"], 3, [])


async def test_B10_observations_ask_a_model_by_default_and_a_failure_keeps_the_buffer() -> None:
    async with peer(answer("said"), answer(" likes kites \n\nhas a dog")) as (env, wire):
        layer = observations_layer(threshold=1)
        harness = Harness(env=env, model=MODEL, layers=[layer])
        context = harness.create_context()
        seen: list[Any] = []

        async def flow(input: Any, inner: RunContext) -> None:
            await inner.execute(ASK, "q")
            seen.append(inner.context["observations"].observations)

        await harness.run(run_code("flow", flow), context=context)
        assert seen == [["likes kites", "has a dog"]]
        assert texts(wire.bodies[1])[1] == "q\n\nsaid"
        assert context.tokens.total == 30

    def breaks(said: Sequence[str]) -> list[str]:
        raise ValueError("no")

    async with peer(answer("said")) as (env, _):
        harness = Harness(env=env, model=MODEL, layers=[observations_layer(breaks, threshold=1)])
        context = harness.create_context()
        await harness.run(ASK, "q", context=context)
        assert context.layers.states["observations"] == {"observations": [], "buffer": ["q"], "version": 0}


async def test_B10_a_child_knows_the_observations_and_gives_its_own_back() -> None:
    layer = observations_layer(lambda said: ["new"], threshold=1)

    async def flow(input: Any, context: RunContext) -> Any:
        await context.execute(ASK, "q")
        await context.execute(spawn("s", ASK), "q")
        return context.layers.states["observations"]["observations"]

    async with peer(answer("ok")) as (env, wire):
        assert await Harness(env=env, model=MODEL, layers=[layer]).run(run_code("f", flow)) == ["new"]
        assert "- new" in texts(wire.bodies[1])[0]


# -- plan -------------------------------------------------------------------------------------------


def planned(*layers: ContextLayer, **given: Any) -> Harness:
    return Harness(layers=layers, **given)


async def test_B10_a_plan_is_entered_written_approved_carried_out_and_completed() -> None:
    asked: list[Any] = []

    async def approve(state: Any) -> bool:
        await trio.lowlevel.checkpoint()
        asked.append(state)
        return len(asked) > 1

    store = MemoryStore()
    harness = Harness(layers=[plan_layer(approve=approve)], store=store)
    said: list[Any] = []

    async def flow(input: Any, context: RunContext) -> None:
        plan = context.context["plan"]
        said.append(plan.write("x", []))
        said.append(await plan.exit("execute"))
        said.append(plan.mark(1))
        said.append(plan.enter("fly"))
        said.append(await plan.exit("cancel"))
        plan.enter("fly")
        said.append(await plan.exit("execute"))
        said.append(plan.write("how to fly", ["jump", "flap"]))
        said.append(await plan.exit("execute"))
        said.append(await plan.exit("execute"))
        said.append(plan.mark(3))
        said.append(plan.mark(2))
        said.append(plan.status["phase"])

    context = harness.create_context(thread_id="t")
    await harness.run(run_code("flow", flow), context=context)
    assert said == [
        "not written: call plan/enter first",
        "there is no plan in the making",
        "no plan that is carried out has a step 1",
        "planning",
        "given up",
        "the plan is empty: call plan/write first",
        "written, 2 steps",
        "not approved: change the plan, then call plan/exit again",
        "carry it out now",
        "no plan that is carried out has a step 3",
        "marked",
        "executing",
    ]
    assert asked[0]["goal"] == "fly"
    state = context.layers.states["plan"]
    assert state["phase"] == PlanPhase.COMPLETED
    assert [step["done"] for step in state["steps"]] == [False, True]
    assert b"completed" in (await store.get("layers/plan/t/state") or b"")


async def test_B10_while_planning_only_tools_that_look_may_be_called() -> None:
    def look() -> str:
        """Look."""
        return "seen"

    def write() -> str:
        """Change something."""
        return "written"

    async def flow(input: Any, context: RunContext) -> Any:
        plan = context.context["plan"]
        await context.execute(invoke_tool("w", write), {})
        plan.enter()
        assert await context.execute(invoke_tool("l", look), {}) == "seen"
        await context.execute(invoke_tool("p", "plan/write"), {"text": "do", "steps": []})
        with pytest.raises(RunError, match="no other tools than plan/\\*, look while planning"):
            await context.execute(invoke_tool("w", write), {})
        await plan.exit("execute")
        return await context.execute(invoke_tool("w", write), {})

    assert await planned(plan_layer(allowed=["look"])).run(run_code("flow", flow)) == "written"


async def test_B10_a_plan_is_in_view_while_it_is_made_or_carried_out_and_its_text_gives_way() -> None:
    async def flow(input: Any, context: RunContext) -> None:
        plan = context.context["plan"]
        await context.execute(ASK, "q")
        plan.enter("fly")
        await context.execute(ASK, "q")
        plan.write("jump off " * 100, ["jump", "flap"])
        await plan.exit("execute")
        plan.mark(1)
        await context.execute(ASK, "q")
        raise ValueError("it fell")

    policy = ProjectionPolicy(token_budget=float("inf"))
    async with peer(answer("ok")) as (env, wire):
        for budget, text in ((None, "jump off " * 100), (60, "jump off"), (10, None)):
            wire.bodies.clear()
            layer = plan_layer(budget=LayerBudget() if budget is None else budget)
            harness = Harness(env=env, model=MODEL, layers=[layer], cache=NO_CACHE, projection=policy)
            context = harness.create_context()
            with pytest.raises(RunError, match="it fell"):
                await harness.run(run_code("flow", flow), context=context)
            assert texts(wire.bodies[0]) == ["q"]
            assert texts(wire.bodies[1])[0].startswith("<plan>\nYou are planning. You may call plan/*;")
            shown = texts(wire.bodies[2])[0].splitlines()
            assert shown[1].startswith("Carry this plan out.")
            assert shown[2] == "Goal: fly"
            assert shown[-3:] == ["[x] 1. jump", "[ ] 2. flap", "</plan>"]
            assert shown[3].startswith(text) if text else shown[3] == "[x] 1. jump"
            assert budget != 60 or (shown[3].endswith("…") and len("\n".join(shown)) <= 240)
            assert context.layers.states["plan"]["phase"] == PlanPhase.FAILED


async def test_B10_a_childs_marks_come_back_if_it_had_the_same_plan() -> None:
    def mark(step: int) -> Any:
        return run_code(f"m{step}", lambda input, child: child.context["plan"].mark(step))

    def other(input: Any, child: RunContext) -> None:
        child.context["plan"].enter("something else")

    async def flow(input: Any, context: RunContext) -> Any:
        plan = context.context["plan"]
        await context.execute(spawn("none", mark(1)))
        plan.enter()
        plan.write("", ["a", "b", "c"])
        await plan.exit("execute")
        await context.execute(in_parallel("p", [mark(1), mark(3), run_code("o", other)]))
        return plan.status

    status = await planned(plan_layer()).run(run_code("flow", flow))
    assert [step["done"] for step in status["steps"]] == [True, False, True]
    assert status["phase"] == "executing"


async def test_B10_a_child_that_cleared_its_state_changes_nothing_in_its_parent() -> None:
    state = ToolState(id="todos", init=lambda: ["mine"], recall=str)
    tool = with_tool_state(state)(lambda: None)
    layers = [
        task_state_layer(),
        observations_layer(),
        plan_layer(),
        scratchpad_layer(),
        *tool_calls_layers([tool]),
    ]

    def clear(input: Any, child: RunContext) -> None:
        assert len(child.layers.states) == len(layers)
        for id in child.layers.states:
            child.layers.states[id] = None

    async def flow(input: Any, context: RunContext) -> tuple[Any, Any]:
        context.context["task-state"].record_artifact("a")
        context.context["scratchpad"].write("b", "c")
        context.context["plan"].enter("fly")
        before = copy.deepcopy(context.layers.states)
        await context.execute(spawn("s", run_code("clear", clear)))
        return before, copy.deepcopy(context.layers.states)

    before, after = await Harness(layers=layers).run(run_code("flow", flow))
    assert before == after
    assert all(after.values())


# -- filesystem -------------------------------------------------------------------------------------


async def files_harness(env: Any, files: dict[str, str | bytes], **given: Any) -> Harness:
    fs = MemoryFs()
    for path, content in files.items():
        await fs.write_file_bytes(path, content.encode() if isinstance(content, str) else content)
    options = {key: given.pop(key) for key in ("cache",) if key in given}
    return Harness(env=env, model=MODEL, fs=fs, layers=[filesystem_layer(**given)], **options)


async def test_B10_files_that_users_refer_to_are_shown_as_they_are_last_named_first() -> None:
    async with peer(answer("ok")) as (env, wire):
        harness = await files_harness(
            env, {"/src/a.py": "one", "/b.md": "```\ncode\n```\n", "/Makefile": "all:"}
        )

        async def flow(input: Any, context: RunContext) -> Any:
            await context.execute(
                ASK, "see #src/a.py, #b.md. and #Makefile; not #tag, a#b.md, #../b.md or #1.5"
            )
            return context.context["filesystem"].files

        assert await harness.run(run_code("flow", flow)) == ["src/a.py", "b.md", "Makefile"]
        head, *shown, _ = texts(wire.bodies[0])
        assert head == "Files that were referred to, as they are now:"
        assert shown == [
            "File Makefile:\n```\nall:\n```",
            "File b.md:\n````\n```\ncode\n```\n````",
            "File src/a.py:\n```\none\n```",
        ]


async def test_B12_a_changed_file_is_told_by_itself_in_the_updates() -> None:
    async with peer(answer("ok")) as (env, wire):
        harness = await files_harness(env, {"/a.py": "a" * 3000, "/b.py": "b = 1", "/c.py": "c = 1"})

        async def flow(input: Any, context: RunContext) -> None:
            await context.execute(ASK, "#a.py #b.py")
            await context.fs.write_file("/b.py", "b = 2")
            await context.execute(ASK, "#c.py")
            await context.execute(ASK, "and?")

        await harness.run(run_code("flow", flow))
        first, second, third = map(texts, wire.bodies)
        assert second[:3] == third[:3] == first[:3]
        for view in (second, third):
            assert "File b.py:\n```\nb = 2\n```" in view[-1]
            assert "File c.py:\n```\nc = 1\n```" in view[-1]
            assert "a" * 40 not in view[-1]  # more than an id could hold by chance


async def test_B12_a_file_that_is_no_longer_shown_is_told() -> None:
    async with peer(answer("ok")) as (env, wire):
        harness = await files_harness(env, {"/a.py": "a = 1", "/b.py": "b = 1"})

        async def flow(input: Any, context: RunContext) -> None:
            await context.execute(ASK, "#a.py #b.py")
            context.layers.states["filesystem"] = {"files": {"a.py": ""}}
            await context.execute(ASK, "go on")

        await harness.run(run_code("flow", flow))
        assert "File b.py is no longer referred to." in texts(wire.bodies[1])[-1]
        assert "a = 1" not in texts(wire.bodies[1])[-1]


async def test_B10_what_can_not_be_read_is_named_with_the_reason() -> None:
    async with peer(answer("ok")) as (env, wire):
        files: dict[str, str | bytes] = {"/big.py": "x" * 101, "/bin.py": b"\0", "/bad.py": b"\xff"}
        harness = await files_harness(env, files, max_bytes=100)
        await harness.run(ASK, "#gone.py #big.py #bin.py #bad.py")
        assert texts(wire.bodies[0])[1:-1] == [
            "File bad.py:\n```\n\ufffd\n```",
            "File bin.py: it is not text",
            "File big.py: it has 101 bytes, more than 100",
            "File gone.py: FileNotFoundError",
        ]


async def test_B10_a_file_that_the_budget_does_not_hold_is_shown_without_its_middle() -> None:
    async with peer(answer("ok")) as (env, wire):
        content = "begin" + "x" * 4000 + "end"
        harness = await files_harness(env, {"/a.py": content, "/b.py": content, "/c.py": "c"}, budget=200)
        await harness.run(ASK, "#b.py #a.py #c.py")
        _, c, a, question = texts(wire.bodies[0])
        assert c.startswith("File c.py")
        assert question.startswith("#b.py")  # of b.py there was no room for anything
        assert "begin" in a
        assert "end\n```" in a
        assert "characters left out ...]" in a
        assert len(a) <= 800


async def test_B10_a_change_during_a_step_has_the_files_shown_anew_before_the_next_request() -> None:
    async def edit() -> str:
        """Edit."""
        await fs.write_file("/a.py", "after")
        return "done"

    async with peer(calling(call("edit")), answer("ok")) as (env, wire):
        harness = await files_harness(env, {"/base/a.py": "before"}, base="/base", cache=NO_CACHE)
        fs = harness.fs

        async def flow(input: Any, context: RunContext) -> None:
            await context.execute(call_model("a", tools=[edit]), "#a.py")

        await fs.rename("/base/a.py", "/a.py")
        harness = Harness(env=env, model=MODEL, fs=fs, layers=[filesystem_layer()], cache=NO_CACHE)
        await harness.run(run_code("flow", flow))
        assert "before" in texts(wire.bodies[0])[1]
        assert "after" in texts(wire.bodies[1])[1]


async def test_B10_a_child_sees_the_files_and_without_files_nothing_is_shown() -> None:
    async with peer(answer("ok")) as (env, wire):
        harness = await files_harness(env, {"/a.py": "one"})

        async def flow(input: Any, context: RunContext) -> None:
            await context.execute(ASK, "nothing")
            await context.execute(ASK, "#a.py")
            await context.execute(spawn("s", ASK), "q")

        await harness.run(run_code("flow", flow))
        assert texts(wire.bodies[0]) == ["nothing"]
        assert "one" in texts(wire.bodies[2])[1]


# -- tool-calls -------------------------------------------------------------------------------------

TODOS = ToolState(id="todos", init=list, recall=lambda todos: f"To do: {todos}" if todos else None)


@with_tool_state(TODOS)
async def add_todo(what: str, context: Any) -> str:
    await trio.lowlevel.checkpoint()
    todos = context.context["todos"]
    todos.set([*todos.state, what])
    return "added"


@with_tool_state(TODOS)
def count_todos(context: Any) -> int:
    return len(context.context["todos"].state)


async def test_B10_tools_keep_a_state_that_the_model_sees() -> None:
    layers = tool_calls_layers([add_todo, count_todos, print])
    assert [(layer.id, layer.scope) for layer in layers] == [("todos", Scope.EXECUTION)]
    schema = {"type": "object", "properties": {"what": {"type": "string"}}}
    async with peer(calling(call("add_todo", '{"what": "fly"}')), answer("ok")) as (env, wire):
        env.register_tool(add_todo, schema=schema)
        env.register_tool(count_todos, schema={"description": "Count."})
        harness = Harness(env=env, model=MODEL, layers=layers, cache=NO_CACHE)

        async def flow(input: Any, context: RunContext) -> Any:
            await context.execute(call_model("a"), "q")
            await context.execute(spawn("s", invoke_tool("add", "add_todo")), {"what": "land"})
            await context.execute(call_model("b"), "r")
            return await context.execute(invoke_tool("c", "count_todos"), {})

        assert await harness.run(run_code("flow", flow)) == 2
        assert [texts(body)[0] for body in wire.bodies] == ["q", "q", "To do: ['fly', 'land']"]
        assert [tool["name"] for tool in wire.bodies[0]["tools"]] == ["add_todo", "count_todos"]
    other = with_tool_state(ToolState(id="todos", init=dict, recall=str))(lambda: None)
    with pytest.raises(ValueError, match="two different states 'todos'"):
        tool_calls_layers([add_todo, other])
