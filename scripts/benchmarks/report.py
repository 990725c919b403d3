"""The results for people, a Markdown table, and for programs, a JSON file."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from .figures import Row
from .loads import HELD, WIRE, Load
from .measuring import Results

WIRES = {
    "anthropic": "Anthropic text",
    "ndjson": "NDJSON text",
    "ws": "WebSocket text",
    "tls": "chat text over TLS",
    "kept": "chat text over TLS on a kept connection",
    "timed": "chat text beside a timer",
}
"""How loads are described, by their content; the others are chat."""


def verdict(row: Row, results: Results) -> bool | None:
    """Tell whether *row* reaches its goal, if it has one; None: it was not measured."""
    value = results.value(row.ratio)
    return None if value is None else row.met(value)


def ratio_table(rows: Sequence[Row], results: Results, *, quick: bool) -> str:
    """Return the table of ratios, of medians and of the lowest; a quick run has no thresholds.

    What disturbs a process only makes it slower, so where the medians of a noisy machine say little, the
    lowest say more.
    """
    lines = []
    for row in rows:
        met = verdict(row, results)
        if met is None:
            ok = _why_not(row, results)
        elif quick:
            ok = "it runs"
        elif row.goal is None:
            ok = "-"
        else:
            ok = "yes" if met else "NO"
        lowest = _number(results.value(row.ratio, min))
        lines.append((row.what, _measured(row, results), row.bound, ok, lowest))
    return _table(("what", "measured", "goal", "ok", "by the lowest"), lines)


def _why_not(row: Row, results: Results) -> str:
    reasons = {results[cell].skipped for cell in row.cells()} - {None}
    if reasons and not any(results[cell].fault for cell in row.cells()):
        return f"skipped: {', '.join(sorted(filter(None, reasons)))}"
    return "could not be measured"


def _measured(row: Row, results: Results) -> str:
    text = _number(results.value(row.ratio))
    return text if row.bracket is None else f"{text} ({_number(results.value(row.bracket))})"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def cost_table(results: Results) -> str:
    """Return the table of what each contender cost."""
    lines = []
    for measured in results.by_cell.values():
        if measured.cpu_s and measured.fault is None:
            costs = measured.per_event
            spread = f"{min(costs):.2f} to {max(costs):.2f}"
            median = f"{statistics.median(costs):.2f}"
            lines.append(
                (_describe(measured.cell.load), measured.cell.contender, median, spread, f"{len(costs)}")
            )
    return _table(("load", "contender", "CPU µs per event", "lowest and highest", "processes"), sorted(lines))


def _describe(load: Load) -> str:
    if load.content not in WIRE:
        return f"{load.content}: {load.events:,}"
    size = f" of {load.piece_bytes / (1 << 20):g} MiB" if load.piece_bytes else ""
    streams = f"{load.streams} streams x " if load.streams > 1 else ""
    if load.content in HELD:
        return f"chat text, {load.streams} streams {load.content} after the first piece"
    pace = f"one a {load.period_ms} ms" if load.period_ms else f"{load.batch} a write"
    frames = "1 frame" if load.events == 1 else f"{load.events:,} frames"
    wire = WIRES.get(load.content, f"chat {load.content}")
    return f"{wire}, {streams}{frames}{size}, {pace}"


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *lines])


def as_json(rows: Sequence[Row], results: Results, *, quick: bool) -> dict[str, Any]:
    """Return everything measured, as JSON data."""
    return {
        "quick": quick,
        "machine": {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "cpus": os.cpu_count(),
        },
        "rows": [
            {
                "name": row.name,
                "what": row.what,
                "measured": results.value(row.ratio),
                "lowest": results.value(row.ratio, min),
                "bracket": None if row.bracket is None else results.value(row.bracket),
                "goal": row.goal,
                "bound": "at least" if row.at_least else "at most",
                "ok": verdict(row, results),
            }
            for row in rows
        ],
        "cells": [
            {
                "contender": measured.cell.contender,
                "load": measured.cell.load.path,
                "events": measured.cell.load.total_events,
                "cpu_s": measured.cpu_s,
                "figures": measured.figures,
                "wall_s": measured.wall_s,
                "fault": measured.fault,
                "skipped": measured.skipped,
            }
            for measured in results.by_cell.values()
        ],
    }
