"""`scripts/fuzz`: its targets, its two ways of fuzzing, its table, and what it says of a log of libFuzzer."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from scripts import fuzz_bulk, fuzz_led, fuzz_run
from scripts.fuzz_bulk import run as run_bulk
from scripts.fuzz_led import verdict
from scripts.fuzz_report import BULK, LED, Tally, Verdict, Watch, keep_finding, state_of_the_code, table
from scripts.fuzz_run import read_pool, write_seeds
from scripts.fuzz_targets import FRAMING, Target, all_targets, groups

from .answering import NAMES

STATS = "#12\tDONE cov: 7 ft: 9\nstat::number_of_executed_units: 1234\nstat::peak_rss_mb: 60\n"
CRASH = (
    " === Uncaught Python exception: ===\nAssertionError: lost\nTraceback\n==1== ERROR: libFuzzer\n#9\tNEW\n"
)


def given(name: str, mode: str, executions: int, seconds: float = 2.0, **more: Any) -> Verdict:
    return Verdict(name=name, mode=mode, executions=executions, seconds=seconds, **more)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


# -- targets


@pytest.mark.parametrize("name", [*FRAMING, *NAMES, "session"])
def test_every_target_begins_with_seeds_that_keep_its_laws(name: str) -> None:
    target = all_targets()[name]
    seeds = target.seeds()
    assert seeds
    assert any(len(seed) <= target.short for seed in seeds)
    for number, seed in enumerate(seeds[:5]):
        target.check(seed)
        changed = [target.mutate(seed, Random(number * 10 + turn)) for turn in range(10)]
        assert len({seed, *changed}) > 3
        for data in changed:
            target.check(data[: target.longest])


def test_groups_name_all_framing_and_all_dialects() -> None:
    targets = all_targets()
    found = groups(targets)
    assert {*found["framing"], *found["dialects"], "session"} == targets.keys()
    assert found["dialects"] == NAMES


def test_seeds_are_written_once_and_the_pool_holds_what_was_kept(tmp_path: Path) -> None:
    target = all_targets()["session"]
    assert read_pool(target, tmp_path) == target.seeds()
    place = write_seeds(target, tmp_path)
    assert {file.read_bytes() for file in place.iterdir()} == set(target.seeds())
    assert write_seeds(target, tmp_path) == place
    (place / "interesting").write_bytes(b"x" * 5000)
    assert read_pool(target, tmp_path) == [*target.seeds(), b"x" * target.longest]


# -- in bulk


@contextmanager
def watching() -> Iterator[Watch]:
    """Yield a `Watch` whose signal handlers do not outlive it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield Watch()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def bulk(check: Any, tmp_path: Path, **limits: Any) -> Verdict:
    target = replace(all_targets()["ndjson"], check=check)
    with watching() as watch:
        return run_bulk(target, target.seeds(), tmp_path / "findings", tmp_path, 7, watch, jobs=2, **limits)


def test_bulk_counts_what_all_processes_did(tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    def check(data: bytes) -> None:
        with open(seen, "ab", buffering=0) as file:
            file.write(b"x")

    found = bulk(check, tmp_path, runs=50)
    assert (found.mode, found.finding) == (BULK, "")
    assert 50 <= found.executions <= seen.stat().st_size <= found.executions + 2  # two were in hand
    assert not (tmp_path / "findings").exists()


def broken_law(data: bytes) -> None:
    assert b"5" not in data, "a five"


def hang(data: bytes) -> None:
    while b"5" in data:
        signal.pause()


def death(data: bytes) -> None:
    if b"5" in data:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("check", "said"),
    [(broken_law, "AssertionError: a five"), (hang, "hangs"), (death, "ended with exit code -9")],
)
def test_bulk_keeps_the_input_that_breaks_a_law_or_hangs_or_kills(
    check: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz_bulk, "HANG", 0.2)
    found = bulk(check, tmp_path, runs=1_000_000)
    assert said in found.finding
    kept = list((tmp_path / "findings").iterdir())
    assert kept
    assert all(path.name.startswith("ndjson-") and b"5" in path.read_bytes() for path in kept)


def test_the_same_seed_gives_the_same_inputs(tmp_path: Path) -> None:
    def inputs(seed: int) -> list[bytes]:
        found: list[bytes] = []

        class Enough(Exception):
            pass

        def check(data: bytes) -> None:
            found.append(data)
            if len(found) == 50:
                raise Enough

        target = replace(all_targets()["gemini"], check=check)
        desk = fuzz_bulk._Desk(target.longest)
        with pytest.raises(Enough):
            fuzz_bulk._fuzz(target, target.seeds(), fuzz_bulk._chance(seed, "x"), desk)
        assert (desk.done(), desk.in_hand()) == (49, found[-1])
        return found

    assert inputs(1) == inputs(1) != inputs(2)
    assert inputs(0) != inputs(0)


def test_a_stop_is_asked_for_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("scripts.fuzz_report.PROGRESS", 0)
    with watching() as watch:
        assert watch.pause("sse", lambda: 1234)
        assert capsys.readouterr().err.endswith("sse: 1,234\n")
        os.kill(os.getpid(), signal.SIGTERM)
        assert not watch.pause("sse", lambda: 0)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


# -- what is said


def test_the_log_says_how_many_and_what_was_found() -> None:
    assert verdict("sse", STATS, 0, 2.0) == given("sse", LED, 1234, covered=7)
    found = verdict("sse", CRASH + STATS, 77, 2.0)
    assert found.executions == 1234
    assert found.finding.startswith(" === Uncaught Python exception: ===\nAssertionError: lost\nTraceback")
    assert "stat::" not in found.finding
    stopped = "#9\tNEW\n==1== libFuzzer: run interrupted; exiting\n" + STATS
    assert verdict("sse", stopped, fuzz_led.INTERRUPTED, 2.0) == given("sse", LED, 1234, covered=7)
    killed = verdict("sse", "#12\tpulse", -9, 1.0)
    assert (killed.executions, killed.finding) == (12, "ended with exit code -9")


def test_the_table_counts_both_ways_apart_and_together() -> None:
    verdicts = [
        given("sse", LED, 1000, covered=7),
        given("chunked", BULK, 5, 1.0, finding="lost"),
        given("sse", BULK, 40_000),
        given("gemini", LED, 10),
    ]
    head, _, *rows = table(
        verdicts, {"framing": ("sse", "chunked", "body"), "dialects": ("gemini",)}
    ).splitlines()
    assert cells(head)[0] == "target"
    assert [cells(row) for row in rows] == [
        ["sse", "1,000", "500", "40,000", "20,000", "41,000", "7", "-"],
        ["chunked", "-", "-", "5", "5", "5", "-", "1"],
        ["gemini", "10", "5", "-", "-", "10", "-", "-"],
        ["framing", "1,000", "500", "40,005", "13,335", "41,005", "", "1"],
        ["all", "1,010", "252", "40,005", "13,335", "41,015", "", "1"],
    ]


def test_the_tally_adds_up_runs(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "new" / "tally.jsonl")
    assert tally.read() == ([], set())
    verdicts = [given("sse", LED, 1), given("sse", BULK, 2, finding="lost\n")]
    tally.add(verdicts[0], "aa")
    tally.add(verdicts[1], "bb")
    assert tally.read() == (verdicts, {"aa", "bb"})


def test_the_state_of_the_code_is_that_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    before = state_of_the_code([tmp_path])
    (tmp_path / "notes.txt").write_text("x")
    assert state_of_the_code([tmp_path]) == before
    (tmp_path / "a.py").write_text("2")
    assert state_of_the_code([tmp_path]) != before


def test_coverage_leads_through_the_modules_that_are_named_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    left_out = set(fuzz_led.left_out(Path("aiio")))
    assert {"aiio", "aiio.io", "aiio.io.answer", "aiio.transports.http", "aiio.context.usage"} <= left_out
    assert not {"aiio.providers", "aiio.providers.gemini_args", *fuzz_led.INSTRUMENTED} & left_out
    for name in (*fuzz_led.INSTRUMENTED, *left_out):
        assert importlib.util.find_spec(name) is not None


# -- the command


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return the command, in an empty folder, and without atheris."""
    monkeypatch.setattr(fuzz_run, "FOLDER", tmp_path / ".fuzz")
    monkeypatch.setattr(fuzz_led, "instrumented", all_targets)

    def run(*options: str) -> int:
        with watching():
            return fuzz_run.main(options)

    return run


def test_bad_options_are_told(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for options in (["nothing"], ["--try", "x"]):
        with pytest.raises(SystemExit):
            command(*options)
    assert "no target 'nothing'" in capsys.readouterr().err


def test_the_help_says_what_counts(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command("--help")
    assert "What counts: an execution is" in capsys.readouterr().out


def test_an_input_is_tried_again(command: Any, tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_bytes(b"\0\0\0data: 1\n\n")
    assert command("--try", str(file), "sse") == 0


def test_bulk_prints_its_table_and_adds_to_the_tally(
    command: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert command("--bulk", "--jobs", "1", "--runs", "20", "framing") == 0
    rows = [cells(line) for line in capsys.readouterr().out.splitlines()[:9]]
    assert [row[0] for row in rows[2:8]] == list(FRAMING)
    assert all(int(row[3].replace(",", "")) >= 20 for row in rows[2:8])
    assert command("--tally") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == "states of the code: 1"
    assert int(cells(said[-2])[5].replace(",", "")) >= 240
    assert not list((tmp_path / ".fuzz" / "findings").iterdir())


def test_a_broken_law_is_printed_and_makes_the_run_fail(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = Target(name="odd", check=broken_law, seeds=lambda: [b"4"], mutate=lambda data, chance: b"5")
    monkeypatch.setattr(fuzz_run, "all_targets", lambda: {"odd": target})
    assert command("--bulk", "--jobs", "1", "odd") == 1
    assert "FAILED odd; its input is in" in capsys.readouterr().out
    assert [path.read_bytes() for path in (tmp_path / ".fuzz" / "findings").iterdir()] == [b"5"]


def test_a_finding_is_kept_under_the_name_of_its_target(tmp_path: Path) -> None:
    for _ in range(2):
        keep_finding(tmp_path / "new", "sse", b"x")
    (kept,) = (tmp_path / "new").iterdir()
    assert kept.name.startswith("sse-")
    assert kept.read_bytes() == b"x"
