"""How a run is going: the counts, and how they are shown while it runs."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field

import trio
from rich.console import Console
from rich.live import Live
from rich.table import Table

from aiio.context.events import Done, ErrorKind, Terminal

from .output import say

REFRESH = 0.25
"""Seconds between two pictures on a terminal."""

PLAIN_EVERY = 10.0
"""Seconds between two lines where stderr is no terminal."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """The counts of one run."""

    total: int
    """Prompts to run, those of earlier runs left out."""
    began: float = field(default_factory=trio.current_time)
    running: int = 0
    done: int = 0
    failed: Counter[ErrorKind] = field(default_factory=Counter)
    output_tokens: int = 0
    """As reported or estimated for the requests that ended."""
    cost: float | None = None
    """USD of those whose price is known; None: of none."""

    @property
    def ended(self) -> int:
        """How many have their terminal event."""
        return self.done + self.failed.total()

    @property
    def queued(self) -> int:
        """How many have not begun."""
        return self.total - self.ended - self.running

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return trio.current_time() - self.began

    @property
    def tokens_per_second(self) -> float:
        """Output tokens over the whole run."""
        return self.output_tokens / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def remaining(self) -> float | None:
        """Seconds until all have ended, at the pace so far; None: nobody can tell yet."""
        return self.elapsed / self.ended * (self.total - self.ended) if self.ended else None

    def began_one(self) -> None:
        """Count a prompt that begins."""
        self.running += 1

    def ended_one(self, terminal: Terminal) -> None:
        """Count a prompt that has ended."""
        self.running -= 1
        tokens = (terminal.usage or {}).get("output_tokens")
        self.output_tokens += tokens if isinstance(tokens, int) else 0
        if isinstance(terminal, Done):
            self.done += 1
        else:
            self.failed[terminal.kind] += 1

    def failures(self) -> str:
        """Return `3 failed (2 network, 1 provider)`."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.failed.items()))
        return f"{self.failed.total()} failed" + (f" ({kinds})" if kinds else "")


class Display:
    """Shows a tally on stderr: a live table on a terminal, else a line now and then. For one use."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._scope = trio.CancelScope()
        self._gone = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Show until `stop`. Started in a nursery."""
        try:
            with self._scope:
                task_status.started()
                await (self._run_table() if sys.stderr.isatty() else self._run_lines())
        finally:
            self._gone.set()

    async def stop(self) -> None:
        """Take the picture away, and wait until it is gone."""
        self._scope.cancel()
        await self._gone.wait()

    async def _run_lines(self) -> None:
        while True:
            await trio.sleep(PLAIN_EVERY)
            say(plain_line(self._tally))

    async def _run_table(self) -> None:
        # Rich would refresh from a thread of its own; from here it never meets a half-counted tally.
        console = Console(stderr=True)
        with Live(table(self._tally), console=console, auto_refresh=False, transient=True) as live:
            while True:
                live.update(table(self._tally), refresh=True)
                await trio.sleep(REFRESH)


def table(tally: Tally) -> Table:
    """Return the picture of *tally*."""
    picture = Table(box=None, pad_edge=False, header_style="bold")
    cells = {
        "in flight": str(tally.running),
        "queued": str(tally.queued),
        "done": str(tally.done),
        **{f"failed: {kind}": str(count) for kind, count in sorted(tally.failed.items())},
        "tokens/s": f"{tally.tokens_per_second:.1f}",
        **({} if tally.cost is None else {"cost": f"${tally.cost:.4g}"}),
        "elapsed": clock(tally.elapsed),
        "ETA": clock(tally.remaining),
    }
    for name in cells:
        picture.add_column(name, justify="right", style="red" if name.startswith("failed") else None)
    picture.add_row(*cells.values())
    return picture


def plain_line(tally: Tally) -> str:
    """Return *tally* as one line."""
    return (
        f"{tally.running} in flight, {tally.queued} queued, {tally.done} done, {tally.failures()}, "
        f"{tally.tokens_per_second:.1f} tokens/s, ETA {clock(tally.remaining)}"
    )


def clock(seconds: float | None) -> str:
    """Return seconds as `1:02:03`; None as a dash."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
