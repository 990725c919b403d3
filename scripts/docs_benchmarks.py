"""The table of what `scripts/bench` compares: its rows, and the figures of this machine if there are any.

Figures are those that `scripts/bench --json bench-results/bench.json` wrote; they are never in the
repository, since they hold for one machine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .benchmarks.figures import Row
from .benchmarks.rows import ROWS

RESULTS = Path(__file__).resolve().parents[1] / "bench-results" / "bench.json"
UNMEASURED = "—"


def table(results: dict[str, Any] | None) -> str:
    """Return the table in Markdown; *results* is what `--json` wrote, None: nobody measured."""
    measured = {row["name"]: row for row in (results or {}).get("rows", ())}
    lines = ["| row | what is compared | goal | measured |", "| --- | --- | --- | ---: |"]
    for row in ROWS:
        lines.append(f"| `{row.name}` | {row.what} | {row.bound} | {_figure(row, measured)} |")
    return "\n".join([*lines, "", _where(results), ""])


def _figure(row: Row, measured: dict[str, Any]) -> str:
    """Return what was measured for *row*; of a quick run nothing, since it measures nothing."""
    found = measured.get(row.name, {}).get("measured")
    return UNMEASURED if found is None else f"{found:.2f}"


def _where(results: dict[str, Any] | None) -> str:
    if results is None:
        return "Nothing was measured where these pages were built."
    machine = results["machine"]
    return (
        f"Measured by `scripts/bench` on {machine['platform']}, {machine['cpus']} CPUs, "
        f"Python {machine['python']}."
    )


def read_results(path: Path = RESULTS) -> dict[str, Any] | None:
    """Return what was measured on this machine; None: nothing, or only a quick run that has no figures."""
    if not path.is_file():
        return None
    results: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return None if results.get("quick") else results


def write_table(folder: Path) -> None:
    """Write the table into *folder*, as `benchmarks.md`."""
    folder.mkdir(exist_ok=True)
    (folder / "benchmarks.md").write_text(table(read_results()), "utf-8")
