"""The timeline as lines of text: a head, then a line for each write, a bar with its phases at its end.

write  agent  model   outcome         began  queued  connect   first     gap    took
   12  birds  smol..  network: stuck  1.2 s    0 ms    31 ms  0.2 s   5.0 s   6.1 s  .:=####----|
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from aiio.observe.timeline import DONE, Timeline, Write

from .output import visible

PLAIN_WIDTH = 140
"""Columns where there is no terminal to ask."""

NARROWEST_BAR = 10
WIDEST_NAME = 24

_MARKS = {"queued": ".", "preparing": ",", "connecting": ":", "waiting": "=", "streaming": "#", "gap": "-"}
_STYLES = {
    "queued": "dim",
    "preparing": "dim",
    "connecting": "yellow",
    "waiting": "cyan",
    "streaming": "blue",
    "gap": "dim blue",
}
_LEVELS = " ▁▂▃▄▅▆▇█"


class _Column:
    """A column of the table, its cells padded to one width."""

    def __init__(self, name: str, cells: Sequence[str], *, right: bool = True) -> None:
        self.width = max(cell_len(cell) for cell in (name, *cells))
        self.name, *self.cells = (self._padded(cell, right) for cell in (name, *cells))

    def _padded(self, text: str, right: bool) -> str:
        pad = " " * (self.width - cell_len(text))
        return pad + text if right else text + pad


def timeline_lines(
    timeline: Timeline, shown: Sequence[Write], count: int, *, width: int | None = None
) -> Iterator[Text]:
    """Yield the lines to print: a head, and one for each of the writes *shown*.

    Args:
      timeline: with the writes that were chosen.
      count: how many the log has.
      width: columns of the terminal; None: there is none.
    """
    chosen = timeline.writes
    yield Text(
        f"{_counted(len(chosen), count)}; {_outcomes(chosen)}; began {timeline.began:%Y-%m-%d %H:%M:%S} UTC"
    )
    if not shown:
        return
    room = width or PLAIN_WIDTH
    yield _activity(timeline, room)
    legend = Text("each bar begins where its write did: ")
    for name, mark in _MARKS.items():
        legend.append(mark, _STYLES[name])
        legend.append(f" {name}  ")
    legend.append("| limit fell  x failed  o cancelled")
    yield legend
    columns = _columns(shown)
    used = sum(column.width + 2 for column in columns)
    bar_width = max(NARROWEST_BAR, room - used)
    yield Text("  ".join(column.name for column in columns), "bold")
    scale = max(write.duration for write in shown) or 1.0
    for place, write in enumerate(shown):
        line = Text("  ".join(column.cells[place] for column in columns) + "  ")
        if write.outcome != DONE:
            line.stylize("red" if write.outcome != "cancelled" else "magenta")
        yield line + _bar(write, scale, bar_width)
    if len(shown) < len(chosen):
        yield Text(f"{len(chosen) - len(shown)} more; --top 0 shows all")


def duration(ms: float | None) -> str:
    """Return milliseconds for people; None as a dash."""
    if ms is None:
        return "-"
    if ms < 999.5:
        return f"{ms:.0f} ms"
    if ms < 99_950:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02} h" if hours else f"{minutes}:{seconds:02} min"


def _counted(chosen: int, count: int) -> str:
    writes = "1 write" if count == 1 else f"{count} writes"
    return writes if chosen == count else f"{chosen} of {writes}"


def _outcomes(writes: Sequence[Write]) -> str:
    """Return `3 done, 1 network (1 stuck)`."""
    found: dict[str, int] = {}
    for write in writes:
        how = _plain(write.outcome) if write.limit is None else f"{_plain(write.limit)} limit"
        found[how] = found.get(how, 0) + 1
    return ", ".join(f"{number} {how}" for how, number in sorted(found.items())) or "none fits"


def _activity(timeline: Timeline, room: int) -> Text:
    """Return a line that shows how many of the writes were there at once, over the whole time."""
    before, after = "in flight ", f" over {duration(timeline.end)}"
    width = max(NARROWEST_BAR, room - len(before) - len(after) - 12)
    step = timeline.end / width or 1.0
    change = [0] * (width + 1)
    for write in timeline.writes:
        first = min(width - 1, int(write.begin / step))
        change[first] += 1
        change[min(width, max(first + 1, int(write.end / step)))] -= 1
    heights, now = [], 0
    for by in change[:-1]:
        now += by
        heights.append(now)
    most = max(heights)
    steps = len(_LEVELS) - 1
    picture = "".join(_LEVELS[-(-height * steps // most)] for height in heights)
    return Text.assemble(before, (picture, "blue"), f"{after}, {most} at most")


def _columns(writes: Sequence[Write]) -> list[_Column]:
    def facts(name: str, key: str) -> _Column:
        return _Column(name, [_duration_of(write, key) for write in writes])

    return [
        _Column("write", [_short(write.facts.get("write", "-")) for write in writes]),
        _Column("agent", [_short(write.lane) for write in writes], right=False),
        _Column("model", [_short(write.facts.get("model", "-")) for write in writes], right=False),
        _Column("outcome", [_outcome(write) for write in writes], right=False),
        _Column("began", [duration(write.begin) for write in writes]),
        facts("queued", "queued_ms"),
        facts("connect", "connect_ms"),
        facts("first", "first_event_ms"),
        facts("gap", "longest_gap_ms"),
        _Column("took", [duration(write.duration) for write in writes]),
    ]


def _duration_of(write: Write, key: str) -> str:
    value = write.facts.get(key)
    return duration(value) if isinstance(value, int | float) else "-"


def _outcome(write: Write) -> str:
    return _short(write.outcome if write.limit is None else f"{write.outcome}: {write.limit}")


def _short(value: object) -> str:
    """Return *value* on one line that a terminal can be trusted with, cut to `WIDEST_NAME` columns."""
    text = _plain(str(value)[: 4 * WIDEST_NAME])
    return text if cell_len(text) <= WIDEST_NAME else set_cell_size(text, WIDEST_NAME - 1) + "\u2026"


def _plain(text: str) -> str:
    return visible(" ".join(text.split())).encode("utf-8", "replace").decode()


def _bar(write: Write, scale: float, width: int) -> Text:
    """Return the phases of *write*, *scale* milliseconds on *width* columns, and a mark for how it ended."""

    def place(at: float) -> int:
        return round((at - write.begin) / scale * (width - 1))

    cells = ["streaming"] * max(1, place(write.end))
    pieces = [(phase.name, phase.begin, phase.end) for phase in write.phases]
    pieces += [("gap", gap.begin, gap.end) for gap in write.gaps]
    for name, begin, end in pieces:
        for at in range(place(begin), min(len(cells), max(place(end), place(begin) + (name != "gap")))):
            cells[at] = name
    bar = Text()
    for name, run in groupby(cells):
        bar.append(_MARKS[name] * len(list(run)), _STYLES[name])
    if write.limit is not None:
        bar.append("|", "bold red")
    elif write.outcome == "cancelled":
        bar.append("o", "magenta")
    elif write.outcome != DONE:
        bar.append("x", "bold red")
    return bar
