"""The record of one write: when what happened, written as one log line when it is over."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import trio

from aiio.context.events import Done, Terminal
from aiio.context.log import get_logger, is_info_heard
from aiio.context.types import ContentType, Message
from aiio.transports.base import Reuse

GAP = 0.25
"""Seconds of silence from which on a gap is told with its place; `longest_gap_ms` counts shorter ones too."""

MOST_GAPS = 20
"""Gaps that one line tells, the longest; a bound, because a slow answer of hours may have thousands."""

_numbers = count(1)


@dataclass(slots=True)
class WriteTrace:
    """Times on trio's clock, in seconds; None where it never came to that."""

    endpoint: str
    model: str
    number: int = field(default_factory=lambda: next(_numbers))
    """Counts the writes of this process."""
    began_at: float = field(default_factory=trio.current_time)
    admitted_at: float | None = None
    sent_at: float | None = None
    """The connect budget began to run."""
    head_at: float | None = None
    first_event_at: float | None = None
    progress_at: float | None = None
    """The last message data (or the response head)."""
    longest_gap: float = 0.0
    gaps: list[tuple[float, float]] = field(default_factory=list)
    """When a silence of at least `GAP` began, and how long it was, as they came."""
    attempts: int = 0
    reuse: Reuse | None = None
    """Of the last attempt; None: it was not to reuse a connection."""
    redone: int = 0
    """Times that the request went out again because the peer had given up a kept connection."""
    body_bytes: int = 0
    connect_budget: float | None = None
    overall_budget: float | None = None
    stuck_budget: float | None = None
    frames: int = 0
    bytes_received: int = 0
    keepalives: int = 0

    def progressed(self, now: float) -> None:
        """Note message data at *now*."""
        if self.first_event_at is None:
            self.first_event_at = now
        before, self.progress_at = self.progress_at, now
        if before is not None and (gap := now - before) > self.longest_gap:
            self.longest_gap = gap
        if before is not None and gap >= GAP:
            self._note_gap(before, gap)

    def _note_gap(self, since: float, length: float) -> None:
        self.gaps.append((since, length))
        if len(self.gaps) > MOST_GAPS:
            self.gaps.remove(min(self.gaps, key=lambda gap: gap[1]))

    def silence(self, now: float) -> float:
        """Return the seconds since the last message data, the head, or the first byte sent."""
        marks = (self.progress_at, self.sent_at, self.admitted_at, self.began_at)
        return now - next(mark for mark in marks if mark is not None)

    def settled(self, terminal: Terminal) -> None:
        """Write the line `request.settled`: facts with keys, no content, no credential."""
        now = trio.current_time()
        if self.head_at is not None and (silence := self.silence(now)) >= GAP:
            self._note_gap(now - silence, silence)
        if not is_info_heard():
            return
        facts: dict[str, Any] = {
            "write": self.number,
            "endpoint": self.endpoint,
            "model": self.model,
            "queued_ms": _ms((now if self.admitted_at is None else self.admitted_at) - self.began_at),
            "prepare_ms": _between(self.admitted_at, self.sent_at),
            "connect_ms": _between(self.sent_at, self.head_at),
            "connect_budget_ms": _ms(self.connect_budget),
            "first_event_ms": _between(self.sent_at, self.first_event_at),
            "longest_gap_ms": _ms(None if self.head_at is None else max(self.longest_gap, self.silence(now))),
            "gaps": [(_ms(since - self.began_at), _ms(length)) for since, length in self.gaps] or None,
            "stuck_budget_ms": _ms(self.stuck_budget),
            "total_ms": _between(self.admitted_at, now),
            "overall_budget_ms": _ms(self.overall_budget),
            "attempts": self.attempts,
            "reused": None if self.reuse is None else self.reuse.taken,
            "redone": self.redone or None,
            "body_bytes": self.body_bytes,
            "bytes": self.bytes_received,
            "frames": self.frames,
            "keepalives": self.keepalives,
        }
        if isinstance(terminal, Done):
            facts |= {"outcome": "done", "done_reason": terminal.done_reason}
        else:
            facts |= {
                "outcome": terminal.kind.value,
                "error": terminal.error,
                "limit": terminal.limit,
                "limit_budget_ms": terminal.budget_ms,
                "silence_ms": terminal.silence_ms,
                "emitted": terminal.emitted,
                "retryable": terminal.retryable,
                "retry_after_ms": terminal.retry_after_ms,
                "status": terminal.status,
                "code": terminal.code,
                "request_id": terminal.request_id,
            }
        facts |= _content_counts(terminal.message)
        usage = terminal.usage or {}
        facts |= {key: usage.get(key) for key in ("input_tokens", "output_tokens")}
        get_logger().info(
            "request.settled", **{key: value for key, value in facts.items() if value is not None}
        )


def _ms(seconds: float | None) -> float | None:
    if seconds is None or math.isinf(seconds):
        return None
    return round(seconds * 1000, 3)


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else _ms(end - start)


def _content_counts(message: Message | None) -> dict[str, int]:
    """Return how much of an answer came, whole or partial: `{text_chars, thinking_chars, tool_calls}`."""
    if message is None:
        return {}
    counts = {"text_chars": 0, "thinking_chars": 0, "tool_calls": 0}
    for block in message["content"]:
        match block.get("type"):
            case ContentType.TEXT | ContentType.THINKING as kind:
                counts[f"{kind}_chars"] += len(block.get("text") or "")
            case ContentType.TOOL_CALL:
                counts["tool_calls"] += 1
            case _:  # of a kind that only its owner knows
                pass
    return counts
