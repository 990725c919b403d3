"""How what a span is about ended, as attributes and an `error.type`: pure functions, no OpenTelemetry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from aiio.context.events import Done, Error, Terminal
from aiio.context.types import Usage

from . import otel_names as names


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How something ended."""

    error_type: str | None = None
    """None: it did what it should. Else one of few words: `cancelled`, `timeout`, an HTTP status, ..."""
    description: str | None = None
    """For the status of the span."""
    attributes: dict[str, Any] = field(default_factory=dict)
    usage: Usage | None = None
    """As the provider counted it; None: it did not say, or it is not a write that ends."""
    first_chunk: float | None = None
    """Seconds from sending the request."""


def end_of_write(terminal: Terminal, trace: Any, *, words: bool) -> End:
    """Return the end of a write, with *trace* its record; *words*: quote what providers say about errors."""
    first = None
    if trace.sent_at is not None and trace.first_event_at is not None:
        first = trace.first_event_at - trace.sent_at
    usage = terminal.usage if (terminal.usage or {}).get("source") == "provider" else None
    native = terminal.native or {}
    attributes: dict[str, Any] = {
        names.RESPONSE_ID: native.get("id"),
        names.RESPONSE_MODEL: native.get("model"),
        names.TIME_TO_FIRST_CHUNK: first,
        names.QUEUED: round((trace.admitted_at - trace.began_at) * 1000, 3),
        names.ATTEMPTS: trace.attempts,
        **{name: (usage or {}).get(counter) for counter, name in names.USAGE.items()},
    }
    if isinstance(terminal, Done):
        reason = terminal.done_reason or terminal.finish.value
        attributes |= {names.OUTCOME: "done", names.FINISH_REASONS: (reason,)}
        return End(attributes=_known(attributes), usage=usage, first_chunk=first)
    attributes |= {
        names.OUTCOME: terminal.kind.value,
        names.LIMIT: terminal.limit,
        names.LIMIT_BUDGET: terminal.budget_ms,
        names.SILENCE: terminal.silence_ms,
        names.EMITTED: terminal.emitted,
        names.RETRYABLE: terminal.retryable,
        names.RETRY_AFTER: terminal.retry_after_ms,
        names.HTTP_STATUS: terminal.status,
    }
    return End(
        error_type=error_type(terminal),
        description=_description(terminal, words=words),
        attributes=_known(attributes),
        usage=usage,
        first_chunk=first,
    )


def end_of_agent(result: Any, outcome: str, *, words: bool) -> End:
    """Return the end of an agent's run; *result* is None when it raised, or was cancelled from outside."""
    attributes: dict[str, Any] = {names.OUTCOME: outcome}
    if result is None:
        raised = outcome.removeprefix("raised ")
        return End(error_type=raised, description=outcome, attributes=attributes)
    usage = result.usage or {}
    attributes |= {names.ROUNDS: result.rounds}
    if usage.get("source") == "provider":
        attributes |= {name: usage.get(counter) for counter, name in names.USAGE.items()}
    if outcome == "done":
        return End(attributes=_known(attributes))
    failed = result.stopped is None and isinstance(result.terminal, Error)
    return End(
        error_type=error_type(result.terminal) if failed else outcome,
        description=_description(result.terminal, words=words) if failed else outcome,
        attributes=_known(attributes),
    )


def end_of_tool(outcome: str) -> End:
    """Return the end of a tool call: `done`, `timeout`, `cancelled`, `raised`, or why it was not made."""
    attributes = {names.OUTCOME: outcome}
    return End(
        error_type=None if outcome == "done" else outcome,
        description=None if outcome == "done" else outcome,
        attributes=attributes,
    )


def error_type(error: Error) -> str:
    """Return an error in one of few words: what stopped it, else the status, else the kind."""
    if error.limit is not None:
        return names.TIMEOUT
    if error.cancelled:
        return names.CANCELLED
    return error.kind.value if error.status is None else str(error.status)


def _description(error: Error, *, words: bool) -> str:
    """Return what to say about an error. What a provider says may quote the prompt, so not without leave."""
    if words or error.limit is not None or error.cancelled:
        return error.error
    said = (error.kind.value, None if error.status is None else str(error.status), error.code)
    return " ".join(word for word in said if word)


def _known(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}
