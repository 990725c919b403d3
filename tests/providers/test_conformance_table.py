"""The table of `scripts/conformance`."""

from __future__ import annotations

import pytest

from scripts import conformance_table
from scripts.conformance_table import WAYS, main

from . import manifest
from .dialects import Dialect
from .manifest import Row, rows


def test_all_rows_pass_and_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ollama", "gemini"]) == 0
    out = capsys.readouterr().out
    for name in ("ollama", "gemini"):
        count = len(rows(name))
        [line] = [line for line in out.splitlines() if line.startswith(f"| {name}")]
        assert line.split("|")[2].strip() == f"{count}/{count}"
    assert out.endswith("all of them\n")


def test_a_row_that_fails_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(dialect: Dialect, row: Row) -> None:
        raise AssertionError(f"no text in {row.file}\nmore of this")

    monkeypatch.setitem(WAYS, "http", (WAYS["http"][0], fail))
    [row] = rows("ollama", http=True)
    assert main(["ollama"]) == 1
    out = capsys.readouterr().out
    assert "| 0/1 " in out
    assert out.endswith(f"1 failed:\n  ollama, http: {row.file}: no text in {row.file}\n")


def test_without_recordings_it_says_that_there_are_fixtures_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (manifest, conformance_table):
        monkeypatch.setattr(module, "recordings_folder", lambda: None)
    assert main(["ollama"]) == 0
    assert "only the rows of tests/fixtures" in capsys.readouterr().out


def test_an_unknown_protocol_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["telegraph"])
    assert "unknown protocol 'telegraph'" in capsys.readouterr().err
