"""Decisions: what a client answers is checked, paid, and handed back only to the same question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from aiio.runs.code_steps import run_code
from aiio.runs.context import RunContext
from aiio.runs.decide import Choice, DecisionAnswer, Noul, Question, Score, decide
from aiio.runs.errors import RunConfigError, RunError, RunErrorKind
from aiio.runs.harness import Harness
from aiio.runs.stores import MemoryStore

QUESTIONS: dict[str, Question] = {
    "urgent": Noul("Is it urgent?"),
    "team": Choice("Which team?", {"a": "first", "b": None}),
    "mood": Score("How angry?", ["calm", "cross", "furious"]),
}
GOOD = {"urgent": 0.75, "team": {"a": 0.25, "b": 0.75}, "mood": {"calm": 0.5, "furious": 0.5}}


class Client:
    model, source = "judge", "native"

    def __init__(self, answers: Mapping[str, Any], refused: tuple[str, ...] = ()) -> None:
        self.answers, self.refused = answers, frozenset(refused)
        self.asked: list[Any] = []

    async def evaluate(self, state: Any, questions: Mapping[str, Question]) -> DecisionAnswer:
        self.asked.append(state)
        usage = {"input_tokens": 7, "output_tokens": 1, "cost": 0.25}
        return DecisionAnswer(model="judge-1", answers=self.answers, refused=self.refused, usage=usage)


async def test_the_output_is_the_answers_and_all_else_is_meta() -> None:
    harness = Harness()
    context = harness.create_context()
    told: list[tuple[str, Any]] = []
    harness.on_event(lambda name, data: told.append((name, data)))
    client = Client(GOOD)
    step = decide(
        "d", client, state=lambda input, ctx: {"text": input}, questions=lambda input, ctx: QUESTIONS
    )
    output = await harness.run(step, "help!", context=context)
    assert output == {
        "urgent": 0.75,
        "team": {"choice": "b", "probabilities": {"a": 0.25, "b": 0.75}, "confidence": 0.75},
        "mood": {
            "score": 2.0,
            "legend": {"1": "calm", "2": "cross", "3": "furious"},
            "probabilities": {"calm": 0.5, "cross": 0.0, "furious": 0.5},
            "confidence": 0.5,
        },
    }
    meta = context.last_step_meta
    assert meta is not None
    assert meta.decision == {"model_id": "judge-1", "source": "native", "refused": []}
    assert (meta.cost, context.cost, context.tokens.input) == (0.25, 0.25, 7)
    assert client.asked == [{"text": "help!"}]
    assert [name for name, _ in told if "decide" in name] == ["aiio:decide.start", "aiio:decide.complete"]
    assert "help!" not in str([data for name, data in told if "decide" in name])


async def test_a_refused_question_has_no_answer_unless_all_were_refused() -> None:
    harness = Harness()
    context = harness.create_context()
    step = decide("d", Client(GOOD, ("urgent",)), state={}, questions=QUESTIONS)
    output = await harness.run(step, context=context)
    assert sorted(output) == ["mood", "team"]
    assert context.last_step_meta is not None
    assert context.last_step_meta.decision == {
        "model_id": "judge-1",
        "source": "native",
        "refused": ["urgent"],
    }
    with pytest.raises(RunConfigError, match="refused every question"):
        await harness.run(decide("d", Client({}, tuple(QUESTIONS)), state={}, questions=QUESTIONS))


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"urgent": 2},
        {"urgent": True},
        {"team": {"c": 1.0}},
        {"team": {}},
        {"team": "a"},
        {"mood": {"calm": 0, "cross": 0}},
        {"mood": {"calm": float("nan")}},
    ],
)
async def test_an_answer_that_does_not_fit_is_invalid(answers: Any) -> None:
    for id, question in QUESTIONS.items():
        if id in answers or not answers:
            with pytest.raises(RunConfigError) as caught:
                await Harness().run(decide("d", Client(answers), state={}, questions={id: question}))
            assert caught.value.code == "DECISION_ANSWER_INVALID"
    with pytest.raises(RunConfigError, match="two levels"):
        await Harness().run(decide("d", Client({"x": {}}), state={}, questions={"x": Score("?", ["one"])}))


async def test_a_state_that_is_no_json_is_a_config_error() -> None:
    with pytest.raises(RunConfigError) as caught:
        await Harness().run(decide("d", Client(GOOD), state={"x": object()}, questions=QUESTIONS))
    assert caught.value.code == "DECISION_STATE_NOT_SERIALIZABLE"


async def test_a_client_that_fails_raises_and_its_call_is_held() -> None:
    class Broken(Client):
        async def evaluate(self, state: Any, questions: Mapping[str, Question]) -> DecisionAnswer:
            raise RunError(RunErrorKind.SYSTEM_ONE_FAILED, "down", provider="x", retryable=True)

    harness = Harness()
    context = harness.create_context()
    with pytest.raises(RunError) as caught:
        await harness.run(decide("d", Broken({}), state={}, questions=QUESTIONS), context=context)
    assert caught.value.kind is RunErrorKind.SYSTEM_ONE_FAILED
    assert [paid.state for paid in await harness.paid_calls(context.id)] == ["held"]


async def test_another_question_drops_the_answer_and_every_later_sibling() -> None:
    store = MemoryStore()
    ran: list[str] = []
    client = Client(GOOD)
    state = {"version": 1}
    broken = [True]

    def note(name: str) -> Any:
        def work(input: Any, context: RunContext) -> int:
            if name == "end" and broken:
                raise ValueError("stop here")
            ran.append(name)
            return 1

        return run_code(name, work)

    async def flow(input: Any, context: RunContext) -> None:
        await context.execute(note("before"))
        await context.execute(decide("d", client, state=dict(state), questions=QUESTIONS))
        await context.execute(note("after"))
        await context.execute(note("end"))

    async def attempt() -> list[str]:
        harness = Harness(store=store)
        context = await harness.restore("x") or harness.create_context(id="x")
        ran.clear()
        with pytest.raises(RunError, match="stop here"):
            await harness.run(run_code("flow", flow), context=context)
        return list(ran)

    assert await attempt() == ["before", "after"]
    assert await attempt() == []
    state["version"] = 2
    assert await attempt() == ["after"]
    assert client.asked == [{"version": 1}, {"version": 2}]
