from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock, wait_all_tasks_blocked

from aiio.env.background import Background


class Reports(list[tuple[str, Exception]]):
    def __call__(self, what: str, error: Exception) -> None:
        self.append((what, error))


async def crash(error: BaseException) -> None:
    raise error


async def test_children_run_beside_the_body_and_are_cancelled_at_its_end() -> None:
    seen: list[str] = []

    async def child() -> None:
        try:
            seen.append("runs")
            await trio.sleep_forever()
        finally:
            seen.append("cancelled")

    background = Background(Reports())
    await background.open()
    background.start_soon(child, name="a name")
    await wait_all_tasks_blocked()
    assert seen == ["runs"]
    await background.aclose()
    assert seen == ["runs", "cancelled"]
    with pytest.raises(RuntimeError, match="async with"):
        background.start_soon(child)


async def test_a_child_that_crashes_is_reported_and_the_body_and_its_siblings_go_on() -> None:
    reports = Reports()
    background = Background(reports)
    await background.open()
    sibling = trio.Event()
    background.start_soon(crash, ValueError("bug"))
    background.start_soon(sibling.wait)
    await wait_all_tasks_blocked()
    sibling.set()
    await wait_all_tasks_blocked()
    await background.aclose()
    assert [(what, str(error)) for what, error in reports] == [("crash", "bug")]


async def test_start_hands_over_what_is_reported_and_what_fails_before() -> None:
    reports = Reports()

    async def starts(value: int, *, task_status: trio.TaskStatus[int]) -> None:
        task_status.started(value)
        raise ValueError("later")

    async def fails(*, task_status: trio.TaskStatus[None]) -> None:
        raise KeyError("before")

    async def stays(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep_forever()

    background = Background(reports)
    await background.open()
    assert await background.start(starts, 5) == 5
    await background.start(stays)
    with pytest.raises(KeyError, match="before"):
        await background.start(fails, name="named")
    await wait_all_tasks_blocked()
    assert [str(error) for _, error in reports] == ["later"]
    await background.aclose()


async def test_cancel_ends_all_children_and_new_ones_may_start() -> None:
    background = Background(Reports())
    await background.open()
    with trio.testing.assert_checkpoints():
        await background.cancel()
    ended: list[int] = []

    async def child(number: int) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(number)

    background.start_soon(child, 1)
    background.start_soon(child, 2)
    await wait_all_tasks_blocked()
    await background.cancel()
    assert sorted(ended) == [1, 2]
    background.start_soon(child, 3)
    await wait_all_tasks_blocked()
    await background.aclose()
    await background.aclose()
    assert sorted(ended) == [1, 2, 3]


async def test_B4_outer_cancellation_comes_out_as_itself() -> None:
    background = Background(Reports())
    with trio.CancelScope() as outer:
        await background.open()
        background.start_soon(trio.sleep_forever)
        await wait_all_tasks_blocked()
        outer.cancel()
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            await background.aclose()  # shielded
            raise
    assert outer.cancelled_caught


async def test_B4_the_bodys_own_error_survives_a_cancellation_around_it() -> None:
    async def tidy() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await wait_all_tasks_blocked()  # still busy while the nursery closes

    background = Background(Reports())
    error = ValueError("the body's")
    with trio.CancelScope() as outer, pytest.raises(ValueError, match="the body's") as caught:
        await background.open()
        try:
            background.start_soon(tidy)
            await wait_all_tasks_blocked()
            outer.cancel()
            raise error
        finally:
            await background.aclose()
    assert caught.value is error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
async def test_B4_an_interrupt_in_a_child_ends_the_body_and_comes_out_as_itself(error: BaseException) -> None:
    background = Background(Reports())
    await background.open()
    background.start_soon(crash, error)
    background.start_soon(trio.sleep_forever)
    with pytest.raises(type(error)) as caught:
        try:
            await trio.sleep_forever()
        finally:
            await background.aclose()
    assert caught.value is error


async def test_a_child_without_a_name_is_reported_by_its_repr() -> None:
    class Job:
        def __repr__(self) -> str:
            return "<Job>"

        async def __call__(self) -> Any:
            raise ValueError("bug")

    reports = Reports()
    background = Background(reports)
    await background.open()
    background.start_soon(Job())
    await wait_all_tasks_blocked()
    await background.aclose()
    assert reports[0][0] == "<Job>"


async def test_a_child_that_has_not_run_yet_is_cancelled_too(autojump_clock: MockClock) -> None:
    ran: list[str] = []

    async def child() -> None:
        ran.append("began")
        await trio.sleep_forever()

    background = Background(Reports())
    await background.open()
    background.start_soon(child)
    await background.aclose()
    assert trio.current_time() == 0
