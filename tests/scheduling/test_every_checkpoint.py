"""A write, a stream and a kill, stopped at each of their checkpoints: one end, and nothing is left behind."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
import trio
import trio.testing

import aiio
from tests.faults.peer import CONTEXT, Seen, open_files, write
from tests.io.ws_peers import DIALECTS as SOCKETS
from tests.serving import Exchange, Server, chunk, drop, head, last_chunk, serve
from tests.ws_serving import Socket

from .stepping import Stepper

HTTP, WS, KEPT = "openai_responses", "openai_responses_ws", "openai_responses_ws, kept"
HTTP_KEPT, HTTP_GIVEN_UP = "openai_responses, kept", "openai_responses, kept, given up by the server"
REALTIME = "openai_realtime"
TRANSPORTS = (HTTP, HTTP_KEPT, HTTP_GIVEN_UP, WS, REALTIME, KEPT)
MOST = 200
"""Checkpoints that a write may have here, and it has far fewer."""


async def answer_over_http(exchange: Exchange) -> None:
    """Say the head and each event for itself, when the client has read the one before."""
    await head()(exchange)
    for event in SOCKETS[WS].whole:
        await trio.testing.wait_all_tasks_blocked(0.0003)
        await chunk(b"data: " + json.dumps(event).encode() + b"\n\n")(exchange)
    await trio.testing.wait_all_tasks_blocked(0.0003)
    await last_chunk()(exchange)


def answer_over_socket(dialect: str) -> Callable[[Exchange], Any]:
    async def script(exchange: Exchange) -> None:
        socket = Socket(exchange)
        await socket.accept()
        while True:
            await SOCKETS[dialect].session(socket)
            for event in SOCKETS[dialect].whole:
                await trio.testing.wait_all_tasks_blocked(0.0003)
                await socket.text(json.dumps(event))

    return script


@asynccontextmanager
async def served(transport: str) -> AsyncIterator[tuple[aiio.Env, Server]]:
    """Run a server, and yield an Env that knows it as `peer`."""
    dialect, kept = transport.partition(",")[0], transport not in (HTTP, WS, REALTIME)
    socket = dialect in SOCKETS
    script = answer_over_socket(dialect) if socket else answer_over_http
    async with (
        serve(script, read="head" if socket else "request", keep=kept and not socket) as server,
        aiio.Env(environ={}) as env,
    ):
        url = server.url.replace("http", "ws", 1) if socket else server.url
        more: Mapping[str, Any] = {"ws_keep": True, "http_keep": True} if kept else {}
        env.register_endpoint("peer", provider=dialect, url=url, auth="key-1", **more)
        if transport in (HTTP_KEPT, HTTP_GIVEN_UP):
            await aiio.IO(env=env, model="peer/m").write(CONTEXT)
            await trio.testing.wait_all_tasks_blocked(0.003)  # the end of its body comes after it
            if transport is HTTP_GIVEN_UP:
                server.script_next(drop())
        yield env, server


@dataclass
class Trial:
    """One run, stopped at one checkpoint."""

    stepper: Stepper
    seen: Seen = field(default_factory=Seen)
    caught: bool = False
    """Whether the scope around the write caught `Cancelled`."""


Doing = Callable[[Trial, aiio.IO], Any]


async def run(transport: str, doing: Doing, trial: Trial) -> None:
    """Do something with an IO, and check that nothing is left of it."""
    tasks = trio.lowlevel.current_statistics().tasks_living
    async with served(transport) as (env, server):
        io = aiio.IO(env=env, model="peer/m")
        await trio.testing.wait_all_tasks_blocked()
        await doing(trial, io)
        trial.stepper.unwatch()
        assert not env.active_io
        assert not env.queued
        assert io.state in ("idle", "closed")
        await io.kill()
        await env.aclose()
        with trio.fail_after(5):  # of real time: only a socket that is left open takes as long
            await server.wait_idle()
    await trio.testing.wait_all_tasks_blocked()
    assert trio.lowlevel.current_statistics().tasks_living == tasks


def at_every_checkpoint(transport: str, doing: Doing) -> list[Trial]:
    """Do it again and again, stopped one checkpoint later each time, until it ends before."""
    trials: list[Trial] = []
    for step in count(1):
        assert step < MOST
        trial = Trial(Stepper(step, lambda: None))
        files = open_files()
        trio.run(run, transport, doing, trial, instruments=[trial.stepper])
        assert open_files() == files, f"checkpoint {step}"
        trials.append(trial)
        if not trial.stepper.reached:
            return trials
    raise AssertionError("unreachable")


# -- what is stopped, and how


async def cancelled(trial: Trial, io: aiio.IO) -> None:
    """Write, and cancel from outside."""
    with trio.CancelScope() as scope:
        trial.stepper.action = scope.cancel
        trial.stepper.watch()
        await write(io, seen=trial.seen)
    trial.caught = scope.cancelled_caught


async def killed(trial: Trial, io: aiio.IO) -> None:
    """Write, and have another task kill."""
    asked = trio.Event()

    async def killer() -> None:
        await asked.wait()
        await io.kill("enough")
        assert io.state == "closed"
        assert io not in io.env.active_io
        assert isinstance(trial.seen.terminal, aiio.Done | aiio.Error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(killer)
        await trio.testing.wait_all_tasks_blocked()
        trial.stepper.action = asked.set
        trial.stepper.watch()
        await write(io, seen=trial.seen)
        trial.stepper.unwatch()
        asked.set()


async def killed_at_once(trial: Trial, io: aiio.IO) -> None:
    """Write, and kill by `kill_nowait`."""
    trial.stepper.action = io.kill_nowait
    trial.stepper.watch()
    await write(io, seen=trial.seen)


async def killed_and_cancelled(trial: Trial, io: aiio.IO) -> None:
    """Write, kill, and cancel from outside at the same checkpoint."""
    with trio.CancelScope() as scope:

        def both() -> None:
            io.kill_nowait()
            scope.cancel()

        trial.stepper.action = both
        trial.stepper.watch()
        await write(io, seen=trial.seen)
    trial.caught = scope.cancelled_caught


WAYS: dict[str, Doing] = {
    "cancelled": cancelled,
    "killed": killed,
    "killed at once": killed_at_once,
    "killed and cancelled": killed_and_cancelled,
}


CASES = [(way, transport) for way in WAYS for transport in TRANSPORTS]
CASES.remove(("killed at once", REALTIME))  # its socket is that of Responses, its session longer
CASES.remove(("killed and cancelled", REALTIME))


@pytest.mark.parametrize(("way", "transport"), CASES)
def test_B4_B12_a_write_stopped_at_any_checkpoint_has_one_end(way: str, transport: str) -> None:
    trials = at_every_checkpoint(transport, WAYS[way])
    *stopped, whole = trials
    assert isinstance(whole.seen.terminal, aiio.Done)
    assert whole.seen.text == "Whole"
    assert len(stopped) > 5
    for trial in stopped:
        terminal = trial.seen.terminal
        if isinstance(terminal, aiio.Error):
            assert (terminal.kind, terminal.cancelled) == ("cancelled", True)
        assert "Whole".startswith(trial.seen.text)
        outer = way == "cancelled" and isinstance(terminal, aiio.Error)
        assert trial.caught >= outer  # what had not ended by itself lets `Cancelled` go on
        assert (trial.seen.returned is None) == trial.caught
    assert any(isinstance(trial.seen.terminal, aiio.Error) for trial in stopped)
    partials = {trial.seen.text for trial in stopped if isinstance(trial.seen.terminal, aiio.Error)}
    assert partials == {"", "Whole"}


async def streamed(trial: Trial, io: aiio.IO) -> None:
    """Stream, and cancel the consumer from outside."""
    with trio.CancelScope() as scope:
        trial.stepper.action = scope.cancel
        trial.stepper.watch()
        try:
            async with io.stream(CONTEXT) as events:
                async for event in events:
                    trial.seen.events.append(event)
        finally:
            trial.stepper.unwatch()
    trial.caught = scope.cancelled_caught


@pytest.mark.parametrize("transport", [HTTP, WS])
def test_B13_a_stream_whose_consumer_is_cancelled_at_any_checkpoint_leaves_nothing(transport: str) -> None:
    *stopped, whole = at_every_checkpoint(transport, streamed)
    assert isinstance(whole.seen.terminal, aiio.Done)
    assert len(stopped) > 2
    assert all(trial.caught for trial in stopped[:-1])


async def kill_cancelled(trial: Trial, io: aiio.IO) -> None:
    """Write, kill from another task, and cancel that one: the request stays killed."""

    async def killer() -> None:
        with trio.CancelScope() as scope:
            trial.stepper.action = scope.cancel
            trial.stepper.watch()
            await io.kill()
        trial.stepper.unwatch()
        trial.caught = scope.cancelled_caught

    async with trio.open_nursery() as nursery:
        nursery.start_soon(killer)
        await write(io, seen=trial.seen)
    assert io.state == "closed"


@pytest.mark.parametrize("transport", [HTTP, WS])
def test_B12_a_kill_that_is_cancelled_at_any_checkpoint_has_killed(transport: str) -> None:
    trials = at_every_checkpoint(transport, kill_cancelled)
    assert [trial.seen.error.cancelled for trial in trials if trial.seen.events] == [True] * len(trials)
    assert trials[0].caught
