"""`aiio trace`: what it prints, what it writes, what it refuses."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from aiio.cli.app import invoke
from aiio.cli.trace_text import duration
from tests.observe.logs import log_file, settled

NAMES = ["write", "agent", "model", "outcome", "began", "queued", "connect", "first", "gap", "took"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return log_file(
        tmp_path / "log.jsonl",
        settled(
            1000, write=1, agent="ada", prepare_ms=0, connect_ms=200, first_event_ms=400, longest_gap_ms=90
        ),
        settled(5000, 4500, write=2, agent="bob", outcome="network", limit="stuck", gaps=[[1500, 3000]]),
        settled(2000, 800, write=3, outcome="cancelled", queued_ms=500),
        settled(2000, 800, write=4, agent="n" * 50, outcome="pro\x1b[2Jvider\n", longest_gap_ms="odd"),
        "torn",
    )


def test_the_stuck_come_first_and_a_bar_shows_the_phases(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["trace", str(log)]) == 0
    out, err = capsys.readouterr()
    head, activity, legend, names, *lines = out.splitlines()
    assert head.startswith(
        "4 writes; 1 cancelled, 1 done, 1 pro^[[2Jvider, 1 stuck limit; began 2026-05-04 10:00:00"
    )
    assert "3 at most" in activity
    assert "- gap" in legend
    assert names.split() == NAMES
    assert [line.split()[0] for line in lines] == ["2", "3", "1", "4"]
    assert "network: stuck" in lines[0]
    assert lines[0].endswith("-|")
    assert lines[1].rstrip("o").endswith(",")
    assert lines[2].split()[-1].strip("#").startswith("::")
    assert lines[3].endswith("x")
    assert "n" * 23 + "\u2026" in lines[3]
    assert "\x1b" not in out
    assert err == "aiio: 1 line of the log can't be read and is left out\n"


def test_filters_and_top_choose_and_say_what_is_left_out(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["trace", str(log), "--top", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "3 more; --top 0 shows all"
    for arguments, number in (
        (["--outcome", "cancelled"], "3"),
        (["--limit", "stuck"], "2"),
        (["--agent", "a*"], "1"),
    ):
        assert invoke(["trace", str(log), *arguments]) == 0
        head, *_, line = capsys.readouterr().out.splitlines()
        assert head.startswith("1 of 4 writes")
        assert line.split()[0] == number
    assert invoke(["trace", str(log), "--agent", "nobody"]) == 0
    assert capsys.readouterr().out.startswith("0 of 4 writes; none fits;")


def test_a_terminal_gets_colours_its_width_and_no_more_than_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    path = log_file(tmp_path / "log", *(settled(1000 * n, write=n, total_ms=n or None) for n in range(60)))
    assert invoke(["trace", str(path)]) == 0
    assert "10 more; --top 0 shows all" in screen.getvalue()
    assert "\x1b[" in screen.getvalue()


def test_a_log_of_writes_that_took_no_time_can_be_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["trace", str(log_file(tmp_path / "log", settled(0, 0)))]) == 0
    head, *_, line = capsys.readouterr().out.splitlines()
    assert head.startswith("1 write; 1 done")
    assert line.endswith("0 ms  #")


def test_files_are_written_for_their_owner_only(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, chrome = tmp_path / "t.html", tmp_path / "t.json"
    assert invoke(["trace", str(log), "--html", str(page), "--chrome", str(chrome), "--outcome", "done"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert f"1 of 4 writes are in {page}" in err
    assert f"1 of 4 writes are in {chrome}" in err
    assert page.stat().st_mode & 0o777 == chrome.stat().st_mode & 0o777 == 0o600
    assert "log.jsonl: writes</title>" in page.read_text()
    assert json.loads(chrome.read_text())["otherData"]["unread_lines"] == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["none.jsonl"], "none.jsonl can't be read: No such file"),
        (["other"], "other is no trace: no line of it tells of a write (request.settled), and 1 line"),
        (["log.jsonl", "--html", "log.jsonl"], "log.jsonl is the log itself; name another file"),
        (["log.jsonl", "--html", "none/x"], "none/x can't be written: No such file"),
        (["log.jsonl", "--top", "-1"], "-1 is not in the range"),
        (["log.jsonl", "--limit", "x"], "'x' is not one of"),
    ],
)
def test_what_can_not_be_done_is_one_sentence_and_code_5(
    arguments: list[str],
    reason: str,
    log: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(log.parent)
    Path("other").write_text("hello\n")
    before = log.read_bytes()
    assert invoke(["trace", *arguments]) == 5
    assert reason in capsys.readouterr().err
    assert log.read_bytes() == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_one_sentence_and_code_5(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["trace", str(log), "--chrome", "/dev/full"]) == 5
    assert "/dev/full can't be written: No space left" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "-"),
        (0, "0 ms"),
        (999.6, "1.0 s"),
        (61_500, "61.5 s"),
        (125_000, "2:05 min"),
        (3_725_000, "1:02:05 h"),
    ],
)
def test_durations_are_for_people(ms: Any, text: str) -> None:
    assert duration(ms) == text
