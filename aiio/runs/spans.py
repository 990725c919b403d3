"""Spans: a line in the log for each when it ends, and a span of OpenTelemetry where that is installed."""

from __future__ import annotations

import importlib
import os
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import trio

from aiio.context.log import get_logger

SPAN_ENDED = "run.span"
"""The event of the line that a span writes when it ends."""


class Span:
    """A stretch of a run, with a name, a parent and attributes.

    Args:
      name: what it is about: the workflow's name, `step think`.
      parent: the span it belongs to; None: it begins a trace, or lies under OpenTelemetry's current span.
      tracer_provider: OpenTelemetry's; None: the global one.
      attributes: facts to begin with; values are texts, numbers and bools.
    """

    __slots__ = ("_began", "_events", "_otel", "attributes", "name", "parent_span_id", "span_id", "trace_id")

    def __init__(
        self, name: str, parent: Span | None = None, *, tracer_provider: Any = None, **attributes: Any
    ) -> None:
        self.name: str = name
        self.attributes: dict[str, Any] = attributes
        self._began: float | None = trio.current_time()
        self._events = 0
        self.parent_span_id: str | None = None if parent is None else parent.span_id
        self._otel: Any = _started(name, parent, attributes, tracer_provider)
        if self._otel is None:
            self.trace_id: str = os.urandom(16).hex() if parent is None else parent.trace_id
            self.span_id: str = os.urandom(8).hex()
        else:
            known = self._otel.get_span_context()
            self.trace_id = f"{known.trace_id:032x}"
            self.span_id = f"{known.span_id:016x}"

    def set_attribute(self, key: str, value: Any) -> None:
        """Lay a fact onto the span."""
        self.attributes[key] = value
        if self._otel is not None:
            self._otel.set_attribute(key, value)

    def add_event(self, name: str, **attributes: Any) -> None:
        """Note something that happened now."""
        self._events += 1
        if self._otel is not None:
            self._otel.add_event(name, attributes)
        get_logger().debug(
            "run.span_event", span=self.name, name=name, span_id=self.span_id, attributes=attributes
        )

    def current(self) -> AbstractContextManager[None]:
        """Make it OpenTelemetry's current span in this task, for a block: writes lie under it."""
        if self._otel is None:
            return nullcontext()
        under: AbstractContextManager[None] = _opentelemetry().under(self._otel)
        return under

    def end(self, outcome: str = "done") -> None:
        """End it, with few words for how (`done`, `cancelled`, `raised X`); a second end is ignored."""
        if self._began is None:
            return
        began, self._began = self._began, None
        if self._otel is not None:
            _opentelemetry().end_run_span(self._otel, outcome.removeprefix("raised "))  # the `error.type`
        get_logger().info(
            SPAN_ENDED,
            span=self.name,
            trace_id=self.trace_id,
            span_id=self.span_id,
            parent_span_id=self.parent_span_id,
            outcome=outcome,
            events=self._events,
            attributes=self.attributes,
            elapsed_ms=round((trio.current_time() - began) * 1000, 1),
        )


def _started(name: str, parent: Span | None, attributes: dict[str, Any], tracer_provider: Any) -> Any:
    """Return a span of OpenTelemetry that has begun; None: it is not installed, or nobody has set it up."""
    otel = _opentelemetry()
    if otel is None:
        return None
    above = None if parent is None else parent._otel
    span = otel.start_run_span(name, above, attributes, tracer_provider=tracer_provider)
    return span if span.get_span_context().is_valid else None


@cache
def _opentelemetry() -> Any:
    """Return `aiio.observe.otel_spans`, None where OpenTelemetry is not installed (extra `otel`)."""
    try:
        return importlib.import_module("aiio.observe.otel_spans")
    except ImportError:
        return None
