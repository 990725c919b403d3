"""`Call`: one async function that runs in a trio loop for somebody in another thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

import trio

from aiio.context.events import Terminal
from aiio.env.listeners import EnvEvent, witness

T = TypeVar("T")


class CallCancelled(Exception):
    """The function was cancelled, and that went out of it."""


class Call(Generic[T]):
    """One run of `async_fn(*args)`, waited for and cancelled from outside.

    Args:
      token: of the trio loop it runs in.
      async_fn: any async function.
      args: its arguments.
    """

    def __init__(
        self, token: trio.lowlevel.TrioToken, async_fn: Callable[..., Awaitable[T]], args: tuple[Any, ...]
    ) -> None:
        self._token = token
        self._fn = async_fn
        self._args = args
        self._scope = trio.CancelScope()
        self._begun = False
        self._cancelling = False
        self.done: Future[T] = Future()
        """What it returned or raised; `CallCancelled` when it was cancelled. Never cancelled itself: the
        function is over when this is done, not before."""
        self.cut: list[Terminal] = []
        """Terminal events of the writes that ended after `cancel`."""

    async def go(self) -> None:
        """Run, in a task of its own of the trio loop. Raises nothing that the function raises.

        Cancellation: from the task's own surroundings passes through; `done` is set before.
        """
        if self._begun:
            return
        self._begun = True
        witness.set(self._hear)
        done = self.done
        try:
            with self._scope:
                value = await self._fn(*self._args)
        except trio.Cancelled:
            done.set_exception(CallCancelled())
            raise
        except BaseException as exc:  # noqa: BLE001  # its caller is in another thread
            done.set_exception(exc)
        else:
            if self._scope.cancelled_caught:
                done.set_exception(CallCancelled())
            else:
                done.set_result(value)

    def cancel(self, reason: str) -> None:
        """Cancel the function. From any thread, any number of times, also when it is over."""
        self._cancelling = True
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self.stop, reason)

    def stop(self, reason: str) -> None:
        """Do what `cancel` does, in trio's thread. A function that has not begun will not begin."""
        self._scope.cancel(reason)
        if not self._begun:
            self._begun = True
            self.done.set_exception(CallCancelled())

    def _hear(self, event: EnvEvent) -> None:
        if self._cancelling and event.name == "io_done":
            self.cut.append(event.data["terminal"])
