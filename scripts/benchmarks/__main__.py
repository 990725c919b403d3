"""The command line of `scripts/bench`.

Exit codes: 0; 1 when something could not be run or, without `--quick`, a goal was missed; 2 for bad options.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from .contenders import BenchError
from .figures import Row
from .measuring import measure
from .report import as_json, cost_table, ratio_table, verdict
from .rows import ROWS


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options: quick, json, only."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description="What aiio costs, beside a bare trio socket and other clients."
    )
    parser.add_argument(
        "--quick", action="store_true", help="small counts; shows that everything runs, no goals"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured to FILE")
    parser.add_argument(
        "--only",
        action="append",
        metavar="ROW",
        help=f"rows whose name begins with ROW; may be repeated; rows: {', '.join(row.name for row in ROWS)}",
    )
    options = parser.parse_args(argv)
    if options.json is not None and not options.json.parent.is_dir():
        parser.error(
            f"--json {options.json}: there is no folder {options.json.parent}"
        )  # now, not after minutes
    return options


def select(only: Sequence[str] | None) -> list[Row]:
    """Return the rows asked for. BenchError: a name fits none."""
    for name in only or ():
        if not any(row.name.startswith(name) for row in ROWS):
            raise BenchError(f"no row begins with {name!r}; rows: {', '.join(row.name for row in ROWS)}")
    return [row for row in ROWS if not only or row.name.startswith(tuple(only))]


def say(text: str) -> None:
    """Tell how far it is."""
    print(text, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    options = parse_args(argv)
    try:
        rows = select(options.only)
        if options.quick:
            rows = [row.quick() for row in rows]
        results = measure([cell for row in rows for cell in row.cells()], say, quick=options.quick)
    except BenchError as exc:
        say(str(exc))
        return 1
    print(ratio_table(rows, results, quick=options.quick))
    print()
    print(cost_table(results))
    if options.json is not None:
        text = json.dumps(as_json(rows, results, quick=options.quick), indent=2)
        options.json.write_text(text + "\n", encoding="utf-8")
    for fault in results.faults:
        say(f"could not be measured: {fault}")
    missed = not options.quick and any(verdict(row, results) is False for row in rows)
    return 1 if results.faults or missed else 0


if __name__ == "__main__":
    sys.exit(main())
