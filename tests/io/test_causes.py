"""Five ways to stop a request early stay five outcomes, also when two come in the same tick.

Field-faults B1: stopping a task by hand is never reported as "too slow", and the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from itertools import combinations
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import aiio
from aiio.context.events import Done, Error, ErrorKind
from aiio.io.sanitize import body_bytes

from .scripted import CONTEXT, HANG, MODEL, WILL_END, Head, Pause, Wire, finish, frames, say, scripted

T = 10.0
"""When everything happens, in seconds."""

BODY = body_bytes({"messages": CONTEXT})
LIMITS = ("overall", "connect", "stuck")
WAYS = (*LIMITS, "kill", "outer")


class Witness:
    """A write with everything that can be seen of it."""

    def __init__(self) -> None:
        self.terminals: list[Any] = []
        self.starts = 0
        self.returned: Any = None
        self.cancelled_from_outside = False
        self.ended_at: float | None = None


def limit_option(way: str, at: float) -> dict[str, Any]:
    """Return the option by which a limit fires *at* seconds."""
    ms = at * 1000 - (BODY if way == "connect" else 0)
    return {{"overall": "timeout", "connect": "connect_timeout", "stuck": "stuck_timeout"}[way]: ms}


async def write_under(io: aiio.IO, when: Mapping[str, float]) -> Witness:
    """Write, stopped by every way in *when*, at its time in seconds."""
    seen = Witness()
    callbacks: dict[str, Callable[[Any], object]] = {
        "on_start": lambda event: setattr(seen, "starts", seen.starts + 1),
        "on_done": seen.terminals.append,
        "on_error": seen.terminals.append,
    }
    options: dict[str, Any] = {}
    for way, at in when.items():
        if way in LIMITS:
            options |= limit_option(way, at)

    async def kill() -> None:
        await trio.sleep(when["kill"])
        await io.kill("enough")

    async with trio.open_nursery() as nursery:
        if "kill" in when:
            nursery.start_soon(kill)
        with trio.move_on_after(when.get("outer", math.inf)) as outer:
            seen.returned = await io.write(CONTEXT, callbacks, **options)
            await (
                trio.lowlevel.checkpoint()
            )  # a write that had settled returns; what came from outside hits here
        seen.cancelled_from_outside = outer.cancelled_caught
        seen.ended_at = trio.current_time()
    return seen


def check(seen: Witness, io: aiio.IO, env: aiio.Env, wire: Wire, ways: Collection[str]) -> Error:
    """Assert what must hold however a write was stopped, and return its terminal event."""
    assert len(seen.terminals) == 1
    terminal = seen.terminals[0]
    assert isinstance(terminal, Error)
    assert seen.cancelled_from_outside == ("outer" in ways)
    assert seen.returned is terminal or (seen.returned is None and "outer" in ways)
    assert io.state == ("closed" if "kill" in ways else "idle")
    assert not env.active_io
    assert wire.open == 0
    assert terminal.usage is not None
    return terminal


def scenario(ways: Collection[str]) -> tuple[Any, ...]:
    """Return a script in which the limits among *ways* can fire."""
    if "connect" in ways:
        return (Head(after=float("inf")),)
    if "stuck" in ways:
        return (HANG,)  # nothing after the head: the silence began at 0
    return (say("Half a sent"), HANG)


@pytest.mark.parametrize("way", WAYS)
async def test_B1_each_way_alone(way: str, autojump_clock: MockClock) -> None:
    async with scripted(*scenario((way,))) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        seen = await write_under(io, {way: T})
        terminal = check(seen, io, env, wire, (way,))
        assert seen.ended_at == T
        if way in LIMITS:
            assert (terminal.kind, terminal.limit) == (ErrorKind.NETWORK, way)
            assert terminal.budget_ms == pytest.approx(T * 1000)
            assert terminal.silence_ms == pytest.approx(T * 1000)
            assert terminal.retryable
            assert not terminal.cancelled
        else:
            assert (terminal.kind, terminal.limit, terminal.cancelled) == (ErrorKind.CANCELLED, None, True)
            assert not terminal.retryable
            assert terminal.message is not None
            assert terminal.message["content"][0]["text"] == "Half a sent"


PAIRS = [
    pair for pair in combinations(WAYS, 2) if set(pair) != {"connect", "stuck"}
]  # they never run together


@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
async def test_B1_two_ways_in_the_same_tick(pair: tuple[str, str], autojump_clock: MockClock) -> None:
    async with scripted(*scenario(pair)) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        seen = await write_under(io, dict.fromkeys(pair, T))
        terminal = check(seen, io, env, wire, pair)
        assert seen.ended_at == T
        limits = [way for way in pair if way in LIMITS]
        if limits:  # a deadline passes before any task can run at that instant; of two, the wider one
            assert terminal.limit == min(limits, key=WAYS.index)
            assert terminal.kind is ErrorKind.NETWORK
        else:
            assert terminal.kind is ErrorKind.CANCELLED


@pytest.mark.parametrize("first", WAYS)
@pytest.mark.parametrize("second", WAYS)
async def test_the_first_cause_is_the_one_reported(
    first: str, second: str, autojump_clock: MockClock
) -> None:
    """The second comes half a second later, while the first one's clean-up still runs."""
    if first == second or {first, second} == {"connect", "stuck"}:
        return
    if (first, second) == ("connect", "outer"):
        return  # nothing is open yet that could take time to close: the write has returned by then
    when = {first: T, second: T + 0.5}
    async with scripted(*scenario((first, second)), close_takes=1.0) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        seen = await write_under(io, when)
        terminal = check(seen, io, env, wire, when)
        if first in LIMITS:
            assert terminal.limit == first
        else:
            assert terminal.kind is ErrorKind.CANCELLED
            assert ("enough" in terminal.error) == (first == "kill")


async def test_what_happens_after_the_answer_is_complete_changes_nothing(autojump_clock: MockClock) -> None:
    """The end signal came in time; the limits that pass in the second granted for late usage don't matter."""
    async with scripted(say("Whole."), Pause(T - 0.5), frames(WILL_END), HANG) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        terminal = await io.write(CONTEXT, timeout=T * 1000, stuck_timeout=T * 1000)
        assert isinstance(terminal, Done)
        assert terminal.message is not None
        assert terminal.message["content"][0]["text"] == "Whole."
        assert trio.current_time() == T - 0.5 + 1.0
        assert wire.open == 0


async def test_kill_in_the_second_granted_for_late_usage_is_a_kill(autojump_clock: MockClock) -> None:
    async with scripted(say("Whole."), frames(WILL_END), HANG) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        seen = await write_under(io, {"kill": 0.5})
        terminal = check(seen, io, env, wire, {"kill": 0.5})
        assert terminal.message is not None


async def test_an_outer_cancel_during_clean_up_still_goes_on(autojump_clock: MockClock) -> None:
    async with scripted(say("All of it"), finish(), close_takes=3.0) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        terminals: list[Any] = []
        with trio.move_on_after(1) as outer:
            await io.write(CONTEXT, {"on_done": terminals.append})
            await trio.lowlevel.checkpoint()
        assert outer.cancelled_caught
        assert [terminal.type for terminal in terminals] == [
            "done"
        ]  # the answer was whole before anybody cancelled
        assert io.state == "idle"
        assert wire.open == 0


async def test_clean_up_is_bounded(autojump_clock: MockClock) -> None:
    async with scripted(say("Hi"), finish(), close_takes=float("inf")) as (env, _):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT)
        assert isinstance(terminal, Done)
        assert trio.current_time() == 5.0
