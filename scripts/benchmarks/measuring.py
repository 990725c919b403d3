"""The interleaved runs: every cell once a round, each in a fresh process, each checked for the same text."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .contenders import CONTENDERS, ROOT, BenchError, interpreter
from .loads import expected_digest
from .rows import Cell, Ratio, Seconds

RUN_TIMEOUT = 300.0
"""Seconds for one reading process."""

STDERR_KEPT = 800
"""Characters of what a failed process said: the end of its traceback."""


@dataclass(slots=True)
class Measured:
    """What one cell cost, process by process."""

    cell: Cell
    cpu_s: list[float] = field(default_factory=list)
    """CPU seconds for the load: the median of its passes, one entry a process."""
    wall_s: list[float] = field(default_factory=list)
    """The same in seconds on the clock."""
    fault: str | None = None
    """Why it could not be measured."""

    @property
    def median(self) -> float:
        """CPU seconds for the whole load."""
        return statistics.median(self.cpu_s)

    @property
    def per_event(self) -> list[float]:
        """CPU microseconds per event, one entry a process."""
        return [1e6 * cpu / self.cell.load.total_events for cpu in self.cpu_s]


class Results:
    """What every cell cost, and the ratios of them."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self.by_cell: dict[Cell, Measured] = {}
        for cell in sorted(cells, key=lambda cell: -cell.rounds):
            # the same reading with fewer rounds is the same reading
            self.by_cell.setdefault(_key(cell), Measured(cell))

    def __getitem__(self, cell: Cell) -> Measured:
        return self.by_cell[_key(cell)]

    def value(self, figure: Ratio | Seconds) -> float | None:
        """Return *figure*, of medians; None: one of its cells could not be measured."""
        if any(self[cell].fault for cell in figure.cells()):
            return None
        if isinstance(figure, Seconds):
            return statistics.median(self[figure.cell].wall_s)
        ratio, top, bottom = figure, self[figure.top], self[figure.bottom]
        if ratio.per_event:
            return statistics.median(top.per_event) / statistics.median(bottom.per_event)
        return top.median / bottom.median

    @property
    def faults(self) -> list[str]:
        """Why cells could not be measured, one text each."""
        return [
            f"{measured.cell.contender} on {measured.cell.load.path}: {measured.fault}"
            for measured in self.by_cell.values()
            if measured.fault
        ]


def _key(cell: Cell) -> Cell:
    return Cell(contender=cell.contender, load=cell.load, rounds=0, passes=0)


def measure(cells: Iterable[Cell], progress: Callable[[str], None]) -> Results:
    """Measure *cells*, interleaved. What fails is noted in the results and not tried again.

    Raises:
      BenchError: there is no server to read from.
    """
    results = Results(cells)
    measured = list(results.by_cell.values())
    with loopback_server() as server:
        for round_number in range(max(one.cell.rounds for one in measured)):
            for one in measured:
                if round_number < one.cell.rounds and one.fault is None:
                    progress(f"round {round_number + 1}: {one.cell.contender} on {one.cell.load.path}")
                    try:
                        cpu_s, wall_s = read(server, one.cell)
                    except BenchError as exc:
                        one.fault = str(exc)
                    else:
                        one.cpu_s.append(cpu_s)
                        one.wall_s.append(wall_s)
    return results


def read(server: str, cell: Cell) -> tuple[float, float]:
    """Let the contender of *cell* read its load in a new process; return the median seconds of a pass.

    First those of CPU, then those on the clock.

    Raises:
      BenchError: it could not be run, or received another text than was sent.
    """
    contender = CONTENDERS[cell.contender]
    module = f"scripts.benchmarks.{contender.module}"
    command = [str(interpreter(contender)), "-m", module, server, cell.load.path, str(cell.passes)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env=_environment(),
            timeout=RUN_TIMEOUT,
        )
    except subprocess.TimeoutExpired as exc:
        raise BenchError(f"no result after {RUN_TIMEOUT:g} s") from exc
    if done.returncode:
        raise BenchError(f"exit code {done.returncode}:\n{done.stderr.strip()[-STDERR_KEPT:]}")
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if report["sha256"] != expected_digest(cell.load):
        raise BenchError("the text received is not the text sent")
    return statistics.median(report["cpu_s"]), statistics.median(report["wall_s"])


def _environment() -> dict[str, str]:
    """Return the readers' environment: as ours, but no proxy between them and the server."""
    proxies = {"http_proxy", "https_proxy", "all_proxy"}
    return {name: value for name, value in os.environ.items() if name.lower() not in proxies}


@contextmanager
def loopback_server() -> Iterator[str]:
    """Run the server in a process of its own; yield its base URL. BenchError: it does not start."""
    process = subprocess.Popen(
        [sys.executable, "-m", "scripts.benchmarks.server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with process:  # closes its standard input, which ends it, and waits
        assert process.stdout is not None  # a pipe, as asked for
        port = process.stdout.readline().strip()
        if not port:
            raise BenchError("the loopback server did not start")
        yield f"http://127.0.0.1:{port}"
