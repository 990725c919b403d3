"""What the session reader must do with any file: read what is whole, name what is not, and never raise."""

from __future__ import annotations

from typing import Any

from aiio.context.session_files import read_session
from aiio.context.session_format import entry_line, parse_entry
from aiio.context.session_recover import salvage
from aiio.context.validate import is_message, is_record


def check_file(path: str) -> None:
    """Assert the laws for the file at *path*: what is read or saved can be stored, and is read as it is."""
    loaded = read_session(path)
    with open(path, "rb") as file:
        size = len(file.read())
    assert loaded.stamp.size == size
    assert loaded.header is not None or loaded.problems
    saved = salvage(path)
    assert saved.header == loaded.header
    for entry in loaded.entries:
        _check_entry(entry)
    if not loaded.problems:
        assert saved.entries == loaded.entries
        return
    assert len(saved.entries) >= len(loaded.entries)
    for entry in saved.entries:
        _check_entry(entry)


def _check_entry(entry: Any) -> None:
    assert is_message(entry) or is_record(entry)
    line = entry_line(entry, 0)
    assert line.count(b"\n") == 1
    back = parse_entry(line)
    assert back is not None or entry.get("type") == "session-metadata"
    assert back is None or entry_line(back, 0) == line
