"""C1, C2, C4: killed requests leave nothing behind, one limit counts requests, connections are fresh."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs
from trio.testing import MockClock

import aiio
from tests.serving import (
    Exchange,
    Server,
    Step,
    chunk,
    drop,
    head,
    pause,
    raw,
    reset,
    respond,
    serve,
    sse,
    stall,
)

from .conftest import TLS
from .peer import CONTEXT, DONE, GOOD, MODEL, answer, event, events, open_files, peer, stop, text, write

WHOLE = respond(sse(*GOOD))


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


class Traces:
    """What a churn may leave behind: file descriptors and tasks, now against before."""

    def __init__(self, files: int, tasks: int) -> None:
        self.files, self.tasks = files, tasks

    @classmethod
    async def before(cls, server: Server, env: aiio.Env) -> Traces:
        """Return what there is after one good write, which makes whatever is made once."""
        server.script_next(WHOLE)
        assert (await write(aiio.IO(env=env, model=MODEL))).text == "Hi"
        await server.wait_idle()
        await trio.testing.wait_all_tasks_blocked(0.001)
        return cls(open_files(), tasks())

    async def check(self, server: Server, env: aiio.Env) -> None:
        await server.wait_idle()
        await trio.testing.wait_all_tasks_blocked(0.001)
        assert (open_files(), tasks()) == (self.files, self.tasks)
        assert (list(env.active_io), env.queued) == ([], 0)
        served = server.connections
        server.script(WHOLE)
        seen = await write(aiio.IO(env=env, model=MODEL))
        assert seen.text == "Hi"
        assert server.connections == served + 1


def moody(rng: random.Random) -> Step:
    """A server that does something else for every request."""
    moods: list[list[Step]] = [
        [WHOLE],
        [stall()],
        [head(), stall()],
        [head(), events(text("One. ")), stall()],
        [head(), chunk(event(text("One. "))[:9]), stall()],
        [head(), events(text("One. ")), drop()],
        [head(), events(text("One. ")), reset()],
        [raw(b"HTTP/1.1 20"), stall()],
        [respond(b"{}", status=503)],
    ]

    async def step(exchange: Exchange) -> None:
        for one in rng.choice(moods):
            await one(exchange)

    return step


async def churn(env: aiio.Env, rng: random.Random, kills: int, writers: int, seen: dict[str, int]) -> None:
    """Kill *kills* writes at random moments, *writers* of them at a time, and count how they ended."""

    async def one_writer() -> None:
        while seen["killed"] + seen["other"] < kills:
            io = aiio.IO(env=env, model=MODEL)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(kill_soon, io)
                terminal = await io.write(CONTEXT)
            assert io.state == "closed"
            killed = isinstance(terminal, aiio.Error) and terminal.cancelled
            seen["killed" if killed else "other"] += 1

    async def kill_soon(io: aiio.IO) -> None:
        for _ in range(rng.randrange(60)):
            await trio.lowlevel.checkpoint()
        if rng.random() < 0.5:
            await io.kill()
        else:
            io.kill_nowait()

    async with trio.open_nursery() as nursery:
        for _ in range(writers):
            nursery.start_soon(one_writer)


async def test_C1_five_thousand_random_kills_leave_nothing_behind() -> None:
    rng = random.Random(1093)
    async with serve(moody(rng)) as server, peer(server, max_active=5) as env:
        traces, seen = await Traces.before(server, env), {"killed": 0, "other": 0}
        await churn(env, rng, 5000, 12, seen)
        assert seen["killed"] > 3000
        await traces.check(server, env)


async def test_C1_random_kills_over_tls_leave_nothing_behind(tls: TLS) -> None:
    rng = random.Random(830)
    async with (
        serve(moody(rng), tls=tls.server) as server,
        peer(server, max_active=5, settings=tls.settings) as env,
    ):
        traces, seen = await Traces.before(server, env), {"killed": 0, "other": 0}
        await churn(env, rng, 300, 8, seen)
        assert seen["killed"] > 150
        await traces.check(server, env)


@pytest.mark.parametrize("way", ["timeout", "connect_timeout", "stuck_timeout", "outer", "stream"])
async def test_C1_limits_and_cancellation_leave_nothing_behind(patient_clock: MockClock, way: str) -> None:
    rng = random.Random(785)
    silent: list[Step] = [] if way == "connect_timeout" else [head(), events(text("One. "))]
    async with serve(*silent, stall()) as server, peer(server, max_active=5) as env:
        traces = await Traces.before(server, env)
        ended: list[Any] = []

        async def one_write() -> None:
            io = aiio.IO(env=env, model=MODEL)
            seconds = rng.uniform(0.01, 1)
            if way == "stream":
                async with io.stream(CONTEXT) as stream:
                    async for one in stream:
                        if isinstance(one, aiio.TextDelta):
                            break
                ended.append(stream.terminal)
                return
            options: dict[str, Any] = {} if way == "outer" else {way: f"{seconds:.4f}s"}
            with trio.move_on_after(seconds if way == "outer" else math.inf) as scope:
                ended.append(await io.write(CONTEXT, **options))
            if scope.cancelled_caught:
                ended.append(None)

        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(one_write)
        assert len(ended) == 100
        assert not any(isinstance(one, aiio.Done) for one in ended)
        await traces.check(server, env)


async def test_C1_a_kill_between_grant_and_wake_up_gives_the_slot_back(patient_clock: MockClock) -> None:
    async with serve(head(), events(text("One. ")), stall()) as server, peer(server, max_active=1) as env:
        first, second, third = (aiio.IO(env=env, model=MODEL) for _ in range(3))
        async with trio.open_nursery() as nursery:
            for io in (first, second, third):
                nursery.start_soon(io.write, CONTEXT)
                await trio.testing.wait_all_tasks_blocked(0.002)
            assert (env.queued, list(env.active_io)) == (2, [first])
            first.kill_nowait()
            while first in env.active_io:
                await trio.lowlevel.checkpoint()
            second.kill_nowait()  # its slot is granted, its task has not run
            await server.wait_open(1)
            await trio.sleep(1)
            assert list(env.active_io) == [third]
            await third.kill()
        assert list(env.active_io) == []


# --- C2: one limit, and waiting costs nothing -----------------------------------------------------


@pytest.mark.parametrize(("count", "max_active"), [(300, None), (500, 500)])
async def test_C2_as_many_sockets_as_writes(many_files: None, count: int, max_active: int | None) -> None:
    async with serve() as server, peer(server, max_active=max_active) as env:
        arrived = trio.Event()

        async def stay(exchange: Exchange) -> None:
            if server.open == count:
                arrived.set()
            await arrived.wait()

        server.script(stay, WHOLE)
        ended: list[Any] = []

        async def one_write() -> None:
            ended.append(await aiio.IO(env=env, model=MODEL).write(CONTEXT))

        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(one_write)
            await arrived.wait()
            assert len(env.active_io) == count
        assert [one.type for one in ended] == ["done"] * count


async def test_C2_time_in_the_queue_is_charged_to_no_limit(patient_clock: MockClock) -> None:
    slow = [pause(0.2), WHOLE]
    async with serve(*slow) as server, peer(server, max_active=2) as env:
        ended: list[Any] = []
        queued: list[int] = []
        most = 0

        async def one_write() -> None:
            def started(one: Any) -> None:
                nonlocal most
                most = max(most, len(env.active_io))

            io = aiio.IO(
                env=env, model=MODEL, connect_timeout="300ms", timeout="500ms", stuck_timeout="300ms"
            )
            ended.append(await io.write(CONTEXT, {"on_start": started}))

        with capture_logs() as logs:
            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(one_write)
                await trio.testing.wait_all_tasks_blocked()
                queued.append(env.queued)
        assert [one.type for one in ended] == ["done"] * 10
        assert queued == [8]
        assert most == 2
        waited = [line["queued_ms"] for line in logs if line["event"] == "request.settled"]
        assert waited == pytest.approx([0, 0, 200, 200, 400, 400, 600, 600, 800, 800])


async def test_C2_the_limit_is_live(patient_clock: MockClock) -> None:
    async with serve(head(), events(text("One. ")), stall()) as server, peer(server, max_active=1) as env:
        ios = [aiio.IO(env=env, model=MODEL) for _ in range(4)]
        async with trio.open_nursery() as nursery:
            for io in ios:
                nursery.start_soon(io.write, CONTEXT)
            await trio.testing.wait_all_tasks_blocked(0.002)
            assert (server.open, env.queued) == (1, 3)
            env.max_active = 3
            await trio.testing.wait_all_tasks_blocked(0.002)
            assert (server.open, env.queued) == (3, 1)
            env.max_active = None
            await server.wait_open(4)
            for io in ios:
                await io.kill()


async def test_C2_a_killed_waiter_leaves_the_queue_and_never_connects(patient_clock: MockClock) -> None:
    async with serve(head(), events(text("One. ")), stall()) as server, peer(server, max_active=1) as env:
        running, waiting = (aiio.IO(env=env, model=MODEL) for _ in range(2))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(running.write, CONTEXT)
            await server.wait_open(1)
            nursery.start_soon(waiting.write, CONTEXT)
            await trio.testing.wait_all_tasks_blocked(0.002)
            assert (waiting.state, env.queued) == ("sending", 1)
            await waiting.kill()
            assert (waiting.state, env.queued) == ("closed", 0)
            await running.kill()
        assert server.connections == 1


# --- C4: a connection of one's own ----------------------------------------------------------------


async def test_C4_each_write_has_a_fresh_connection_and_says_so(patient_clock: MockClock) -> None:
    whole_and_open = [*answer(*GOOD), stall()]
    async with serve(*whole_and_open) as server, peer(server) as env:
        io = aiio.IO(env=env, model=MODEL)
        for number in range(1, 4):
            assert (await write(io)).text == "Hi"
            assert server.connections == number
            await server.wait_idle()
        assert {request.headers["connection"] for request in server.requests} == {"close"}


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_C4_a_close_without_a_byte_is_a_network_error_safe_to_retry(
    patient_clock: MockClock, how: str
) -> None:
    async with serve(WHOLE) as server, peer(server) as env:
        io = aiio.IO(env=env, model=MODEL)
        assert (await write(io)).text == "Hi"
        server.script_next(drop() if how == "close" else reset())
        error = (await write(io)).error
        assert error.kind is aiio.ErrorKind.NETWORK
        assert (error.emitted, error.retryable, error.safe_to_retry) == (False, True, True)
        assert (error.message, error.limit) == (None, None)
        assert (await write(io)).text == "Hi"
        assert server.connections == 3


async def test_C4_a_server_that_hangs_up_right_after_the_last_chunk_is_fine(patient_clock: MockClock) -> None:
    keep_alive = {"content-type": "text/event-stream", "connection": "keep-alive", "keep-alive": "timeout=5"}
    async with (
        serve(head(200, keep_alive), events(text("Hi"), stop(), DONE), raw(b"0\r\n\r\n")) as server,
        peer(server) as env,
    ):
        ios = [aiio.IO(env=env, model=MODEL) for _ in range(3)]
        for io in ios * 3:
            assert (await write(io)).text == "Hi"
        assert server.connections == 9
