"""`call_model`: ask a model, make the calls it wants, ask again, until it wants none."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from aiio.context.events import FinishReason
from aiio.context.linkage import call_ids, tool_calls, with_unique_calls
from aiio.context.types import Block, Message, Usage, tool_result_message, user_message
from aiio.context.usage_data import usage_add
from aiio.env.durations import Duration
from aiio.env.toolbox import Toolbox, ToolRef

from .adapters import messages_to_items
from .budgets import ProjectionPolicy
from .calling import call
from .context import RunContext
from .dispatch import remember
from .emitting import Emit, Emitter
from .errors import RunConfigError, RunError, RunErrorKind
from .frames import frame_of
from .items import Item, extract_assistant_text, input_items
from .layers import Ruling
from .model_request import IDLE, ModelRequest, make_io
from .step import check_id
from .step_tools import StepTools
from .tools import answer_call
from .totals import StepMeta
from .view import Assembly, assemble

MAX_ROUNDS = 32
STEERING_RETRIES = 3
RECOVERIES = 3
"""Times that a model is asked to go on with an answer that is not whole, or not there."""
CONTINUE = "continue"

Given: TypeAlias = Any | Callable[[RunContext], Any]
"""A value, or a function of the context (plain or async) that gives it."""

_NAMESPACE = uuid.UUID("5f1d9d1e-2f3a-4b52-9d4e-0d5f5f8f2c11")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallModel:
    """See `call_model`."""

    id: str
    model: Given
    instructions: Given
    tools: Given
    schema: Any
    max_output: int | None
    max_rounds: int
    projection: ProjectionPolicy | None
    options: Mapping[str, Any]
    emit: Emit = True
    recoveries: int = RECOVERIES
    kind: str = "call_model"

    async def run(self, context: RunContext, input: Any) -> Any:
        """Ask until the model wants no more calls; return what the last answer says."""
        talk = await self._begin(context)
        await self._say(context, input)
        await talk.assemble()
        number = 0
        while True:
            context.check()
            calls = await talk.ask(number)
            if not calls:
                if not talk.recovers():
                    break
                number += 1
                continue
            if number + 1 >= self.max_rounds:
                talk.emitter.tell("tool_round_limit_exceeded", rounds=self.max_rounds)
                text = f"step {self.id!r}: {self.max_rounds} rounds, and the model still wants tools called"
                raise RunError(RunErrorKind.STEP_FAILED, text, step_id=self.id, retries_exhausted=False)
            talk.emitter.tell("tool_round_started", round=number, calls=len(calls))
            for wanted in calls:
                await talk.answer(wanted)
            talk.emitter.tell("tool_round_completed", round=number)
            await talk.hear(number)
            number += 1
        return self._output(await talk.end())

    async def _begin(self, context: RunContext) -> _Talk:
        env = context.harness.env
        if env is None:
            raise RunConfigError(
                "NO_LLM_PROVIDER", f"step {self.id!r} has no env to ask", hint="give Harness(env=...)"
            )
        model = await _given(self.model, context) or context.harness.model
        if not model:
            raise RunConfigError(
                "MISSING_MODEL", f"step {self.id!r} has no model", hint="give call_model(model=...)"
            )
        instructions = await _given(self.instructions, context)
        tools = StepTools(env, await _given(self.tools, context), context.layers)
        return _Talk(self, context, str(model), tools, "" if instructions is None else str(instructions))

    async def _say(self, context: RunContext, input: Any) -> None:
        """Put the input into the log, as layers have it: a text as a user's message, items as they are."""
        place = f"{context._execution.id}{frame_of(context).path}"
        # The same id when the step begins again after a crash: what the log has is not taken twice.
        items = input_items(input, lambda text: str(uuid.uuid5(_NAMESPACE, f"{place}\n{text}")))
        if not items:
            return
        for item in await context.layers.appended(items):
            context.item_log.append(item)
        await context.checkpoint()

    def _output(self, text: str) -> Any:
        """Return the output that *text* is. RunError: model_parse_error, with `raw`."""
        if self.schema is None:
            return text
        try:
            if isinstance(self.schema, type) or not callable(self.schema):
                return msgspec.json.decode(text, type=self.schema)
            return self.schema(text)
        except (TypeError, ValueError) as exc:
            raise RunError(
                RunErrorKind.MODEL_PARSE_ERROR,
                f"step {self.id!r}: the answer does not fit its schema: {exc}",
                step_id=self.id,
                raw=text,
            ) from exc


class _Talk:
    """One run of a `CallModel`."""

    def __init__(
        self, step: CallModel, context: RunContext, model: str, tools: Toolbox, instructions: str
    ) -> None:
        self._step = step
        self._context = context
        self._tools = tools
        self._model = model
        self._instructions = instructions
        self._usage: Usage | None = None
        self._cost: float | None = None
        self._billed: float | None = None
        self._calls: list[Block] = []
        self._begun = len(context.item_log)
        self._finish = FinishReason.STOP
        self._text = ""
        """Of the last answer, with the pieces that it goes on from."""
        self._empty = False
        """Whether the last answer said nothing."""
        self._recovering = 0
        """How many answers in a row were not whole."""
        self._assembly: Assembly | None = None
        self.emitter = Emitter(context, step.id, step.emit)

    async def assemble(self) -> None:
        """Ask the layers what they have to say, once for the whole step."""
        self._assembly = await assemble(self._context, self._instructions, self._step.projection)

    async def ask(self, number: int) -> list[Block]:
        """Make one request, or take it from the ledger; return the calls that its answer wants."""
        context = self._context
        told, replayed = await remember(context, "round", "model_round", lambda: self._request(number))
        self._usage = usage_add(self._usage, told["usage"])
        self._finish = FinishReason(told["finish"])
        self._empty = told["empty"]
        self._text = f"{self._text}{told['text']}" if self._recovering else told["text"]
        if told["cost"] is not None:
            self._cost = (self._cost or 0.0) + told["cost"]
            self._billed = (self._billed or 0.0) + (0.0 if replayed else told["cost"])
        calls: list[Block] = told["calls"]
        self._calls += calls
        if calls:
            self._recovering = 0
        context.check()
        return calls

    async def _request(self, number: int) -> tuple[dict[str, Any], list[Item]]:
        """Make a request, and again with guidance while a layer asks for that, at most three times.

        RunError: steering_denied, and what a request raises.
        """
        context, step, assembly = self._context, self._step, self._assembly
        env = context.harness.env
        assert env is not None  # looked at in the beginning
        assert assembly is not None
        usage: Usage | None = None
        cost: float | None = None
        attempt = 0
        while True:
            self.emitter.tell("model_call_started", round=number)
            io = make_io(env, self._model, self._tools, step.options)
            if not attempt:
                await assembly.refresh()
            messages = await assembly.messages()
            if self._recovering:
                messages.append(user_message(CONTINUE))  # for this request only: it never joins the log
            request = ModelRequest(
                context,
                io,
                round=number,
                max_output=step.max_output,
                emitter=self.emitter,
                takes_empty=self._recovering < step.recoveries,
            )
            answer = await request.send(messages)
            self.emitter.tell("model_call_completed", round=number)
            usage = usage_add(usage, answer.usage)
            cost = cost if answer.cost is None else (cost or 0.0) + answer.cost
            if number == 0 and context.harness.cache.enabled:
                context.harness.lineage(context).judge(answer.usage)
            message, items = answer.message, []
            if message is not None:
                message = with_unique_calls(message, call_ids(messages), prefix=f"call-{number}")
                items = messages_to_items([message])
                request.adopt(items)
            verdict = await context.layers.judge(items)
            if verdict.ruling is Ruling.DENY:
                raise RunError(
                    RunErrorKind.STEERING_DENIED,
                    f"step {step.id!r}: a layer denied the answer: {verdict.reason}",
                    step_id=step.id,
                    reason=verdict.reason,
                )
            if verdict.ruling is Ruling.ALLOW or attempt >= STEERING_RETRIES:
                break
            assembly.guide(verdict.reason)
            attempt += 1
        calls = [] if answer.finish is FinishReason.REFUSAL else tool_calls(message)
        text = extract_assistant_text(items)
        output = {"usage": usage, "cost": cost, "finish": answer.finish.value, "calls": calls, "text": text}
        output["empty"] = all(item["type"] == "reasoning" for item in items)
        return output, items

    def recovers(self) -> bool:
        """Tell whether the model is to be asked to go on; an answer that is whole needs it no more.

        An answer that was cut and an empty one count together: at most `recoveries` times in one run.
        """
        cut = self._finish in (FinishReason.LENGTH, FinishReason.PAUSED)
        empty = self._empty and self._finish is not FinishReason.REFUSAL
        if not (cut or empty) or self._recovering >= self._step.recoveries:
            return False
        self._recovering += 1
        self.emitter.tell("model_call_recovery_continue", attempt=self._recovering, finish=self._finish.value)
        return True

    async def answer(self, wanted: Block) -> None:
        """Make one call; its result joins the log."""
        self._context.check()

        told = {"call_id": wanted["call_id"], "name": str(wanted.get("name") or "")}

        async def work() -> tuple[None, list[Item]]:
            layers = self._context.layers
            self.emitter.tell("tool_call_started", **told)
            verdict = await layers.gate(wanted)
            if verdict.ruling is Ruling.ALLOW:
                result: Message = await answer_call(wanted, self._tools, self._context)
            else:
                why = f"not made: {verdict.reason}"
                result = tool_result_message(told["call_id"], told["name"], why, error=True)
            self.emitter.tell("tool_call_completed", **told, error=bool(result.get("error")))
            return None, await layers.appended(messages_to_items([result]))

        await remember(self._context, "tool", "tool_call", work)

    async def hear(self, number: int) -> None:
        """Take what was said to the session meanwhile; it joins the log before the next round."""
        context = self._context
        execution = context._execution
        inbox = None if context.depth else execution.inbox
        said = [] if inbox is None else inbox()
        if not said and execution.restored is None:
            return

        async def work() -> tuple[None, list[Item]]:
            return None, await context.layers.appended(said)

        # Under the number of the round, so that a round in which nothing was said needs no record.
        await remember(context, f"inbox-{number}", "inbox", work)
        if said:
            self.emitter.tell("inbox_injected", items=len(said))

    async def end(self) -> str:
        """Report what the step did, let layers take note, and return the text of the last answer.

        RunError: model_refused.
        """
        new = self._context.item_log.items[self._begun :]
        said = [item for item in new if item["type"] != "message" or item["role"] == "assistant"]
        usage = self._usage or {}
        names = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens")
        self._context.last_step_meta = StepMeta(
            tool_calls=tuple(item for item in said if item["type"] == "function_call") or None,
            usage={name: usage[name] for name in names if name in usage} or None,
            cost=self._cost,
            billed_cost=self._billed,
            response_items=tuple(said),
        )
        assert self._assembly is not None
        self._context.last_layer_usage = self._assembly.usage(self._model, self._tools.schemas())
        await self._context.layers.store(new, said)
        text = self._text
        if self._finish is FinishReason.REFUSAL:
            raise RunError(
                RunErrorKind.MODEL_REFUSED,
                f"step {self._step.id!r}: the model refused",
                step_id=self._step.id,
                text=text,
            )
        return text


async def _given(value: Given, context: RunContext) -> Any:
    return await call(value, context) if callable(value) else value


def call_model(
    id: str,
    *,
    model: str | Callable[[RunContext], Any] | None = None,
    instructions: str | Callable[[RunContext], Any] | None = None,
    tools: Sequence[ToolRef] | Callable[[RunContext], Any] | None = None,
    schema: Any = None,
    max_output: int | None = None,
    max_rounds: int = MAX_ROUNDS,
    projection: ProjectionPolicy | None = None,
    timeout: Duration | None = None,
    connect_timeout: Duration | None = None,
    stuck_timeout: Duration | None = IDLE,
    settings: Mapping[str, Any] | None = None,
    emit: Emit = True,
    recoveries: int = RECOVERIES,
) -> CallModel:
    """Return a step that asks a model, over `IO`, so over every dialect and transport.

    The input joins the log as a user's message (an item, or a list of items, as it is), the answer and the
    results of tools follow. The output is the text of the last answer. Each request is a paid call, and each
    round is recorded: a step that is resumed asks for none of them again.

    Args:
      id: of the step.
      model: a selector; None: the harness's.
      instructions: what the system message begins with.
      tools: names in the env's catalog, functions, and `layer/fn` of what layers provide; None: all of the
        env's and the layers', `[]`: none.
      schema: a type the answer is decoded as (JSON), or a function of its text.
      max_output: tokens an answer can have, for the ceiling of what it costs; it is not sent.
      max_rounds: requests in all, after which the step fails.
      projection: how much the model is shown; None: as the harness says.
      timeout, connect_timeout, stuck_timeout, settings: as for `IO`, for each request.
      emit: what of it is seen in the streams of the run: all, nothing, or what a function of the event keeps;
        `item_appended` and what turns do is always seen.
      recoveries: how often the model is told "continue" when an answer is empty, or was cut at its length
        limit or paused by the provider; the pieces are one text. A failed request is not repeated, and an
        answer that is empty to the end is one.

    The step raises `RunError`: cancelled (also when its IO was killed; the partial message is in the log),
    model_rate_limit, model_refused, model_parse_error, step_failed; `RunConfigError`: MISSING_MODEL,
    NO_LLM_PROVIDER. This function raises ValueError: an id that can't name a step, or no number of rounds.
    """
    if type(max_rounds) is not int or max_rounds < 1:
        raise ValueError(f"max_rounds must be an int >= 1, not {max_rounds!r}")
    options = {
        "timeout": timeout,
        "connect_timeout": connect_timeout,
        "stuck_timeout": stuck_timeout,
        "settings": settings,
    }
    return CallModel(
        id=check_id(id),
        model=model,
        instructions=instructions,
        tools=tools,
        schema=schema,
        max_output=max_output,
        max_rounds=max_rounds,
        projection=projection,
        options=options,
        emit=emit,
        recoveries=recoveries,
    )
