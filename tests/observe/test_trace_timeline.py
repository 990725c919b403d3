"""From log lines to times: when writes began, their phases, and what can't be told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aiio.observe.timeline import (
    NO_AGENT,
    Timeline,
    narrowed,
    read_timeline,
    stuck_and_slowest,
    unread_sentence,
)
from aiio.observe.trace import read_lines

from .logs import ZERO, log_file, settled, stamp


def timeline(tmp_path: Path, *lines: dict[str, Any] | str) -> Timeline:
    return read_timeline(log_file(tmp_path / "log", *lines))


def test_a_write_begins_its_queue_and_its_total_before_its_line(tmp_path: Path) -> None:
    phases = {"queued_ms": 500, "prepare_ms": 100, "connect_ms": 200, "first_event_ms": 900}
    line = settled(5000, 4000, **phases, agent="a", gaps=[[800, 700], [4000, 9000], ["x", 1], 3])
    read = timeline(tmp_path, line)
    (write,) = read.writes
    assert read.began == ZERO.replace(microsecond=500_000)
    assert (write.begin, write.end, write.duration, read.end) == (0, 4500, 4500, 4500)
    assert [(phase.name, phase.begin, phase.end) for phase in write.phases] == [
        ("queued", 0, 500),
        ("preparing", 500, 600),
        ("connecting", 600, 800),
        ("waiting", 800, 1500),
        ("streaming", 1500, 4500),
    ]
    assert write.first_event == 1500
    assert [(gap.begin, gap.end) for gap in write.gaps] == [(800, 1500), (4000, 4500)]
    assert (write.lane, write.outcome, write.limit) == ("a", "done", None)
    assert write.facts == line


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"queued_ms": 1000, "total_ms": None}, [("queued", 1000)]),
        ({}, [("preparing", 1000)]),
        ({"prepare_ms": 200}, [("preparing", 200), ("connecting", 1000)]),
        ({"connect_ms": 200}, [("connecting", 200), ("waiting", 1000)]),
        ({"connect_ms": 200, "first_event_ms": "soon"}, [("connecting", 200), ("waiting", 1000)]),
        ({"first_event_ms": 200}, [("connecting", 200), ("streaming", 1000)]),
        ({"connect_ms": 300, "first_event_ms": 200}, [("connecting", 300), ("streaming", 1000)]),
        ({"prepare_ms": 5000, "connect_ms": 200}, [("preparing", 1000)]),
    ],
)
def test_a_write_that_ended_early_ended_in_its_last_phase(
    facts: dict[str, Any], expected: list[tuple[str, float]], tmp_path: Path
) -> None:
    (write,) = timeline(tmp_path, settled(1000, **facts)).writes
    assert [(phase.name, phase.end) for phase in write.phases] == expected
    assert write.lane == NO_AGENT


@pytest.mark.parametrize(
    "wrong",
    [
        {"timestamp": "noon"},
        {"timestamp": None},
        {"timestamp": 5},
        {"timestamp": "1969-12-31T23:59:59Z"},
        {"timestamp": "0001-01-01T00:00:00+23:00"},
        {"total_ms": "long"},
        {"total_ms": True},
        {"queued_ms": -1},
        {"total_ms": 1e13},
    ],
)
def test_a_line_that_makes_no_sense_is_left_out_and_counted(wrong: dict[str, Any], tmp_path: Path) -> None:
    read = timeline(tmp_path, settled(1000) | wrong, settled(2000), '{"event": "request.settl', "[1]", " ")
    assert (len(read.writes), read.unread) == (1, 3)


def test_a_time_without_a_zone_is_utc(tmp_path: Path) -> None:
    assert timeline(tmp_path, settled(1000, timestamp="2026-05-04T10:00:01")).began == ZERO


def test_tools_and_runs_of_agents_are_told_too(tmp_path: Path) -> None:
    tool = {"timestamp": stamp(900), "event": "tool.settled", "agent": "a", "tool": "f", "outcome": "done"}
    run = {"timestamp": stamp(3000), "event": "agent.settled", "elapsed_ms": 3000}
    other = {"timestamp": stamp(0), "event": "local.started"}
    odd = {"event": ["request.settled"]}
    read = timeline(tmp_path, tool | {"elapsed_ms": 400}, settled(2000), run, other, odd)
    (told,) = read.tools
    assert (told.begin, told.end, told.lane, told.name, told.outcome) == (500, 900, "a", "f", "done")
    (ran,) = read.agents
    assert (ran.begin, ran.end, ran.lane, ran.name, ran.outcome) == (0, 3000, NO_AGENT, "unknown", "unknown")
    assert (read.writes[0].begin, read.unread, read.end) == (1000, 0, 3000)


def test_a_file_without_writes_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no line of it tells of a write \(request.settled\)$"):
        timeline(tmp_path, {"event": "local.started"})
    with pytest.raises(ValueError, match="2 lines of it can't be read"):
        timeline(tmp_path, "# a", "text")
    with pytest.raises(FileNotFoundError):
        read_timeline(tmp_path / "none")


def test_the_stuck_come_first_then_other_limits_then_the_slowest(tmp_path: Path) -> None:
    lines = [
        settled(9000, 100, write=1),
        settled(9000, 9000, write=2),
        settled(9000, 50, write=3, limit="stuck"),
        settled(9000, 60, write=4, limit="stuck"),
        settled(9000, 70, write=5, limit="connect"),
    ]
    ordered = stuck_and_slowest(timeline(tmp_path, *lines).writes)
    assert [write.facts["write"] for write in ordered] == [4, 3, 5, 2, 1]


def test_filters_keep_what_belongs_to_what_fits(tmp_path: Path) -> None:
    read = timeline(
        tmp_path,
        settled(1000, write=1, agent="ab"),
        settled(1000, write=2, agent="ac", outcome="network", limit="stuck"),
        settled(1000, write=3, outcome="network"),
        *(
            {"timestamp": stamp(9), "event": event, "agent": "ab"}
            for event in ("tool.settled", "agent.settled")
        ),
    )

    def numbers(**filters: str | None) -> list[int]:
        return sorted(write.facts["write"] for write in narrowed(read, **filters).writes)

    assert numbers() == [1, 2, 3]
    assert numbers(outcome="network") == [2, 3]
    assert numbers(outcome="network", limit="stuck") == [2]
    assert numbers(agent="ab") == [1]
    assert numbers(agent="a*") == [1, 2]
    assert numbers(agent="a") == []
    assert len(narrowed(read, agent="ab").tools) == len(narrowed(read, agent="ab").agents) == 1
    none = narrowed(read, agent="z")
    assert (none.tools, none.agents, none.end) == ((), (), 0)


def test_unread_lines_are_told_in_a_sentence() -> None:
    assert unread_sentence(1) == "1 line of the log can't be read and is left out"
    assert unread_sentence(2) == "2 lines of the log can't be read and are left out"


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiio.observe.trace._LONGEST_LINE", 10)
    path = tmp_path / "log"
    path.write_text("x" * 25 + '\n{"a":1}\n')
    assert list(read_lines(path)) == [None, None, None, {"a": 1}]
