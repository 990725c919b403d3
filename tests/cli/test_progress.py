"""The counts of a run, and the two ways they are shown."""

from __future__ import annotations

import io
import sys

import pytest
import trio
from rich.console import Console
from trio.testing import MockClock

from aiio.cli.progress import Display, Tally, clock, plain_line, table
from aiio.context.events import Done, Error, ErrorKind


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_counts_pace_and_remaining_time(autojump_clock: MockClock) -> None:
    tally = Tally(total=5)
    assert (tally.queued, tally.tokens_per_second, tally.remaining) == (5, 0.0, None)
    for _ in range(4):
        tally.began_one()
    await trio.sleep(10)
    tally.ended_one(Done(usage={"output_tokens": 50}))
    tally.ended_one(Error(error="x", kind=ErrorKind.NETWORK, usage={}))
    tally.ended_one(Error(error="x", kind=ErrorKind.AUTH))
    assert (tally.running, tally.queued, tally.done, tally.ended) == (1, 1, 1, 3)
    assert tally.tokens_per_second == 5
    assert tally.remaining == pytest.approx(10 / 3 * 2)
    assert plain_line(tally) == (
        "1 in flight, 1 queued, 1 done, 2 failed (1 auth, 1 network), 5.0 tokens/s, ETA 0:07"
    )
    console = Console(file=io.StringIO(), width=100)
    console.print(table(tally))
    shown = console.file.getvalue()  # type: ignore[attr-defined]  # it is the StringIO
    for word in (
        "in flight",
        "queued",
        "done",
        "failed: auth",
        "failed: network",
        "tokens/s",
        "elapsed",
        "ETA",
    ):
        assert word in shown
    assert "0:10" in shown


def test_time_is_shown_for_people() -> None:
    assert [clock(seconds) for seconds in (None, 0, 59.6, 61, 3723)] == [
        "-",
        "0:00",
        "1:00",
        "1:01",
        "1:02:03",
    ]


async def test_without_a_terminal_a_line_comes_now_and_then(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    display = Display(Tally(total=1))
    async with trio.open_nursery() as nursery:
        await nursery.start(display.run)
        await trio.sleep(25)
        await display.stop()
    assert capsys.readouterr().err.count("aiio: 0 in flight, 1 queued") == 2


async def test_on_a_terminal_a_table_moves_and_is_taken_away(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    tally = Tally(total=12_345)
    display = Display(tally)
    async with trio.open_nursery() as nursery:
        await nursery.start(display.run)
        await trio.sleep(0.6)
        tally.began_one()
        await trio.sleep(0.6)
        await display.stop()
    shown = stderr.getvalue()
    assert "12345" in shown
    assert "12344" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # the cursor is back
