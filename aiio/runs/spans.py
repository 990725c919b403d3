"""Spans: a line in the log for each when it ends, and a span of OpenTelemetry where that is installed."""

from __future__ import annotations

import importlib
import os
from functools import cache
from typing import Any

import trio

from aiio.context.log import get_logger

SPAN_ENDED = "run.span"
"""The event of the line that a span writes when it ends."""


class Span:
    """A stretch of a run, with a name, a parent and attributes.

    Args:
      name: what it is about, `run`, `step think`.
      parent: the span it belongs to; None: it begins a trace.
      attributes: facts to begin with; values are texts, numbers and bools.
    """

    __slots__ = ("_began", "_events", "_otel", "attributes", "name", "parent_span_id", "span_id", "trace_id")

    def __init__(self, name: str, parent: Span | None = None, **attributes: Any) -> None:
        self.name = name
        self.attributes: dict[str, Any] = attributes
        self._began: float | None = trio.current_time()
        self._events = 0
        self.parent_span_id: str | None = None if parent is None else parent.span_id
        self._otel: Any = _start(name, None if parent is None else parent._otel, attributes)
        known = None if self._otel is None else self._otel.get_span_context()
        if known is not None and known.is_valid:
            self.trace_id: str = f"{known.trace_id:032x}"
            self.span_id: str = f"{known.span_id:016x}"
        else:
            self.trace_id = os.urandom(16).hex() if parent is None else parent.trace_id
            self.span_id = os.urandom(8).hex()

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

    def end(self, outcome: str = "done") -> None:
        """End it, with one word for how; a second end is ignored."""
        if self._began is None:
            return
        began, self._began = self._began, None
        if self._otel is not None:
            self._otel.set_attribute("outcome", outcome)
            self._otel.end()
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


def _start(name: str, parent: Any, attributes: dict[str, Any]) -> Any:
    trace = _opentelemetry()
    if trace is None:
        return None
    context = None if parent is None else trace.set_span_in_context(parent)
    return trace.get_tracer("aiio.runs").start_span(name, context=context, attributes=attributes)


@cache
def _opentelemetry() -> Any:
    """Return the module `opentelemetry.trace`, None where it is not installed (extra `otel`)."""
    try:
        return importlib.import_module("opentelemetry.trace")
    except ImportError:
        return None
