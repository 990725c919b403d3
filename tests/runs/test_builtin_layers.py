"""The built-in layers, on a scripted model."""

from __future__ import annotations

from typing import Any

import pytest

import aiio.runs
from aiio.runs import (
    Harness,
    MemoryStore,
    RunContext,
    RunError,
    Verdict,
    call_model,
    create_message,
    history_layer,
    instructions_layer,
    new_item,
    run_code,
    scratchpad_layer,
    spawn,
    steering_layer,
    temporal_layer,
)
from aiio.runs.layers import ALLOW, Ruling
from tests.agents.peer import MODEL, answer, call, calling, peer


def texts(body: dict[str, Any]) -> list[str]:
    return [message["content"][0]["text"] for message in body["messages"]]


def test_every_public_name_is_there() -> None:
    assert sorted(aiio.runs.__all__) == sorted(set(aiio.runs.__all__))
    for name in aiio.runs.__all__:
        assert getattr(aiio.runs, name) is not None


async def test_B10_instructions_stand_first_and_the_time_last_also_in_children() -> None:
    layers = [instructions_layer("Be kind."), temporal_layer(lambda: 0.0)]
    async with peer(answer("ok")) as (env, wire):
        harness = Harness(env=env, model=MODEL, layers=layers)
        await harness.run(spawn("child", call_model("ask")), "q")
        await harness.run(call_model("ask"), "q")
        assert texts(wire.bodies[1]) == ["Be kind.", "q", "It is Thursday, 1970-01-01, 00:00 UTC."]
        assert texts(wire.bodies[0]) == texts(wire.bodies[1])


async def test_B10_a_scratchpad_shows_notes_keeps_them_and_takes_back_a_childs() -> None:
    store = MemoryStore()

    def note(input: Any, context: RunContext) -> None:
        pad = context.context["scratchpad"]
        pad.write("bird", "a kite")
        pad.write("gone", "x")
        pad.write("gone", "")

    async def flow(input: Any, context: RunContext) -> Any:
        await context.execute(call_model("ask"), "before")
        await context.execute(spawn("child", run_code("note", note)))
        await context.execute(call_model("ask"), "after")
        return context.context["scratchpad"].notes

    async with peer(answer("ok")) as (env, wire):
        for _ in range(2):
            harness = Harness(env=env, model=MODEL, layers=[scratchpad_layer()], store=store)
            context = harness.create_context(thread_id="t")
            assert await harness.run(run_code("flow", flow), context=context) == {"bird": "a kite"}
        assert texts(wire.bodies[0]) == ["before"]
        assert "Notes:\n- bird: a kite" in texts(wire.bodies[1])[-1]
        assert texts(wire.bodies[2])[0] != "before"  # the next execution of the thread knows


async def test_B10_steering_rules_over_answers_and_calls() -> None:
    def judge(items: Any) -> Verdict:
        return Verdict(Ruling.DENY, "no") if "bad" in str(items) else ALLOW

    def gate(wanted: Any) -> Verdict:
        raise ValueError("broken")

    made: list[str] = []

    def tool() -> None:
        """Do it."""
        made.append("tool")

    async with peer(calling(call("tool")), answer("bad")) as (env, _):
        harness = Harness(env=env, model=MODEL, layers=[steering_layer(judge=judge, gate=gate)])
        with pytest.raises(RunError, match="denied"):
            await harness.run(call_model("ask", tools=[tool]), "q")
        assert made == []
    async with peer(answer("ok")) as (env, _):
        harness = Harness(env=env, model=MODEL, layers=[steering_layer()])
        assert await harness.run(spawn("child", call_model("ask")), "q") == "ok"


@pytest.mark.parametrize(
    ("size", "shown"),
    [(40, [0, 1, 2, 3, 4, 5, 6]), (1, [0, 5, 6]), (3, [0, 5, 6]), (4, [0, 4, 5, 6])],
)
async def test_B10_history_shows_the_newest_items_and_what_they_need(size: int, shown: list[int]) -> None:
    items = [
        create_message("0", "system"),
        create_message("1"),
        create_message("2", "assistant"),
        create_message("3"),
        create_message("4", "assistant"),
        create_message("5", "assistant"),
        new_item("function_call", call_id="open", name="f", arguments="{}"),
    ]
    async with peer(answer("ok")) as (env, wire):
        harness = Harness(env=env, model=MODEL, layers=[history_layer(size)])
        await harness.run(call_model("ask"), "6", context=harness.create_context(items=items))
        seen = [
            text
            for message in wire.bodies[0]["messages"]
            for text in [block["text"] for block in message["content"]]
        ]
        assert seen == [str(number) for number in shown]


async def test_B10_a_history_without_a_system_message_is_a_plain_window() -> None:
    async with peer(answer("ok")) as (env, wire):
        harness = Harness(env=env, model=MODEL, layers=[history_layer(1)])
        items = [create_message(str(number)) for number in range(9)]
        await harness.run(call_model("ask"), "q", context=harness.create_context(items=items))
        assert texts(wire.bodies[0]) == ["6", "7", "8", "q"]
        await harness.run(spawn("child", call_model("ask")), "q")
    with pytest.raises(ValueError, match="max_items"):
        history_layer(0)
