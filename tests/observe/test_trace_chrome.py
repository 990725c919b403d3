"""Chrome trace events: nesting and threads, as viewers need them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aiio.observe.chrome import chrome_trace
from aiio.observe.timeline import read_timeline

from .logs import log_file, settled, stamp


def events(tmp_path: Path, *lines: dict[str, Any]) -> list[dict[str, Any]]:
    document = json.loads(chrome_trace(read_timeline(log_file(tmp_path / "log", *lines))))
    assert document["displayTimeUnit"] == "ms"
    found: list[dict[str, Any]] = document["traceEvents"]
    return found


def test_a_write_holds_its_phases_and_marks(tmp_path: Path) -> None:
    line = settled(
        4000,
        4000,
        prepare_ms=0,
        connect_ms=500,
        first_event_ms=1000,
        gaps=[[2000, 2000]],
        outcome="network",
        limit="stuck",
    )
    found = [event for event in events(tmp_path, line) if event["ph"] != "M"]
    spans = [(event["name"], event["ts"], event["dur"]) for event in found if event["ph"] == "X"]
    assert spans == [
        ("local/m: network", 0, 4_000_000),
        ("connecting", 0, 500_000),
        ("waiting", 500_000, 500_000),
        ("streaming", 1_000_000, 3_000_000),
        ("gap", 2_000_000, 2_000_000),
    ]
    marks = [(event["name"], event["ts"]) for event in found if event["ph"] == "i"]
    assert marks == [("first event", 1_000_000), ("stuck limit", 4_000_000)]
    assert found[0]["args"]["limit"] == "stuck"
    assert {event["tid"] for event in found} == {1}


def test_what_overlaps_is_on_threads_of_its_own(tmp_path: Path) -> None:
    tool = {"timestamp": stamp(2500), "event": "tool.settled", "agent": "a", "tool": "f", "elapsed_ms": 400}
    run = {
        "timestamp": stamp(3000),
        "event": "agent.settled",
        "agent": "a",
        "model": "local/m",
        "elapsed_ms": 3000,
    }
    found = events(
        tmp_path,
        settled(1000, agent="a", write=1),
        settled(1500, agent="a", write=2),
        settled(2500, agent="a", write=3),
        tool,
        run,
    )
    names = {event["tid"]: event["args"]["name"] for event in found if event["name"] == "thread_name"}
    assert list(names.values()) == ["a: run", "a: writes", "a: writes #2", "a: tools"]
    threads = {event["args"]["write"]: names[event["tid"]] for event in found if event.get("cat") == "write"}
    assert threads == {1: "a: writes", 2: "a: writes #2", 3: "a: writes"}
    assert [event["name"] for event in found if event.get("cat") == "tool"] == ["f: unknown"]
    assert [event["dur"] for event in found if event.get("cat") == "agent"] == [3_000_000]
