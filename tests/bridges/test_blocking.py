"""`run_sync`: trio for callers who have none, and what Ctrl-C does to it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Awaitable, Callable, Collection
from contextvars import ContextVar
from typing import Any

import pytest
import trio

import aiio.bridges.blocking as blocking
from aiio.bridges import Interrupted, run_sync
from aiio.context.events import Done, Error, Terminal
from aiio.context.types import user_message
from aiio.io import IO

from .talking import MODEL, answer, half, talking, threads

QUESTION = [user_message("Name three birds.")]


def press_ctrl_c(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGINT)


async def ask() -> Terminal:
    async with talking(*answer("Wren, ", "robin.")) as (env, _):
        return await IO(env=env, model=MODEL).write(QUESTION)


def test_run_sync_writes_and_leaves_no_thread() -> None:
    before = threads()
    terminal = run_sync(ask)
    assert isinstance(terminal, Done)
    assert terminal.message is not None
    assert terminal.message["content"][0]["text"] == "Wren, robin."
    assert threads() == before


def test_the_function_gets_its_arguments_and_the_context_of_its_caller() -> None:
    who: ContextVar[str] = ContextVar("who")
    who.set("me")

    async def fn(first: int, second: str) -> tuple[int, str, str, bool]:
        await trio.lowlevel.checkpoint()
        return first, second, who.get(), trio.lowlevel.in_trio_run()

    assert run_sync(fn, 1, "two") == (1, "two", "me", True)


def test_what_the_function_raises_is_raised_as_it_is() -> None:
    async def fn(error: BaseException) -> None:
        raise error

    for error in (LookupError("a bug"), SystemExit(3), KeyboardInterrupt("its own")):
        with pytest.raises(type(error)) as caught:
            run_sync(fn, error)
        assert caught.value is error


@pytest.mark.parametrize("wrong", [None, 3])
def test_anything_but_a_function_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="run_sync takes an async function and its arguments, not "):
        run_sync(wrong)


async def test_from_within_trio_it_is_refused() -> None:
    with pytest.raises(RuntimeError, match="await the function instead"):
        run_sync(ask)


def test_it_works_in_a_thread_of_trio() -> None:
    async def outer() -> Terminal:
        return await trio.to_thread.run_sync(run_sync, ask)

    assert isinstance(run_sync(outer), Done)


def test_ctrl_c_in_mid_write_gives_the_partial() -> None:
    before = threads()
    ended: list[Terminal] = []

    async def fn() -> None:
        async with talking(*half("Wren, ro")) as (env, server):
            io = IO(env=env, model=MODEL)
            try:
                await io.write(QUESTION, {"on_text_delta": press_ctrl_c, "on_error": ended.append})
            finally:
                with trio.CancelScope(shield=True):
                    await server.wait_idle()

    with pytest.raises(Interrupted, match=r"interrupted: 1 request was cut off") as caught:
        run_sync(fn)
    (terminal,) = caught.value.terminals
    assert isinstance(terminal, Error)
    assert terminal.cancelled
    assert ended == [terminal]
    assert caught.value.partial is terminal.message
    assert caught.value.partial is not None
    assert caught.value.partial["content"][0]["text"] == "Wren, ro"
    assert caught.value.__cause__ is None
    assert isinstance(caught.value, KeyboardInterrupt)
    assert threads() == before


def test_ctrl_c_gives_only_what_was_cut_off() -> None:
    async def fn() -> None:
        async with talking(*answer("Wren.")) as (env, _):
            await IO(env=env, model=MODEL).write(QUESTION)
            press_ctrl_c()
            await trio.sleep_forever()

    with pytest.raises(Interrupted, match="0 requests were cut off") as caught:
        run_sync(fn)
    assert caught.value.terminals == ()
    assert caught.value.partial is None


def test_what_fails_while_ctrl_c_is_obeyed_is_the_cause() -> None:
    async def fn() -> None:
        press_ctrl_c()
        try:
            await trio.sleep_forever()
        finally:
            raise LookupError("a bug in clean-up")

    with pytest.raises(Interrupted) as caught:
        run_sync(fn)
    assert isinstance(caught.value.__cause__, LookupError)


def test_a_second_ctrl_c_stops_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    running, release = threading.Event(), threading.Event()
    waits: list[Collection[Any]] = []

    def interrupted(futures: Collection[Any]) -> None:
        waits.append(futures)
        running.wait(10)
        if len(waits) == 2:
            release.set()
        raise KeyboardInterrupt

    async def stubborn() -> None:
        with trio.CancelScope(shield=True):
            running.set()
            await trio.to_thread.run_sync(release.wait, 10)

    monkeypatch.setattr(blocking, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        run_sync(stubborn)
    assert not isinstance(caught.value, Interrupted)
    assert len(waits) == 2


def test_a_function_that_is_no_coroutine_function_may_return_an_awaitable() -> None:
    def made() -> Awaitable[int]:
        async def inner() -> int:
            return 4

        return inner()

    fn: Callable[[], Awaitable[int]] = made
    assert run_sync(fn) == 4


def test_a_cancellation_that_comes_too_late_does_no_harm() -> None:
    """A call that is over, in a loop that is gone."""
    from aiio.bridges.call import Call

    async def fn() -> Call[int]:
        async def inner() -> int:
            return 1

        call = Call(trio.lowlevel.current_trio_token(), inner, ())
        await call.go()
        call.cancel("late")
        await trio.lowlevel.checkpoint()
        return call

    call = run_sync(fn)
    call.cancel("much too late")
    assert call.done.result() == 1


async def test_a_call_whose_surroundings_are_cancelled_says_so() -> None:
    from aiio.bridges.call import Call, CallCancelled

    call = Call(trio.lowlevel.current_trio_token(), trio.sleep_forever, ())
    with trio.CancelScope() as scope:
        scope.cancel()
        await call.go()
    assert scope.cancelled_caught
    assert isinstance(call.done.exception(), CallCancelled)


async def test_a_call_that_is_cancelled_before_it_begins_does_not_begin() -> None:
    from aiio.bridges.call import Call, CallCancelled

    ran: list[int] = []

    async def fn() -> None:
        ran.append(1)

    call = Call(trio.lowlevel.current_trio_token(), fn, ())
    call.cancel("early")
    await trio.testing.wait_all_tasks_blocked()
    await call.go()
    await trio.lowlevel.checkpoint()
    assert isinstance(call.done.exception(), CallCancelled)
    assert ran == []


def test_ctrl_c_while_the_function_is_being_started_is_an_interruption_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from anyio.from_thread import BlockingPortal

    def interrupted(*_: Any, **__: Any) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    async def never() -> None:
        raise AssertionError("it ran")

    monkeypatch.setattr(BlockingPortal, "start_task_soon", _second(interrupted))
    with pytest.raises(Interrupted):
        run_sync(never)


def _second(then: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that does what it always did once, and *then* after that."""
    from anyio.from_thread import BlockingPortal

    before = BlockingPortal.start_task_soon
    calls: list[int] = []

    def method(*args: Any, **options: Any) -> Any:
        calls.append(1)
        return (before if len(calls) == 1 else then)(*args, **options)

    return method
