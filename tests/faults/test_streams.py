"""B2: a stream may be left, closed and stepped anyhow; no iterator holds a scope."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import aiio
from tests.serving import head, last_chunk, serve, stall

from .peer import CONTEXT, DONE, GOOD, MODEL, answer, events, peer, read_by_client, stop, text, text_of, write

LONG = [head(), events(text("One. "), text("Two.")), stall()]


# --- B2: no iterator holds a scope ----------------------------------------------------------------


async def test_B2_a_stream_left_by_break_ends_its_request(patient_clock: MockClock) -> None:
    async with serve(*LONG) as server, peer(server) as env:
        io = aiio.IO(env=env, model=MODEL)
        async with io.stream(CONTEXT) as stream:
            async for one in stream:
                if isinstance(one, aiio.TextDelta):
                    break
        assert isinstance(stream.terminal, aiio.Error)
        assert stream.terminal.cancelled
        assert text_of(stream.terminal.message).startswith("One. ")
        assert (io.state, list(env.active_io)) == ("idle", [])
        await server.wait_idle()
        server.script(*answer(*GOOD))
        assert (await write(io)).text == "Hi"


async def test_B2_a_stream_left_by_an_exception_lets_it_out_as_itself(patient_clock: MockClock) -> None:
    async with serve(*LONG) as server, peer(server) as env:
        with pytest.raises(KeyError, match="mine"):
            async with aiio.IO(env=env, model=MODEL).stream(CONTEXT) as stream:
                async for _ in stream:
                    raise KeyError("mine")
        await server.wait_idle()


async def test_B2_a_stream_never_iterated_is_left_clean(patient_clock: MockClock) -> None:
    async with serve(*LONG) as server, peer(server) as env:
        async with aiio.IO(env=env, model=MODEL).stream(CONTEXT) as stream:
            pass
        assert stream.terminal is not None
        assert [one async for one in stream][-1] is stream.terminal
        await server.wait_idle()


@pytest.mark.parametrize("closer", ["aclose", "kill", "kill_nowait"])
async def test_B2_a_stream_closed_by_a_sibling_ends_the_loop(patient_clock: MockClock, closer: str) -> None:
    async with serve(*LONG) as server, peer(server) as env:
        io = aiio.IO(env=env, model=MODEL)
        got: list[Any] = []
        async with trio.open_nursery() as nursery, io.stream(CONTEXT) as stream:

            async def close() -> None:
                await trio.sleep(1)
                if closer == "aclose":
                    await stream.aclose()
                elif closer == "kill":
                    await io.kill()
                else:
                    io.kill_nowait()

            nursery.start_soon(close)
            async for one in stream:
                got.append(one)
        assert got[-1] is stream.terminal
        assert isinstance(stream.terminal, aiio.Error)
        assert text_of(stream.terminal.message) == "One. Two."
        await server.wait_idle()


async def test_B2_two_streams_interleaved_in_one_task(patient_clock: MockClock) -> None:
    async with serve(*answer(*GOOD)) as server, peer(server) as env:
        one, two = (aiio.IO(env=env, model=MODEL) for _ in range(2))
        async with one.stream(CONTEXT) as first, two.stream(CONTEXT) as second:
            left, right = aiter(first), aiter(second)
            got: dict[str, list[Any]] = {"first": [], "second": []}
            live = {"first": left, "second": right}
            while live:
                for name, stream in list(live.items()):
                    try:
                        got[name].append(await anext(stream))
                    except StopAsyncIteration:
                        del live[name]
        assert got["first"] == got["second"]
        assert isinstance(got["first"][-1], aiio.Done)
        assert server.connections == 2


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_B2_streams_exited_in_any_order(patient_clock: MockClock, order: tuple[int, int]) -> None:
    async with serve(*LONG) as server, peer(server) as env:
        streams = [aiio.IO(env=env, model=MODEL).stream(CONTEXT) for _ in range(2)]
        for stream in streams:
            await stream.__aenter__()
            assert isinstance(await anext(stream), aiio.Start)
        for at in order:
            await streams[at].__aexit__(None, None, None)
        assert all(isinstance(stream.terminal, aiio.Error) for stream in streams)
        await server.wait_idle()
        with trio.move_on_after(1) as scope:  # the scope stack of this task is whole
            await trio.sleep(2)
        assert scope.cancelled_caught


async def test_B2_a_stream_entered_and_exited_in_different_tasks(patient_clock: MockClock) -> None:
    async with serve(*LONG) as server, peer(server) as env:
        stream = aiio.IO(env=env, model=MODEL).stream(CONTEXT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.__aenter__)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.__aexit__, None, None, None)
        assert stream.terminal is not None
        await server.wait_idle()


async def test_B2_a_stream_stepped_by_two_tasks_gives_each_event_once_and_strands_nobody(
    patient_clock: MockClock,
) -> None:
    slow = [head(), events(text("a")), *[read_by_client(), events(text("b"))] * 3]
    async with serve(*slow, events(stop(), DONE), last_chunk()) as server, peer(server) as env:
        got: list[Any] = []
        refused = 0

        async with aiio.IO(env=env, model=MODEL).stream(CONTEXT) as stream:

            async def step() -> None:
                nonlocal refused
                try:
                    async for one in stream:
                        got.append(one)
                except trio.BusyResourceError:
                    refused += 1

            with trio.move_on_after(60) as patience:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(step)
                    nursery.start_soon(step)
        assert not patience.cancelled_caught, "a task waits for ever"
        assert refused <= 1
        assert isinstance(got[-1], aiio.Done)
        assert "".join(one.text for one in got if isinstance(one, aiio.TextDelta)) == "abbb"


async def test_B2_an_iterator_forgotten_leaves_nothing_to_the_garbage_collector(
    patient_clock: MockClock,
) -> None:
    async with serve(*LONG) as server, peer(server) as env:

        async def peek() -> None:
            async with aiio.IO(env=env, model=MODEL).stream(CONTEXT) as stream:
                async for _ in stream:
                    return

        await peek()
        gc.collect()  # a half-run async generator would warn here, and warnings are errors
        await server.wait_idle()


async def test_B2_outer_cancellation_of_a_loop_over_events_propagates(patient_clock: MockClock) -> None:
    async with serve(*LONG) as server, peer(server) as env:
        with trio.move_on_after(3) as scope:
            async with aiio.IO(env=env, model=MODEL).stream(CONTEXT) as stream:
                async for _ in stream:
                    pass
        assert scope.cancelled_caught
        assert stream.terminal is not None
        assert list(env.active_io) == []
        await server.wait_idle()
