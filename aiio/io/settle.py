"""From a cause to the terminal event: the one place where `Done` and `Error` are completed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from aiio.context.assemble import Assembler
from aiio.context.events import (
    BlockEvent,
    Done,
    Error,
    FinishReason,
    Send,
    Terminal,
    TextEnd,
    ThinkingEnd,
    ToolCallEnd,
    Working,
)
from aiio.context.log import get_logger
from aiio.context.types import REFUSED, ContentType, Usage
from aiio.context.usage import finalize_usage
from aiio.env.errors import ErrorKind, ProviderError

from .answer import Answer
from .limits import as_words
from .state import OUTCOMES, Cause

if TYPE_CHECKING:
    from .io import IO

INTENDED_SILENCE = frozenset({FinishReason.REFUSAL, FinishReason.PAUSED})
"""Reasons to stop after which an empty answer is an answer."""

EMPTY = "empty_response"
"""The `code` of the error that an answer without content is."""

REQUEST_ID_HEADERS = ("x-request-id", "request-id", "apim-request-id", "x-generation-id")


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request ended, as noted at that moment."""

    cause: Cause | None = None
    """None: it has not ended."""
    reason: str | None = None
    """What `kill(reason)` was given, or the class of a callback's exception."""
    budget: float | None = None
    """Seconds that the limit allowed, when one fired."""
    silence: float = 0.0
    """Seconds without message data, when a limit fired."""
    fault: ProviderError | None = None
    crash: BaseException | None = None
    """What a callback raised."""


def settle(ending: Ending, answer: Answer, io: IO) -> tuple[list[BlockEvent], Terminal]:
    """Return the block events that close the answer, to be dispatched first, and the terminal event."""
    terminal = answer.terminal if ending.cause is Cause.ANSWERED else None
    if isinstance(terminal, Done):
        return [], _done(terminal, answer, io)
    if terminal is not None:
        error = terminal
    elif ending.fault is not None:
        error = _fault(ending.fault)
    else:
        error = _stopped(ending, answer)
    return _cut(error, answer, io)


def _done(done: Done, answer: Answer, io: IO) -> Terminal:
    assembler = answer.assembler
    if done.message is not None:
        assembler.consume(done)
    message = assembler.seal(cut=False)
    usage = finalize_usage(done.usage or _reported(answer.state), answer.context, message or {})
    if message is None and done.finish not in INTENDED_SILENCE:
        why = f" ({done.done_reason})" if done.done_reason else ""
        return _scrubbed(
            Error(
                error=f"empty response{why}",
                kind=ErrorKind.PROVIDER,
                usage=usage,
                emitted=answer.emitted,
                retryable=True,
                code=EMPTY,
                request_id=_request_id(answer.headers),
                native=done.native,
            ),
            io,
        )
    if message is not None and done.finish is FinishReason.REFUSAL:
        message[REFUSED] = True
    return msgspec.structs.replace(done, message=message, usage=usage)


def _cut(error: Error, answer: Answer, io: IO) -> tuple[list[BlockEvent], Error]:
    """Complete an error: the partial message made valid, usage, who asked and whether it was heard."""
    assembler = answer.assembler
    events = _held_back(answer, io)
    if error.message is not None:
        assembler.consume(error)
    events += _closing(assembler)
    message = assembler.seal(cut=True)
    usage = finalize_usage(error.usage or _reported(answer.state), answer.context, message or {})
    error = _scrubbed(
        msgspec.structs.replace(
            error,
            message=message,
            usage=usage,
            emitted=answer.emitted or bool(events),
            request_id=error.request_id or _request_id(answer.headers),
        ),
        io,
    )
    if message is not None and not error.cancelled:
        timed = error.retry_after_ms is not None
        message["error"] = {"message": error.error, "retry": error.retry_after_ms} if timed else error.error
    return events, error


def _fault(fault: ProviderError) -> Error:
    return Error(
        error=fault.message,
        kind=fault.kind,
        retryable=fault.retryable,
        retry_after_ms=fault.retry_after_ms,
        status=fault.status,
        code=fault.code,
        request_id=fault.request_id,
        native=_native(fault),
    )


def _native(fault: ProviderError) -> dict[str, Any] | None:
    facts: dict[str, Any] = {
        key: fault.detail[key] for key in ("phase", "bytes_received") if key in fault.detail
    }
    if fault.native is not None:
        facts["error"] = fault.native
    return facts or None


def _stopped(ending: Ending, answer: Answer) -> Error:
    """Return the error for a request that was stopped: by a limit, by `kill()`, from outside."""
    assert ending.cause is not None  # a request settles after its end was noted
    outcome = OUTCOMES[ending.cause]
    reason = f": {ending.reason}" if ending.cause is Cause.KILL and ending.reason else ending.reason or ""
    budget = "" if ending.budget is None else as_words(ending.budget)
    silence = as_words(ending.silence) if outcome.limit else ""
    text = outcome.text.format(budget=budget, silence=silence, reason=reason)
    if outcome.limit == "stuck" and answer.keepalives:
        text += f"; {answer.keepalives} keep-alives came, which are not progress"
    return Error(
        error=text,
        kind=outcome.kind,
        cancelled=outcome.cancelled,
        limit=outcome.limit,
        budget_ms=None if ending.budget is None else ending.budget * 1000,
        silence_ms=ending.silence * 1000 if outcome.limit else None,
        retryable=outcome.retryable,
        native={"keepalives": answer.keepalives} if answer.keepalives else None,
    )


def _held_back(answer: Answer, io: IO) -> list[BlockEvent]:
    """Return, assembled, what the provider still held back of a cut answer."""
    if answer.provider is None:
        return []
    events: list[BlockEvent] = []
    try:
        for event in answer.provider.abandon(answer.state, io):
            if isinstance(event, Working | Send):
                continue  # too late for either
            answer.assembler.consume(event)
            if isinstance(event, BlockEvent):
                events.append(event)
    except Exception as exc:  # noqa: BLE001  # a plug-in's bug must not cost the partial message
        get_logger().warning("abandon.failed", provider=answer.provider.name, error=type(exc).__name__)
    return events


_ENDS: dict[str, type[TextEnd | ThinkingEnd | ToolCallEnd]] = {
    ContentType.TEXT: TextEnd,
    ContentType.THINKING: ThinkingEnd,
    ContentType.TOOL_CALL: ToolCallEnd,
}


def _closing(assembler: Assembler) -> list[BlockEvent]:
    """Return an end event for every block that is open; the assembler is not told: `seal` marks them cut."""
    events: list[BlockEvent] = []
    for index, kind, block in assembler.open_blocks():
        event = _ENDS[kind](index)
        event._block = block
        events.append(event)
    return events


def _reported(state: Any) -> Usage | None:
    """Return the usage a provider has noted in its stream state so far."""
    found = state.get("usage") if isinstance(state, dict) else getattr(state, "usage", None)
    return found if isinstance(found, dict) else None


def _request_id(headers: Mapping[str, str]) -> str | None:
    for name in REQUEST_ID_HEADERS:
        if name in headers:
            return headers[name]
    return None


def _scrubbed(error: Error, io: IO) -> Error:
    """Mask every known credential in *error*, which nobody else has yet: providers echo them. Return it."""
    scrub = io.env.scrub
    error.error = scrub(error.error)
    error.code = None if error.code is None else scrub(str(error.code))
    error.request_id = None if error.request_id is None else scrub(error.request_id)
    error.native = None if error.native is None else scrub_data(error.native, scrub)
    return error


def scrub_data(value: Any, scrub: Any) -> Any:
    """Return JSON data with *scrub* applied to every string in it, keys included."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, Mapping):
        return {scrub_data(key, scrub): scrub_data(item, scrub) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrub_data(item, scrub) for item in value]
    return value
