"""`visit`: run an asyncio function in its own loop, from a task of trio."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import trio

T = TypeVar("T")


async def visit(loop: asyncio.AbstractEventLoop, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return what `await make()` returns in *loop*, which runs in another thread.

    It sees this task's context variables. Raises what it raises; trio.BrokenResourceError: its task was
    cancelled, and not by us.

    Cancellation: its task is cancelled, and over before Cancelled goes on; what it raises then is raised.
    """
    token = trio.lowlevel.current_trio_token()
    over = trio.Event()
    tasks: list[asyncio.Task[T]] = []

    async def work() -> T:
        return await make()

    def begin() -> None:
        task = loop.create_task(work())
        tasks.append(task)
        task.add_done_callback(lambda _: token.run_sync_soon(over.set))

    def cancel() -> None:
        tasks[0].cancel()  # `begin` was asked for earlier, so it ran earlier

    loop.call_soon_threadsafe(begin, context=contextvars.copy_context())
    try:
        await over.wait()
    except trio.Cancelled:
        loop.call_soon_threadsafe(cancel)
        with trio.CancelScope(shield=True):
            await over.wait()
        if not tasks[0].cancelled() and (failure := tasks[0].exception()) is not None:
            raise failure from None
        raise
    if tasks[0].cancelled():
        raise trio.BrokenResourceError("the task in asyncio was cancelled")
    return tasks[0].result()
