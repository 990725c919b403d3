"""What fuzzing gave: the verdict on a target, the table of them, and the tally over all runs."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

LED, BULK = "led", "bulk"
HEAD = ("target", "led by coverage", "a second", "in bulk", "a second", "together", "covered", "findings")
MOMENT = 0.05
"""Seconds between two looks at the processes that fuzz."""
PROGRESS = 15
"""Seconds between two lines that say how far it came."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What fuzzing one target gave."""

    name: str
    mode: str
    """`led` or `bulk`."""
    executions: int
    seconds: float
    covered: int = 0
    """Edges and comparisons that libFuzzer counts; 0: nobody counted."""
    finding: str = ""
    """The end of what was said of a broken law; empty: none was broken."""


def table(verdicts: Iterable[Verdict], sums: dict[str, tuple[str, ...]]) -> str:
    """Return the executions of each target as a Markdown table; *sums* name the rows that add up others."""
    targets: dict[str, list[Verdict]] = {}
    for one in verdicts:
        targets.setdefault(one.name, []).append(one)
    rows = [HEAD, *(_row(name, found) for name, found in targets.items())]
    for name, parts in {**sums, "all": tuple(targets)}.items():
        if len(found := [part for part in parts if part in targets]) > 1:
            rows.append(_row(name, [one for part in found for one in targets[part]], total=True))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(lines)


def _row(name: str, verdicts: Sequence[Verdict], *, total: bool = False) -> tuple[str, ...]:
    cells: list[str] = []
    for mode in (LED, BULK):
        executions = sum(one.executions for one in verdicts if one.mode == mode)
        seconds = sum(one.seconds for one in verdicts if one.mode == mode)
        cells += (f"{executions:,}", f"{executions / seconds:,.0f}") if seconds else ("-", "-")
    covered = "" if total else str(max(one.covered for one in verdicts) or "-")
    findings = sum(bool(one.finding) for one in verdicts)
    together = sum(one.executions for one in verdicts)
    return (name, *cells, f"{together:,}", covered, str(findings or "-"))


def keep_finding(folder: Path, name: str, data: bytes) -> None:
    """Write down *data*, an input that broke a law of the target *name*."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}-{hashlib.sha256(data).hexdigest()[:16]}").write_bytes(data)


class Watch:
    """Shows the user how far it came, and hears that they have enough: then the table so far is due.

    A first Ctrl-C (or SIGTERM) is asked for by `pause`; a second one is a KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._due = time.monotonic() + PROGRESS
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)

    def pause(self, name: str, executions: Callable[[], int]) -> bool:
        """Wait a moment while the target *name* is fuzzed; tell whether to go on."""
        time.sleep(MOMENT)
        if time.monotonic() >= self._due:
            self._due += PROGRESS
            print(f"{time.strftime('%H:%M:%S')} {name}: {executions():,}", file=sys.stderr, flush=True)
        return not self.stopped

    def _stop(self, number: int, frame: object) -> None:
        self.stopped = True
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)


class Tally:
    """What every run gave, a line for each verdict, so that long fuzzing may be done in pieces."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, verdict: Verdict, code: str) -> None:
        """Write down *verdict* on the state *code* of the code."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"code": code, **asdict(verdict)}) + "\n")

    def read(self) -> tuple[list[Verdict], set[str]]:
        """Return all verdicts, and the states of the code they are about."""
        try:
            lines = self._path.read_text("utf-8").splitlines()
        except FileNotFoundError:
            return [], set()
        found = [json.loads(line) for line in lines]
        codes = {one.pop("code") for one in found}
        return [Verdict(**one) for one in found], codes


def state_of_the_code(folders: Iterable[Path]) -> str:
    """Return a digest of the Python files below *folders*: what was fuzzed, and by which laws."""
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        digest.update(f"{path}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
