"""The timeline in the Chrome trace-event format, for Perfetto and chrome://tracing.

Source: "Trace Event Format", the document that both name, sections "Complete Events", "Instant Events" and
"Metadata Events".
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from .encode import encode_line
from .timeline import Span, Timeline, Write

_PROCESS = 1


def chrome_trace(timeline: Timeline) -> bytes:
    """Return *timeline* as a JSON object with `traceEvents`; times in microseconds.

    The writes of an agent are on a thread named after it, its runs and its tool calls on threads of their
    own; where they overlap, on more of them. A write holds its phases, and those its gaps; the first event
    and a limit that fell are instants.
    """
    events: list[dict[str, Any]] = [_meta("process_name", 0, name="aiio")]
    threads = _Threads(events)
    for run in timeline.agents:
        events.append(_span_event(run, threads.take(run, "run"), "agent"))
    for write in timeline.writes:
        events += _write_events(write, threads.take(write, "writes"))
    for tool in timeline.tools:
        events.append(_span_event(tool, threads.take(tool, "tools"), "tool"))
    facts = {"began": timeline.began.isoformat(), "unread_lines": timeline.unread}
    return encode_line({"traceEvents": events, "displayTimeUnit": "ms", "otherData": facts})


class _Threads:
    """Gives every span a thread of its lane on which nothing overlaps it."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self._events = events
        self._lanes: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
        """By lane and what it shows: when its threads are free again, and their numbers."""
        self._count = 0

    def take(self, span: Write | Span, what: str) -> int:
        """Return the thread for *span*. Those of a lane come in the order they began."""
        lane = self._lanes[span.lane, what]
        for place, (free, thread) in enumerate(lane):
            if free <= span.begin:
                lane[place] = (span.end, thread)
                return thread
        self._count += 1
        lane.append((span.end, self._count))
        name = f"{span.lane}: {what}" + (f" #{len(lane)}" if len(lane) > 1 else "")
        self._events.append(_meta("thread_name", self._count, name=name))
        return self._count


def _meta(kind: str, thread: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "pid": _PROCESS, "tid": thread, "name": kind, "args": args}


def _complete(
    name: str, category: str, span: tuple[float, float], thread: int, args: dict[str, Any] | None = None
) -> dict[str, Any]:
    begin, end = (round(at * 1000) for at in span)
    event = {"ph": "X", "pid": _PROCESS, "tid": thread, "name": name, "cat": category}
    return event | {"ts": begin, "dur": end - begin, "args": args or {}}


def _instant(name: str, at: float, thread: int) -> dict[str, Any]:
    event = {"ph": "i", "s": "t", "pid": _PROCESS, "tid": thread, "name": name, "cat": "mark"}
    return event | {"ts": round(at * 1000)}


def _write_events(write: Write, thread: int) -> list[dict[str, Any]]:
    name = f"{write.facts.get('endpoint')}/{write.facts.get('model')}: {write.outcome}"
    events = [_complete(name, "write", (write.begin, write.end), thread, write.facts)]
    events += [_complete(phase.name, "phase", (phase.begin, phase.end), thread) for phase in write.phases]
    events += [_complete("gap", "gap", (gap.begin, gap.end), thread) for gap in write.gaps]
    if write.first_event is not None:
        events.append(_instant("first event", write.first_event, thread))
    if write.limit is not None:
        events.append(_instant(f"{write.limit} limit", write.end, thread))
    return events


def _span_event(span: Span, thread: int, category: str) -> dict[str, Any]:
    return _complete(f"{span.name}: {span.outcome}", category, (span.begin, span.end), thread, span.facts)
