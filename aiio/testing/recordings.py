"""Recordings of answers: as the recorder writes them, and plain files of bytes.

`.jsonl`, our own: one or more answers, one after the other, each of these lines, times since its request:

    {"recording": 1, "at_ms": 31.5, "head": {"status": 200, "headers": {...}}, "request": {...}}
    {"at_ms": 40.2, "data_b64": "ZGF0YTog..."}            what arrived in one read, one line a read
    {"at_ms": 95.0, "event": "end"}                       or cut, reset, left

`head` is null when none came. `left` means that the client left; nobody knows what would have come.
`.sse` and `.ndjson` hold the bytes of one body, which are played an event or a line at a time, without
pauses; `.http.json` holds one whole answer as `{"status", "headers", "body"}`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from .actions import Action, Begin, Cut, Refuse, Reset, Send, Silence, WaitUntil

Ending: TypeAlias = Literal["end", "cut", "reset", "left"]
ENDINGS: tuple[Ending, ...] = get_args(Ending)
VERSION = 1

_EVENT = re.compile(rb".*?(?:\r\n\r\n|\n\n|\r\r)|.+\Z", re.DOTALL)
_TYPES = {".sse": "text/event-stream", ".ndjson": "application/x-ndjson"}


@dataclass(frozen=True, slots=True)
class Piece:
    """What arrived at one time."""

    at_ms: float
    """Milliseconds since the request."""
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One answer."""

    status: int | None
    """None: no head came."""
    headers: Mapping[str, str] = field(default_factory=dict)
    head_at_ms: float = 0.0
    pieces: tuple[Piece, ...] = ()
    ending: Ending = "end"
    ended_at_ms: float = 0.0
    request: Mapping[str, Any] = field(default_factory=dict)
    """What is known of the request: `method`, `path`, `body_bytes`."""

    def lines(self) -> list[dict[str, Any]]:
        """Return the JSON objects of the `.jsonl` form."""
        head = None if self.status is None else {"status": self.status, "headers": dict(self.headers)}
        first = {"recording": VERSION, "at_ms": self.head_at_ms, "head": head, "request": dict(self.request)}
        pieces = [
            {"at_ms": piece.at_ms, "data_b64": base64.b64encode(piece.data).decode()} for piece in self.pieces
        ]
        return [first, *pieces, {"at_ms": self.ended_at_ms, "event": self.ending}]

    def actions(self, speed: float) -> Iterator[Action]:
        """Yield what a peer does to play this, *speed* times as fast; `math.inf`: without pauses."""
        if self.status is not None:
            yield WaitUntil(self.head_at_ms / 1000 / speed)
            if not 200 <= self.status <= 299:
                yield Refuse(self.status, b"".join(piece.data for piece in self.pieces), self.headers)
                return
            yield Begin(self.status, self.headers)
        for piece in self.pieces:
            yield WaitUntil(piece.at_ms / 1000 / speed)
            yield Send((piece.data,))
        if self.ending == "left":
            yield Silence()
        elif self.ending != "end":
            yield WaitUntil(self.ended_at_ms / 1000 / speed)
            yield Reset() if self.ending == "reset" else Cut()


def load_recordings(path: str | Path) -> list[Recording]:
    """Return the answers in the file *path*, at least one.

    Raises:
      ValueError: not a recording; the text names the file, and the line.
      OSError: it can't be read.
    """
    path = Path(path)
    data = path.read_bytes()
    if path.suffix in _TYPES:
        parts = _EVENT.findall(data) if path.suffix == ".sse" else data.splitlines(keepends=True)
        pieces = tuple(Piece(0.0, part) for part in parts)
        return [Recording(status=200, headers={"content-type": _TYPES[path.suffix]}, pieces=pieces)]
    try:
        found = [_whole_answer(data)] if path.name.endswith(".http.json") else list(_answers(data))
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"{path} is not a recording: {exc}") from exc
    if not found:
        raise ValueError(f"{path} is not a recording: it is empty")
    return found


def _whole_answer(data: bytes) -> Recording:
    answer = json.loads(data)
    pieces = (Piece(0.0, answer["body"].encode()),)
    return Recording(status=int(answer["status"]), headers=dict(answer["headers"]), pieces=pieces)


def _answers(data: bytes) -> Iterator[Recording]:
    first: dict[str, Any] | None = None
    pieces: list[Piece] = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            entry = json.loads(line)
            if first is None:
                if entry["recording"] != VERSION:
                    raise ValueError(f"version {entry['recording']!r} is unknown here")
                first, pieces = entry, []
            elif "data_b64" in entry:
                pieces.append(
                    Piece(float(entry["at_ms"]), base64.b64decode(entry["data_b64"], validate=True))
                )
            else:
                yield _answer(first, pieces, entry)
                first = None
        except (ValueError, KeyError, TypeError) as exc:
            raise ValueError(f"line {number}: {type(exc).__name__}: {exc}") from exc
    if first is not None:
        raise ValueError("the last answer has no end")


def _answer(first: dict[str, Any], pieces: list[Piece], last: dict[str, Any]) -> Recording:
    if last["event"] not in ENDINGS:
        raise ValueError(f"unknown event {last['event']!r}")
    head = first["head"] or {"status": None, "headers": {}}
    return Recording(
        status=None if head["status"] is None else int(head["status"]),
        headers=dict(head["headers"]),
        head_at_ms=float(first["at_ms"]),
        pieces=tuple(pieces),
        ending=last["event"],
        ended_at_ms=float(last["at_ms"]),
        request=dict(first.get("request") or {}),
    )
