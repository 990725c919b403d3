"""The table of `scripts/faults`: cells of the fault matrix that are passed, by dialect and fault.

Each cell is a loopback server, a socket and one write; see tests/matrix. Cells run in several processes, one
at a time in each, so that whatever is left open can be counted.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from typing import Any, TypeVar

import trio
from trio.testing import MockClock

from scripts import fault_matrix_sdks
from tests.matrix.cells import Cell, Fault, all_cells, counted_out
from tests.matrix.running import Lab, real_lab, run_cell, virtual_lab
from tests.matrix.sdks import FIRST, Pace

JOBS = 8
"""Cells at a time: on the real clock they mostly wait."""
TOO_LONG = 120
"""Seconds after which a cell that does not even hear of cancellation is interrupted."""
SECOND_TRY = 8
"""How much longer the limits are in the second try of a cell."""

_T = TypeVar("_T")
_Verdict = tuple[Cell, list[str]]


# -- in the processes

_labs: dict[str, Lab] = {}


def set_up() -> None:
    """Make a process ready for cells: what it has so far is not looked at again, and warnings are faults."""
    os.environ["AIIO_NO_CONFIG"] = "1"
    warnings.simplefilter("error")
    signal.signal(signal.SIGALRM, _give_up)
    try_cell(all_cells()[0], "virtual")  # imports what is only imported when it is needed
    gc.collect()
    gc.freeze()


def _give_up(*_: object) -> None:
    raise TimeoutError(f"nothing has moved for {TOO_LONG} s")


def try_cell(cell: Cell, how: str) -> _Verdict:
    """Run one cell: on the `real` clock, `again` there with longer limits, or on a `virtual` one."""
    if how not in _labs:
        _labs[how] = virtual_lab() if how == "virtual" else real_lab(SECOND_TRY if how == "again" else 1)
    clock = MockClock(autojump_threshold=0.005) if how == "virtual" else None
    with watched() as trouble:
        try:
            problems = trio.run(run_cell, cell, _labs[how], clock=clock)
        except BaseException as exc:  # noqa: BLE001  # whatever it was, the other cells go on
            problems = [f"{type(exc).__name__}: {exc}"]
    return cell, problems + trouble


@contextlib.contextmanager
def watched() -> Iterator[list[str]]:
    """Give up on what takes too long, and yield a list that gets what nobody could raise."""
    found: list[str] = []

    def hook(raised: Any) -> None:
        found.append(f"nobody heard {raised.exc_type.__name__}: {raised.exc_value}")

    before, sys.unraisablehook = sys.unraisablehook, hook
    signal.alarm(TOO_LONG)
    try:
        yield found
        gc.collect()  # what was left open complains now
    finally:
        signal.alarm(0)
        sys.unraisablehook = before


# -- here


def each(jobs: int, work: Callable[..., _T], cells: Iterable[Cell], *more: object) -> Iterator[_T]:
    """Yield what *work* gives for each of *cells*, as it comes."""
    todo = list(cells)
    if not todo:
        return
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if "fork" in methods else None)
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=set_up) as pool:
        for done in as_completed([pool.submit(work, cell, *more) for cell in todo]):
            yield done.result()


def _each_paced(
    jobs: int, work: Callable[[Cell, Pace], _T], cells: Sequence[Cell], pace: Pace
) -> Iterator[_T]:
    yield from _shown(each(jobs if pace is FIRST else 1, work, cells, pace), len(cells))


def run_all(
    cells: Sequence[Cell], jobs: int, *, virtual: bool
) -> tuple[dict[Cell, list[str]], dict[Cell, list[str]]]:
    """Run *cells*; return the problems of each, and the first problems of those that then passed.

    On the real clock a busy machine can make a limit fire before the bytes that were sent have been read. So
    what failed is tried once more, alone, with longer limits, and the verdict is that of the second try.
    """
    how = "virtual" if virtual else "real"
    verdicts = dict(_shown(each(jobs, try_cell, cells, how), len(cells)))
    failed = {cell: problems for cell, problems in verdicts.items() if problems}
    if virtual or len(failed) > max(20, len(cells) // 20):  # that many are no accident
        return verdicts, {}
    verdicts.update(each(1, try_cell, failed, "again"))
    return verdicts, {cell: problems for cell, problems in failed.items() if not verdicts[cell]}


def _shown(verdicts: Iterable[_T], total: int) -> Iterator[_T]:
    """Yield *verdicts*, with the count on a terminal."""
    for count, one in enumerate(verdicts, 1):
        if sys.stderr.isatty():
            print(f"\r{count}/{total}", end="" if count < total else "\r\n", file=sys.stderr, flush=True)
        yield one


def table(verdicts: dict[Cell, list[str]]) -> str:
    """Return, as a Markdown table, how many cells of each fault each dialect passes."""
    faults = [fault for fault in Fault if any(cell.fault is fault for cell in verdicts)]
    names = list(dict.fromkeys(f"{cell.dialect} {cell.transport}" for cell in verdicts))
    passed, total = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for cell, problems in verdicts.items():
        name = f"{cell.dialect} {cell.transport}"
        for key in ((name, cell.fault), (name, "all"), ("all", cell.fault), ("all", "all")):
            total[key] += 1
            passed[key] += not problems
    columns = [*faults, "all"]
    rows = [
        [name, *(f"{passed[name, one]}/{total[name, one]}" if total[name, one] else "-" for one in columns)]
        for name in [*names, "all"]
    ]
    return markdown([["", *columns], *rows])


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return *rows*, the first of which is the head, as a Markdown table."""
    head, *body = rows
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = ["-" * widths[0], *(f"{'-' * (width - 1)}:" for width in widths[1:])]
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |"
        for line in (head, rule, *body)
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, and return the exit code: 0 when every cell passed, 1 when not, 2 for bad options."""
    parser = argparse.ArgumentParser(
        prog="scripts/faults", description="Cells of the fault matrix passed, by dialect and fault."
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="TEXT",
        help="cells with TEXT in their name (chat/http/in-frame/rst/kill); again: with that as well",
    )
    parser.add_argument("--sdk", action="store_true", help="the same bytes through the official SDKs, too")
    parser.add_argument("--virtual", action="store_true", help="on a clock that jumps, not on the real one")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"processes (default: {JOBS})")
    chosen = parser.parse_args(argv)
    cells = [cell for cell in all_cells() if all(text in str(cell) for text in chosen.only)]
    if not cells or chosen.jobs < 1:
        parser.error("no cell is named like that" if not cells else "at least one process is needed")
    began = time.monotonic()
    verdicts, again = run_all(cells, chosen.jobs, virtual=chosen.virtual)
    verdicts = {cell: verdicts[cell] for cell in cells}
    print(table(verdicts), end="\n\n")
    if not chosen.only:
        print("Left out, because it makes no sense:")
        print(
            *(f"  {count:5}  {reason}" for reason, count in counted_out().most_common()), sep="\n", end="\n\n"
        )
    if chosen.sdk:
        for line in fault_matrix_sdks.report(verdicts, partial(_each_paced, chosen.jobs)):
            print(line)
    failed = {cell: problems for cell, problems in verdicts.items() if problems}
    for cell, problems in failed.items():
        print(f"FAILED {cell}", *problems, sep="\n    ")
    if again:
        print(f"{len(again)} passed in a second try, alone and with limits {SECOND_TRY} times as long:")
        print(*(f"  {cell}: at first {problems[0]}" for cell, problems in again.items()), sep="\n")
    seconds = time.monotonic() - began
    tries = f" ({len(again)} of them in a second try)" if again else ""
    print(f"{len(cells) - len(failed)} of {len(cells)} cells passed{tries}, in {seconds:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
