"""What layers provide: read and called by code, called by models as `layer/fn`, named safely on the wire."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from aiio.context.types import assistant_message, text_content, tool_result_message, user_message
from aiio.runs.code_steps import run_code
from aiio.runs.context import RunContext
from aiio.runs.errors import RunError, RunErrorKind
from aiio.runs.harness import Harness
from aiio.runs.layer_tools import LONGEST, NewState, WireNames
from aiio.runs.layers import ContextLayer, HookCall, HookContext, Hooks, Ruling, Verdict
from aiio.runs.model_request import make_io
from aiio.runs.model_step import call_model
from aiio.runs.spawning import spawn
from aiio.runs.step_tools import StepTools
from aiio.runs.stores import MemoryStore
from aiio.runs.tools import invoke_tool
from tests.agents.peer import MODEL, answer, call, calling, half_call, peer
from tests.io.scripted import HANG


def add(state: list[str], text: str) -> NewState:
    """Note a text.

    Args:
      text: what to note.
    """
    return NewState([*state, text], f"noted {text}")


async def count(state: list[str], context: HookContext) -> str:
    """Count the notes."""
    await trio.lowlevel.checkpoint()
    return f"{len(state)} of {context.execution_id}"


def hidden(state: list[str]) -> None:
    """Not for models."""


hidden.aiio_tool = {"secret": True}  # type: ignore[attr-defined]


def notes(**more: Any) -> ContextLayer:
    hooks = Hooks(
        init=lambda call: {"state": []},
        on_spawn=lambda call: {"child_state": ["inherited"]},
        **more,
    )
    provides = {"add": add, "count": count, "hidden": hidden, "all": property(lambda state: list(state))}
    return ContextLayer(id="notes", hooks=hooks, provides=provides)


def outputs(context: RunContext) -> list[str]:
    return [item["output"] for item in context.item_log.items if item["type"] == "function_call_output"]


async def test_B10_a_model_calls_layer_functions_with_the_layers_state() -> None:
    script = calling(
        call("notes_add", '{"text": "kite"}', call_id="a"), call("notes_count", call_id="b", index=1)
    )
    async with peer(script, answer("ok")) as (env, wire):
        context = Harness(env=env, model=MODEL, layers=[notes()]).create_context()
        await context.harness.run(call_model("ask"), "q", context=context)
        assert outputs(context) == ["noted kite", f"1 of {context.id}"]
        assert context.layers.states["notes"] == ["kite"]
    published = {tool["name"]: tool for tool in wire.bodies[0]["tools"]}
    assert list(published) == ["notes_add", "notes_count"]  # safe, and without what is secret
    assert published["notes_add"]["description"] == "Note a text."
    assert published["notes_add"]["input_schema"]["properties"] == {
        "text": {"type": "string", "description": "what to note."}
    }
    assert published["notes_count"]["input_schema"]["properties"] == {}


async def test_B5_names_are_safe_on_the_wire_and_their_own_in_the_log() -> None:
    script = calling(call("notes_add", '{"text": "kite"}'))
    async with peer(script, answer("ok")) as (env, wire):
        context = Harness(env=env, model=MODEL, layers=[notes()]).create_context()
        await context.harness.run(call_model("ask"), "q", context=context)
        names = [item["name"] for item in context.item_log.items if "name" in item]
        assert names == ["notes/add"]
        assert context.last_step_meta is not None
        assert context.last_step_meta.tool_calls is not None
        assert context.last_step_meta.tool_calls[0]["name"] == "notes/add"
    _, asked, result = wire.bodies[1]["messages"]
    assert asked["content"][0]["name"] == result["name"] == "notes_add"
    assert "notes/add" not in str(wire.bodies)


async def test_B5_a_call_that_was_cut_has_its_own_name_in_the_log(autojump_clock: MockClock) -> None:
    async with peer([half_call("notes_add", '{"text": "k'), HANG]) as (env, _):
        context = Harness(env=env, model=MODEL, layers=[notes()]).create_context()
        with trio.move_on_after(1):
            await context.harness.run(call_model("ask"), "q", context=context)
        assert [item.get("name") for item in context.item_log.items] == [None, "notes/add"]


@pytest.mark.parametrize(
    ("tools", "offered"),
    [
        (None, ["other", "notes_add", "notes_count"]),
        (["*"], ["other", "notes_add", "notes_count"]),
        (["notes/count"], ["notes_count"]),
        (["other"], ["other"]),
        ([], []),
    ],
)
async def test_B5_a_steps_list_narrows_the_tools_of_layers_too(tools: Any, offered: list[str]) -> None:
    def other() -> None:
        """Of the env."""

    async with peer(calling(call("notes_add", '{"text": "x"}')), answer("ok")) as (env, wire):
        env.register_tool(other)
        context = Harness(env=env, model=MODEL, layers=[notes()]).create_context()
        await context.harness.run(call_model("ask", tools=tools), "q", context=context)
        assert [tool["name"] for tool in wire.bodies[0]["tools"]] == offered
        assert (context.layers.states["notes"] == ["x"]) is ("notes_add" in offered)


async def test_B5_a_layer_function_may_be_the_tool_that_must_be_called() -> None:
    async with peer() as (env, _):
        context = Harness(env=env, layers=[notes()]).create_context()
        await context.layers.begin()
        for choice, sent in (
            ("notes/add", "notes_add"),
            ("auto", "auto"),
            ({"type": "auto"}, {"type": "auto"}),
        ):
            tools = StepTools(env, None, context.layers)
            assert (
                make_io(env, MODEL, tools, {"settings": {"tool_choice": choice}}).settings["tool_choice"]
                == sent
            )


async def test_B10_invoke_tool_calls_a_layer_function_by_name() -> None:
    harness = Harness(layers=[notes()])

    async def flow(input: Any, context: RunContext) -> list[Any]:
        said = await context.execute(invoke_tool("add", "notes/add"), {"text": "kite"})
        child = await context.execute(spawn("s", invoke_tool("count", "notes/count", {})))
        return [said, child.partition(" ")[0], context.context["notes"].all]

    assert await harness.run(run_code("flow", flow)) == ["noted kite", "1", ["kite"]]
    for tool, arguments in (("notes/add", {"txt": 1}), ("notes/hidden", {})):
        with pytest.raises(RunError) as caught:
            await harness.run(invoke_tool("x", tool, arguments))
        assert caught.value.kind is RunErrorKind.STEP_FAILED
    with pytest.raises(RunError, match="arguments are a mapping"):
        await harness.run(invoke_tool("x", "notes/add"), "text")
    with pytest.raises(ValueError, match="unknown tool 'notes/gone'"):
        await harness.run(invoke_tool("x", "notes/gone", {}))


async def test_B6_invoke_tool_is_gated_by_the_layers_once_its_input_fits() -> None:
    asked: list[Any] = []

    def gate(hook: HookCall) -> Verdict:
        asked.append(hook.call)
        return Verdict(Ruling.DENY, "not today")

    harness = Harness(layers=[notes(before_tool_call=gate)])
    with pytest.raises(RunError) as caught:
        await harness.run(invoke_tool("x", "notes/add", {"text": "a"}))
    assert caught.value.kind is RunErrorKind.STEERING_DENIED
    assert caught.value.detail["reason"] == "not today"
    assert (asked[0]["name"], asked[0]["arguments"]) == ("notes/add", {"text": "a"})
    with pytest.raises(RunError, match="argument"):
        await harness.run(invoke_tool("x", "notes/add", {}))
    assert len(asked) == 1


async def test_B10_code_reads_properties_and_calls_functions() -> None:
    async def look(input: Any, context: RunContext) -> None:
        handle = context.context["notes"]
        assert handle.add("kite") == "noted kite"
        assert handle.add(text="crow") == "noted crow"
        assert handle.all == ["kite", "crow"]
        assert await handle.count() == f"2 of {context.id}"
        with pytest.raises(AttributeError, match="provides no 'gone'"):
            handle.gone()

    await Harness(layers=[notes()]).run(run_code("look", look))


async def test_B10_a_plain_tool_in_its_thread_may_write_a_layers_state() -> None:
    def write(context: RunContext) -> str:
        return str(context.context["notes"].add("from a thread"))

    store = MemoryStore()
    async with peer() as (env, _):
        env.register_tool(write, schema={"description": "Write a note."})
        context = Harness(env=env, layers=[notes()], store=store).create_context(thread_id="t")
        said = await context.harness.run(invoke_tool("w", "write", {}), context=context)
        assert said == "noted from a thread"
        assert await store.get("layers/notes/t/state") == b'["from a thread"]'


def no_state() -> None:
    """Takes nothing."""


def odd_type(state: Any, where: object) -> None:
    """Nobody can describe its argument."""


@pytest.mark.parametrize(
    ("name", "given", "error", "why"),
    [
        ("x", 5, TypeError, "neither a function nor a property"),
        ("x", no_state, TypeError, "does not take the layer's state"),
        ("x", odd_type, TypeError, "no schema"),
        ("x", dict, TypeError, "signature"),
        ("not safe", add, ValueError, "a tool's name"),
    ],
)
def test_B10_what_a_layer_provides_is_checked_when_it_is_made(
    name: str, given: Any, error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        ContextLayer(id="l", provides={name: given})


def test_B5_wire_names_are_unique_stable_and_come_back() -> None:
    for order in (["a/b", "a_b", "a.b"], ["a.b", "a/b", "a_b"]):
        names = WireNames()
        names.learn(order)
        wire = {name: names.wire(name) for name in order}
        assert wire["a_b"] == "a_b"  # who has a safe name keeps it
        assert len(set(wire.values())) == 3
        assert {names.own(safe): safe for safe in wire.values()} == wire
    long = WireNames()
    first, second = long.wire("x" * 100), long.wire("x" * 101)
    assert (len(first), len(second), first != second) == (LONGEST, LONGEST, True)
    assert long.own("unheard of") == "unheard of"
    assert long.wire("") == "_"


def test_B5_only_messages_with_names_that_change_are_made_anew() -> None:
    names = WireNames()
    blocks = [
        text_content("x"),
        {"type": "tool_call", "call_id": "1", "name": "ok", "arguments": {}},
        {"type": "tool_call", "call_id": "2", "name": None, "arguments": {}},
    ]
    plain = [
        user_message("q"),
        assistant_message(blocks),
        {**tool_result_message("1", "ok", "r"), "name": None},
    ]
    assert all(one is other for one, other in zip(names.sent(plain), plain, strict=True))
    called = assistant_message([text_content("x"), {**blocks[1], "name": "a/b"}])
    [sent, result] = names.sent([called, tool_result_message("1", "a/b", "r")])
    assert (sent["content"][1]["name"], result["name"]) == ("a_b", "a_b")
    assert names.received(sent) == called
    assert called["content"][1]["name"] == "a/b"
