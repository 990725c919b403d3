"""Decisions: what a client answers is checked, paid, and handed back only to the same question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from aiio.context.events import ErrorKind
from aiio.context.types import ContentType
from aiio.env.errors import ProviderError
from aiio.runs.code_steps import run_code
from aiio.runs.context import RunContext
from aiio.runs.decide import Choice, DecisionAnswer, DecisionLimits, Noul, Question, Score, decide
from aiio.runs.errors import RunConfigError, RunError, RunErrorKind, error_kind
from aiio.runs.estimating import INSTRUCTIONS, EstimatedDecisions
from aiio.runs.harness import Harness
from aiio.runs.stores import MemoryStore
from tests.agents.peer import MODEL, Peer, answer, peer
from tests.io.scripted import HANG, Refuse, finish, say

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


async def test_B9_the_output_is_the_answers_and_all_else_is_meta() -> None:
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
    (done,) = [data for name, data in told if name == "aiio:decide.complete"]
    assert done["confidence"] == {"urgent": 0.75, "team": 0.75, "mood": 0.5}
    assert (done["model"], done["questions"], done["refused"]) == ("judge-1", ["mood", "team", "urgent"], [])
    assert done["elapsed_ms"] >= 0
    assert "help!" not in str([data for name, data in told if "decide" in name])


async def test_B9_a_refused_question_has_no_answer_unless_all_were_refused() -> None:
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
async def test_B9_an_answer_that_does_not_fit_is_invalid(answers: Any) -> None:
    for id, question in QUESTIONS.items():
        if id in answers or not answers:
            with pytest.raises(RunConfigError) as caught:
                await Harness().run(decide("d", Client(answers), state={}, questions={id: question}))
            assert caught.value.code == "DECISION_ANSWER_INVALID"
    with pytest.raises(RunConfigError, match="two levels"):
        await Harness().run(decide("d", Client({"x": {}}), state={}, questions={"x": Score("?", ["one"])}))


async def test_B9_a_state_that_is_no_json_is_a_config_error() -> None:
    with pytest.raises(RunConfigError) as caught:
        await Harness().run(decide("d", Client(GOOD), state={"x": object()}, questions=QUESTIONS))
    assert caught.value.code == "DECISION_STATE_NOT_SERIALIZABLE"


async def test_B9_a_client_that_fails_raises_and_its_call_is_held() -> None:
    class Broken(Client):
        async def evaluate(self, state: Any, questions: Mapping[str, Question]) -> DecisionAnswer:
            raise RunError(RunErrorKind.SYSTEM_ONE_FAILED, "down", provider="x", retryable=True)

    harness = Harness()
    context = harness.create_context()
    with pytest.raises(RunError) as caught:
        await harness.run(decide("d", Broken({}), state={}, questions=QUESTIONS), context=context)
    assert caught.value.kind is RunErrorKind.SYSTEM_ONE_FAILED
    assert [paid.state for paid in await harness.paid_calls(context.id)] == ["held"]


async def test_B7_another_question_drops_the_answer_and_every_later_sibling() -> None:
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


async def test_B9_an_answer_without_usage_is_held_and_one_with_it_settled() -> None:
    class Silent(Client):
        async def evaluate(self, state: Any, questions: Mapping[str, Question]) -> DecisionAnswer:
            return DecisionAnswer(model="judge-1", answers=self.answers)

    harness = Harness()
    context = harness.create_context()
    for client in (Silent(GOOD), Client(GOOD)):
        await harness.run(decide("d", client, state={}, questions=QUESTIONS), context=context)
    assert [paid.state for paid in await harness.paid_calls(context.id)] == ["held", "settled"]


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (DecisionLimits(max_state_tokens=3), "max_state_tokens"),
        (DecisionLimits(max_request_tokens=10), "max_request_tokens"),
        (DecisionLimits(max_choice_cardinality=2), "max_choice_cardinality"),
    ],
)
async def test_B9_a_request_beyond_the_clients_limits_is_never_made(
    limits: DecisionLimits, name: str
) -> None:
    client = Client(GOOD)
    client.limits = limits  # type: ignore[attr-defined]  # a client may have some
    with pytest.raises(RunConfigError, match=name) as caught:
        await Harness().run(decide("d", client, state="a" * 20, questions=QUESTIONS))
    assert caught.value.code == "DECISION_LIMIT_EXCEEDED"
    assert client.asked == []
    client.limits = DecisionLimits(max_state_tokens=10, max_choice_cardinality=3)  # type: ignore[attr-defined]
    await Harness().run(decide("d", client, state="a" * 20, questions=QUESTIONS))


# -- the client over a chat model -------------------------------------------------------------------


def flat(endpoint: str, model: str, usage: Any) -> float | None:
    """A cent a token, at the peer's one model only."""
    tokens = float(usage["input_tokens"]) + float(usage["output_tokens"])
    return 0.01 * tokens if (endpoint, model) == ("peer", "m") else None


def replying(data: Any, around: str = "{}") -> Any:
    return answer(around.replace("{}", msgspec.json.encode(data).decode()))


def text_of(message: Any) -> str:
    assert message["content"][0]["type"] == ContentType.TEXT
    return str(message["content"][0]["text"])


async def test_B9_a_chat_model_estimates_and_says_so() -> None:
    said = {"urgent": 0.9, "team": {"a": 1, "b": 3}, "mood": {"calm": 0.0, "cross": 0.2, "furious": 0.2}}
    async with peer(replying(said, "Sure:\n```json\n{}\n```")) as (env, found):
        env.register_tool(lambda: 1, name="hidden", schema={"type": "object"})
        harness = Harness(env=env, prices=flat)
        context = harness.create_context()
        client = EstimatedDecisions(env, MODEL)
        output = await harness.run(
            decide("d", client, state={"text": "help!"}, questions=QUESTIONS), context=context
        )
        assert output["urgent"] == 0.9
        assert output["team"] == {"choice": "b", "probabilities": {"a": 0.25, "b": 0.75}, "confidence": 0.75}
        assert output["mood"]["score"] == pytest.approx(2.5)
        meta = context.last_step_meta
        assert meta is not None
        assert meta.decision == {"model_id": "m", "source": "estimated", "refused": []}
        assert meta.usage == {"input_tokens": 10, "output_tokens": 5}
        assert (meta.cost, context.cost, context.billed_cost) == (0.15, 0.15, 0.15)
        (paid,) = await harness.paid_calls(context.id)
        assert (paid.provider, paid.model, paid.state) == ("peer", "m", "settled")
        body = found.bodies[0]
        assert body["tools"] == []
        system, user = body["messages"]
        assert text_of(system) == INSTRUCTIONS
        asked = msgspec.json.decode(text_of(user))
        assert asked["state"] == {"text": "help!"}
        assert asked["questions"]["team"] == {
            "kind": "choice",
            "question": "Which team?",
            "options": {"a": "first", "b": None},
        }
        assert [one["kind"] for one in asked["questions"].values()] == ["yes_no", "choice", "scale"]


async def test_B9_a_model_is_held_to_a_schema_unless_told_otherwise() -> None:
    async with peer(replying({"urgent": 0.5})) as (env, found):
        seen: list[Any] = []
        handle = env.on_event(
            lambda event: seen.append(dict(event.data["io"].settings)) if event.name == "io_start" else None
        )
        for structured in (True, False):
            client = EstimatedDecisions(env, MODEL, structured=structured, settings={"temperature": 0})
            await Harness().run(decide("d", client, state="s", questions={"urgent": Noul("?")}))
        env.off_event(handle)
    assert [settings["temperature"] for settings in seen] == [0, 0]
    schema = seen[0]["response_format"]["json_schema"]["schema"]
    assert schema == {
        "type": "object",
        "properties": {"urgent": {"anyOf": [{"type": "number"}, {"type": "null"}]}},
        "required": ["urgent"],
        "additionalProperties": False,
    }
    assert "response_format" not in seen[1]
    assert len(found.bodies) == 2


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ({"urgent": None, "team": {"a": 1.0}, "mood": {"calm": 1.0}}, ["urgent"]),
        ({"urgent": None, "team": None, "mood": None}, None),
        ("I won't say.", None),
        ({"urgent": 1.0}, None),
        ({"urgent": 1.0, "team": {"c": 1.0}, "mood": {"calm": 1.0}}, None),
        ({"urgent": 1.0, "team": {"a": "much"}, "mood": {"calm": 1.0}}, None),
        ({"urgent": 1.0, "team": "a", "mood": {"calm": 1.0}}, None),
    ],
)
async def test_B9_what_a_model_declines_is_refused_and_nonsense_is_invalid_and_paid(
    said: Any, refused: list[str] | None
) -> None:
    async with peer(replying(said)) as (env, _):
        harness = Harness(env=env, prices=flat)
        context = harness.create_context()
        step = decide("d", EstimatedDecisions(env, MODEL), state="s", questions=QUESTIONS)
        if refused is None:
            with pytest.raises(RunConfigError) as caught:
                await harness.run(step, context=context)
            assert caught.value.code == "DECISION_ANSWER_INVALID"
        else:
            await harness.run(step, context=context)
            assert context.last_step_meta is not None
            assert (context.last_step_meta.decision or {})["refused"] == refused
        assert context.cost == 0.15


async def test_B9_a_model_that_refuses_has_refused_every_question() -> None:
    async with peer([say("No."), finish("refusal", finish="refusal")]) as (env, _):
        with pytest.raises(RunConfigError, match="refused every question"):
            await Harness().run(decide("d", EstimatedDecisions(env, MODEL), state="s", questions=QUESTIONS))


@pytest.mark.parametrize(
    ("status", "expected", "state"),
    [
        (401, "DECISION_CLIENT_UNAUTHORIZED", "void"),
        (400, "DECISION_REQUEST_INVALID", "void"),
        (429, "system_one_failed", "void"),
        (503, "system_one_failed", "held"),
    ],
)
async def test_B9_a_transport_failure_is_system_one_failed_and_a_bad_key_or_request_a_config_error(
    monkeypatch: pytest.MonkeyPatch, status: int, expected: str, state: str
) -> None:
    async with peer(answer("never")) as (env, _):
        kind = ErrorKind.AUTH if status == 401 else ErrorKind.PROVIDER
        fault = ProviderError(kind, "no", status=status, retryable=True, retry_after_ms=7000)

        async def refuse(self: Peer, request: Any, nursery: Any) -> Any:
            await trio.lowlevel.checkpoint()
            raise Refuse(fault).error

        monkeypatch.setattr(Peer, "open", refuse)
        harness = Harness(env=env)
        context = harness.create_context()
        step = decide("d", EstimatedDecisions(env, MODEL), state="s", questions=QUESTIONS)
        with pytest.raises((RunConfigError, RunError)) as caught:
            await harness.run(step, context=context)
        error = caught.value
        assert (getattr(error, "code", None) or error_kind(error)) == expected
        if isinstance(error, RunError):
            detail = error.detail
            assert (detail["provider"], detail["status"], detail["retryable"]) == ("peer", status, True)
            assert detail["retry_after_ms"] == 7000
        assert [paid.state for paid in await harness.paid_calls(context.id)] == [state]


async def test_B9_a_killed_decision_is_cancelled_and_its_call_is_held(autojump_clock: MockClock) -> None:
    async with peer([say("{"), HANG]) as (env, _):
        harness = Harness(env=env)
        context = harness.create_context()

        async def kill() -> None:
            await trio.sleep(1)
            for io in env.active_io:
                io.kill_nowait()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            with pytest.raises(RunError) as caught:
                step = decide("d", EstimatedDecisions(env, MODEL), state="s", questions=QUESTIONS)
                await harness.run(step, context=context)
        assert caught.value.kind is RunErrorKind.CANCELLED
        assert [paid.state for paid in await harness.paid_calls(context.id)] == ["held"]
