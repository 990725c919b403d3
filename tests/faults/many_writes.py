"""Run by test_many_writes.py in a process of its own: thousands of writes on one Env, half of them cut short.

    python -m tests.faults.many_writes SEED

Prints, as JSON, how they ended, and what the process held before and after. Peer and writes share the one
trio run. The real clock rules, so nothing here asks *when*: a write that a limit is to stop talks to a
peer that says nothing more, and one to be killed is killed at whatever moment it is then at.
"""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import trio
import trio.testing

import aiio
from tests.serving import Server, chunk, head, last_chunk, serve, stall

from .peer import DONE, MODEL, event, open_files, peer, stop, text, text_of, usage

WRITES, AT_ONCE, WARM_UP = 2000, 100, 700
PIECES = [f"piece {number} " for number in range(12)]
WHOLE = "".join(PIECES)
LATEST_KILL = 0.3
"""Seconds after its start by which a write is killed: about what one takes with a hundred beside it."""
LIMITS: dict[str, dict[str, Any]] = {
    "connect": {"connect_timeout": "10ms"},
    "stuck": {"stuck_timeout": "30ms"},
    "overall": {"timeout": "30ms"},
}
OPEN_LIMITS = {"timeout": "never", "connect_timeout": "never", "stuck_timeout": "never"}


class Run:
    """Writes on one Env, and what became of them."""

    def __init__(self, env: aiio.Env, server: Server, chance: random.Random) -> None:
        self.env, self.server, self.chance = env, server, chance
        self.ended: Counter[str] = Counter()
        self.wrong: list[str] = []

    async def writes(self, count: int) -> None:
        """Run *count* writes, `AT_ONCE` at a time."""
        fates = [self.fate(number) for number in range(count)]
        self.chance.shuffle(fates)

        async def work() -> None:
            while fates:
                await fates.pop()()

        async with trio.open_nursery() as nursery:
            for _ in range(AT_ONCE):
                nursery.start_soon(work)

    def fate(self, number: int) -> Callable[[], Any]:
        """Half of all are answered; the rest is killed, cancelled from outside, or stopped by a limit."""
        if number % 2:
            return lambda: self.write("answered", "whole")
        way = self.chance.choice(["kill", "kill_nowait", "kill in a callback", "outer", *LIMITS])
        if way in LIMITS:
            return lambda: self.write(way, f"until {way}", **LIMITS[way])
        after = self.chance.uniform(0, LATEST_KILL)
        pieces = self.chance.randint(1, len(PIECES))
        behaviour = self.chance.choice(["whole", "until connect", "until stuck"])
        if way == "kill in a callback":
            return lambda: self.write(way, "whole", stop_at=pieces)
        return lambda: self.stopped(way, behaviour, after)

    async def stopped(self, way: str, behaviour: str, after: float) -> None:
        """Write, and stop it from outside *after* seconds, whatever it does then."""
        io = aiio.IO(env=self.env, model=MODEL)
        scope = trio.CancelScope()

        async def later() -> None:
            await trio.sleep(after)
            if way == "outer":
                scope.cancel()
            elif way == "kill":
                await io.kill("enough")
            else:
                io.kill_nowait("enough")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(later)
            with scope:
                await self.write(way, behaviour, io=io)

    async def write(
        self, way: str, behaviour: str, *, io: aiio.IO | None = None, stop_at: int = 0, **limits: Any
    ) -> None:
        """Write once to a peer that behaves so, and note how it ended."""
        io = io or aiio.IO(env=self.env, model=MODEL)
        terminals: list[Any] = []
        heard = 0

        def piece_came(one: Any) -> None:
            nonlocal heard
            heard += 1
            if heard == stop_at:
                io.kill_nowait()

        callbacks = {"on_text_delta": piece_came, "on_done": terminals.append, "on_error": terminals.append}
        context = [aiio.user_message(behaviour)]
        try:
            await io.write(context, callbacks, **{**OPEN_LIMITS, **limits})
        finally:
            self.note(way, terminals, io)
            self.server.requests.clear()  # what the peer keeps is not what is measured
            self.server.faults.clear()

    def note(self, way: str, terminals: list[Any], io: aiio.IO) -> None:
        """Count how a write ended, and take down what should not be."""
        if len(terminals) != 1 or io in self.env.active_io or io.state not in ("idle", "closed"):
            self.wrong.append(f"{way}: {len(terminals)} terminal events, state {io.state}")
            return
        (terminal,) = terminals
        said = text_of(terminal.message)
        how = "done" if isinstance(terminal, aiio.Done) else terminal.limit or str(terminal.kind)
        self.ended[f"{how} with a partial" if how == "cancelled" and said else how] += 1
        expected = {"answered": {"done"}, **{limit: {limit} for limit in LIMITS}}
        if how not in expected.get(way, {"done", "cancelled"}):
            self.wrong.append(f"{way}: {how}: {terminal}")
        if said != WHOLE if how == "done" else not WHOLE.startswith(said):
            self.wrong.append(f"{way}: {how}: {said!r}")


async def behave(exchange: Any) -> None:
    """Answer as the last message asks."""
    behaviour = exchange.request.json()["messages"][-1]["content"]
    if behaviour == "until connect":
        await stall()(exchange)
    steps = [head(), *(chunk(event(text(piece))) for piece in PIECES)]
    if behaviour == "whole":
        steps += [chunk(event(stop()) + event(usage()) + event(DONE)), last_chunk()]
    else:
        steps = [*steps[:5], stall()]
    for step in steps:
        await step(exchange)
        await trio.lowlevel.checkpoint()


def held() -> dict[str, int]:
    """Count what this process holds."""
    gc.collect()
    folder = "/proc/self/fd"
    links = [
        os.readlink(f"{folder}/{name}") for name in os.listdir(folder) if os.path.exists(f"{folder}/{name}")
    ]
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * resource.getpagesize()
    return {
        "tasks": trio.lowlevel.current_statistics().tasks_living,
        "threads": threading.active_count(),
        "files": open_files(),
        "sockets": sum(link.startswith("socket:") for link in links),
        "resident": resident,
    }


async def settled(server: Server) -> dict[str, int]:
    """Wait until the peer has no connection left, or is not to be rid of one, and count."""
    with trio.move_on_after(5):
        await server.wait_idle()
    await trio.testing.wait_all_tasks_blocked(0.01)
    return held()


async def main(seed: int) -> dict[str, Any]:
    async with serve(behave) as server, peer(server) as env:
        warm_up, run = (Run(env, server, random.Random(f"{seed} {name}")) for name in ("warm-up", "run"))
        await warm_up.writes(WARM_UP)
        before = await settled(server)
        await run.writes(WRITES)
        after = await settled(server)
        return {
            "before": before,
            "after": after,
            "ended": dict(run.ended),
            "wrong": (warm_up.wrong + run.wrong)[:5],
            "ledger": [len(env.active_io), env.queued],
            "connections": server.connections,
        }


if __name__ == "__main__":
    print(json.dumps(trio.run(main, int(sys.argv[1]))))
