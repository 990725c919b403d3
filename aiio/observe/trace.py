"""Reading the trace: what a log file says about the writes it has seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiio.context.text import parse_json

WRITE_SETTLED = "request.settled"
"""The event of the line that `aiio.io` writes when a write is over."""

_LONGEST_LINE = 1 << 24
"""Bytes; a longer one is no log line, and a file without line ends must not fill the memory."""


def read_trace(path: str | Path) -> list[dict[str, Any]]:
    """Return the record of every write in the log at *path*, in the order they ended.

    Lines of other events are passed over, and so is what is no line of a log: a torn one, another
    program's, bytes that are no text.

    OSError: the file can't be read.
    """
    return [
        record for record in read_lines(path) if record is not None and record.get("event") == WRITE_SETTLED
    ]


def read_lines(path: str | Path) -> Iterator[dict[str, Any] | None]:
    """Yield every line of the log at *path* as an object, None for one that is none; blank ones are no lines.

    OSError: the file can't be read.
    """
    with open(path, "rb") as file:
        while line := file.readline(_LONGEST_LINE):
            if line.isspace():
                continue
            try:
                value = parse_json(line.decode())
            except ValueError:
                value = None
            yield value if isinstance(value, dict) else None
