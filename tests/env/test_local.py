from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock, wait_all_tasks_blocked

from aiio.env.auth import Secret
from aiio.env.errors import ErrorKind, ProviderError
from aiio.env.local import LocalModel


class FakeServer:
    def __init__(self, number: int) -> None:
        self.url, self.key = f"http://127.0.0.1:{number}/v1", Secret(f"key-{number}")
        self.alive = True

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        self.alive = False


class Bench:
    """A LocalModel with everything around it under the test's hand."""

    def __init__(self, nursery: trio.Nursery, *, idle_after: float = 600.0) -> None:
        self.nursery = nursery
        self.started: list[FakeServer] = []
        self.starting = 0
        self.delay = 0.0
        self.fault: ProviderError | None = None
        self.by_hand: FakeServer | None = None
        self.busy = False
        self.watchers = 0
        self.model = LocalModel(
            start=self._start, adopt=self._adopt, tasks=self, busy=lambda: self.busy, idle_after=idle_after
        )

    def runs(self) -> bool:
        return self.model.running

    def start_soon(self, fn: Callable[[], Awaitable[None]], /) -> None:
        self.watchers += 1
        self.nursery.start_soon(fn)

    async def _start(self) -> FakeServer:
        self.starting += 1
        await trio.sleep(self.delay)
        if self.fault is not None:
            raise self.fault
        self.started.append(FakeServer(len(self.started) + 1))
        return self.started[-1]

    async def _adopt(self) -> FakeServer | None:
        await trio.lowlevel.checkpoint()
        return self.by_hand


async def test_the_server_starts_on_first_use_and_is_shared(nursery: trio.Nursery) -> None:
    bench = Bench(nursery)
    assert not bench.runs()
    with trio.testing.assert_checkpoints():
        assert await bench.model.address() == ("http://127.0.0.1:1/v1", Secret("key-1"))
    assert await bench.model.address() == ("http://127.0.0.1:1/v1", Secret("key-1"))
    assert bench.starting == bench.watchers == 1
    assert bench.runs()
    nursery.cancel_scope.cancel()


async def test_concurrent_first_users_wait_for_the_same_start(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        bench = Bench(nursery)
        bench.delay = 5
        async with trio.open_nursery() as users:
            for _ in range(12):
                users.start_soon(bench.model.address)
        assert trio.current_time() == 5
        assert bench.starting == 1
        nursery.cancel_scope.cancel()


async def test_those_who_waited_share_the_failure_and_the_next_tries_again(autojump_clock: MockClock) -> None:
    faults: list[ProviderError] = []

    async def user(model: LocalModel) -> None:
        with pytest.raises(ProviderError, match="no weights") as caught:
            await model.address()
        faults.append(caught.value)

    async with trio.open_nursery() as nursery:
        bench = Bench(nursery)
        bench.delay = 5
        bench.fault = ProviderError(ErrorKind.PROVIDER, "no weights", code="no_weights")
        async with trio.open_nursery() as users:
            for _ in range(12):
                users.start_soon(user, bench.model)
        assert bench.starting == 1
        assert len({id(fault) for fault in faults}) == 12
        assert {fault.code for fault in faults} == {"no_weights"}
        bench.fault = None
        await bench.model.address()
        assert bench.starting == 2
        nursery.cancel_scope.cancel()


async def test_a_start_may_be_cancelled_and_the_next_in_line_starts_anew(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        bench = Bench(nursery)
        bench.delay = 5
        first = trio.CancelScope()

        async def cancelled() -> None:
            with first:
                await bench.model.address()

        nursery.start_soon(cancelled)
        await wait_all_tasks_blocked()
        nursery.start_soon(bench.model.address)
        await wait_all_tasks_blocked()
        first.cancel()
        await trio.sleep(6)
        assert bench.starting == 2
        assert bench.runs()
        nursery.cancel_scope.cancel()


async def test_a_crashed_server_is_replaced_at_the_next_use(nursery: trio.Nursery) -> None:
    bench = Bench(nursery)
    await bench.model.address()
    bench.started[0].alive = False
    assert not bench.runs()
    assert (await bench.model.address())[0] == "http://127.0.0.1:2/v1"
    assert bench.watchers == 1
    nursery.cancel_scope.cancel()


async def test_a_server_started_by_hand_is_used_while_it_lives_and_never_stopped(
    nursery: trio.Nursery,
) -> None:
    bench = Bench(nursery)
    by_hand = bench.by_hand = FakeServer(99)
    assert (await bench.model.address())[0] == "http://127.0.0.1:99/v1"
    bench.by_hand = None
    assert (await bench.model.address())[0] == "http://127.0.0.1:99/v1"
    assert bench.starting == bench.watchers == 0
    await bench.model.aclose()
    assert by_hand.alive
    by_hand.alive = False
    assert (await bench.model.address())[0] == "http://127.0.0.1:1/v1"
    nursery.cancel_scope.cancel()


async def test_an_idle_server_is_stopped_and_starts_again(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        bench = Bench(nursery, idle_after=600)
        await bench.model.address()
        await trio.sleep(400)
        await bench.model.address()
        await trio.sleep(400)
        assert bench.runs()  # the clock runs from the last use
        await trio.sleep(201)
        assert not bench.runs()
        await bench.model.address()
        assert bench.starting == bench.watchers == 2
        nursery.cancel_scope.cancel()


async def test_a_busy_server_is_not_idle(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        bench = Bench(nursery, idle_after=600)
        await bench.model.address()
        bench.busy = True
        await trio.sleep(1300)
        assert bench.runs()
        bench.busy = False
        await trio.sleep(1100)
        assert not bench.runs()
        # The watcher has ended with the server: nothing keeps the nursery open.


async def test_never_idle_is_never_stopped(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        bench = Bench(nursery, idle_after=math.inf)
        await bench.model.address()
        await trio.sleep(80_000)
        assert bench.runs()
        nursery.cancel_scope.cancel()


async def test_closing_ends_the_server(nursery: trio.Nursery) -> None:
    bench = Bench(nursery)
    await bench.model.aclose()
    await bench.model.address()
    await bench.model.aclose()
    assert not bench.started[0].alive
    await bench.model.aclose()
    nursery.cancel_scope.cancel()


async def test_nothing_starts_where_nothing_could_end_it() -> None:
    class Closed:
        def start_soon(self, fn: Any, /) -> None:
            raise RuntimeError("not entered")

    async def start() -> Any:
        raise AssertionError("started")

    async def adopt() -> None:
        await trio.lowlevel.checkpoint()

    model = LocalModel(start=start, adopt=adopt, tasks=Closed(), busy=lambda: False)
    with pytest.raises(RuntimeError, match="not entered"):
        await model.address()
