"""`scripts/fuzz`: its targets, its table, and what it says of a log of libFuzzer."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import fuzz_targets
from scripts.fuzz_targets import Verdict, all_targets, table, verdict, write_seeds

STATS = "#12\tDONE cov: 7 ft: 9\nstat::number_of_executed_units: 1234\nstat::peak_rss_mb: 60\n"
CRASH = (
    " === Uncaught Python exception: ===\nAssertionError: lost\nTraceback\n==1== ERROR: libFuzzer\n#9\tNEW\n"
)


def test_every_target_begins_with_seeds_that_keep_its_laws(tmp_path: Path) -> None:
    targets = all_targets()
    assert {"sse", "ndjson", "chunked", "session", "anthropic", "gemini_live"} <= targets.keys()
    for target in targets.values():
        seeds = target.seeds()
        assert seeds
        for seed in seeds[:5]:
            target.check(seed)
            if target.mutate is not None:
                target.check(target.mutate(seed, 12345))


def test_seeds_are_written_once(tmp_path: Path) -> None:
    target = all_targets()["session"]
    place = write_seeds(target, tmp_path)
    assert {file.read_bytes() for file in place.iterdir()} == set(target.seeds())
    assert write_seeds(target, tmp_path) == place


def test_the_log_says_how_many_and_what_was_found() -> None:
    assert verdict("sse", STATS, 0, 2.0) == Verdict("sse", 1234, 2.0, 7)
    found = verdict("sse", CRASH + STATS, 77, 2.0)
    assert found.executions == 1234
    assert found.finding.startswith(" === Uncaught Python exception: ===\nAssertionError: lost\nTraceback")
    assert "stat::" not in found.finding
    killed = verdict("sse", "#12\tpulse", -9, 1.0)
    assert (killed.executions, killed.finding) == (12, "ended with exit code -9")


def test_the_table_adds_up() -> None:
    text = table([Verdict("sse", 1000, 2.0, 7), Verdict("chunked", 5, 0.0, 0, "lost")])
    assert text.splitlines()[0].split() == [
        "|",
        "target",
        "|",
        "executions",
        "|",
        "a",
        "second",
        "|",
        "covered",
        "|",
        "findings",
        "|",
    ]
    assert "| 1,005 " in text
    assert "| 500 " in text


def test_bad_options_are_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(fuzz_targets, "_instrumented", all_targets)
    for options in (["nothing"], ["--try", "x"]):
        with pytest.raises(SystemExit):
            fuzz_targets.main(options)
    assert "no target 'nothing'" in capsys.readouterr().err


def test_an_input_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fuzz_targets, "_instrumented", all_targets)
    file = tmp_path / "input"
    file.write_bytes(b"\0\0\0data: 1\n\n")
    assert fuzz_targets.main(["--try", str(file), "sse"]) == 0
