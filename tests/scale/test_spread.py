"""Prompts over several workers, on the engine without processes: who gets what, and what a loss costs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import trio
from trio.testing import MockClock

from aiio.context.events import Done, Error, ErrorKind
from aiio.scale import Ended, Job, LocalEngine, Lost, Recipe, Report, Spread, open_spread
from aiio.testing import Step, finish, hang, pause, say, scripted
from aiio.testing.script_provider import ScriptedPeer

ANSWER = (say("Hel"), pause("1s"), say("lo"), finish())


class Fragile(LocalEngine):
    """Ends workers; those of the names in *stillborn* never come up, which if *silent* nobody says."""

    stillborn: frozenset[str] = frozenset()
    silent = False
    busy = ""
    """Who was given something last."""

    def lose(self, worker: str) -> None:
        self.workers[worker].close()

    async def start(self, worker: str, jobs: Sequence[Job]) -> None:
        if worker in self.stillborn or "all" in self.stillborn:
            assert not jobs
            if not self.silent:
                self._mailbox.put(Lost(worker=worker, reason="stillborn"))
        else:
            self.busy = worker if jobs else self.busy
            await super().start(worker, jobs)


@dataclass
class Bench:
    peer: ScriptedPeer
    engine: Fragile

    def jobs(self, count: int) -> list[Job]:
        return [Job(key=f"k{n}", model=self.peer.model, text=f"prompt {n}") for n in range(count)]


@asynccontextmanager
async def bench(*steps: Step, recipe: Recipe | None = None) -> AsyncIterator[Bench]:
    async with scripted(*steps) as peer:
        yield Bench(peer, Fragile(peer.env, recipe))


@asynccontextmanager
async def nine_that_hang() -> AsyncIterator[tuple[Bench, Spread]]:
    """Nine prompts for two workers, four at a time; each gets half an answer."""
    async with (
        bench(say("Half"), hang()) as b,
        open_spread(b.engine, b.jobs(9), workers=2, max_active=4) as spread,
    ):
        yield b, spread


async def all_of(spread: Spread) -> list[Ended]:
    return [ended async for ended in spread]


def text_of(ended: Ended) -> str:
    assert ended.terminal.message is not None
    return str(ended.terminal.message["content"][0]["text"])


async def test_every_prompt_ends_once_and_each_worker_has_its_share(autojump_clock: MockClock) -> None:
    async with bench(*ANSWER) as b, open_spread(b.engine, b.jobs(40), workers=3, max_active=10) as spread:
        assert spread.shares == {"worker-1": 4, "worker-2": 3, "worker-3": 3}
        active: list[int] = []
        b.peer.env.on_event(lambda event: active.append(len(b.peer.env.active_io)))
        ended = await all_of(spread)
    assert sorted(one.key for one in ended) == sorted(job.key for job in b.jobs(40))
    assert all(isinstance(one.terminal, Done) and text_of(one) == "Hello" for one in ended)
    assert {one.worker for one in ended} == {"worker-1", "worker-2", "worker-3"}
    assert max(active) == 10
    assert trio.current_time() == 4
    assert ended[0].timings["first_event_ms"] == 0
    assert ended[0].timings["total_ms"] == 1000
    assert {one.unknown_billed for one in ended} == {0}


async def test_few_prompts_are_shared_out_and_no_worker_is_idle_by_design(autojump_clock: MockClock) -> None:
    async with bench(*ANSWER) as b, open_spread(b.engine, b.jobs(4), workers=2, max_active=100) as spread:
        assert sorted(spread.shares.values()) == [2, 2]
        assert {one.worker for one in await all_of(spread)} == {"worker-1", "worker-2"}
    assert trio.current_time() == 1


async def test_a_lost_worker_s_prompts_run_elsewhere_and_are_counted(autojump_clock: MockClock) -> None:
    async def lose_one() -> None:
        await trio.sleep(1.5)
        b.engine.lose("worker-1")

    async with bench(*ANSWER) as b, open_spread(b.engine, b.jobs(10), workers=2, max_active=4) as spread:
        b.peer.env.nursery.start_soon(lose_one)
        ended = await all_of(spread)
        assert list(spread.shares.values()) == [2, 2]
        assert "worker-3" in spread.shares
        assert spread.lost_workers == 1
        assert spread.unknown_billed == 2
    assert sorted(one.key for one in ended) == sorted(job.key for job in b.jobs(10))
    assert all(isinstance(one.terminal, Done) for one in ended)
    assert sorted(one.unknown_billed for one in ended) == [0] * 8 + [1] * 2
    assert len(b.peer.requests) == 12


async def test_a_worker_that_is_lost_idle_takes_nothing_with_it(autojump_clock: MockClock) -> None:
    async def lose_the_idle_one() -> None:
        await trio.sleep(0.5)
        (idle,) = {"worker-1", "worker-2"} - {b.engine.busy}
        b.engine.lose(idle)

    async with bench(*ANSWER) as b, open_spread(b.engine, iter(b.jobs(1)), workers=2, max_active=2) as spread:
        b.peer.env.nursery.start_soon(lose_the_idle_one)
        (ended,) = await all_of(spread)
        assert (spread.lost_workers, spread.unknown_billed) == (1, 0)
        assert len(b.engine.workers) == 2  # for what was left no other one was needed
    assert ended.worker == b.engine.busy
    assert ended.unknown_billed == 0
    assert len(b.peer.requests) == 1


async def test_a_prompt_that_takes_three_workers_with_it_is_given_up(autojump_clock: MockClock) -> None:
    async def lose_whoever_has_it() -> None:
        for number in range(1, 4):
            while len(b.peer.requests) < number:
                await trio.sleep(1)
            b.engine.lose(f"worker-{number}")

    async with bench(say("H"), hang()) as b, open_spread(b.engine, b.jobs(1), max_active=1) as spread:
        b.peer.env.nursery.start_soon(lose_whoever_has_it)
        ended = await all_of(spread)
    assert len(b.peer.requests) == 3
    assert [one.unknown_billed for one in ended] == [3]
    assert isinstance(ended[0].terminal, Error)
    assert ended[0].terminal.kind is ErrorKind.NETWORK
    assert "lost" in ended[0].terminal.error


async def test_a_place_that_stays_empty_gives_its_share_to_the_others(autojump_clock: MockClock) -> None:
    async with bench(*ANSWER) as b:
        b.engine.stillborn = frozenset({f"worker-{number}" for number in (1, 3, 4, 5, 6)})
        async with open_spread(b.engine, b.jobs(12), workers=2, max_active=4) as spread:
            ended = await all_of(spread)
            assert spread.shares == {"worker-2": 4}
    assert all(isinstance(one.terminal, Done) for one in ended)
    assert len(ended) == 12
    assert spread.unknown_billed == 0


async def test_without_a_worker_that_lives_it_says_so_and_sends_nothing(autojump_clock: MockClock) -> None:
    async with bench(*ANSWER) as b:
        b.engine.stillborn = frozenset({"all"})
        async with open_spread(b.engine, b.jobs(5), workers=2, max_active=4) as spread:
            with pytest.raises(trio.BrokenResourceError, match="no worker can be kept alive: stillborn"):
                await all_of(spread)
            assert spread.lost_workers == 10
    assert b.peer.requests == []


async def test_stop_ends_all_with_their_partials_and_sends_no_more(autojump_clock: MockClock) -> None:
    async def stop() -> None:
        await trio.sleep(5)
        spread.stop_nowait("Ctrl-C")

    async with nine_that_hang() as (b, spread):
        b.peer.env.nursery.start_soon(stop)
        ended = await all_of(spread)
        assert spread.in_flight == 0
    assert trio.current_time() == 5
    assert len(b.peer.requests) == len(ended) == 4
    for one in ended:
        assert isinstance(one.terminal, Error)
        assert (one.terminal.kind, one.terminal.error) == (ErrorKind.CANCELLED, "cancelled: Ctrl-C")
        assert text_of(one) == "Half"


async def test_prompts_handed_over_when_it_stops_are_said_not_to_be_sent(autojump_clock: MockClock) -> None:
    async with bench(*ANSWER) as b, b.engine as engine:
        await engine.start("w", ())
        await engine.results()
        engine.stop("Ctrl-C")
        await engine.start("w", b.jobs(2))
        await engine.start("late", b.jobs(1))
        reports: list[Report] = []
        while sum(isinstance(one, Ended) for one in reports) < 3:
            reports += await engine.results()
    errors = [one.terminal for one in reports if isinstance(one, Ended)]
    assert {(e.kind, e.error) for e in errors if isinstance(e, Error)} == {
        (ErrorKind.CANCELLED, "not sent: Ctrl-C")
    }
    assert b.peer.requests == []


async def test_a_worker_that_is_lost_while_stopping_is_not_replaced(autojump_clock: MockClock) -> None:
    async def lose_then_stop() -> None:
        await trio.sleep(5)
        spread.drain_nowait()
        b.engine.lose("worker-1")
        await trio.sleep(5)
        spread.stop_nowait("Ctrl-C")

    async with nine_that_hang() as (b, spread):
        b.peer.env.nursery.start_soon(lose_then_stop)
        ended = await all_of(spread)
    assert len(b.peer.requests) == len(ended) == 4
    kinds = [(one.terminal.kind, one.unknown_billed) for one in ended if isinstance(one.terminal, Error)]
    assert kinds == [(ErrorKind.NETWORK, 1)] * 2 + [(ErrorKind.CANCELLED, 0)] * 2


async def test_prompts_that_wait_for_another_worker_end_when_it_drains(autojump_clock: MockClock) -> None:
    async def lose_both_then_drain() -> None:
        await trio.sleep(5)
        b.engine.stillborn = frozenset({"all"})
        b.engine.silent = True
        b.engine.lose("worker-1")
        b.engine.lose("worker-2")
        await trio.sleep(5)
        spread.drain_nowait()

    async with nine_that_hang() as (b, spread):
        b.peer.env.nursery.start_soon(lose_both_then_drain)
        ended = await all_of(spread)
    assert trio.current_time() == 10
    assert sorted(one.key for one in ended) == ["k0", "k1", "k2", "k3"]
    assert {(one.terminal.kind, one.unknown_billed) for one in ended if isinstance(one.terminal, Error)} == {
        (ErrorKind.NETWORK, 1)
    }
    assert {one.worker for one in ended} == {"worker-1", "worker-2"}


async def test_stop_ends_the_wait_for_workers_that_never_come(autojump_clock: MockClock) -> None:
    async def stop() -> None:
        await trio.sleep(5)
        spread.stop_nowait("Ctrl-C")

    async with bench(*ANSWER) as b:
        b.engine.stillborn, b.engine.silent = frozenset({"all"}), True
        async with open_spread(b.engine, b.jobs(5), workers=2, max_active=4) as spread:
            b.peer.env.nursery.start_soon(stop)
            assert await all_of(spread) == []
    assert trio.current_time() == 5


async def test_drained_it_ends_with_what_is_in_flight(autojump_clock: MockClock) -> None:
    async with bench(*ANSWER) as b, open_spread(b.engine, b.jobs(9), workers=2, max_active=4) as spread:
        await anext(spread)
        spread.drain_nowait()
        assert len(await all_of(spread)) == 3
    assert len(b.peer.requests) == 4


async def test_jobs_are_taken_one_by_one_and_may_end_early(autojump_clock: MockClock) -> None:
    taken: list[str] = []

    def some(jobs: list[Job]) -> Iterator[Job]:
        for job in jobs[:5]:
            taken.append(job.key)
            yield job

    async with bench(*ANSWER) as b, open_spread(b.engine, some(b.jobs(9)), max_active=2) as spread:
        assert taken == []
        await anext(spread)
        assert len(taken) == 2
        assert len(await all_of(spread)) == 4
        assert len(taken) == 5


async def test_a_cancelled_wait_loses_nothing(autojump_clock: MockClock) -> None:
    async with bench(*ANSWER) as b, open_spread(b.engine, b.jobs(6), workers=2, max_active=3) as spread:
        ended: list[Ended] = []
        while len(ended) < 6:
            with trio.move_on_after(0.3):
                ended.append(await anext(spread))
        with trio.CancelScope() as scope:
            scope.cancel()
            await anext(spread)
        assert scope.cancelled_caught
    assert sorted(one.key for one in ended) == sorted(job.key for job in b.jobs(6))
    assert len(b.peer.requests) == 6


async def test_an_engine_that_fails_to_start_a_worker_is_closed(autojump_clock: MockClock) -> None:
    class Full(LocalEngine):
        async def start(self, worker: str, jobs: Sequence[Job]) -> None:
            if worker == "worker-2":
                raise OSError("no room")
            await super().start(worker, jobs)

    async with bench(*ANSWER) as b:
        engine = Full(b.peer.env)
        with pytest.raises(OSError, match="no room"):
            await open_spread(engine, b.jobs(4), workers=2, max_active=4).__aenter__()
        with pytest.raises(RuntimeError, match="not open"):
            await engine.start("worker-3", ())


async def test_prompts_that_an_engine_did_not_take_are_handed_out_again(autojump_clock: MockClock) -> None:
    class Slow(LocalEngine):
        async def start(self, worker: str, jobs: Sequence[Job]) -> None:
            if jobs:
                await trio.sleep(1)
            await super().start(worker, jobs)

    async with (
        bench(*ANSWER) as b,
        open_spread(Slow(b.peer.env), b.jobs(6), workers=2, max_active=4) as spread,
    ):
        with trio.move_on_after(0.5) as scope:
            await anext(spread)
        assert scope.cancelled_caught
        assert spread.in_flight == 0
        ended = await all_of(spread)
    assert sorted(one.key for one in ended) == sorted(job.key for job in b.jobs(6))
    assert len(b.peer.requests) == 6


async def test_leaving_the_block_by_an_exception_ends_all_and_it_leaves_as_itself(
    autojump_clock: MockClock,
) -> None:
    async with bench(say("Half"), hang()) as b:
        with pytest.raises(KeyError, match="mine"):
            async with open_spread(b.engine, b.jobs(4), workers=2, max_active=4) as spread:
                with trio.move_on_after(5):
                    await anext(spread)
                assert len(b.peer.env.active_io) == 4
                raise KeyError("mine")
        assert not b.peer.env.active_io
    assert trio.current_time() == 5


async def test_what_a_worker_can_t_ask_is_a_result_and_a_worker_that_crashes_is_lost(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(*ANSWER) as b:
        jobs = [Job(key="bad", model="nosuch/m", text="x"), *b.jobs(1)]
        async with open_spread(b.engine, jobs, max_active=2) as spread:
            by_key = {one.key: one.terminal async for one in spread}
        assert isinstance(by_key["bad"], Error)
        assert "'nosuch'" in by_key["bad"].error
        assert isinstance(by_key["k0"], Done)

        def broken(*_: object) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr("aiio.scale.worker.terminal_of", broken)
        engine = LocalEngine(b.peer.env)
        async with open_spread(engine, b.jobs(1), max_active=1) as spread:
            ended = await all_of(spread)
    assert isinstance(ended[0].terminal, Error)
    assert ended[0].terminal.error == "its worker was lost (ZeroDivisionError: a bug)"


async def test_settings_limits_and_system_text_reach_the_request(autojump_clock: MockClock) -> None:
    recipe = Recipe(stuck_timeout="20s")
    async with bench(say("Half"), hang(), recipe=recipe) as b:
        job = Job(key="k", model=b.peer.model, text="x", system="Be brief.")
        async with open_spread(b.engine, [job], max_active=1) as spread:
            (ended,) = await all_of(spread)
    assert isinstance(ended.terminal, Error)
    assert ended.terminal.limit == "stuck"
    assert "Be brief." in str(b.peer.requests[0])


async def test_misuse_is_an_exception_at_once(autojump_clock: MockClock) -> None:
    async with bench(*ANSWER) as b:
        for wrong in ({"workers": 0, "max_active": 1}, {"max_active": 0}):
            with pytest.raises(ValueError, match="at least 1"):
                open_spread(b.engine, [], **wrong)
        with pytest.raises(TypeError, match="whole number"):
            open_spread(b.engine, [], max_active=True)
        with pytest.raises(RuntimeError, match="not open"):
            await b.engine.start("w", ())
        async with open_spread(b.engine, [], max_active=1) as spread:
            assert await all_of(spread) == []
        with pytest.raises(RuntimeError, match="entered once"):
            await b.engine.__aenter__()
