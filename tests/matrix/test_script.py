"""`scripts/faults`: its table, its exit codes, what it says of cells that fail and of the official SDKs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from scripts import fault_matrix, fault_matrix_sdks
from scripts.fault_matrix import main, run_all, table, try_cell

from .answers import WORDS, cut_at
from .cells import Action, Cell, Fault, Place
from .sdks import AGAIN, FIRST, Call, Failure, Pace, failure, is_for_sdks

GOOD = Cell("chat", "http", Place.AFTER_HEAD, Fault.EOF, Action.NONE)
LIMIT = Cell("chat", "http", Place.AFTER_HEAD, Fault.STALL, Action.STUCK)
KILLED = Cell("chat", "http", Place.IN_FRAME, Fault.EOF, Action.KILL)
HEALTHY = Cell("chat", "http", Place.BEFORE_HEAD, Fault.INFORMATIONAL, Action.NONE)
WHOLE = Cell("chat", "http", Place.AFTER_TERMINAL, Fault.EOF, Action.NONE)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[Cell, str], list[str]]:
    """Have cells run in this process; what is put into the dict is their verdict instead."""
    told: dict[tuple[Cell, str], list[str]] = {}

    def each(jobs: int, work: Callable[..., Any], cells: Iterable[Cell], how: str = "") -> Iterator[Any]:
        for cell in cells:
            known = told.get((cell, how))
            yield work(cell, how) if known is None else (cell, known)

    monkeypatch.setattr(fault_matrix, "each", each)
    return told


def test_it_runs_the_cells_that_are_named(here: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--virtual", "--only", "chat/http/", "--only", "after-head/eof/none"]) == 0
    shown = capsys.readouterr().out
    assert "| chat http | 1/1 | 1/1 |" in shown
    assert "1 of 1 cells passed" in shown


def test_a_cell_that_fails_is_named_with_what_was_wrong(
    here: dict[tuple[Cell, str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    here[GOOD, "virtual"] = ["text: 'a', not 'b'"]
    assert main(["--virtual", "--only", str(GOOD)]) == 1
    shown = capsys.readouterr().out
    assert f"FAILED {GOOD}\n    text: 'a', not 'b'\n" in shown
    assert "| all       | 0/1 | 0/1 |" in shown


@pytest.mark.parametrize("arguments", [["--only", "no such cell"], ["--jobs", "0"], ["--nonsense"]])
def test_options_that_make_no_sense(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2


def test_on_the_real_clock_what_failed_is_tried_again_and_that_is_told(
    here: dict[tuple[Cell, str], list[str]],
) -> None:
    here.update(
        {(LIMIT, "real"): ["late"], (LIMIT, "again"): [], (GOOD, "real"): ["bad"], (GOOD, "again"): ["x"]}
    )
    assert run_all([LIMIT, GOOD], 1, virtual=False) == ({LIMIT: [], GOOD: ["x"]}, {LIMIT: ["late"]})


def test_on_a_virtual_clock_nothing_is_tried_again(here: dict[tuple[Cell, str], list[str]]) -> None:
    here[GOOD, "virtual"] = ["bad"]
    assert run_all([GOOD], 1, virtual=True) == ({GOOD: ["bad"]}, {})


def test_whatever_a_cell_raises_is_its_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(cell: Cell, lab: Any) -> list[str]:
        raise KeyError("x")

    monkeypatch.setattr(fault_matrix, "run_cell", broken)
    assert try_cell(GOOD, "virtual") == (GOOD, ["KeyError: 'x'"])


def test_the_table_has_a_dash_where_there_is_no_cell() -> None:
    other = Cell("ollama", "http", Place.AFTER_HEAD, Fault.STALL, Action.STUCK)
    assert table({GOOD: [], other: ["bad"]}).splitlines() == [
        "|             | stall | eof | all |",
        "| ----------- | ----: | --: | --: |",
        "| chat http   | -     | 1/1 | 1/1 |",
        "| ollama http | 0/1   | -   | 0/1 |",
        "| all         | 0/1   | 1/1 | 1/2 |",
    ]


# -- the SDKs

pieces = [cut_at("chat", Place.IN_FRAME).said.text]


@pytest.mark.parametrize(
    ("cell", "call", "expected"),
    [
        (WHOLE, Call([WORDS], ended=True), None),
        (WHOLE, Call([WORDS[:9]], ended=True), Failure.TEXT),
        (WHOLE, Call([WORDS], ConnectionError(), ended=True), None),
        (WHOLE, Call([WORDS], OSError(), ended=True), Failure.RAW),
        (HEALTHY, Call([WORDS], ended=True), None),
        (HEALTHY, Call([WORDS], ConnectionError(), ended=True), Failure.WHOLE_IS_FAULT),
        (WHOLE, Call([WORDS], ended=True, socket_left=True), Failure.SOCKET),
        (KILLED, Call(pieces, asyncio.CancelledError(), ended=True), None),
        (KILLED, Call(pieces, ConnectionError(), ended=True), Failure.NOT_CANCELLED),
        (GOOD, Call([], ConnectionError(), ended=True), None),
        (GOOD, Call([], OSError(), ended=True), Failure.RAW),
        (GOOD, Call([], ended=True), Failure.CUT_IS_WHOLE),
        (GOOD, Call([]), Failure.NOT_ENDED),
    ],
)
def test_what_is_asked_of_an_sdk(
    monkeypatch: pytest.MonkeyPatch, cell: Cell, call: Call, expected: Failure | None
) -> None:
    monkeypatch.setattr("tests.matrix.sdks._own_errors", lambda dialect: (ConnectionError,))
    assert failure(cell, call) == expected


def test_sdks_are_tried_on_plain_http_without_limits() -> None:
    assert [is_for_sdks(cell) for cell in (GOOD, KILLED, LIMIT)] == [True, True, False]
    assert not is_for_sdks(Cell("chat", "https", Place.AFTER_HEAD, Fault.EOF, Action.NONE))


def test_both_stand_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_matrix_sdks, "_installed", lambda module: module == "openai")
    monkeypatch.setattr(fault_matrix_sdks, "_sdk", lambda dialect: "openai 0")
    verdicts: dict[Cell, list[str]] = {GOOD: [], KILLED: ["bad"], LIMIT: []}
    tries: list[tuple[int, Pace]] = []

    def each(work: Any, cells: Sequence[Cell], pace: Pace) -> list[Any]:
        tries.append((len(cells), pace))
        results = {GOOD: (GOOD, Failure.RAW, "ReadError"), KILLED: (KILLED, None, "")}
        return [results[cell] for cell in cells]

    shown = list(fault_matrix_sdks.report(verdicts, each))
    assert tries == [(2, FIRST), (1, AGAIN)]  # what failed has a second try, as aiio's cells have
    assert "Not installed, and left out: anthropic, google.genai, ollama" in shown
    row = next(line for line in shown if line.startswith("| chat "))
    assert [cell.strip() for cell in row.split("|")[1:-1]] == ["chat", "openai 0", "2", "1", "1", "2"]
    assert shown[-4:-1] == [
        "openai 0, chat:",
        "     1  raised an error of the library below it",
        f"        {GOOD} (ReadError)",
    ]
