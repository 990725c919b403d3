"""One paid request to a model: recorded before it is sent, settled however it ends, its spend booked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiio.context.callbacks import Callback
from aiio.context.events import Done, Error, ErrorKind, FinishReason, Terminal
from aiio.context.types import Message
from aiio.context.usage import estimate_context_tokens
from aiio.env.errors import ProviderError, depletion_error
from aiio.env.prices import price
from aiio.env.toolbox import Toolbox
from aiio.io.io import IO
from aiio.io.settle import EMPTY

from .adapters import messages_to_items
from .context import RunContext
from .emitting import Emitter
from .errors import RunError, RunErrorKind, cancelled
from .frames import frame_of
from .items import Item, ItemStatus
from .layer_tools import WireNames
from .paid import PaidCall, PaidState
from .response_events import ResponseEvents

if TYPE_CHECKING:
    from aiio.env.env import Env


IDLE = "120s"
"""Longest silence of a model within one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """What a request brought."""

    message: Message | None
    usage: dict[str, Any]
    cost: float | None
    """USD; None: nobody knows."""
    finish: FinishReason


class RunIO(IO):
    """An IO that publishes the tools of one step, under names that every provider takes."""

    def __init__(self, tools: Toolbox, **options: Any) -> None:
        self._run_tools = tools
        self.names: WireNames = WireNames()
        super().__init__(**options)

    def tools(self) -> list[dict[str, Any]]:
        """Return the tool descriptions that a request would publish now."""
        described = self._run_tools.schemas()
        self.names.learn(tool["name"] for tool in described)
        return [{**tool, "name": self.names.wire(tool["name"])} for tool in described]


class ModelRequest:
    """One request. Made, sent once, and done with.

    Args:
      context: whose.
      io: what sends it; of no other use meanwhile.
      round: of its step, from 0.
      max_output: tokens that the answer may have; None: not known.
      keep_partial: whether what came of an answer that was cut joins the log.
      emitter: told of the answer as it comes; None: nobody is.
      takes_empty: whether an answer without content is one; else it is the failure that it is for `IO`.
    """

    def __init__(
        self,
        context: RunContext,
        io: RunIO,
        *,
        round: int,
        max_output: int | None,
        keep_partial: bool = True,
        emitter: Emitter | None = None,
        takes_empty: bool = False,
    ) -> None:
        self._context = context
        self._io = io
        self._round = round
        self._max_output = max_output
        self._keeps_partial = keep_partial
        self._emitter = emitter
        self._takes_empty = takes_empty
        self._events: ResponseEvents | None = None
        self._began = False
        self._terminal: Terminal | None = None
        self._cost: float | None = None

    async def send(self, messages: list[Message]) -> ModelAnswer:
        """Send it and return the answer.

        Raises:
          RunError: cancelled, model_rate_limit, step_failed (with `error`, the terminal event).
          OSError: its paid call can't be recorded; it was not sent.

        Cancellation: what came is in the log, with status `incomplete`; what it may cost is held.
        """
        context, io = self._context, self._io
        paid = context._execution.paid
        call = await paid.open(
            context,
            path=frame_of(context).path,
            round=self._round,
            provider=io.endpoint_name,
            model=io.current_model,
            ceiling=await self._ceiling(messages),
        )
        own: dict[str, Callback] = {"on_start": self._start, "on_done": self._take, "on_error": self._take}
        callbacks = {**self._told_to(), **own}
        try:
            io.tools()  # so that the tools of the step have the first choice of names
            await io.write(io.names.sent(messages), callbacks)
        finally:
            with context._execution.saving():
                await self._settle(call)
            self._keep_partial()
        terminal = self._terminal
        assert terminal is not None  # a write that returns has had its terminal event
        if isinstance(terminal, Error) and not (self._takes_empty and terminal.code == EMPTY):
            context.check()
            raise _failed(terminal)
        message = terminal.message
        return ModelAnswer(
            message=None if message is None else io.names.received(message),
            usage=dict(terminal.usage or {}),
            cost=self._cost,
            finish=terminal.finish if isinstance(terminal, Done) else FinishReason.OTHER,
        )

    def adopt(self, items: Sequence[Item]) -> None:
        """Give the items made of the answer the ids under which they were told."""
        if self._events is not None and self._terminal is not None:
            self._events.adopt(self._terminal.message, items)

    def _told_to(self) -> dict[str, Callback]:
        """Return the callbacks that tell of the answer as it comes."""
        emitter = self._emitter
        if emitter is None or not emitter.wanted:
            return {}
        self._events = ResponseEvents(
            emitter.publish,
            facts={**emitter.facts, "round": self._round},
            model=self._io.current_model,
            first=lambda: emitter.tell("model_call_first_event", round=self._round),
            own_name=self._io.names.own,
        )
        return self._events.callbacks()

    def _start(self, _: object) -> None:
        self._began = True
        if self._events is not None:
            self._events.begin()

    def _take(self, terminal: Terminal) -> None:
        self._terminal = terminal
        if self._events is not None:
            self._events.end(terminal)
        if self._emitter is not None and isinstance(terminal, Error):
            name = "model_call_stalled" if terminal.limit == "stuck" else "model_call_failed"
            self._emitter.tell(name, round=self._round, error=terminal.error, kind=terminal.kind.value)

    async def _ceiling(self, messages: Sequence[Message]) -> float | None:
        """Return what the request can cost at most, None when nobody knows."""
        io, harness = self._io, self._context.harness
        tokens = estimate_context_tokens(messages)
        output = self._max_output
        if output is None:
            window = io.env.context_window(f"{io.endpoint_name}/{io.current_model}")
            output = None if window is None else max(0, window - tokens)
        if output is None:
            return None
        usage = {"input_tokens": tokens, "output_tokens": output}
        return await price(harness.prices, io.endpoint_name, io.current_model, usage)

    async def _settle(self, call: PaidCall) -> None:
        """Settle, void or hold the paid call, by what is known of its end; book what it used."""
        context, terminal = self._context, self._terminal
        usage: dict[str, Any] = dict((terminal.usage if terminal is not None else None) or {})
        reported = usage.get("source") == "provider" or "cost" in usage
        state = PaidState.HELD
        if not self._began:
            state = PaidState.VOID  # it never left the queue
        elif isinstance(terminal, Done) and reported:
            state = PaidState.SETTLED
        elif isinstance(terminal, Error):
            if never_billed(terminal):
                state = PaidState.VOID
            elif reported and not terminal.cancelled and terminal.limit is None:
                state = PaidState.SETTLED
        if state is PaidState.SETTLED:
            self._cost = await price(context.harness.prices, call.provider, call.model, usage)

        def book(changed: PaidCall) -> None:
            if state is not PaidState.VOID:
                context._book(usage, self._cost)

        request_id = terminal.request_id if isinstance(terminal, Error) else None
        await context._execution.paid.change(
            call.call_id, state, cost=self._cost, usage=usage, request_id=request_id, book=book
        )

    def _keep_partial(self) -> None:
        """Put what came of an answer that was cut into the log."""
        terminal = self._terminal
        if self._keeps_partial and isinstance(terminal, Error) and terminal.message is not None:
            message = self._io.names.received(terminal.message)
            items = messages_to_items([message], status=ItemStatus.INCOMPLETE.value)
            self.adopt(items)
            for item in items:
                self._context.item_log.append(item)


def never_billed(error: Error) -> bool:
    """Tell whether a request failed before anything could be billed."""
    if error.emitted:
        return False
    refused = error.status is not None and 400 <= error.status < 500
    unsent = isinstance(error.native, Mapping) and error.native.get("phase") == "connect"
    return refused or unsent or error.kind is ErrorKind.AUTH


def _failed(error: Error) -> RunError:
    """Return the run's error for a request that ended with *error*."""
    if error.cancelled:
        return cancelled(error.error)
    fault = ProviderError(error.kind, error.error, status=error.status)
    kind = RunErrorKind.MODEL_RATE_LIMIT if depletion_error(fault) else RunErrorKind.STEP_FAILED
    return RunError(
        kind, error.error, error=error, retryable=error.safe_to_retry, retry_after_ms=error.retry_after_ms
    )


def make_io(env: Env, model: str, tools: Toolbox, options: Mapping[str, Any]) -> RunIO:
    """Return an IO for one request of a step. A `tool_choice` may be the name of a layer's function."""
    io = RunIO(tools, env=env, model=model, **options)
    choice = io.settings.get("tool_choice")
    if isinstance(choice, str) and "/" in choice:
        io.tools()
        io.set_option("tool_choice", io.names.wire(choice))
    return io
