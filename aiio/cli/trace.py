"""`aiio trace`: what a log tells about its writes, on the terminal, as a page, as Chrome trace events."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from aiio.observe.chrome import chrome_trace
from aiio.observe.page import timeline_page
from aiio.observe.timeline import Timeline, narrowed, read_timeline, stuck_and_slowest, unread_sentence

from .exits import DONE, CliFault
from .output import say
from .trace_text import timeline_lines

ON_A_TERMINAL = 50
"""Writes shown there when nobody says how many: the worst must not scroll away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """What `aiio trace` was asked to do."""

    log: str
    outcome: str | None = None
    limit: str | None = None
    agent: str | None = None
    top: int | None = None
    """Writes to show; 0: all; None: all, or `ON_A_TERMINAL`."""
    html: str | None = None
    chrome: str | None = None


def trace(options: TraceOptions) -> int:
    """Show the writes of a log, or write them to files, and return the exit code.

    CliFault: the log can't be read or tells of no write, or a file can't be written.
    """
    whole = _read(options.log)
    if whole.unread:
        say(unread_sentence(whole.unread))
    timeline = narrowed(whole, outcome=options.outcome, limit=options.limit, agent=options.agent)
    counts = f"{len(timeline.writes)} of {len(whole.writes)} writes"
    if options.html is not None:
        name = Path(options.log).name
        _write(options.html, options.log, lambda: timeline_page(timeline, name))
        say(f"{counts} are in {options.html}; open it in a browser")
    if options.chrome is not None:
        _write(options.chrome, options.log, lambda: chrome_trace(timeline))
        say(f"{counts} are in {options.chrome}; open it in ui.perfetto.dev")
    if options.html is None and options.chrome is None:
        _print(timeline, len(whole.writes), options.top)
    return DONE


def _read(log: str) -> Timeline:
    try:
        return read_timeline(log)
    except OSError as exc:
        raise CliFault(f"{log} can't be read: {exc.strerror or exc}") from exc
    except ValueError as exc:
        raise CliFault(f"{log} is no trace: {exc}; `--log FILE` writes one") from exc


def _write(path: str, log: str, render: Callable[[], bytes]) -> None:
    """Write a file that, like the log, only its owner reads. The log itself is never overwritten."""
    try:
        if os.path.exists(path) and os.path.samefile(path, log):
            raise CliFault(f"{path} is the log itself; name another file")
        data = render()
        with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(data)
    except OSError as exc:
        raise CliFault(f"{path} can't be written: {exc.strerror or exc}") from exc


def _print(timeline: Timeline, count: int, top: int | None) -> None:
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    if top is None:
        top = ON_A_TERMINAL if console.is_terminal else 0
    ordered = stuck_and_slowest(timeline.writes)
    shown = ordered[:top] if top else ordered
    for line in timeline_lines(timeline, shown, count, width=console.width if console.is_terminal else None):
        console.print(line)
