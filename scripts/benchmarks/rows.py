"""What is compared with what, and the goals that PERFORMANCE sets. To add a row is to add a value here."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
        )
        return replace(self, load=small, rounds=1, passes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """CPU of one cell over CPU of another."""

    top: Cell
    bottom: Cell
    per_event: bool = True
    """Compare CPU per event; False: of the whole load, where the size of the load is the question."""

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
class Row:
    """One line of the table."""

    name: str
    """For `--only`."""
    what: str
    ratio: Ratio | Seconds
    goal: float
    at_least: bool = False
    """The goal is a lower bound; else an upper one."""
    issue: str
    """Which piece of work has to show it."""
    bracket: Ratio | None = None
    """A second regime, printed in brackets, without a goal."""

    def met(self, measured: float) -> bool:
        """Tell whether *measured* reaches the goal."""
        return measured >= self.goal if self.at_least else measured <= self.goal

    def cells(self) -> list[Cell]:
        """Return every cell that the row needs."""
        figures = [self.ratio] if self.bracket is None else [self.ratio, self.bracket]
        return [cell for figure in figures for cell in figure.cells()]

    def quick(self) -> Row:
        """Return the row over small cells."""
        bracket = None if self.bracket is None else self.bracket.quick()
        return replace(self, ratio=self.ratio.quick(), bracket=bracket)


BURST = Load()
BURST_SINGLE = Load(batch=1)
PACED = Load(events=300, batch=1, streams=100, period_ms=20)
HUGE_FRAME = Load(events=1, piece_bytes=8 << 20, batch=1)
ARGUMENTS = Load(content="arguments", events=20_000)
ANTHROPIC = Load(content="anthropic")
NDJSON = Load(content="ndjson")
WEBSOCKET = Load(content="ws")
FRAGMENTS = Cell(contender="builder", load=Load(content="fragments", events=1_000), rounds=5, passes=1)


def _against(load: Load, other: str, *, passes: int = 5) -> Ratio:
    return Ratio(
        top=Cell(contender="aiio", load=load, passes=passes),
        bottom=Cell(contender=other, load=load, passes=passes),
    )


def _sdk(contender: str, load: Load) -> Ratio:
    """Return how many times more *contender* needs than aiio does."""
    return Ratio(
        top=Cell(contender=contender, load=load, rounds=3, passes=2), bottom=Cell(contender="aiio", load=load)
    )


def _growth(small: Load, large: Load) -> Ratio:
    return Ratio(
        top=Cell(contender="aiio", load=large, rounds=5),
        bottom=Cell(contender="aiio", load=small, rounds=5),
        per_event=False,
    )


DELTAS = Load(content="deltas", events=200_000)
MESSAGES = Load(content="messages", events=20_000)
SAVES = Load(content="saves", events=8_000)
BLOCKS = Load(content="blocks", events=10_000, piece_bytes=450)
"""A context of 10,000 blocks of a hundred words of prose each, all different."""
BLOCKS_AGAIN = replace(BLOCKS, content="blocks-again")
SESSIONS = Load(content="sessions", events=10_000)


def _work(load: Load) -> Cell:
    """Return a cell of work without a server: one pass a process; a second would be cheaper."""
    return Cell(contender="context", load=load, rounds=5, passes=1)


def _work_growth(load: Load) -> Ratio:
    return Ratio(top=_work(replace(load, events=2 * load.events)), bottom=_work(load), per_event=False)


ROWS = (
    Row(
        name="burst",
        what="chat SSE burst, CPU per event, aiio / bare trio (one frame a write)",
        ratio=_against(BURST, "bare"),
        bracket=_against(BURST_SINGLE, "bare"),
        goal=1.6,
        issue="main job",
    ),
    Row(
        name="anthropic",
        what="Anthropic SSE burst, CPU per event, official SDK on trio / aiio",
        ratio=_sdk("anthropic", ANTHROPIC),
        goal=10,
        at_least=True,
        issue="dialects",
    ),
    Row(
        name="ndjson",
        what="NDJSON burst, CPU per event, official client on trio / aiio",
        ratio=_sdk("ollama", NDJSON),
        goal=10,
        at_least=True,
        issue="dialects",
    ),
    Row(
        name="websocket",
        what="WebSocket burst, CPU per event, aiio / trio-websocket raw",
        ratio=_against(WEBSOCKET, "trio-websocket", passes=2),
        goal=1.15,
        issue="websocket",
    ),
    Row(
        name="paced",
        what="chat SSE paced, 100 streams at 50 chunks/s, CPU per event, aiio / bare trio",
        ratio=_against(PACED, "bare", passes=1),
        goal=1.5,
        issue="main job",
    ),
    Row(
        name="sdk",
        what="chat SSE burst, CPU per event, official SDK on trio / aiio",
        ratio=Ratio(
            top=Cell(contender="openai", load=BURST, rounds=3, passes=1),
            bottom=Cell(contender="aiio", load=BURST),
        ),
        goal=25,
        at_least=True,
        issue="main job",
    ),
    Row(
        name="growth-chunks",
        what="growth: CPU for 40,000 chunks / 20,000",
        ratio=_growth(BURST, replace(BURST, events=2 * BURST.events)),
        goal=2.3,
        issue="context",
    ),
    Row(
        name="growth-frame",
        what="growth: CPU for one frame of 16 MiB / 8 MiB",
        ratio=_growth(HUGE_FRAME, replace(HUGE_FRAME, piece_bytes=2 * HUGE_FRAME.piece_bytes)),
        goal=2.3,
        issue="context",
    ),
    Row(
        name="growth-arguments",
        what="growth: CPU for one tool call of 40,000 pieces / 20,000",
        ratio=_growth(ARGUMENTS, replace(ARGUMENTS, events=2 * ARGUMENTS.events)),
        goal=2.3,
        issue="context",
    ),
    Row(
        name="context-deltas",
        what="growth: CPU to assemble 400,000 deltas / 200,000",
        ratio=_work_growth(DELTAS),
        goal=2.3,
        issue="context",
    ),
    Row(
        name="context-messages",
        what="growth: CPU to append 40,000 messages to a context / 20,000",
        ratio=_work_growth(MESSAGES),
        goal=2.3,
        issue="context",
    ),
    Row(
        name="context-saves",
        what="growth: CPU to append and flush (no fsync) 16,000 messages / 8,000",
        ratio=_work_growth(SAVES),
        goal=2.3,
        issue="context",
    ),
    Row(
        name="context-estimate",
        what="growth: CPU to estimate a context of 20,000 blocks of 100 words / 10,000",
        ratio=_work_growth(BLOCKS),
        goal=2.3,
        issue="context",
    ),
    Row(
        name="context-again",
        what="CPU to estimate a context of 10,000 blocks of 100 words, at first / again, unchanged",
        ratio=Ratio(top=_work(BLOCKS), bottom=_work(BLOCKS_AGAIN)),
        goal=20,
        at_least=True,
        issue="context",
    ),
    Row(
        name="context-list",
        what="seconds to list the newest 50 of 10,000 sessions (1 GB)",
        ratio=Seconds(cell=_work(SESSIONS)),
        goal=1,
        issue="context",
    ),
    Row(
        name="builder-growth",
        what="growth: CPU for assembling 2,000 fragments / 1,000",
        ratio=Ratio(
            top=replace(FRAGMENTS, load=Load(content="fragments", events=2_000)),
            bottom=FRAGMENTS,
            per_event=False,
        ),
        goal=2.3,
        issue="builder",
    ),
)
