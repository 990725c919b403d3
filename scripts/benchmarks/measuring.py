"""The interleaved runs: every cell once a round, each in a fresh process, each checked for the same text."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import trustme

from .contenders import CONTENDERS, ROOT, BenchError, interpreter
from .figures import Cell, Figure, Seconds, Told
from .loads import OVER_TLS, Load, expected_digest

RUN_TIMEOUT = 300.0
"""Seconds for one reading process."""

OPEN_FILES = 4096
"""The limit that many streams at the same time need on either side."""

OfAll: TypeAlias = Callable[[Sequence[float]], float]
"""Makes one figure of those of all processes."""

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
    figures: dict[str, list[float]] = field(default_factory=dict)
    """What the processes reported of themselves, by name."""
    fault: str | None = None
    """Why it could not be measured."""
    skipped: str | None = None
    """Why it was not to be measured."""

    def measure(self, server: Loopback) -> None:
        """Read once more, in a new process."""
        try:
            report = read(server, self.cell)
        except BenchError as exc:
            self.fault = str(exc)
        else:
            self.cpu_s.append(statistics.median(report["cpu_s"]))
            self.wall_s.append(statistics.median(report["wall_s"]))
            for name, figure in report["figures"].items():
                self.figures.setdefault(name, []).append(figure)

    def told(self, name: str, of_all: OfAll = statistics.median) -> float:
        """Return the figure of that *name* that the processes reported."""
        return of_all(self.figures[name])

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

    def value(self, figure: Figure, of_all: OfAll = statistics.median) -> float | None:
        """Return *figure*, of medians, or by another choice; None: one of its cells was not measured."""
        if any(self[cell].fault or self[cell].skipped for cell in figure.cells()):
            return None
        if isinstance(figure, Seconds):
            return of_all(self[figure.cell].wall_s)
        if isinstance(figure, Told):
            return self[figure.cell].told(figure.name, of_all)
        top, bottom = self[figure.top], self[figure.bottom]
        if figure.of is not None:
            return top.told(figure.of, of_all) / bottom.told(figure.of, of_all)
        if figure.per_event:
            return of_all(top.per_event) / of_all(bottom.per_event)
        return of_all(top.cpu_s) / of_all(bottom.cpu_s)

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


def measure(cells: Iterable[Cell], progress: Callable[[str], None], *, quick: bool = False) -> Results:
    """Measure *cells*, interleaved. What fails is noted in the results and not tried again.

    Args:
      quick: skip contenders that take long to set up, and measure several at the same time, which tells
        whether they run but not what they cost.

    Raises:
      BenchError: there is no server to read from.
    """
    results = Results(cells)
    for one in results.by_cell.values():
        one.skipped = CONTENDERS[one.cell.contender].reason_to_skip(quick=quick)
    measured = [one for one in results.by_cell.values() if one.skipped is None]
    with loopback_server() as server, ThreadPoolExecutor(os.cpu_count() if quick else 1) as pool:

        def once(one: Measured) -> None:
            progress(f"round {len(one.cpu_s) + 1}: {one.cell.contender} on {one.cell.load.path}")
            one.measure(server)

        for round_number in range(max((one.cell.rounds for one in measured), default=0)):
            due = [one for one in measured if round_number < one.cell.rounds and one.fault is None]
            list(pool.map(once, due))  # a list, so that what it raises comes out
    return results


def read(server: Loopback, cell: Cell) -> dict[str, Any]:
    """Let the contender of *cell* read its load in a new process; return its report.

    `cpu_s` and `wall_s` are the seconds of each pass, of CPU and on the clock; `figures`, if there are any,
    what else it has measured, by name.

    Raises:
      BenchError: it could not be run, or received another text than was sent.
    """
    contender = CONTENDERS[cell.contender]
    module = f"scripts.benchmarks.{contender.module}"
    command = [str(interpreter(contender)), "-m", module, server.url, cell.load.path, str(cell.passes)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env=_environment(server, cell.load),
            timeout=RUN_TIMEOUT,
        )
    except subprocess.TimeoutExpired as exc:
        raise BenchError(f"no result after {RUN_TIMEOUT:g} s") from exc
    if done.returncode:
        raise BenchError(f"exit code {done.returncode}:\n{done.stderr.strip()[-STDERR_KEPT:]}")
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if report["sha256"] != expected_digest(cell.load):
        raise BenchError("the text received is not the text sent")
    return report


def _environment(server: Loopback, load: Load) -> dict[str, str]:
    """Return the readers' environment: as ours, but without proxies, and with trust in the server."""
    proxies = {"http_proxy", "https_proxy", "all_proxy"}
    environment = {name: value for name, value in os.environ.items() if name.lower() not in proxies}
    return environment | ({"SSL_CERT_FILE": server.ca_file} if load.content in OVER_TLS else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Loopback:
    """The running server."""

    url: str
    """Where it answers over HTTP; over HTTPS it does so on the same port."""
    ca_file: str
    """PEM file of the authority that vouches for it."""


@contextmanager
def loopback_server() -> Iterator[Loopback]:
    """Run the server in a process of its own, with a new certificate. BenchError: it does not start."""
    allow_open_files()
    with tempfile.TemporaryDirectory() as folder:
        certificate, ca_file = f"{folder}/server.pem", f"{folder}/ca.pem"
        authority = trustme.CA()
        authority.cert_pem.write_to_path(ca_file)
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
        process = subprocess.Popen(
            [sys.executable, "-m", "scripts.benchmarks.server", certificate],
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
            yield Loopback(url=f"http://127.0.0.1:{port}", ca_file=ca_file)


def allow_open_files() -> None:
    """Let this process, and those that it starts, have `OPEN_FILES` files open, if the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY not in (soft, hard):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(OPEN_FILES, hard)), hard))
