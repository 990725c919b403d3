"""Spans and measurements in OpenTelemetry's own terms. The one module that imports it (extra `otel`)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Token
from dataclasses import dataclass, field
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from . import otel_names as names
from .otel_ends import End

SCOPE = "aiio"
"""Instrumentation scope of all spans and metrics."""

_METRIC_ATTRIBUTES = (
    names.OPERATION_NAME,
    names.PROVIDER_NAME,
    names.REQUEST_MODEL,
    names.RESPONSE_MODEL,
    names.SERVER_ADDRESS,
    names.SERVER_PORT,
    names.AGENT_NAME,
    names.TOOL_NAME,
)
"""Those of a span's attributes that its measurements share: few values, no ids."""


@dataclass(frozen=True, slots=True)
class OpenSpan:
    """A span that has not ended, current in the task that began it."""

    span: Span
    token: Token[Context]
    attributes: dict[str, Any]
    began: float = field(default_factory=time.perf_counter)


class Recorder:
    """Begins and ends spans, and measures. Begin and end of one belong in one task.

    Args:
      tracer_provider, meter_provider: None: the global ones.
    """

    def __init__(self, tracer_provider: Any = None, meter_provider: Any = None) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)

        def seconds(name: str, about: str) -> metrics.Histogram:
            return meter.create_histogram(
                name, "s", about, explicit_bucket_boundaries_advisory=names.SECONDS_BUCKETS
            )

        self._durations = {
            names.CHAT: seconds(names.OPERATION_DURATION, "Duration of requests"),
            names.INVOKE_AGENT: seconds(names.AGENT_DURATION, "Duration of agents' runs"),
            names.EXECUTE_TOOL: seconds(names.TOOL_DURATION, "Duration of tool calls"),
        }
        self._first_chunk = seconds(names.FIRST_CHUNK, "Time from the request to the first of the answer")
        self._tokens = meter.create_histogram(
            names.TOKEN_USAGE,
            "{token}",
            "Tokens used",
            explicit_bucket_boundaries_advisory=names.TOKEN_BUCKETS,
        )

    def begin(self, operation: str, subject: str, attributes: Mapping[str, Any]) -> OpenSpan:
        """Begin a span under the current one, and make it the current one of this task."""
        given = {names.OPERATION_NAME: operation, **attributes}
        kind = SpanKind.CLIENT if operation == names.CHAT else SpanKind.INTERNAL
        span = self._tracer.start_span(f"{operation} {subject}".rstrip(), kind=kind, attributes=given)
        return OpenSpan(span, otel_context.attach(trace.set_span_in_context(span)), given)

    def end(self, found: OpenSpan, end: End) -> None:
        """End a span and measure what it was about."""
        seconds = time.perf_counter() - found.began
        found.span.set_attributes(end.attributes)
        mark(found.span, end.error_type, end.description)
        found.span.end()
        otel_context.detach(found.token)
        attributes = {**found.attributes, **end.attributes}
        shared = {name: attributes[name] for name in _METRIC_ATTRIBUTES if name in attributes}
        for counter, kind in names.TOKEN_TYPES.items():
            if (count := (end.usage or {}).get(counter)) is not None:
                self._tokens.record(count, {**shared, names.TOKEN_TYPE: kind})
        if end.error_type is not None:
            shared[names.ERROR_TYPE] = end.error_type
        self._durations[attributes[names.OPERATION_NAME]].record(seconds, shared)
        if end.first_chunk is not None:
            self._first_chunk.record(end.first_chunk, shared)


def mark(span: Span, error_type: str | None, description: str | None = None) -> None:
    """Mark *span* as failed, in the way all of ours are; None leaves it as it is."""
    if error_type is not None:
        span.set_attribute(names.ERROR_TYPE, error_type)
        span.set_status(Status(StatusCode.ERROR, description))


# -- the face for runs -----------------------------------------------------------------------------


def start_run_span(
    name: str,
    parent: Span | None = None,
    attributes: Mapping[str, Any] | None = None,
    *,
    tracer_provider: Any = None,
) -> Span:
    """Begin a span of a run: `run`, or a part of one. It ends by `end_run_span`, in any task.

    Args:
      name: the workflow's name for one without parent, else what the part is.
      parent: the span it lies under; None: the current one.
      attributes: facts to begin with.
      tracer_provider: None: the global one.
    """
    given = dict(attributes or {})
    if parent is None:
        given = {names.OPERATION_NAME: names.INVOKE_WORKFLOW, names.WORKFLOW_NAME: name, **given}
    tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
    above = None if parent is None else trace.set_span_in_context(parent)
    shown = f"{names.INVOKE_WORKFLOW} {name}" if parent is None else name
    return tracer.start_span(shown, context=above, attributes=given)


def end_run_span(span: Span, outcome: str = "done") -> None:
    """End a span of a run: `done`, or one of few words for what went wrong, which becomes `error.type`."""
    span.set_attribute(names.OUTCOME, outcome)
    mark(span, None if outcome == "done" else outcome, outcome)
    span.end()


@contextmanager
def under(span: Span) -> Iterator[None]:
    """Make *span* the current one, in this task, for the length of the block: writes lie under it."""
    token = otel_context.attach(trace.set_span_in_context(span))
    try:
        yield
    finally:
        otel_context.detach(token)
