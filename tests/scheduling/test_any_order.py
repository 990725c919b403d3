"""Whatever order ready tasks run in: the first cause is the one reported, and books and slots add up."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import aiio
from tests.faults.peer import Seen, write
from tests.io.scripted import HANG, Head, Pause, Step, finish, say, scripts
from tests.io.ws_peers import DIALECTS as SOCKETS
from tests.serving import Exchange, chunk, head, last_chunk, serve

from .stepping import order

SEEDS = range(20)
AT_ONCE = 12


@dataclass
class Plan:
    """One write: when each thing that may end it is due, in seconds after its slot; None: never."""

    pieces: list[int]
    """Whole seconds, so that message data never comes at the instant of a limit."""
    done: int | None
    overall: float | None
    stuck: float | None
    kill: float | None
    outer: float | None

    @classmethod
    def any(cls, chance: random.Random) -> Plan:
        """Return one whose causes often fall on the same instant."""
        moments = (None, None, 1.5, 2.5, 3.5)
        pieces = sorted(chance.sample(range(1, 4), chance.randrange(3)))
        return cls(
            pieces=pieces,
            done=chance.choice((None, 4, 5)),
            overall=chance.choice(moments),
            stuck=chance.choice(moments),
            kill=chance.choice(moments),
            outer=chance.choice((*moments[:4], 8.5)),
        )

    def script(self) -> list[Step]:
        """Return what the transport plays."""
        steps: list[Step] = [Head()]
        now = 0
        for at in self.pieces:
            steps += [Pause(at - now), say(f"{at} ")]
            now = at
        return [*steps, Pause(self.done - now), finish()] if self.done else [*steps, HANG]

    def causes(self) -> set[str]:
        """Return what may be reported: what is due first, and of what is due together what goes before."""
        due: dict[str, float | None] = {
            "kill": self.kill,
            "outer": self.outer,
            "overall": self.overall,
            "done": self.done,
        }
        if self.stuck is not None:
            progress = [0, *self.pieces, *([self.done] if self.done else [])]
            gaps = zip(progress, [*progress[1:], float("inf")], strict=True)
            stuck = next(at + self.stuck for at, following in gaps if at + self.stuck < following)
            due["stuck"] = stuck if not self.done or stuck < self.done else None
        moments = {cause: at for cause, at in due.items() if at is not None}
        if not moments:
            return set()
        first = {cause for cause, at in moments.items() if at == min(moments.values())}
        for limit in (
            "overall",
            "stuck",
        ):  # a limit whose time has come was there before a task that runs then
            if limit in first:
                return {limit}
        return first


def said(terminal: aiio.Done | aiio.Error) -> str:
    """Return the cause that *terminal* reports."""
    if isinstance(terminal, aiio.Done):
        return "done"
    return terminal.limit or ("outer" if "outside" in terminal.error else "kill")


async def carry_out(plan: Plan, env: aiio.Env, seen: Seen) -> None:
    """Write by *plan*, whose seconds begin now."""
    io = aiio.IO(env=env, model="script/m")
    scope = trio.CancelScope()

    async def at(seconds: float | None, act: Any) -> None:
        if seconds is not None:
            await trio.sleep(seconds)
            act()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(at, plan.kill, io.kill_nowait)
        nursery.start_soon(at, plan.outer, scope.cancel)
        with scope:
            await write(
                io,
                seen=seen,
                timeout=f"{plan.overall}s" if plan.overall else "never",
                stuck_timeout=f"{plan.stuck}s" if plan.stuck else "never",
            )
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", SEEDS)
def test_B2_the_first_cause_is_reported_in_any_order_of_tasks(seed: int) -> None:
    chance = random.Random(seed)
    plans: list[Plan] = []
    while len(plans) < AT_ONCE:
        plan = Plan.any(chance)
        plans += [plan] if plan.causes() else []
    reports = [Seen() for _ in plans]

    async def main() -> None:
        async with scripts(*(plan.script() for plan in plans)) as (env, wire):
            async with trio.open_nursery() as nursery:
                for plan, seen in zip(plans, reports, strict=True):
                    nursery.start_soon(carry_out, plan, env, seen)
                    await trio.testing.wait_all_tasks_blocked()  # scripts are played in the order of requests
            assert wire.open == 0
            assert not env.active_io

    with order(seed):
        trio.run(main, clock=MockClock(autojump_threshold=0))
    for plan, seen in zip(plans, reports, strict=True):
        assert said(seen.terminal) in plan.causes(), plan


@pytest.mark.parametrize("seed", SEEDS[:8])
def test_B2_slots_and_books_add_up_over_real_sockets_in_any_order_of_tasks(seed: int) -> None:
    """Many writes share three slots; some are killed, some cancelled, at any moment; all have one end."""
    chance = random.Random(seed)
    terminals: list[Any] = []

    async def respond(exchange: Exchange) -> None:
        await head()(exchange)
        for event in SOCKETS["openai_responses_ws"].whole:
            await trio.lowlevel.checkpoint()
            await chunk(b"data: " + json.dumps(event).encode() + b"\n\n")(exchange)
        await last_chunk()(exchange)

    async def one(env: aiio.Env, way: str, patience: int) -> None:
        io, scope, seen = aiio.IO(env=env, model="peer/m"), trio.CancelScope(), Seen()

        async def stop() -> None:
            for _ in range(patience):
                await trio.lowlevel.checkpoint()
            await io.kill() if way == "kill" else scope.cancel()

        async with trio.open_nursery() as nursery:
            if way != "answer":
                nursery.start_soon(stop)
            with scope:
                await write(io, seen=seen)
            nursery.cancel_scope.cancel()
        terminals.append(seen.terminal)

    async def main() -> None:
        async with serve(respond) as server, aiio.Env(max_active=3, environ={}) as env:
            env.register_endpoint("peer", provider="openai_responses", url=server.url, auth="key-1")
            async with trio.open_nursery() as nursery:
                for _ in range(AT_ONCE):
                    way = chance.choice(("answer", "answer", "kill", "cancel"))
                    nursery.start_soon(one, env, way, chance.randrange(60))
            assert not env.active_io
            assert not env.queued
            with trio.fail_after(5):
                await server.wait_idle()

    with order(seed):
        trio.run(main)
    assert len(terminals) == AT_ONCE
    assert {said(one) for one in terminals} <= {"done", "kill", "outer"}
