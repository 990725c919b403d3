"""A server and an IO that keep their connections, and writes over them that are stopped anywhere."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import trio
from structlog.testing import capture_logs

import aiio
from tests.faults.peer import (
    DONE,
    GOOD,
    Seen,
    answer,
    chunk_end,
    drip,
    event,
    open_files,
    peer,
    stop,
    text,
    usage,
    write,
)
from tests.scheduling.stepping import Stepper
from tests.serving import Authority, Exchange, Server, Step, drop, head, reset, serve


@asynccontextmanager
async def keeping(
    *steps: Step, tls: Authority | None = None, **policy: Any
) -> AsyncIterator[tuple[Server, aiio.IO]]:
    """A server that keeps its connections, and an IO that keeps them, too."""
    context = None if tls is None else tls.server_context()
    async with (
        serve(*(steps or answer(*GOOD)), tls=context, keep=True) as server,
        peer(server, http_keep=True, **policy) as env,
    ):
        if tls is not None:
            env._ssl_context = tls.client_context()
        yield server, aiio.IO(env=env, model="peer/m")


def settled(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The traces of writes among the lines of a log."""
    return [line for line in lines if line["event"] == "request.settled"]


@dataclass
class Kills:
    """What became of the writes."""

    stopped: int = 0
    done: int = 0
    reused: int = 0
    """Answers on a kept connection."""
    redone: int = 0
    """Requests sent again, because the server had given up a kept connection."""
    connections: int = 0


async def random_kills(kills: int, chance: random.Random, tls: Authority | None) -> Kills:
    """Write until *kills* writes were stopped, each at some checkpoint; check that nothing is left of them.

    Now and then the server gives up a connection that has served before, instead of answering on it.
    """
    found = Kills()
    files, tasks = open_files(), trio.lowlevel.current_statistics().tasks_living
    old: set[trio.SocketStream] = set()

    async def answer_or_give_up(exchange: Exchange) -> None:
        if exchange.tcp in old and not chance.randrange(5):
            old.remove(exchange.tcp)
            await chance.choice([drop, reset])()(exchange)
        old.add(exchange.tcp)
        await piecemeal(exchange)

    async with keeping(answer_or_give_up, tls=tls) as (server, io):
        env = io.env
        while found.stopped < kills:
            with capture_logs() as lines:
                if await stopped_at_random(aiio.IO(env=env, model="peer/m"), chance):
                    found.stopped += 1
                else:
                    found.done += 1
            assert not env.active_io
            [line] = settled(lines)
            found.reused += line.get("reused", False)
            found.redone += line.get("redone", 0)
            server.requests.clear()
        kept = env.transport(server.url).kept
        await env.aclose()
        assert len(kept) == 0
        await server.wait_idle()
        found.connections = server.connections
    old.clear()
    assert (open_files(), trio.lowlevel.current_statistics().tasks_living) == (files, tasks)
    return found


async def piecemeal(exchange: Exchange) -> None:
    """Answer in pieces, each sent when the client has nothing to do, so that it may be stopped at each."""
    await head()(exchange)
    pieces = [event(one) for one in (text("One "), text("two "), text("three."), stop(), usage(), DONE)]
    await drip(*pieces)(exchange)
    await chunk_end()(exchange)


async def stopped_at_random(io: aiio.IO, chance: random.Random) -> bool:
    """Write, to be stopped at some checkpoint from within or without; tell whether it was."""
    scope = trio.CancelScope()
    stepper = Stepper(chance.randint(1, 16), chance.choice([io.kill_nowait, scope.cancel]))
    seen = Seen()
    trio.lowlevel.add_instrument(stepper)
    try:
        with scope:
            stepper.watch()
            await write(io, seen=seen)
    finally:
        stepper.unwatch()
        trio.lowlevel.remove_instrument(stepper)
    assert "One two three.".startswith(seen.text)
    if isinstance(seen.terminal, aiio.Error):
        assert seen.error.cancelled, seen.error
        return True
    assert seen.text == "One two three."
    return False
