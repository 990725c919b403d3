"""The table of `scripts/conformance`: rows of the recordings' manifest that are passed, by protocol.

A row is one recorded answer and what it must become. It is pushed through framing, provider and assembler
in one piece, in pieces of random size, and (below 4 kB) cut at every byte; HTTP answers are classified.
Nothing is sent or received.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.providers.dialects import (
    DIALECTS,
    SMALL,
    Dialect,
    check_every_cut,
    check_http,
    check_random_cuts,
    check_whole,
)
from tests.providers.manifest import FIXTURES, Row, recordings_folder, rows

WAYS: dict[str, tuple[Callable[[Row], bool], Callable[[Dialect, Row], None]]] = {
    "whole": (lambda row: not is_http(row), check_whole),
    "random cuts": (lambda row: not is_http(row), check_random_cuts),
    "byte by byte": (lambda row: not is_http(row) and len(row.data) < SMALL, check_every_cut),
    "http": (lambda row: is_http(row), check_http),
}
"""How a row is pushed through: for which rows, and the check, which raises AssertionError."""


@dataclass
class Tally:
    """What one protocol's rows gave in one way."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        total = self.passed + len(self.failed)
        return f"{self.passed}/{total}" if total else "-"


def is_http(row: Row) -> bool:
    """Tell whether *row* is an HTTP answer, not a stream."""
    return row.file.endswith(".http.json")


def tally(dialect: Dialect, way: str) -> Tally:
    """Push the rows of *dialect* through in one *way*."""
    wanted, check = WAYS[way]
    result = Tally()
    for row in filter(wanted, [*rows(dialect.name), *rows(dialect.name, http=True)]):
        try:
            check(dialect, row)
        except Exception as exc:  # noqa: BLE001  # whatever a row does to a dialect, the others are still shown
            reason = (str(exc) or type(exc).__name__).splitlines()[0]
            result.failed.append(f"{dialect.name}, {way}: {row.file}: {reason}")
        else:
            result.passed += 1
    return result


def table(tallies: dict[str, dict[str, Tally]]) -> str:
    """Return the tallies as a Markdown table."""
    lines = [["protocol", *WAYS], ["---", *("---:" for _ in WAYS)]]
    lines += [[name, *map(str, by_way.values())] for name, by_way in tallies.items()]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |"
        for line in lines
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, and return the exit code: 0 when every row passed, 1 when not, 2 for bad options."""
    parser = argparse.ArgumentParser(
        prog="scripts/conformance", description="Rows of the recordings' manifest passed, by protocol."
    )
    parser.add_argument(
        "protocols", nargs="*", metavar="PROTOCOL", help=f"of {', '.join(DIALECTS)}; default: all"
    )
    chosen = parser.parse_args(argv).protocols or list(DIALECTS)
    if unknown := [name for name in chosen if name not in DIALECTS]:
        parser.error(f"unknown protocol {unknown[0]!r}; known: {', '.join(DIALECTS)}")
    if recordings_folder() is None:
        where = FIXTURES.relative_to(FIXTURES.parents[1])
        print(
            f"There are no recordings here (AIIO_RECORDINGS names their folder): only the rows of {where}.\n"
        )
    tallies = {name: {way: tally(DIALECTS[name], way) for way in WAYS} for name in chosen}
    print(table(tallies))
    failed = [line for by_way in tallies.values() for one in by_way.values() for line in one.failed]
    print()
    if failed:
        print(f"{len(failed)} failed:", *failed, sep="\n  ")
        return 1
    print("all of them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
