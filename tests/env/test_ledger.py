from __future__ import annotations

import math
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock, wait_all_tasks_blocked

from aiio.env.ledger import Ledger


class Worker:
    """Holds a slot until told to let go."""

    def __init__(self, ledger: Ledger, name: str, order: list[str]) -> None:
        self.ledger, self.name, self.order = ledger, name, order
        self.let_go = trio.Event()
        self.scope = trio.CancelScope()

    async def run(self) -> None:
        with self.scope:
            await self.ledger.acquire(self)
            try:
                self.order.append(self.name)
                await self.let_go.wait()
            finally:
                self.ledger.release(self)


async def start(nursery: trio.Nursery, ledger: Ledger, names: str, order: list[str]) -> dict[str, Worker]:
    workers = {}
    for name in names:
        workers[name] = Worker(ledger, name, order)
        nursery.start_soon(workers[name].run)
        await wait_all_tasks_blocked()
    return workers


async def test_first_come_first_served(nursery: trio.Nursery) -> None:
    order: list[str] = []
    ledger = Ledger(2)
    workers = await start(nursery, ledger, "abcde", order)
    assert order == ["a", "b"]
    assert (len(ledger.active), ledger.queued) == (2, 3)
    assert workers["a"] in ledger.active
    assert workers["c"] not in ledger.active
    assert ledger.active & {workers["a"], workers["c"]} == {workers["a"]}
    for name in "badec":
        workers[name].let_go.set()
        await wait_all_tasks_blocked()
    assert order == ["a", "b", "c", "d", "e"]
    assert (len(ledger.active), ledger.queued) == (0, 0)


async def test_without_a_limit_nobody_waits() -> None:
    ledger = Ledger()
    for io in range(500):
        await ledger.acquire(io)
    assert len(ledger.active) == 500
    assert ledger.max_active is None


async def test_raising_the_limit_wakes_in_order_and_lowering_lets_the_running_finish(
    nursery: trio.Nursery,
) -> None:
    order: list[str] = []
    ledger = Ledger(1)
    workers = await start(nursery, ledger, "abcde", order)
    ledger.max_active = 3
    assert [worker.name for worker in ledger.active] == ["a", "b", "c"]  # granted in order, at once
    await wait_all_tasks_blocked()
    assert sorted(order) == ["a", "b", "c"]
    ledger.max_active = 1
    workers["a"].let_go.set()
    workers["b"].let_go.set()
    await wait_all_tasks_blocked()
    assert sorted(order) == ["a", "b", "c"]
    ledger.max_active = None
    assert [worker.name for worker in ledger.active] == ["c", "d", "e"]
    await wait_all_tasks_blocked()
    assert sorted(order) == ["a", "b", "c", "d", "e"]
    for worker in workers.values():
        worker.let_go.set()


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "3", math.inf])
def test_a_limit_is_none_or_a_positive_int(limit: Any) -> None:
    with pytest.raises(ValueError, match="max_active"):
        Ledger(limit)
    ledger = Ledger(2)
    with pytest.raises(ValueError, match=repr(limit)):
        ledger.max_active = limit
    assert ledger.max_active == 2


async def test_a_cancelled_waiter_leaves_the_queue(nursery: trio.Nursery) -> None:
    order: list[str] = []
    ledger = Ledger(1)
    workers = await start(nursery, ledger, "abc", order)
    workers["b"].scope.cancel()
    await wait_all_tasks_blocked()
    assert ledger.queued == 1
    workers["a"].let_go.set()
    await wait_all_tasks_blocked()
    assert order == ["a", "c"]
    workers["c"].let_go.set()
    await wait_all_tasks_blocked()
    assert len(ledger.active) == 0


@pytest.mark.parametrize("grant_first", [True, False])
async def test_a_grant_that_races_with_a_cancel_hands_the_slot_on(
    nursery: trio.Nursery, grant_first: bool
) -> None:
    order: list[str] = []
    ledger = Ledger(1)
    await ledger.acquire("holder")
    workers = await start(nursery, ledger, "ab", order)
    if grant_first:
        ledger.release("holder")
        workers["a"].scope.cancel()
    else:
        workers["a"].scope.cancel()
        ledger.release("holder")
    await wait_all_tasks_blocked()
    assert order[-1] == "b"
    assert list(ledger.active) == [workers["b"]]
    workers["b"].let_go.set()
    await wait_all_tasks_blocked()
    assert (len(ledger.active), ledger.queued) == (0, 0)


async def test_the_granted_is_active_before_it_runs_and_nobody_slips_in(nursery: trio.Nursery) -> None:
    order: list[str] = []
    ledger = Ledger(1)
    await ledger.acquire("holder")
    workers = await start(nursery, ledger, "a", order)
    ledger.release("holder")
    assert list(ledger.active) == [workers["a"]]
    late = Worker(ledger, "late", order)
    nursery.start_soon(late.run)
    await wait_all_tasks_blocked()
    assert order == ["a"]
    assert ledger.queued == 1
    nursery.cancel_scope.cancel()


async def test_acquire_is_a_checkpoint_and_holds_nothing_when_cancelled() -> None:
    ledger = Ledger(1)
    with trio.testing.assert_checkpoints():
        await ledger.acquire("a")
    ledger.release("a")
    with trio.CancelScope() as scope:
        scope.cancel()
        await ledger.acquire("b")
    assert scope.cancelled_caught
    assert len(ledger.active) == 0


async def test_misuse_is_refused(nursery: trio.Nursery) -> None:
    ledger = Ledger(1)
    with pytest.raises(ValueError, match="'ghost'"):
        ledger.release("ghost")
    await ledger.acquire("a")
    with pytest.raises(trio.BusyResourceError):
        await ledger.acquire("a")
    nursery.start_soon(ledger.acquire, "b")
    await wait_all_tasks_blocked()
    with pytest.raises(trio.BusyResourceError):
        await ledger.acquire("b")
    nursery.cancel_scope.cancel()


async def test_without_waiting_a_slot_is_had_or_not(nursery: trio.Nursery) -> None:
    ledger = Ledger(1)
    ledger.acquire_nowait("a")
    with pytest.raises(trio.BusyResourceError):
        ledger.acquire_nowait("a")
    with pytest.raises(trio.WouldBlock):
        ledger.acquire_nowait("b")
    nursery.start_soon(ledger.acquire, "c")
    await wait_all_tasks_blocked()
    ledger.release("a")
    with pytest.raises(trio.WouldBlock):  # it is the one who waits that has the slot
        ledger.acquire_nowait("b")
    assert list(ledger.active) == ["c"]
    ledger.max_active = 2
    ledger.acquire_nowait("b")
    assert list(ledger.active) == ["c", "b"]


async def test_C2_max_active_is_the_only_limit(autojump_clock: MockClock) -> None:
    ledger = Ledger(300)
    everybody = trio.Event()

    async def request(io: int) -> None:
        await ledger.acquire(io)
        try:
            if len(ledger.active) == 300:
                everybody.set()
            await everybody.wait()
        finally:
            ledger.release(io)

    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            for io in range(300):
                nursery.start_soon(request, io)
    assert len(ledger.active) == 0


async def test_C2_ten_requests_share_two_slots_and_all_end(autojump_clock: MockClock) -> None:
    ledger = Ledger(2)
    most = 0

    async def request(io: int) -> None:
        nonlocal most
        await ledger.acquire(io)
        try:
            most = max(most, len(ledger.active))
            await trio.sleep(0.2)
        finally:
            ledger.release(io)

    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        for io in range(10):
            nursery.start_soon(request, io)
    assert most == 2
    assert trio.current_time() - begun == pytest.approx(1.0)
