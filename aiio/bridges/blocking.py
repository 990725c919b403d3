"""`run_sync`: run an async function from sync code, in a trio loop made for it.

The loop runs in a thread, the caller waits in his own. That is what lets it work where trio can't be: in
a notebook, whose thread belongs to an asyncio loop already; and Ctrl-C always reaches the thread that waits,
never the middle of a task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import wait
from typing import TypeVar, TypeVarTuple

import trio

from aiio.context.events import Terminal
from aiio.context.types import Message

from .call import Call, CallCancelled

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, after what ran has ended: with what had arrived by then.

    `__cause__` is what the function raised when it was cancelled, if that was anything but the cancellation.
    """

    def __init__(self, terminals: Sequence[Terminal]) -> None:
        count = len(terminals)
        super().__init__(f"interrupted: {count} {'request was' if count == 1 else 'requests were'} cut off")
        self.terminals: tuple[Terminal, ...] = tuple(terminals)
        """Terminal events of the requests that were in flight, in the order they ended."""

    @property
    def partial(self) -> Message | None:
        """The partial message of the last one that had any; None: nothing had arrived."""
        messages = (terminal.message for terminal in reversed(self.terminals))
        return next((message for message in messages if message is not None), None)


def run_sync(async_fn: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    """Run `async_fn(*args)` in a trio loop of its own, and return what it returns.

    From scripts, threads and notebooks; what it opens it must close, since its loop ends with it. It sees the
    caller's context variables. In an asyncio program it blocks the loop: `from_asyncio` is for there.

    Raises:
      TypeError: no function.
      RuntimeError: called from within trio, where the function can be awaited.
      Interrupted: Ctrl-C. The function was cancelled, and is over; partial messages are in the exception.
      BaseException: what the function raises.

    A second Ctrl-C stops the waiting for a function that does not end; a KeyboardInterrupt leaves.
    """
    if not callable(async_fn):
        raise TypeError(f"run_sync takes an async function and its arguments, not {async_fn!r}")
    if trio.lowlevel.in_trio_run():
        raise RuntimeError("run_sync was called from within trio: await the function instead")
    from anyio.from_thread import start_blocking_portal

    with start_blocking_portal("trio") as portal:
        call = Call(portal.call(trio.lowlevel.current_trio_token), async_fn, args)
        try:  # Ctrl-C may come while it is being started: `cancel` settles a call that never begins, too
            portal.start_task_soon(call.go, name="aiio.run_sync")
            wait([call.done])
        except KeyboardInterrupt:
            call.cancel("KeyboardInterrupt")
            wait([call.done])
            failure = call.done.exception()
            raise Interrupted(call.cut) from (None if isinstance(failure, CallCancelled) else failure)
        return call.done.result()
