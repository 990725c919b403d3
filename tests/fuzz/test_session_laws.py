"""The session reader, on any file: what is whole is read, what is not is named, nothing raises."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from . import corpus
from .session_laws import check_file

EDITS = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 12), st.binary(max_size=6)), max_size=4)


@given(seed=st.integers(0, 7), edits=EDITS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_files_are_read(tmp_path: Path, seed: int, edits: list[tuple[int, int, bytes]]) -> None:
    data = corpus.session_seeds()[seed]
    for at, size, put in edits:
        at %= len(data) + 1
        data = data[:at] + put + data[at + size :]
    file = tmp_path / "session.jsonl"
    file.write_bytes(data)
    check_file(str(file))


@pytest.mark.parametrize(
    "data", [b"\n\n", b"  ", b'\n{"type":2,"content":[]}\n', b"\n" + corpus.session_seeds()[0]]
)
def test_a_blank_first_line_is_a_problem_that_is_named(tmp_path: Path, data: bytes) -> None:
    """Found by fuzzing: a file without a header that had no problem."""
    file = tmp_path / "session.jsonl"
    file.write_bytes(data)
    check_file(str(file))
