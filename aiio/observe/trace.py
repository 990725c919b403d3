"""Reading the trace: what a log file says about the writes it has seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aiio.context.text import parse_json

WRITE_SETTLED = "request.settled"
"""The event of the line that `aiio.io` writes when a write is over."""


def read_trace(path: str | Path) -> list[dict[str, Any]]:
    """Return the record of every write in the log at *path*, in the order they ended.

    Lines of other events are passed over, and so is what is no line of a log: a torn one, another
    program's, bytes that are no text.

    OSError: the file can't be read.
    """
    records = []
    with open(path, "rb") as lines:
        for line in lines:
            try:
                value = parse_json(line.decode())
            except ValueError:
                continue
            if isinstance(value, dict) and value.get("event") == WRITE_SETTLED:
                records.append(value)
    return records
