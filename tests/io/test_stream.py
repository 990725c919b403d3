"""`io.stream`: events pulled, left early, closed from elsewhere (field-faults B2)."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import aiio
from aiio.context.events import Done, Error

from .scripted import CONTEXT, HANG, MODEL, Head, Pause, finish, frames, say, scripted


async def test_all_events_come_and_the_terminal_is_kept(autojump_clock: MockClock) -> None:
    async with scripted(Pause(1), say("a"), say("b"), Pause(1), finish()) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        async with io.stream(CONTEXT) as events:
            unfinished = events.terminal
            types = [event.type.value async for event in events]
            with pytest.raises(StopAsyncIteration):
                await events.__anext__()
        assert unfinished is None
        assert types == ["start", "text_delta", "text_delta", "done"]
        assert isinstance(events.terminal, Done)
        assert (io.state, wire.open) == ("idle", 0)


async def test_misuse_is_raised_on_entering(autojump_clock: MockClock) -> None:
    async with scripted(HANG) as (env, _):
        io = aiio.IO(env=env, model=MODEL)
        with pytest.raises(TypeError, match=r"context\[0\]"):
            async with io.stream([{}]):
                pass
        async with io.stream(CONTEXT) as events:
            with pytest.raises(trio.BusyResourceError):
                await io.write(CONTEXT)
            with pytest.raises(RuntimeError, match="once"):
                await events.__aenter__()
        assert io.state == "idle"


async def test_a_stream_needs_an_entered_env() -> None:
    env = aiio.Env()
    io = aiio.IO(env=env, model="local/smollm2")
    with pytest.raises(RuntimeError, match="async with"):
        async with io.stream(CONTEXT):
            pass
    assert io.state == "idle"


async def test_B2_leaving_early_cancels_and_waits(autojump_clock: MockClock) -> None:
    async with scripted(say("a"), say("b"), HANG, close_takes=2) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        async with io.stream(CONTEXT) as events:
            async for event in events:
                if event.type == "text_delta":
                    break
        assert trio.current_time() == 2
        assert (io.state, wire.open, len(env.active_io)) == ("idle", 0, 0)
        assert isinstance(events.terminal, Error)
        assert (events.terminal.kind, events.terminal.cancelled) == ("cancelled", True)
        assert events.terminal.message is not None


async def test_B2_an_exception_in_the_body_comes_out_as_itself(autojump_clock: MockClock) -> None:
    async with scripted(say("a"), HANG) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        with pytest.raises(KeyError, match="mine"):
            async with io.stream(CONTEXT) as events:
                async for event in events:
                    if event.type == "text_delta":
                        raise KeyError("mine")
        assert (io.state, wire.open) == ("idle", 0)


async def test_B2_closing_from_a_sibling_task(autojump_clock: MockClock) -> None:
    async with scripted(say("a"), HANG) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        async with trio.open_nursery() as nursery, io.stream(CONTEXT) as events:

            async def close() -> None:
                await trio.sleep(1)
                await events.aclose()
                await events.aclose()

            nursery.start_soon(close)
            types = [event.type.value async for event in events]
        assert types == ["start", "text_delta", "text_end", "error"]
        assert (io.state, wire.open) == ("idle", 0)


async def test_B2_two_streams_interleaved_and_left_in_the_wrong_order(autojump_clock: MockClock) -> None:
    async with scripted(say("a"), say("b"), HANG) as (env, wire):
        one, two = (aiio.IO(env=env, model=MODEL) for _ in range(2))
        first, second = one.stream(CONTEXT), two.stream(CONTEXT)
        await first.__aenter__()
        await second.__aenter__()
        seen = [(await stream.__anext__()).type.value for stream in (first, second, second, first)]
        assert seen == ["start", "start", "text_delta", "text_delta"]
        await first.__aexit__(None, None, None)
        await second.__aexit__(None, None, None)
        assert (one.state, two.state, wire.open) == ("idle", "idle", 0)


async def test_cancelling_the_consumer_ends_the_request(autojump_clock: MockClock) -> None:
    async with scripted(say("a"), HANG) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        with trio.move_on_after(1) as scope:
            async with io.stream(CONTEXT) as events:
                async for _ in events:
                    pass
        assert scope.cancelled_caught
        assert (io.state, wire.open) == ("idle", 0)
        assert isinstance(events.terminal, Error)


async def test_limits_hold_and_end_the_iteration(autojump_clock: MockClock) -> None:
    async with scripted(Head(after=math.inf)) as (env, _):
        io = aiio.IO(env=env, model=MODEL)
        async with io.stream(
            CONTEXT, timeout="3s", connect_timeout="1m", stuck_timeout="1m", settings={}
        ) as events:
            types = [event.type.value async for event in events]
        assert types == ["start", "error"]
        assert isinstance(events.terminal, Error)
        assert events.terminal.limit == "overall"


async def test_a_slow_consumer_is_not_the_providers_silence(autojump_clock: MockClock) -> None:
    async with scripted(say("a"), Pause(1), say("b"), finish()) as (env, _):
        io = aiio.IO(env=env, model=MODEL)
        async with io.stream(CONTEXT, stuck_timeout="3s") as events:
            async for event in events:
                if event.type == "text_delta":
                    await trio.sleep(100)
        assert isinstance(events.terminal, Done)
        assert trio.current_time() == 201


async def test_a_slow_consumer_can_be_killed_and_is_not_called_stuck(autojump_clock: MockClock) -> None:
    async with scripted(say("a"), HANG) as (env, _):
        io = aiio.IO(env=env, model=MODEL)
        async with io.stream(CONTEXT, stuck_timeout="3s") as events:
            async for event in events:
                if event.type == "text_delta":
                    await trio.sleep(100)
                    await io.kill()
        assert isinstance(events.terminal, Error)
        assert (events.terminal.kind, events.terminal.limit) == ("cancelled", None)


async def test_reading_waits_for_the_consumer(autojump_clock: MockClock) -> None:
    """Memory is bounded: a read is taken before the next one is made."""
    async with scripted(*[say(c) for c in "abcdef"], finish()) as (env, _):
        io = aiio.IO(env=env, model=MODEL)
        async with io.stream(CONTEXT) as events:
            seen = []
            async for event in events:
                seen.append(event)
                await trio.sleep(1)
                assert len(events._events) <= 1
        assert len(seen) == 8


async def test_model_of_one_stream(autojump_clock: MockClock) -> None:
    async with scripted(frames([]), say("x"), finish()) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        async with io.stream(CONTEXT, model="other") as events:
            async for _ in events:
                pass
        assert wire.requests[0].headers["x-model"] == "other"


async def test_closing_the_env_ends_its_streams(autojump_clock: MockClock) -> None:
    seen: list[Any] = []
    async with scripted(say("a"), HANG) as (env, _):
        io = aiio.IO(env=env, model=MODEL)
        stream = await io.stream(CONTEXT).__aenter__()
        seen += [await stream.__anext__(), await stream.__anext__()]
    assert isinstance(stream.terminal, Error)
    assert [event.type.value async for event in stream] == ["text_end", "error"]
