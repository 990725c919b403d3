"""What is measured and compared: cells, figures of them, and rows of the table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from .loads import Load


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One contender on one load."""

    contender: str
    load: Load
    rounds: int = 7
    """Processes started, interleaved with everything else that is measured."""
    passes: int = 5
    """Measured readings in each process."""

    def quick(self) -> Cell:
        """Return the same cell small enough to show only that it runs."""
        load = self.load
        small = replace(
            load,
            events=min(load.events, 64),
            piece_bytes=min(load.piece_bytes, 1 << 16),
            streams=min(load.streams, 4),
            period_ms=min(load.period_ms, 20),
        )
        return replace(self, load=small, rounds=1, passes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """CPU of one cell over CPU of another, or something else of them."""

    top: Cell
    bottom: Cell
    per_event: bool = True
    """Compare CPU per event; False: of the whole load, where the size of the load is the question."""
    of: str | None = None
    """Compare what both processes report under this name; None: CPU."""

    def cells(self) -> list[Cell]:
        """Return the cells that it needs."""
        return [self.top, self.bottom]

    def quick(self) -> Ratio:
        """Return the ratio of the small cells."""
        return replace(self, top=self.top.quick(), bottom=self.bottom.quick())


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """Seconds on the clock for one cell, where an absolute goal is set."""

    cell: Cell

    def cells(self) -> list[Cell]:
        """Return the cells that it needs."""
        return [self.cell]

    def quick(self) -> Seconds:
        """Return the seconds of the small cell."""
        return replace(self, cell=self.cell.quick())


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A figure that the process of one cell reports itself, where an absolute goal is set."""

    cell: Cell
    name: str

    def cells(self) -> list[Cell]:
        """Return the cells that it needs."""
        return [self.cell]

    def quick(self) -> Told:
        """Return the figure of the small cell."""
        return replace(self, cell=self.cell.quick())


Figure: TypeAlias = Ratio | Seconds | Told


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table."""

    name: str
    """For `--only`."""
    what: str
    ratio: Figure
    goal: float | None
    """None: it is only shown."""
    at_least: bool = False
    """The goal is a lower bound; else an upper one."""
    bracket: Figure | None = None
    """A second regime, printed in brackets, without a goal."""

    @property
    def bound(self) -> str:
        """The goal in signs."""
        return "none" if self.goal is None else f"{'≥' if self.at_least else '≤'} {self.goal:g}"

    def met(self, measured: float) -> bool:
        """Tell whether *measured* reaches the goal."""
        if self.goal is None:
            return True
        return measured >= self.goal if self.at_least else measured <= self.goal

    def cells(self) -> list[Cell]:
        """Return every cell that the row needs."""
        figures: list[Figure] = [self.ratio] if self.bracket is None else [self.ratio, self.bracket]
        return [cell for figure in figures for cell in figure.cells()]

    def quick(self) -> Row:
        """Return the row over small cells."""
        bracket = None if self.bracket is None else self.bracket.quick()
        return replace(self, ratio=self.ratio.quick(), bracket=bracket)
