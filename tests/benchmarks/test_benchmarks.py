"""The bench itself: what it sends is what it expects, readers are checked, goals are read the right way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import trio
from wsproto.frame_protocol import FrameProtocol

import aiio
from scripts.benchmarks import __main__ as command
from scripts.benchmarks import (
    contenders,
    do_imports,
    do_instructions,
    do_starts,
    in_memory,
    measuring,
    read_aiio,
)
from scripts.benchmarks.contenders import BenchError, Contender
from scripts.benchmarks.do_context import WORK
from scripts.benchmarks.figures import Cell, Ratio, Row, Seconds
from scripts.benchmarks.loads import (
    WIRE,
    Load,
    chat_frames,
    expected_digest,
    parse_load,
    stream_pieces,
    text_digest,
    wire_writes,
)
from scripts.benchmarks.measuring import Loopback, Results, loopback_server, measure, read
from scripts.benchmarks.read_bare import take, unchunk
from scripts.benchmarks.reading import Meter, hold
from scripts.benchmarks.report import as_json, cost_table, ratio_table, verdict
from scripts.benchmarks.rows import ROWS

SMALL = Load(events=70, batch=16)
CELL = Cell(contender="bare", load=SMALL, rounds=2, passes=1)
ROW = Row(
    name="self",
    what="bare / bare",
    ratio=Ratio(top=CELL, bottom=CELL),
    bracket=Ratio(top=CELL, bottom=CELL, per_event=False),
    goal=1.5,
)


def measured(cell: Cell, *cpu_s: float) -> Results:
    results = Results([cell])
    results[cell].cpu_s = list(cpu_s)
    return results


@pytest.mark.parametrize("load", [SMALL, replace(SMALL, content="arguments", streams=3, period_ms=20)])
def test_a_load_survives_the_path(load: Load) -> None:
    assert parse_load(f"/{load.path}/chat/completions") == load


@pytest.mark.parametrize("path", ["/", "/favicon.ico", "/text.1.2/chat"])
def test_a_path_without_a_load_is_refused(path: str) -> None:
    with pytest.raises(ValueError):
        parse_load(path)


@pytest.mark.parametrize("batch", [1, 64])
def test_the_writes_carry_the_frames_and_the_frames_the_text(batch: int) -> None:
    load = replace(SMALL, batch=batch)
    _, _, body = b"".join(wire_writes(load)).partition(b"\r\n\r\n")
    bodies: list[bytes] = []
    rest = unchunk(body, bodies)
    pieces: list[str] = []
    assert take(b"".join(bodies), pieces)
    assert bodies[:-1] == chat_frames(load)
    assert bodies[-1] == rest == b""
    assert text_digest(["".join(pieces)]) == expected_digest(load)


def test_batches_set_the_number_of_writes() -> None:
    assert len(wire_writes(replace(SMALL, events=129, batch=64))) == 1 + 2 + 1
    assert len(wire_writes(replace(SMALL, events=129, batch=1))) == 1 + 128 + 1


def test_arguments_join_to_one_json_object() -> None:
    load = Load(content="arguments", events=50)
    text = "".join(stream_pieces(replace(load, content="text")))
    assert json.loads("".join(stream_pieces(load))) == {"text": text}
    assert b'"finish_reason":"tool_calls"' in b"".join(chat_frames(load))


def test_a_huge_piece_has_the_size_asked_for() -> None:
    assert [len(piece) for piece in stream_pieces(Load(events=2, piece_bytes=100_000))] == [100_000] * 2


def test_every_frame_is_what_its_protocol_says() -> None:
    *frames, end_mark = chat_frames(SMALL)
    assert end_mark == b"data: [DONE]\n\n"
    for frame in frames:
        assert frame.startswith(b"data: ")
        assert msgspec.json.decode(frame[6:])["object"] == "chat.completion.chunk"


def test_the_socket_carries_the_same_text() -> None:
    load = replace(SMALL, content="ws", events=40, piece_bytes=70_000)
    for one in (load, replace(load, piece_bytes=0), replace(load, piece_bytes=200)):
        protocol = FrameProtocol(client=True, extensions=[])
        protocol.receive_bytes(b"".join(wire_writes(one)))
        events = [json.loads(str(frame.payload)) for frame in protocol.received_frames()]
        assert events[-1]["type"] == "response.completed"
        assert text_digest(["".join(event.get("delta", "") for event in events)]) == expected_digest(one)


def test_the_other_wires_carry_the_same_text() -> None:
    for content in ("anthropic", "ndjson"):
        load = replace(SMALL, content=content)
        _, _, body = b"".join(wire_writes(load)).partition(b"\r\n\r\n")
        bodies: list[bytes] = []
        assert unchunk(body, bodies) == b""
        text = ""
        for line in b"".join(bodies).splitlines():
            if line.startswith((b"data: ", b"{")):
                value = json.loads(line.removeprefix(b"data: "))
                text += value.get("delta", {}).get("text", "") + (
                    value.get("message", {}).get("content") or "" if content == "ndjson" else ""
                )
        assert text_digest([text]) == expected_digest(load)


def test_rows_have_names_of_their_own_and_known_contenders() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert {cell.contender for row in ROWS for cell in row.cells()} <= set(contenders.CONTENDERS)


def test_quick_rows_are_small() -> None:
    for row in ROWS:
        for cell in row.quick().cells():
            assert cell.rounds == cell.passes == 1
            assert cell.load.total_events <= 4 * 64


def test_a_goal_is_an_upper_bound_unless_it_says_otherwise() -> None:
    assert ROW.met(1.5)
    assert not ROW.met(1.51)
    lower = replace(ROW, at_least=True)
    assert lower.met(1.5)
    assert not lower.met(1.49)


def test_the_same_reading_with_fewer_rounds_is_measured_once() -> None:
    results = Results([replace(CELL, rounds=1), CELL])
    assert len(results.by_cell) == 1
    assert results[replace(CELL, rounds=1)].cell.rounds == 2


def test_ratios_are_of_medians_per_event_or_whole() -> None:
    double = replace(CELL, load=replace(SMALL, events=140))
    results = Results([CELL, double])
    results[CELL].cpu_s = [1.0, 9.0, 1.0]
    results[double].cpu_s = [3.0, 3.0, 0.1]
    assert results.value(Ratio(top=double, bottom=CELL)) == pytest.approx(1.5)
    assert results.value(Ratio(top=double, bottom=CELL, per_event=False)) == pytest.approx(3.0)
    assert results.value(Ratio(top=double, bottom=CELL, per_event=False), min) == pytest.approx(0.1)


def test_the_report_shows_what_was_measured() -> None:
    results = measured(CELL, 0.0007, 0.0014, 0.0021)
    assert "| bare / bare | 1.00 (1.00) | ≤ 1.5 | yes |" in ratio_table([ROW], results, quick=False)
    assert "| NO | 1.00 |" in ratio_table([replace(ROW, goal=0.9)], results, quick=False)
    assert "| it runs |" in ratio_table([replace(ROW, goal=0.9)], results, quick=True)
    assert "| bare | 20.00 | 10.00 to 30.00 | 3 |" in cost_table(results)
    one = replace(CELL, load=Load(events=1, piece_bytes=1 << 20, batch=1))
    assert "| chat text, 1 frame of 1 MiB, 1 a write |" in cost_table(measured(one, 1.0))
    slow = replace(CELL, load=Load(events=300, batch=1, streams=100, period_ms=20))
    assert "| chat text, 100 streams x 300 frames, one a 20 ms |" in cost_table(measured(slow, 1.0))
    data = as_json([ROW], results, quick=False)
    assert data["rows"][0]["ok"] is True
    assert data["cells"][0]["cpu_s"] == [0.0007, 0.0014, 0.0021]
    assert json.loads(json.dumps(data)) == data


def test_a_faulty_cell_spoils_its_row_and_no_other() -> None:
    results = measured(CELL, 0.001)
    results[CELL].fault = "it fell over"
    assert verdict(ROW, results) is None
    assert "| - (-) |" in ratio_table([ROW], results, quick=False)
    assert "could not be measured" in ratio_table([ROW], results, quick=True)
    assert results.faults == ["bare on text.70.0.16.1.0: it fell over"]


def test_the_bare_reader_is_measured_against_the_real_server() -> None:
    paced = Cell(contender="bare", load=Load(events=3, batch=1, streams=3, period_ms=1), rounds=1, passes=1)
    results = measure([CELL, paced], lambda text: None)
    assert results.faults == []
    assert len(results[CELL].cpu_s) == 2
    assert len(results[paced].cpu_s) == 1


def test_the_aiio_reader_receives_what_was_sent() -> None:
    paced = Load(events=3, batch=1, streams=3, period_ms=1)
    cells = [
        Cell(contender="aiio", load=replace(load, content=content), rounds=1, passes=2)
        for content in ("text", "arguments", "anthropic", "ndjson")
        for load in (Load(events=30), paced)
    ]
    results = measure(cells, lambda text: None)
    assert results.faults == []
    assert all(results[cell].cpu_s for cell in cells)


def test_readers_over_tls_trust_the_server_of_this_run() -> None:
    cells = [
        Cell(contender=contender, load=Load(content=content, events=30), rounds=1, passes=3)
        for contender, content in (("aiio", "tls"), ("bare", "tls"), ("aiio", "kept"))
    ]
    results = measure(cells, lambda text: None)
    assert results.faults == []
    with loopback_server() as server:
        distrusted = replace(server, ca_file=os.devnull)
        with pytest.raises(BenchError, match="_do_handshake"):
            read(distrusted, cells[1])


def test_held_streams_are_stopped_with_their_partial_text() -> None:
    held = Load(content="held", events=1, streams=3)
    cells = [
        Cell(contender=contender, load=replace(held, content=content), rounds=1, passes=1)
        for contender, content in (("aiio", "held"), ("aiio", "killed"), ("httpx", "held"), ("least", "held"))
    ]
    results = measure(cells, lambda text: None)
    assert results.faults == []
    assert all(results[cell].told("start_cpu_ms") > 0 < results[cell].told("stop_ms") for cell in cells)
    assert all("kb_per_stream" in results[cell].figures for cell in cells)


def test_a_partial_message_that_is_missing_is_a_fault() -> None:
    with pytest.raises(RuntimeError, match="not stopped with a partial message"):
        read_aiio.text_of(aiio.Error(error="killed", cancelled=True))
    with pytest.raises(RuntimeError, match="not stopped with a partial message"):
        read_aiio.text_of(aiio.Error(error="cut", message=aiio.assistant_message([aiio.text_content("x")])))


def test_a_timer_ticks_in_the_loop_that_reads() -> None:
    timed = Load(content="timed", events=10, batch=1, streams=2, period_ms=10)
    cell = Cell(contender="bare", load=timed, rounds=1, passes=1)
    results = measure([cell], lambda text: None)
    assert results.faults == []
    assert 0 <= results[cell].told("late_p99_ms") <= results[cell].told("clock_late_p99_ms")


def test_the_first_event_of_each_pass_is_timed() -> None:
    results = measure([replace(CELL, rounds=1, passes=3)], lambda text: None)
    assert 0 < results[CELL].told("first_event_ms") <= 1000 * max(results[CELL].wall_s) * 3


def test_imports_are_measured_where_nothing_is_imported_yet() -> None:
    load = Load(content="import+json+trio", events=1)
    cell = Cell(contender="imports", load=load, rounds=1, passes=1)
    results = measure([cell], lambda text: None)
    assert results.faults == []
    assert min(results[cell].cpu_s) > 0
    with pytest.raises(subprocess.CalledProcessError):
        do_imports.import_once(["sys"])  # is there already


async def test_what_is_counted_reads_the_same_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_memory, "start_counting", lambda: None)
    do_instructions.prepare(SMALL, tmp_path)
    digests = await in_memory.read_all(in_memory.load_answers(tmp_path))
    assert len(digests) == 2 * 2 * 2
    for name, digest in digests.items():
        factor = int(name[-1])
        assert digest == expected_digest(replace(SMALL, events=factor * SMALL.events))
    single = in_memory.load_answers(tmp_path)["single-1"]
    with pytest.raises(RuntimeError, match="the answer was cut"):
        in_memory.read_bare(single[:-1])


def test_every_second_dump_is_a_reading(tmp_path: Path) -> None:
    for number in range(1, 5):
        (tmp_path / f"counts.{number}").write_text(f"summary: 0\ntotals: {number * 100}\n")
    assert do_instructions.totals(f"{tmp_path}/counts", ["a", "b"]) == {"a": 200, "b": 400}


def test_a_dump_without_totals_is_told(tmp_path: Path) -> None:
    dump = tmp_path / "counts.1"
    dump.write_text("version: 1\n")
    with pytest.raises(RuntimeError, match=r"counts.1 has no totals"):
        do_instructions.total(dump)


def test_starts_and_stops_are_counted_between_the_marks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    held = Load(content="held", events=1, streams=2)
    digest = expected_digest(held)

    def run(counts: str, module: str, *arguments: str) -> str:
        assert (module, *arguments) == ("read_aiio", "http://there", held.path, "1")
        for number in range(1, 6):
            Path(f"{counts}.{number}").write_text(f"totals: {number * 100}\n")
        return json.dumps({"sha256": digest})

    monkeypatch.setattr(do_starts, "under_callgrind", run)
    assert do_starts.count("aiio", "http://there", held, str(tmp_path)) == {"start": 100, "stop": 200}
    digest = "another"
    with pytest.raises(RuntimeError, match="aiio: the text received is not the text sent"):
        do_starts.count("aiio", "http://there", held, str(tmp_path))


async def test_holding_marks_where_starting_and_stopping_begin_and_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(os, "getppid", lambda: seen.append("mark"))

    async def read_one(pieces: list[str], started: Callable[[], None]) -> None:
        seen.append("asked")
        started()
        try:
            await trio.sleep_forever()
        finally:
            seen.append("stopped")

    await hold(read_one, Load(content="held", events=1, streams=2), None)
    assert seen == ["mark", "asked", "asked", "mark", "mark", "stopped", "stopped", "mark"]


def test_what_cannot_be_here_is_skipped_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(contenders.CONTENDERS, "bare", Contender(name="bare", module="x", program="no-such"))
    results = measure([CELL], lambda text: None)
    assert results.faults == []
    assert verdict(ROW, results) is None
    assert "| - (-) | ≤ 1.5 | skipped: no no-such |" in ratio_table([ROW], results, quick=False)
    assert cost_table(results).count("\n") == 1
    assert as_json([ROW], results, quick=False)["cells"][0]["skipped"] == "no no-such"
    results[CELL].fault = "it fell over"
    assert "could not be measured" in ratio_table([ROW], results, quick=False)


def test_big_environments_are_not_made_for_a_quick_run() -> None:
    big = Contender(name="peer", module="read_peer", requirements=("peer==1",), big=True)
    assert big.reason_to_skip(quick=True) == "its environment takes too long for --quick"
    assert big.reason_to_skip(quick=False) is None


def test_a_row_without_a_goal_is_shown_and_never_missed() -> None:
    results = measured(CELL, 0.001)
    row = replace(ROW, goal=None)
    assert verdict(row, results) is True
    assert "| none | - |" in ratio_table([row], results, quick=False)


def test_a_ratio_may_be_of_what_the_processes_report() -> None:
    other = replace(CELL, contender="aiio")
    results = Results([CELL, other])
    results[CELL].figures, results[other].figures = {"kb": [8.0, 90.0, 2.0]}, {"kb": [2.0]}
    ratio = Ratio(top=CELL, bottom=other, of="kb")
    assert results.value(ratio) == 4
    assert ratio.quick().of == "kb"


def test_held_loads_and_tls_are_described() -> None:
    held = replace(CELL, load=Load(content="held", events=1, streams=1000))
    assert "| chat text, 1000 streams held after the first piece |" in cost_table(measured(held, 1.0))
    tls = replace(CELL, load=Load(content="tls", events=300))
    assert "| chat text over TLS, 300 frames, 64 a write |" in cost_table(measured(tls, 1.0))


def test_work_without_a_server_is_checked_as_readers_are() -> None:
    cells = [
        Cell(contender="context", load=Load(content=content, events=60, piece_bytes=20), rounds=1, passes=1)
        for content in WORK
    ]
    results = measure(cells, lambda text: None)
    assert results.faults == []
    assert all(results[cell].wall_s[0] > 0 for cell in cells)
    wanted = [cell for row in ROWS for cell in row.cells() if cell.contender == "context"]
    assert {cell.load.content for cell in wanted} == set(WORK)
    assert not set(WORK) & set(WIRE)


def test_of_a_thing_done_often_once_counts() -> None:
    once, often = Meter(), Meter()
    for meter, per in ((once, 1), (often, 4)):
        meter.start()
        meter._began = (meter._began[0] - 8, meter._began[1] - 8)
        meter.stop(per)
    assert (once.cpu_s[0] / often.cpu_s[0], once.wall_s[0] / often.wall_s[0]) == pytest.approx((4, 4), 0.01)


def test_an_absolute_goal_is_in_seconds_on_the_clock() -> None:
    results = measured(CELL, 9.0)
    results[CELL].wall_s = [0.1, 0.3, 0.2]
    row = replace(ROW, ratio=Seconds(cell=CELL), bracket=None, goal=0.25)
    assert results.value(row.ratio) == 0.2
    assert row.cells() == [CELL]
    assert row.quick().cells() == [CELL.quick()]
    assert "| bare / bare | 0.20 | ≤ 0.25 | yes |" in ratio_table([row], results, quick=False)
    assert "| saves: 5 | bare |" in cost_table(
        measured(replace(CELL, load=Load(content="saves", events=5)), 1)
    )
    results[CELL].fault = "it fell over"
    assert results.value(row.ratio) is None


def test_another_text_than_was_sent_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "expected_digest", lambda load: "another")
    results = measure([CELL], lambda text: None)
    assert results[CELL].fault == "the text received is not the text sent"


def test_a_reader_that_fails_is_a_fault_that_says_why() -> None:
    with pytest.raises(BenchError, match=r"(?s)exit code 1.*ConnectionRefusedError"):
        read(Loopback(url="http://127.0.0.1:9", ca_file=""), CELL)


def test_a_reader_that_hangs_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "RUN_TIMEOUT", 0.0)
    with loopback_server() as server, pytest.raises(BenchError, match="no result after 0 s"):
        read(server, CELL)


def test_an_environment_that_cannot_be_made_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contenders, "CACHE", tmp_path)
    calls: list[list[str]] = []

    def fail_to_install(command: list[str]) -> None:
        calls.append(command)
        if "pip" in command:
            raise BenchError("no such package")
        Path(command[-1], "bin").mkdir(parents=True)

    monkeypatch.setattr(contenders, "_run", fail_to_install)
    with pytest.raises(BenchError, match="no such package"):
        contenders.interpreter(Contender(name="peer", module="read_peer", requirements=("peer==1",)))
    assert [command[1:3] for command in calls] == [["-m", "venv"], ["-m", "pip"]]
    assert list(tmp_path.iterdir()) == []


def test_an_environment_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders, "CACHE", tmp_path)
    calls: list[list[str]] = []

    def pretend(command: list[str]) -> None:
        calls.append(command)
        if "venv" in command:
            Path(command[-1]).mkdir()

    monkeypatch.setattr(contenders, "_run", pretend)
    peer = Contender(name="peer", module="read_peer", requirements=("peer==1",))
    assert contenders.interpreter(peer) == contenders.interpreter(peer)
    assert len(calls) == 2
    assert contenders.interpreter(replace(peer, requirements=("peer==2",))) != contenders.interpreter(peer)


def test_a_command_that_fails_says_what_it_said() -> None:
    with pytest.raises(BenchError, match=r"(?s)failed:.*no tea"):
        contenders._run([sys.executable, "-c", "raise SystemExit('no tea')"])


@pytest.fixture
def one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "ROWS", (ROW,))


@pytest.mark.usefixtures("one_row")
def test_the_command_prints_tables_and_writes_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "bench.json"
    assert command.main(["--quick", "--json", str(target), "--only", "se"]) == 0
    out, err = capsys.readouterr()
    assert "| bare / bare |" in out
    assert "round 1: bare on text.64.0.16.1.0" in err
    assert json.loads(target.read_text("utf-8"))["quick"] is True


@pytest.mark.parametrize(("quick", "code"), [([], 1), (["--quick"], 0)])
def test_a_missed_goal_matters_unless_quick(
    quick: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "ROWS", (replace(ROW, goal=0.5),))
    assert command.main(quick) == code
    assert ("| NO |" in capsys.readouterr().out) is (code == 1)


@pytest.mark.usefixtures("one_row")
def test_what_cannot_run_ends_in_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measuring, "RUN_TIMEOUT", 0.0)
    assert command.main(["--quick"]) == 1
    assert "could not be measured: bare on" in capsys.readouterr().err


@pytest.mark.usefixtures("one_row")
def test_an_unknown_row_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "nonsense"]) == 1
    assert "no row begins with 'nonsense'; rows: self" in capsys.readouterr().err


def test_a_json_file_that_cannot_be_written_is_told_before_measuring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main(["--json", str(tmp_path / "missing" / "bench.json")])
    assert "there is no folder" in capsys.readouterr().err


@pytest.mark.usefixtures("one_row")
def test_a_server_that_does_not_start_ends_in_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    assert command.main([]) == 1
    assert "the loopback server did not start" in capsys.readouterr().err


def test_the_launcher_runs_from_anywhere(tmp_path: Path) -> None:
    launcher = contenders.ROOT / "scripts" / "bench"
    done = subprocess.run([launcher, "--help"], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "--quick" in done.stdout
