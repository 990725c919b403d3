"""The writes of a log on one time axis: when each began, which phases it went through, how it ended.

A log line is written when something is over, and tells durations; when it began is its time minus those.
All times here are milliseconds since the earliest beginning, so that they stay exact as floats.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .trace import WRITE_SETTLED, read_lines

TOOL_SETTLED = "tool.settled"
AGENT_SETTLED = "agent.settled"
"""The events of the lines that `aiio.agents` writes when a tool call or an agent's run is over."""

NO_AGENT = "(no agent)"
"""The lane of writes that no agent made."""

_LONGEST_MS = 1e12
"""Thirty years; what claims to have taken longer is garbage, and would spoil the picture of the rest."""

DONE = "done"
"""The outcome of a write that was answered; the others are kinds of errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of a write."""

    name: str
    """`queued`, `preparing`, `connecting`, `waiting` (for the first event) or `streaming`."""
    begin: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A silence within a write."""

    begin: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One write."""

    begin: float
    end: float
    lane: str
    """Its agent's name, or `NO_AGENT`."""
    outcome: str
    """`done`, or the kind of its error."""
    limit: str | None
    """The limit that ended it, if one did."""
    phases: tuple[Phase, ...]
    """Without empty ones, in order, from begin to end without holes."""
    gaps: tuple[Gap, ...]
    first_event: float | None
    """When message data began to come."""
    facts: dict[str, Any]
    """Its log line as it is."""

    @property
    def duration(self) -> float:
        """Milliseconds from the queue to the terminal event."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One tool call, or one run of an agent."""

    begin: float
    end: float
    lane: str
    name: str
    outcome: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What a log tells."""

    began: datetime
    """The moment that all times are counted from, in UTC."""
    writes: tuple[Write, ...]
    """In the order they began."""
    tools: tuple[Span, ...]
    agents: tuple[Span, ...]
    unread: int
    """Lines that could not be read: torn ones, mostly, or of a write whose facts make no sense."""

    @property
    def end(self) -> float:
        """When the last of all ended."""
        spans: list[Write | Span] = [*self.writes, *self.tools, *self.agents]
        return max((span.end for span in spans), default=0.0)


def read_timeline(path: str | Path) -> Timeline:
    """Return what the log at *path* tells about writes.

    Raises:
      OSError: the file can't be read.
      ValueError: no line of it is of a write; the text says so.
    """
    records: dict[str, list[tuple[float, dict[str, Any]]]] = {
        WRITE_SETTLED: [],
        TOOL_SETTLED: [],
        AGENT_SETTLED: [],
    }
    unread = 0
    for record in read_lines(path):
        if record is None:
            unread += 1
        elif isinstance(event := record.get("event"), str) and event in records:
            try:
                records[event].append((_begin_of(record), record))
            except ValueError:
                unread += 1
    if not records[WRITE_SETTLED]:
        lost = f", and {_lines(unread)} of it can't be read" if unread else ""
        raise ValueError(f"no line of it tells of a write ({WRITE_SETTLED}){lost}")
    zero = min(begin for found in records.values() for begin, _ in found)
    return Timeline(
        began=datetime.fromtimestamp(zero / 1000, UTC),
        writes=tuple(sorted((_write(*one, zero) for one in records[WRITE_SETTLED]), key=_began)),
        tools=tuple(sorted((_span(*one, zero, "tool") for one in records[TOOL_SETTLED]), key=_began)),
        agents=tuple(sorted((_span(*one, zero, "model") for one in records[AGENT_SETTLED]), key=_began)),
        unread=unread,
    )


def unread_sentence(count: int) -> str:
    """Return how to tell of lines that could not be read."""
    return f"{_lines(count)} of the log can't be read and {'is' if count == 1 else 'are'} left out"


def stuck_and_slowest(writes: Iterable[Write]) -> list[Write]:
    """Return *writes*, those that got stuck first, then those that met another limit, then the others.

    Among equals the slowest is first.
    """

    def rank(write: Write) -> tuple[int, float]:
        return (0 if write.limit == "stuck" else 1 if write.limit is not None else 2, -write.duration)

    return sorted(writes, key=rank)


def narrowed(
    timeline: Timeline, *, outcome: str | None = None, limit: str | None = None, agent: str | None = None
) -> Timeline:
    """Return *timeline* with the writes that fit, and with what else their lanes have; None fits all.

    *agent* is a whole name, or the beginning of one followed by `*`.
    """

    def fits(write: Write) -> bool:
        if agent is not None and agent.endswith("*"):
            ours = write.lane.startswith(agent[:-1])
        else:
            ours = agent is None or write.lane == agent
        return ours and outcome in (None, write.outcome) and limit in (None, write.limit)

    writes = tuple(write for write in timeline.writes if fits(write))
    lanes = {write.lane for write in writes}
    return replace(
        timeline,
        writes=writes,
        tools=tuple(span for span in timeline.tools if span.lane in lanes),
        agents=tuple(span for span in timeline.agents if span.lane in lanes),
    )


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"


def _began(span: Write | Span) -> float:
    return span.begin


def _begin_of(record: dict[str, Any]) -> float:
    """Return when what *record* tells of began, in milliseconds since 1970. ValueError: it makes no sense."""
    stamp = str(record.get("timestamp"))
    ended = datetime.fromisoformat(stamp)
    if ended.tzinfo is None:
        ended = ended.replace(tzinfo=UTC)
    end = ended.timestamp() * 1000
    begin = end - _ms(record, "queued_ms") - _ms(record, "total_ms") - _ms(record, "elapsed_ms")
    if begin < 0:
        raise ValueError(f"before 1970: {stamp!r}")
    return begin


def _ms(record: dict[str, Any], key: str) -> float:
    """Return a duration of *record*, 0 when it has none. ValueError: no duration."""
    value = record.get(key, 0)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and 0 <= value <= _LONGEST_MS):
        raise ValueError(f"{key} is no duration: {value!r}")
    return float(value)


def _optional_ms(record: dict[str, Any], key: str) -> float | None:
    """Return a duration of *record*; None: it has none that makes sense."""
    try:
        return _ms(record, key) if key in record else None
    except ValueError:
        return None


def _text(record: dict[str, Any], key: str) -> str | None:
    value = record.get(key)
    return None if value is None else str(value)


def _write(begin: float, record: dict[str, Any], zero: float) -> Write:
    begin -= zero
    end = begin + _ms(record, "queued_ms") + _ms(record, "total_ms")
    phases, first_event = _phases(record, begin, end)
    return Write(
        begin=begin,
        end=end,
        lane=_text(record, "agent") or NO_AGENT,
        outcome=_text(record, "outcome") or "unknown",
        limit=_text(record, "limit"),
        phases=phases,
        gaps=_gaps(record, begin, end),
        first_event=first_event,
        facts=record,
    )


def _phases(record: dict[str, Any], begin: float, end: float) -> tuple[tuple[Phase, ...], float | None]:
    """Return the phases, and when the first event came. A write that ended early ended in its last phase."""
    admitted = begin + _ms(record, "queued_ms")
    prepared = _optional_ms(record, "prepare_ms")
    connected = _optional_ms(record, "connect_ms")
    first = _optional_ms(record, "first_event_ms")
    sent = None if prepared is None else min(end, admitted + prepared)
    if sent is None and (connected is not None or first is not None):
        sent = admitted  # a log of before `prepare_ms`
    head = None if sent is None or connected is None else min(end, sent + connected)
    first_event = None if sent is None or first is None else min(end, sent + first)
    marks = [("queued", begin), ("preparing", admitted)]
    marks += [(name, at) for name, at in (("connecting", sent), ("waiting", head)) if at is not None]
    if first_event is not None:
        marks.append(("streaming", max(first_event, marks[-1][1])))
    ends = [at for _, at in marks[1:]] + [end]
    phases = (
        Phase(name=name, begin=at, end=until)
        for (name, at), until in zip(marks, ends, strict=True)
        if until > at
    )
    return tuple(phases), first_event


def _gaps(record: dict[str, Any], begin: float, end: float) -> tuple[Gap, ...]:
    found = record.get("gaps")
    gaps = []
    for pair in found if isinstance(found, list) else []:
        match pair:
            case [int() | float() as since, int() | float() as length] if since >= 0 and length > 0:
                gaps.append(Gap(begin=min(end, begin + since), end=min(end, begin + since + length)))
            case _:  # not of ours
                pass
    return tuple(gaps)


def _span(begin: float, record: dict[str, Any], zero: float, name: str) -> Span:
    return Span(
        begin=begin - zero,
        end=begin - zero + _ms(record, "elapsed_ms"),
        lane=_text(record, "agent") or NO_AGENT,
        name=_text(record, name) or "unknown",
        outcome=_text(record, "outcome") or "unknown",
        facts=record,
    )
