"""Logs of writes, made up: `log_file(path, settled(end=5000, total_ms=4000), ...)`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ZERO = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)


def stamp(ms: float) -> str:
    """Return the time *ms* after `ZERO` as log lines have it."""
    return (ZERO + timedelta(milliseconds=ms)).isoformat().replace("+00:00", "Z")


def settled(end: float, total_ms: float | None = 1000.0, **facts: Any) -> dict[str, Any]:
    """The line of a write that ended *end* ms after `ZERO`; None takes a key out."""
    line: dict[str, Any] = {
        "timestamp": stamp(end),
        "level": "info",
        "event": "request.settled",
        "write": 1,
        "endpoint": "local",
        "model": "m",
        "queued_ms": 0.0,
        "total_ms": total_ms,
        "outcome": "done",
    }
    return {key: value for key, value in (line | facts).items() if value is not None}


def log_file(path: Path, *lines: dict[str, Any] | str) -> Path:
    """Write *lines* to *path*: objects as JSON, text as it is."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n")
    return path
