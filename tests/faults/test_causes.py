"""B1: five ways to stop a request early stay five outcomes, on a real socket, also in the same tick."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations, permutations
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import aiio
from tests.serving import Server, chunk, head, last_chunk, pause, serve, stall

from .peer import DONE, MODEL, Seen, event, events, peer, stop, text, write

T = 10.0
"""When things happen, in seconds."""

OPTIONS = {"overall": "timeout", "connect": "connect_timeout", "stuck": "stuck_timeout"}
WAYS = (*OPTIONS, "kill", "outer")


def possible(ways: tuple[str, ...]) -> bool:
    """The connect budget ends where the stuck limit begins."""
    return not {"connect", "stuck"} <= set(ways)


PAIRS = [pair for pair in combinations(WAYS, 2) if possible(pair)]
ORDERS = [pair for pair in permutations(WAYS, 2) if possible(pair)]


class Stopped:
    """A write that was stopped, and what its surroundings saw."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.outer_caught = False
        self.reached_code_behind = False


async def stopped(server: Server, env: aiio.Env, io: aiio.IO, when: Mapping[str, float]) -> Stopped:
    """Write, to be stopped by every way in *when* at its time."""
    server.script(*([stall()] if "connect" in when else [head(), events(text("Par")), stall()]))
    body_ms = await body_size(server, env)
    found = Stopped()
    began = trio.current_time()
    options: dict[str, Any] = {
        OPTIONS[way]: at * 1000 - (body_ms if way == "connect" else 0)
        for way, at in when.items()
        if way in OPTIONS
    }

    async def kill() -> None:
        await trio.sleep_until(began + when["kill"])
        await io.kill("enough")

    async with trio.open_nursery() as nursery:
        if "kill" in when:
            nursery.start_soon(kill)
        with trio.CancelScope(deadline=began + when.get("outer", math.inf)) as outer:
            await write(io, seen=found.seen, **options)
            await trio.lowlevel.checkpoint()
            found.reached_code_behind = True
        found.outer_caught = outer.cancelled_caught
    return found


async def body_size(server: Server, env: aiio.Env) -> int:
    """How many bytes the body of these writes has: the connect budget grows by as many milliseconds."""
    probe = aiio.IO(env=env, model=MODEL)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write, probe)
        await server.wait_open(1)
        await trio.testing.wait_all_tasks_blocked(0.002)
        await probe.kill()
    await server.wait_idle()
    return len(server.requests[-1].body)


def check(found: Stopped, io: aiio.IO, cause: str) -> None:
    """Assert the outcome of *cause*, and nobody else's."""
    error = found.seen.error
    assert error.limit == (cause if cause in OPTIONS else None)
    expected = aiio.ErrorKind.NETWORK if cause in OPTIONS else aiio.ErrorKind.CANCELLED
    assert error.kind is expected
    assert error.cancelled == (cause in ("kill", "outer"))
    assert ("enough" in error.error) == (cause == "kill")
    assert ("outside" in error.error) == (cause == "outer")
    assert found.seen.text == ("" if not found.seen.error.emitted else "Par")


def check_surroundings(found: Stopped, io: aiio.IO, env: aiio.Env, ways: tuple[str, ...]) -> None:
    assert io.state == ("closed" if "kill" in ways else "idle")
    assert list(env.active_io) == []
    assert env.queued == 0
    assert found.outer_caught == ("outer" in ways)
    assert found.reached_code_behind == ("outer" not in ways)


@pytest.mark.parametrize("way", WAYS)
async def test_B1_each_way_alone_has_its_own_outcome(patient_clock: MockClock, way: str) -> None:
    async with serve() as server, peer(server) as env:
        io = aiio.IO(env=env, model=MODEL)
        found = await stopped(server, env, io, {way: T})
        check(found, io, way)
        check_surroundings(found, io, env, (way,))
        assert found.seen.took == pytest.approx(T)
        await server.wait_idle()


@pytest.mark.parametrize("ways", PAIRS, ids="+".join)
async def test_B1_two_in_the_same_tick_make_one_outcome_that_is_one_of_them(
    patient_clock: MockClock, ways: tuple[str, ...]
) -> None:
    async with serve() as server, peer(server) as env:
        io = aiio.IO(env=env, model=MODEL)
        found = await stopped(server, env, io, dict.fromkeys(ways, T))
        cause = found.seen.error.limit or ("kill" if "enough" in found.seen.error.error else "outer")
        assert cause in ways
        check(found, io, cause)
        check_surroundings(found, io, env, ways)
        await server.wait_idle()


@pytest.mark.parametrize("first_of", ORDERS, ids="-before-".join)
async def test_B1_the_first_to_happen_is_the_one_reported(
    patient_clock: MockClock, first_of: tuple[str, str]
) -> None:
    first, second = first_of
    async with serve() as server, peer(server) as env:
        io = aiio.IO(env=env, model=MODEL)
        found = await stopped(server, env, io, {first: T, second: T + 0.001})
        check(found, io, first)
        assert found.outer_caught == (first == "outer")


@pytest.mark.parametrize("without", ["connect", "stuck"])
async def test_B1_all_at_once_make_one_outcome(patient_clock: MockClock, without: str) -> None:
    ways = tuple(way for way in WAYS if way != without)
    async with serve() as server, peer(server) as env:
        io = aiio.IO(env=env, model=MODEL)
        found = await stopped(server, env, io, dict.fromkeys(ways, T))
        assert isinstance(found.seen.terminal, aiio.Error)
        check_surroundings(found, io, env, ways)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "connect"])
async def test_B1_an_answer_that_ends_in_the_same_tick_is_one_outcome_too(
    patient_clock: MockClock, way: str
) -> None:
    async with serve() as server, peer(server) as env:
        io = aiio.IO(env=env, model=MODEL)
        ending = chunk(event(stop()) + event(DONE))

        async def run(options: dict[str, Any], seen: Seen) -> trio.CancelScope:
            with trio.move_on_after(T if way == "outer" else math.inf) as outer:
                await write(io, seen=seen, **options)
            return outer

        server.script(head(), events(text("Par")), pause(T), ending, last_chunk(), stall())
        seen = Seen()
        options = {OPTIONS[way]: f"{T}s"} if way in OPTIONS else {}
        async with trio.open_nursery() as nursery:
            if way == "kill":

                async def kill() -> None:
                    await trio.sleep(T)
                    await io.kill()

                nursery.start_soon(kill)
            outer = await run(options, seen)
        match seen.terminal:
            case aiio.Done():
                assert not outer.cancelled_caught
            case aiio.Error(limit=limit, cancelled=cancelled):
                assert (limit, cancelled) == (way if way in OPTIONS else None, way not in OPTIONS)
        assert io.state == ("closed" if way == "kill" else "idle")
        assert seen.text == "Par"


async def test_B1_a_limit_of_the_caller_is_not_reported_as_ours(patient_clock: MockClock) -> None:
    async with serve(head(), events(text("Par")), stall()) as server, peer(server) as env:
        seen = Seen()
        with pytest.raises(trio.TooSlowError), trio.fail_after(5):
            await write(aiio.IO(env=env, model=MODEL), seen=seen, stuck_timeout="6s", timeout="7s")
        assert seen.returned is None
        assert seen.error.cancelled
        assert seen.error.limit is None
        assert seen.text == "Par"
