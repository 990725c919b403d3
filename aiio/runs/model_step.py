"""`call_model`: ask a model, make the calls it wants, ask again, until it wants none."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from aiio.context.events import FinishReason
from aiio.context.linkage import call_ids, tool_calls, with_unique_calls
from aiio.context.text import compact_json
from aiio.context.types import Block, Message, Usage, tool_result_message
from aiio.context.usage_data import usage_add
from aiio.env.durations import Duration

from .adapters import messages_to_items
from .calling import call
from .context import RunContext
from .dispatch import remember
from .errors import RunConfigError, RunError, RunErrorKind
from .frames import frame_of
from .items import Item, create_message, extract_assistant_text
from .layers import Ruling
from .model_request import ModelRequest, make_io
from .step import check_id
from .tools import RunTool, RunTools, answer_call
from .totals import StepMeta
from .view import Assembly, assemble

MAX_ROUNDS = 32
STEERING_RETRIES = 3
IDLE = "120s"
"""Longest silence of the model within one round."""

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
    options: Mapping[str, Any]
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
                break
            if number + 1 >= self.max_rounds:
                context._execution.tell(context, "tool_round_limit_exceeded", step_id=self.id)
                text = f"step {self.id!r}: {self.max_rounds} rounds, and the model still wants tools called"
                raise RunError(RunErrorKind.STEP_FAILED, text, step_id=self.id, retries_exhausted=False)
            for wanted in calls:
                await talk.answer(wanted)
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
        tools = RunTools(env, await _given(self.tools, context))
        return _Talk(self, context, str(model), tools, "" if instructions is None else str(instructions))

    async def _say(self, context: RunContext, input: Any) -> None:
        """Put the input into the log, as layers have it: a text as a user's message, items as they are."""
        if input is None or input == "":
            return
        if isinstance(input, dict) and isinstance(input.get("type"), str):
            input = [input]
        items: list[Item]
        if isinstance(input, list) and all(isinstance(item, dict) and "type" in item for item in input):
            items = input
        else:
            text = input if isinstance(input, str) else compact_json(input)
            # The same id when the step begins again after a crash: what the log has is not taken twice.
            place = f"{context._execution.id}{frame_of(context).path}\n{text}"
            items = [{**create_message(text), "id": str(uuid.uuid5(_NAMESPACE, place))}]
        for item in await context.layers.appended(items):
            context.item_log.append(item)

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
        self, step: CallModel, context: RunContext, model: str, tools: RunTools, instructions: str
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
        self._assembly: Assembly | None = None

    async def assemble(self) -> None:
        """Ask the layers what they have to say, once for the whole step."""
        self._assembly = await assemble(self._context, self._instructions)

    async def ask(self, number: int) -> list[Block]:
        """Make one request, or take it from the ledger; return the calls that its answer wants."""
        context = self._context
        told, replayed = await remember(context, "round", "model_round", lambda: self._request(number))
        self._usage = usage_add(self._usage, told["usage"])
        self._finish = FinishReason(told["finish"])
        if told["cost"] is not None:
            self._cost = (self._cost or 0.0) + told["cost"]
            self._billed = (self._billed or 0.0) + (0.0 if replayed else told["cost"])
        calls: list[Block] = told["calls"]
        self._calls += calls
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
            context._execution.tell(context, "model_call_started", step_id=step.id, round=number)
            io = make_io(env, self._model, self._tools, step.options)
            messages = await assembly.messages()
            answer = await ModelRequest(context, io, round=number, max_output=step.max_output).send(messages)
            context._execution.tell(context, "model_call_completed", step_id=step.id, round=number)
            usage = usage_add(usage, answer.usage)
            cost = cost if answer.cost is None else (cost or 0.0) + answer.cost
            if number == 0 and context.harness.cache.enabled:
                context.harness.lineage(context).judge(answer.usage)
            message, items = answer.message, []
            if message is not None:
                message = with_unique_calls(message, call_ids(messages), prefix=f"call-{number}")
                items = messages_to_items([message])
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
        output = {"usage": usage, "cost": cost, "finish": answer.finish.value, "calls": calls}
        return output, items

    async def answer(self, wanted: Block) -> None:
        """Make one call; its result joins the log."""
        self._context.check()

        async def work() -> tuple[None, list[Item]]:
            layers = self._context.layers
            verdict = await layers.gate(wanted)
            if verdict.ruling is Ruling.ALLOW:
                result: Message = await answer_call(wanted, self._tools, self._context)
            else:
                name = str(wanted.get("name") or "")
                result = tool_result_message(
                    wanted["call_id"], name, f"not made: {verdict.reason}", error=True
                )
            return None, await layers.appended(messages_to_items([result]))

        await remember(self._context, "tool", "tool_call", work)

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
        text = extract_assistant_text(said)
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
    tools: Sequence[RunTool] | Callable[[RunContext], Any] | None = None,
    schema: Any = None,
    max_output: int | None = None,
    max_rounds: int = MAX_ROUNDS,
    timeout: Duration | None = None,
    connect_timeout: Duration | None = None,
    stuck_timeout: Duration | None = IDLE,
    settings: Mapping[str, Any] | None = None,
) -> CallModel:
    """Return a step that asks a model, over `IO`, so over every dialect and transport.

    The input joins the log as a user's message (an item, or a list of items, as it is), the answer and the
    results of tools follow. The output is the text of the last answer. Each request is a paid call, and each
    round is recorded: a step that is resumed asks for none of them again.

    Args:
      id: of the step.
      model: a selector; None: the harness's.
      instructions: what the system message begins with.
      tools: names in the env's catalog, and functions; None: the env's, `[]`: none.
      schema: a type the answer is decoded as (JSON), or a function of its text.
      max_output: tokens an answer can have, for the ceiling of what it costs; it is not sent.
      max_rounds: requests in all, after which the step fails.
      timeout, connect_timeout, stuck_timeout, settings: as for `IO`, for each request.

    The step raises `RunError`: cancelled (also when its IO was killed; the partial message is in the log),
    model_rate_limit, model_refused, model_parse_error, step_failed; `RunConfigError`: MISSING_MODEL,
    NO_LLM_PROVIDER.
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
        options=options,
    )
