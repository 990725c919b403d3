"""Channels: what is sent arrives once, in order, or the sender is told."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from aiio.runs.channels import Channel, ChannelMode
from aiio.runs.errors import RunConfigError, RunError, RunErrorKind
from aiio.runs.harness import Harness

QUEUE: Channel[Any] = Channel("q", capacity=2)
RENDEZVOUS: Channel[Any] = Channel("r", capacity=0)
VALUE: Channel[Any] = Channel("v", mode=ChannelMode.VALUE)
TOPIC: Channel[Any] = Channel("t", mode=ChannelMode.TOPIC)
OUT_QUEUE: Channel[Any] = Channel("oq", capacity=2, external=True)
OUT_VALUE: Channel[Any] = Channel("ov", mode=ChannelMode.VALUE, external=True)
OUT_TOPIC: Channel[Any] = Channel("ot", mode=ChannelMode.TOPIC, external=True)


async def raises(kind: RunErrorKind, fn: Callable[..., Any], *args: Any, **more: Any) -> RunError:
    with pytest.raises(RunError) as caught:
        await fn(*args, **more)
    assert caught.value.kind is kind
    return caught.value


async def test_B3_queue_at_capacity_parks_fifo_and_promotes_on_recv_and_try_recv() -> None:
    context = Harness().create_context()
    async with trio.open_nursery() as nursery:
        for value in "abcd":
            nursery.start_soon(context.send, QUEUE, value)
            await wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 2
        assert await context.recv(QUEUE) == "a"
        await wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 1
        assert context.try_recv(QUEUE) == "b"
    assert [context.try_recv(QUEUE) for _ in range(3)] == ["c", "d", None]


async def test_B3_a_parked_send_times_out_at_30_s_without_delivering(autojump_clock: MockClock) -> None:
    context = Harness().create_context()
    await context.send(QUEUE, 1)
    await context.send(QUEUE, 2)
    began = trio.current_time()
    error = await raises(RunErrorKind.CHANNEL_TIMEOUT, context.send, QUEUE, 3)
    assert trio.current_time() - began == 30
    assert error.detail == {"channel_name": "q", "timeout": 30_000}
    assert [context.try_recv(QUEUE) for _ in range(3)] == [1, 2, None]


async def test_B3_capacity_0_hands_over_and_try_recv_takes_no_parked_value() -> None:
    context = Harness().create_context()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(context.send, RENDEZVOUS, "x")
        await wait_all_tasks_blocked()
        assert context.try_recv(RENDEZVOUS) is None
        assert await context.recv(RENDEZVOUS) == "x"


async def test_B3_value_wakes_all_waiters_and_reading_does_not_consume() -> None:
    context = Harness().create_context()
    got: list[int] = []

    async def read() -> None:
        got.append(await context.recv(VALUE))

    assert context.try_recv(VALUE) is None
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(read)
        await wait_all_tasks_blocked()
        await context.send(VALUE, 7)
    assert got == [7, 7, 7]
    assert await context.recv(VALUE) == context.try_recv(VALUE) == 7


async def test_B3_topic_reaches_who_waits_and_try_recv_is_none() -> None:
    context = Harness().create_context()
    await context.send(TOPIC, "nobody hears")
    got: list[Any] = []

    async def read() -> None:
        got.append(await context.recv(TOPIC))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        await context.send(TOPIC, 1)
        assert context.try_recv(TOPIC) is None
    assert got == [1, 1]


@pytest.mark.parametrize(
    ("channel", "timeout", "seconds"),
    [(QUEUE, None, 30), (QUEUE, 250, 0.25), (VALUE, "2s", 2), (TOPIC, 0, 300), (TOPIC, "never", 300)],
)
async def test_B3_recv_times_out(
    channel: Channel[Any], timeout: Any, seconds: float, autojump_clock: MockClock
) -> None:
    context = Harness().create_context()
    began = trio.current_time()
    error = await raises(RunErrorKind.CHANNEL_TIMEOUT, context.recv, channel, timeout=timeout)
    assert trio.current_time() - began == seconds
    assert error.detail["timeout"] == seconds * 1000


async def test_B3_recv_with_timeout_0_waits_for_ever(autojump_clock: MockClock) -> None:
    context = Harness().create_context()
    with trio.move_on_after(10_000) as scope:
        await context.recv(QUEUE, timeout=0)
    assert scope.cancelled_caught


async def test_B2_blocked_recv_with_timeout_0_and_parked_send_are_refused_on_abort() -> None:
    context = Harness().create_context()
    await context.send(QUEUE, 1)
    await context.send(QUEUE, 2)
    errors: list[RunError] = []

    async def blocked(fn: Callable[..., Any], *args: Any, **more: Any) -> None:
        errors.append(await raises(RunErrorKind.CANCELLED, lambda: fn(*args, **more)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: blocked(context.recv, VALUE, timeout=0))
        nursery.start_soon(lambda: blocked(context.send, QUEUE, 3))
        await wait_all_tasks_blocked()
        context.abort("enough")
    assert [error.detail["reason"] for error in errors] == ["enough", "enough"]
    await raises(RunErrorKind.CANCELLED, context.recv, QUEUE)
    await raises(RunErrorKind.CANCELLED, context.send, QUEUE, 3)
    await context.send(VALUE, "has room")  # an aborted context may still send what does not park
    assert [context.try_recv(QUEUE) for _ in range(3)] == [1, 2, None]


async def test_B_decided_3_values_are_validated_on_send_inside_and_outside_before_parking() -> None:
    def positive(value: int) -> None:
        if value <= 0:
            raise ValueError("not positive")

    harness = Harness()
    context = harness.create_context()
    numbers: Channel[int] = Channel("n", int, capacity=0, external=True)
    await raises(RunErrorKind.ITEM_SCHEMA_MISMATCH, context.send, numbers, "one")
    await raises(RunErrorKind.ITEM_SCHEMA_MISMATCH, context.send, Channel("p", positive), -1)
    with pytest.raises(RunError, match="does not take"):
        harness.channel_handle(numbers, context.id).send("one")
    await context.send(Channel("p", positive), 1)
    await context.send(Channel("list", list[int]), [1])
    await context.send(Channel("struct", dict), {})


def test_B3_a_channel_checks_its_own_shape() -> None:
    with pytest.raises(ValueError, match="capacity"):
        Channel("x", capacity=-1)
    with pytest.raises(ValueError, match="capacity"):
        Channel("x", capacity=True)
    with pytest.raises(ValueError, match="pile"):
        Channel("x", mode="pile")  # type: ignore[arg-type]  # a word from a file, say


async def test_B3_the_first_reference_fixes_the_mode() -> None:
    context = Harness().create_context()
    await context.send(QUEUE, 1)
    with pytest.raises(ValueError, match="is a queue, not a topic"):
        await context.send(Channel("q", mode=ChannelMode.TOPIC), 1)


async def test_B3_send_and_recv_are_checkpoints_and_a_cancelled_one_did_nothing() -> None:
    context = Harness().create_context()
    with assert_checkpoints():
        await context.send(QUEUE, 1)
    with assert_checkpoints():
        await context.recv(QUEUE)
    with trio.CancelScope() as scope:
        scope.cancel()
        await context.send(QUEUE, 2)
    assert scope.cancelled_caught
    await context.send(QUEUE, 3)
    with trio.CancelScope() as scope:
        scope.cancel()
        await context.recv(QUEUE)
    assert context.try_recv(QUEUE) == 3


async def test_B3_a_wait_that_was_cancelled_is_out_of_line_before_its_task_runs_again() -> None:
    context = Harness().create_context()
    got: list[Any] = []

    async def second() -> None:
        got.append(await context.recv(QUEUE))

    scope = trio.CancelScope()

    async def first() -> None:
        with scope:
            await context.recv(QUEUE)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await wait_all_tasks_blocked()
        nursery.start_soon(second)
        await wait_all_tasks_blocked()
        scope.cancel()  # first is scheduled with Cancelled, and has not run yet
        context.harness.channels.state(QUEUE).send("x")
    assert got == ["x"]


async def test_B3_a_value_that_was_handed_over_arrives_although_a_cancel_follows() -> None:
    context = Harness().create_context()
    got: list[Any] = []
    scope = trio.CancelScope()

    async def receive() -> None:
        with scope:
            got.append(await context.recv(QUEUE))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        context.harness.channels.state(QUEUE).send("x")
        scope.cancel()
    assert got == ["x"]


async def test_B3_a_wait_that_is_over_is_refused_no_more() -> None:
    context = Harness().create_context()
    state = context.harness.channels.state(QUEUE)

    async def receive() -> None:
        assert await context.recv(QUEUE) == 1
        assert not context._waits

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        state.send(1)
        context.abort("too late for this one")


async def test_B3_two_streams_of_one_run_end_apart() -> None:
    harness = Harness()
    async with harness.channel_stream(OUT_VALUE, "run"):
        async with harness.channel_stream(OUT_VALUE, "run"):
            pass
        assert "run" in harness._lifetimes._streams
    assert harness._lifetimes._streams == {}


async def test_B3_wake_subscribers_are_told_once_after_the_value_is_placed() -> None:
    context = Harness().create_context()
    state = context.harness.channels.state(QUEUE)
    told: list[int] = []

    def again() -> None:
        told.append(len(state.items))
        state.on_wake(again)  # safe inside

    state.on_wake(again)
    forget = state.on_wake(lambda: told.append(-1))
    forget()
    forget()
    await context.send(QUEUE, 1)
    await context.send(QUEUE, 2)
    assert told == [1, 2]


async def test_B3_a_parked_value_that_is_promoted_wakes_too() -> None:
    context = Harness().create_context()
    state = context.harness.channels.state(QUEUE)
    told: list[int] = []
    async with trio.open_nursery() as nursery:
        for value in range(3):
            nursery.start_soon(context.send, QUEUE, value)
        await wait_all_tasks_blocked()
        state.on_wake(lambda: told.append(len(state.items)))
        context.try_recv(QUEUE)
    assert told == [2]


# -- from outside -----------------------------------------------------------------------------------


async def test_B3_external_send_never_blocks_and_drops_the_oldest() -> None:
    harness = Harness()
    context = harness.create_context()
    handle = harness.channel_handle(OUT_QUEUE, context.id)
    for value in (1, 2, 3):
        handle.send(value)
    assert [context.try_recv(OUT_QUEUE) for _ in range(3)] == [2, 3, None]
    rendezvous: Channel[int] = Channel("or", capacity=0, external=True)
    harness.channel_handle(rendezvous, context.id).send(1)  # nobody waits: dropped
    assert context.try_recv(rendezvous) is None


async def test_B3_only_external_channels_are_reached_from_outside() -> None:
    harness = Harness()
    with pytest.raises(RunConfigError) as caught:
        harness.channel_handle(QUEUE, "id")
    assert caught.value.code == "CHANNEL_NOT_EXTERNAL"
    with pytest.raises(RunConfigError):
        harness.channel_stream(QUEUE, "id")


async def test_B3_a_queue_stream_competes_and_ends_after_what_the_queue_held_at_close() -> None:
    harness = Harness()
    lifetimes, id = harness._lifetimes, "run"
    stream = harness.channel_stream(OUT_QUEUE, id)
    handle = harness.channel_handle(OUT_QUEUE, id)
    lifetimes.begin(id)
    async with stream:
        handle.send(1)
        handle.send(2)
        lifetimes.end(id)
        harness.channels.state(OUT_QUEUE).items.append("later")
        assert [value async for value in stream] == [1, 2]
    assert [value async for value in stream] == []
    with pytest.raises(RunError) as caught:
        handle.send(3)
    assert caught.value.kind is RunErrorKind.CHANNEL_CLOSED
    assert handle.closed
    lifetimes.begin(id)  # a restart opens it again
    handle.send(3)
    lifetimes.begin(id)
    lifetimes.end(id)  # a run inside: only the outermost closes
    handle.send(4)
    lifetimes.end(id)
    async with harness.channel_stream(OUT_QUEUE, id) as late:
        assert harness.channels.state(OUT_QUEUE).items
        assert [value async for value in late] == [3, 4]


@pytest.mark.parametrize("channel", [OUT_QUEUE, OUT_VALUE, OUT_TOPIC])
async def test_B3_a_stream_that_waits_gets_what_comes_and_ends_with_the_run(channel: Channel[Any]) -> None:
    harness = Harness()
    harness._lifetimes.begin("run")
    got: list[Any] = []

    async def read() -> None:
        async with harness.channel_stream(channel, "run") as stream:
            async for value in stream:
                got.append(value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        harness.channel_handle(channel, "run").send(1)
        await wait_all_tasks_blocked()
        harness.channel_handle(channel, "run").send(2)
        await wait_all_tasks_blocked()
        harness._lifetimes.end("run")
    assert got == [1, 2]


async def test_B3_a_value_stream_begins_with_the_current_value_then_conflates() -> None:
    harness = Harness()
    handle = harness.channel_handle(OUT_VALUE, "run")
    handle.send(0)
    async with harness.channel_stream(OUT_VALUE, "run") as stream:
        assert await anext(stream) == 0
        handle.send(1)
        handle.send(2)
        assert await anext(stream) == 2


async def test_B3_a_topic_stream_keeps_1000_and_drops_the_oldest() -> None:
    harness = Harness()
    handle = harness.channel_handle(OUT_TOPIC, "run")
    handle.send("no replay")
    async with harness.channel_stream(OUT_TOPIC, "run") as stream:
        for value in range(1002):
            handle.send(value)
        assert await anext(stream) == 2


async def test_B3_a_stream_cancelled_while_it_waits_loses_nothing() -> None:
    harness = Harness()
    handle = harness.channel_handle(OUT_VALUE, "run")
    async with harness.channel_stream(OUT_VALUE, "run") as stream:
        with trio.move_on_after(0.001):
            await anext(stream)
        handle.send(5)
        assert await anext(stream) == 5


def test_B3_seconds_of_no_limit_are_infinite() -> None:
    from aiio.runs.channel_store import ChannelStore

    assert ChannelStore()._seconds(QUEUE, "never") == math.inf
