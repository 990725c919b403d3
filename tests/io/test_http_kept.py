"""Writes over connections that are kept (setting `http_keep`): what is kept, what is told, what is left."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

import aiio
from tests.faults.peer import (
    DONE,
    GOOD,
    Seen,
    answer,
    chunk_end,
    event,
    events,
    peer,
    text,
    write,
)
from tests.serving import (
    Authority,
    Step,
    drop,
    hang,
    head,
    pause,
    raw,
    reset,
    respond,
    serve,
    stall,
    wait_for,
)

from .kept_kills import keeping, random_kills, settled


async def test_writes_share_a_connection_and_the_trace_tells() -> None:
    with capture_logs() as lines:
        async with keeping() as (server, io):
            for _ in range(3):
                assert (await write(io)).text == "Hi"
            other = aiio.IO(env=io.env, model="peer/m")
            assert (await write(other)).text == "Hi"
            assert server.connections == 1
    assert [line["reused"] for line in settled(lines)] == [False, True, True, True]
    assert not any("redone" in line for line in settled(lines))


@pytest.mark.parametrize("setting", [False, 1, "yes"])
async def test_it_is_off_unless_it_is_set(setting: object) -> None:
    with capture_logs() as lines:
        async with keeping() as (server, io):
            io = aiio.IO(env=io.env, model="peer/m", settings={"http_keep": setting})
            for _ in range(2):
                assert (await write(io)).text == "Hi"
                await server.wait_idle()
            assert server.connections == 2
            assert server.requests[0].headers["connection"] == "close"
    assert not any("reused" in line for line in settled(lines))


async def test_a_write_may_ask_for_it() -> None:
    async with serve(*answer(*GOOD), keep=True) as server, peer(server) as env:
        io = aiio.IO(env=env, model="peer/m")
        for keep in (True, True, False, True):
            assert (await write(io, settings={"http_keep": keep})).text == "Hi"
        assert server.connections == 2


async def test_an_answer_that_is_over_before_its_body_leaves_its_connection() -> None:
    left = trio.Event()
    async with keeping(head(), events(*GOOD), wait_for(left), chunk_end()) as (server, io):
        assert (await write(io)).text == "Hi"
        left.set()
        await wait_all_tasks_blocked(0.01)
        assert (await write(io)).text == "Hi"
        assert server.connections == 1


async def test_it_is_kept_for_as_long_as_is_set(autojump_clock: MockClock) -> None:
    async with keeping(http_keep_idle="10s") as (server, io):
        await write(io)
        await trio.sleep(9)
        assert server.open == 1
        began = trio.current_time()
        await server.wait_idle()
        assert trio.current_time() - began == 1


async def test_another_credential_is_another_connection() -> None:
    async with keeping() as (server, io):
        await write(io)
        await io.auth_set("another key")
        await write(io)
        assert server.connections == 2


@pytest.mark.parametrize("how", [drop, reset])
async def test_C4_a_connection_that_the_peer_gave_up_is_replaced_and_that_is_told(how: Any) -> None:
    with capture_logs() as lines:
        async with keeping() as (server, io):
            await write(io)
            server.script_next(how())
            seen = await write(io)
            assert (seen.text, server.connections, len(server.requests)) == ("Hi", 2, 3)
            assert [type(one) for one in seen.events].count(aiio.Start) == 1
    [redone] = [line for line in lines if line["event"] == "request.redone"]
    assert redone["endpoint"] == "peer"
    assert "without answering" in redone["why"] or "reset" in redone["why"]
    line = settled(lines)[1]
    assert (line["redone"], line["reused"], line["attempts"], line["outcome"]) == (1, False, 1, "done")


async def test_C4_it_is_done_again_once() -> None:
    with capture_logs() as lines:
        async with keeping() as (server, io):
            await write(io)
            server.script(drop())
            error = (await write(io)).error
            assert (error.kind, error.retryable, error.emitted) == ("network", True, False)
            assert (server.connections, len(server.requests)) == (2, 3)
    assert settled(lines)[1]["redone"] == 1


async def test_the_connect_budget_covers_both_connections(autojump_clock: MockClock) -> None:
    async with keeping() as (server, io):
        await write(io)
        server.script_next(pause(6), drop())
        server.script_next(pause(6), *answer(*GOOD))
        error = (await write(io, connect_timeout="10s")).error
        assert error.limit == "connect"
        assert error.budget_ms == 10_000 + len(server.requests[-1].body)
        assert error.silence_ms == error.budget_ms
        await server.wait_idle()


async def test_a_kill_holds_over_both_connections() -> None:
    async with keeping() as (server, io):
        await write(io)
        server.script_next(drop())
        server.script_next(stall())
        async with trio.open_nursery() as nursery:
            seen = Seen()
            nursery.start_soon(lambda: write(io, seen=seen))
            while len(server.requests) < 3:
                await wait_all_tasks_blocked(0.001)
            await io.kill()
        assert seen.error.cancelled
        await server.wait_idle()


ENDINGS: dict[str, tuple[list[Step], dict[str, Any]]] = {
    "killed": ([head(), events(text("Hi")), hang()], {}),
    "stuck": ([head(), events(text("Hi")), hang()], {"stuck_timeout": "1s"}),
    "overall": ([head(), events(text("Hi")), hang()], {"timeout": "1s"}),
    "connect": ([hang()], {"connect_timeout": "1s"}),
    "cut": ([head(), events(text("Hi")), chunk_end()], {}),
    "refused": ([respond(b"{}", status=429)], {}),
    "malformed": ([head(), events(b"{nonsense", DONE), chunk_end()], {}),
    "an error within": ([head(), events(b'{"error":{"message":"no"}}'), chunk_end()], {}),
    "close": ([respond(b"".join(map(event, GOOD)), headers={"connection": "close"})], {}),
    "until the end": ([raw(b"HTTP/1.1 200 OK\r\n\r\n" + b"".join(map(event, GOOD))), drop()], {}),
}


@pytest.mark.parametrize("how", ENDINGS)
async def test_what_did_not_end_well_leaves_no_connection(how: str, autojump_clock: MockClock) -> None:
    steps, options = ENDINGS[how]
    async with keeping() as (server, io):
        await write(io)
        assert (server.open, server.connections) == (1, 1)
        server.script_next(*steps)
        callbacks = {"on_text_delta": lambda event: io.kill_nowait()} if how == "killed" else None
        await write(io, callbacks=callbacks, **options)
        assert len(server.requests) == 2
        kept = io.env.transport(server.url).kept
        assert len(kept) == 0
        if how not in ("killed", "stuck", "overall", "connect"):  # those servers hang
            await server.wait_idle()


async def test_an_env_that_closes_closes_what_it_kept() -> None:
    async with serve(*answer(*GOOD), keep=True) as server:
        async with peer(server, http_keep=True) as env:
            await write(aiio.IO(env=env, model="peer/m"))
            assert server.open == 1
        await server.wait_idle()


async def test_an_env_that_is_not_entered_keeps_nothing() -> None:
    async with serve(*answer(*GOOD), keep=True) as server:
        env = aiio.Env(environ={})
        env.register_endpoint("peer", url=server.url, auth="key", http_keep=True)
        assert (await write(aiio.IO(env=env, model="peer/m"))).text == "Hi"
        await server.wait_idle()
        await env.aclose()


@pytest.mark.parametrize("over_tls", [False, True])
async def test_random_kills_leave_nothing_behind(over_tls: bool) -> None:
    kills = 60
    found = await random_kills(kills, random.Random(f"{over_tls}"), Authority() if over_tls else None)
    assert found.stopped == kills
    assert found.done > kills // 10
    assert found.reused > kills // 10
    assert found.redone > 0
    assert found.connections < found.stopped + found.done
