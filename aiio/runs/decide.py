"""`decide`: ask a client for decisions with probabilities, and check what it answers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, assert_never

import trio

from aiio.context.text import compact_json
from aiio.env.prices import price

from .calling import call
from .context import RunContext
from .errors import RunConfigError, RunError
from .frames import frame_of
from .paid import PaidCall, PaidState
from .step import check_id
from .totals import StepMeta


@dataclass(frozen=True, slots=True)
class Noul:
    """Yes or no. The answer is the probability of yes."""

    text: str


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several. The answer is `{choice, probabilities, confidence}`."""

    text: str
    options: Mapping[str, str | None]
    """A description, or None, by option."""


@dataclass(frozen=True, slots=True)
class Score:
    """A place on a scale. The answer is `{score, legend, probabilities, confidence}`."""

    text: str
    levels: Sequence[str]
    """At least two, lowest first; `score` is the mean of their numbers (from 1) by probability."""


Question: TypeAlias = Noul | Choice | Score


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionAnswer:
    """What a client answered."""

    model: str
    answers: Mapping[str, Any]
    """By question: a probability (`Noul`), or probabilities by option or level."""
    refused: frozenset[str] = frozenset()
    """Questions that the model declined."""
    usage: Mapping[str, Any] = field(default_factory=dict)
    """`input_tokens, output_tokens, cost?`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLimits:
    """What one request to a client may hold; None: no limit."""

    max_state_tokens: int | None = None
    """Estimated, of the state's JSON."""
    max_request_tokens: int | None = None
    """Estimated, of the state and the questions."""
    max_choice_cardinality: int | None = None
    """Options of a choice, and levels of a scale."""


class DecisionClient(Protocol):
    """What answers questions.

    It may have `limits` (`DecisionLimits`), which are looked at before it is asked, and `provider`, an
    endpoint's name: then an answer without a cost is priced like one of that endpoint.
    """

    @property
    def model(self) -> str:
        """The model it asks."""

    @property
    def source(self) -> str:
        """`native`: the model gives probabilities itself; `estimated`: they were read out of a chat."""

    async def evaluate(self, state: Any, questions: Mapping[str, Question]) -> DecisionAnswer:
        """Answer *questions* about *state*.

        Raises:
          RunError: system_one_failed: it can't; with `billed=False` when that can't have cost anything.
          RunConfigError: it never will, with this key or this request; nothing was billed.

        Cancellation: what was asked may be billed.
        """


@dataclass(frozen=True, slots=True)
class Decide:
    """See `decide`."""

    id: str
    client: DecisionClient
    state: Any
    questions: Any
    kind: str = "decide"

    async def question(self, context: RunContext, input: Any) -> str:
        """Return a hash of what is asked: an answer to something else is not handed back."""
        state, questions = await self._resolved(context, input)
        asked = {id: [type(one).__name__, _facts(one)] for id, one in sorted(questions.items())}
        return hashlib.sha256(_json([state, asked], self.id).encode(errors="replace")).hexdigest()

    async def run(self, context: RunContext, input: Any) -> dict[str, Any]:
        """Ask, check, and report."""
        state, questions = await self._resolved(context, input)
        self._check_limits(_json(state, self.id), questions)
        execution = context._execution
        began = trio.current_time()
        ids = sorted(questions)
        execution.tell(context, "decide.start", step_id=self.id, model=self.client.model, questions=ids)
        found, cost = await self._paid(context, state, questions)
        refused = found.refused & questions.keys()
        output = {
            id: _checked(self.id, id, one, found.answers.get(id))
            for id, one in questions.items()
            if id not in refused
        }
        usage = {name: found.usage[name] for name in ("input_tokens", "output_tokens") if name in found.usage}
        context.last_step_meta = StepMeta(
            usage=usage or None,
            cost=cost,
            billed_cost=cost,
            decision={
                "model_id": found.model,
                "source": self.client.source,
                "refused": sorted(refused),
            },
        )
        execution.tell(
            context,
            "decide.complete",
            step_id=self.id,
            model=found.model,
            questions=ids,
            refused=sorted(refused),
            confidence={id: _confidence(answer) for id, answer in output.items()},
            elapsed_ms=(trio.current_time() - began) * 1000,
        )
        if questions and len(refused) == len(questions):
            raise _invalid(self.id, "the model refused every question")
        return output

    async def _paid(
        self, context: RunContext, state: Any, questions: Mapping[str, Question]
    ) -> tuple[DecisionAnswer, float | None]:
        """Ask, as a paid call; return the answer, and what it cost.

        What the client raises goes through. Its call is held then, its ceiling unknown, unless the client
        says that nothing was billed.
        """
        execution = context._execution
        provider: str | None = getattr(self.client, "provider", None)
        paid = await execution.paid.open(
            context,
            path=frame_of(context).path,
            round=0,
            provider=provider or "decide",
            model=self.client.model.removeprefix(f"{provider}/"),
            ceiling=None,
        )
        settled, usage, cost = PaidState.HELD, dict[str, Any](), None
        try:
            found = await self.client.evaluate(state, questions)
            usage = dict(found.usage)
            if "cost" in usage or (usage and usage.get("source", "provider") == "provider"):
                settled = PaidState.SETTLED  # a count that somebody estimated is no bill
        except RunConfigError:
            settled = PaidState.VOID
            raise
        except RunError as exc:
            if exc.detail.get("billed") is False:
                settled = PaidState.VOID
            raise
        finally:
            with execution.saving():
                cost = usage.get("cost")
                if cost is None and provider is not None and settled is PaidState.SETTLED:
                    cost = await price(context.harness.prices, provider, found.model, usage)

                def book(changed: PaidCall) -> None:
                    context._book(changed.usage, changed.cost_usd)

                await execution.paid.change(paid.call_id, settled, cost=cost, usage=usage, book=book)
        context.check()
        return found, cost

    def _check_limits(self, state: str, questions: Mapping[str, Question]) -> None:
        """Raise `RunConfigError` (DECISION_LIMIT_EXCEEDED) for what the client does not take."""
        limits: DecisionLimits = getattr(self.client, "limits", None) or DecisionLimits()
        asked = _json({id: _facts(one) for id, one in questions.items()}, self.id)
        most = max((len(_names(one)) for one in questions.values()), default=0)
        for name, limit, actual in (
            ("max_state_tokens", limits.max_state_tokens, math.ceil(len(state) / 4)),
            ("max_request_tokens", limits.max_request_tokens, math.ceil((len(state) + len(asked)) / 4)),
            ("max_choice_cardinality", limits.max_choice_cardinality, most),
        ):
            if limit is not None and actual > limit:
                raise RunConfigError(
                    "DECISION_LIMIT_EXCEEDED",
                    f"step {self.id!r}: {actual} is more than the client's {name} of {limit}",
                    hint="project the state to less, or ask in parts",
                )

    async def _resolved(self, context: RunContext, input: Any) -> tuple[Any, Mapping[str, Question]]:
        state = await call(self.state, input, context) if callable(self.state) else self.state
        asked = await call(self.questions, input, context) if callable(self.questions) else self.questions
        return state, asked


def decide(id: str, client: DecisionClient, *, state: Any, questions: Any) -> Decide:
    """Return a step that answers *questions* (by id) about *state*; its output is the answers by id.

    Args:
      id: of the step.
      client: what answers.
      state: JSON data, or `(input, context) -> data`, plain or async.
      questions: `{id: Noul | Choice | Score}`, or a function that returns that.

    A question that the model refused has no answer in the output; `last_step_meta.decision` names it.

    The step raises `RunConfigError`: DECISION_ANSWER_INVALID (also when all were refused),
    DECISION_STATE_NOT_SERIALIZABLE, DECISION_LIMIT_EXCEEDED; and what the client raises.
    """
    return Decide(check_id(id), client, state, questions)


def _facts(question: Question) -> list[Any]:
    match question:
        case Noul(text):
            return [text]
        case Choice(text, options):
            return [text, dict(options)]
        case Score(text, levels):
            return [text, list(levels)]
        case never:
            assert_never(never)


def _names(question: Question) -> Sequence[str]:
    """Return what a question has a probability for each of; none for yes and no."""
    match question:
        case Choice(_, options):
            return list(options)
        case Score(_, levels):
            return levels
        case _:
            return ()


def _confidence(answer: Any) -> float:
    """Return how sure an answer is: the probability of what it says."""
    return float(answer["confidence"]) if isinstance(answer, dict) else max(answer, 1 - answer)


def _json(value: Any, step_id: str) -> str:
    try:
        return compact_json(value)
    except (TypeError, ValueError) as exc:
        raise RunConfigError(
            "DECISION_STATE_NOT_SERIALIZABLE",
            f"step {step_id!r}: the state is no JSON: {exc}",
            hint="project it to plain data",
        ) from exc


def _checked(step_id: str, id: str, question: Question, answer: Any) -> Any:
    """Return the answer in its final form. RunConfigError: DECISION_ANSWER_INVALID."""
    match question:
        case Noul():
            if not _is_probability(answer):
                raise _invalid(step_id, f"{id!r} needs a probability, not {answer!r}")
            return float(answer)
        case Choice(_, options):
            probabilities = _probabilities(step_id, id, list(options), answer)
            best = max(probabilities, key=probabilities.__getitem__)
            return {"choice": best, "probabilities": probabilities, "confidence": probabilities[best]}
        case Score(_, levels):
            if len(levels) < 2:
                raise _invalid(step_id, f"{id!r} needs at least two levels")
            probabilities = _probabilities(step_id, id, list(levels), answer)
            total = sum(probabilities.values())
            score = sum(number * probabilities[level] for number, level in enumerate(levels, 1)) / total
            return {
                "score": score,
                "legend": {str(number): level for number, level in enumerate(levels, 1)},
                "probabilities": probabilities,
                "confidence": max(probabilities.values()),
            }
        case never:
            assert_never(never)


def _probabilities(step_id: str, id: str, options: list[str], answer: Any) -> dict[str, float]:
    """Return the probability of every option; one that is not named has 0."""
    known = isinstance(answer, Mapping) and answer and answer.keys() <= set(options)
    if not known or not all(map(_is_probability, answer.values())) or not sum(answer.values()):
        raise _invalid(step_id, f"{id!r} needs probabilities of {options}, not {answer!r}")
    return {option: float(answer.get(option, 0.0)) for option in options}


def _is_probability(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and 0 <= value <= 1
    )


def _invalid(step_id: str, why: str) -> RunConfigError:
    return RunConfigError(
        "DECISION_ANSWER_INVALID", f"step {step_id!r}: {why}", hint="look at what the decision client answers"
    )
