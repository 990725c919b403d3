"""What transports share."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from aiio.transports.base import checkpoint_with_data

TIMES = 20  # whose turn comes first is up to chance


async def test_A3_a_limit_that_passes_while_data_is_in_hand_takes_nothing_away(mock_clock: MockClock) -> None:
    """Another task that holds the loop makes nobody silent: what had come by then is handed over."""

    async def hold_the_loop() -> None:
        mock_clock.jump(11)

    async with trio.open_nursery() as nursery:
        for _ in range(TIMES):
            with trio.move_on_after(10) as stuck:
                nursery.start_soon(hold_the_loop)
                await checkpoint_with_data()
            assert not stuck.cancelled_caught


async def test_a_cancelled_call_takes_nothing() -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        with pytest.raises(trio.Cancelled):
            await checkpoint_with_data()


async def test_it_lets_the_others_run() -> None:
    ran: list[int] = []

    async def run(number: int) -> None:
        ran.append(number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, 1)
        await checkpoint_with_data()
        await checkpoint_with_data()
        assert ran == [1]
