"""The parts of `Context` that touch the disk, as coroutines: the file work is done in a worker thread.

A cancelled call has happened whole or not at all, and the context knows which: cancellation is noticed
before the thread starts, and not while it works. All are checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, Final, ParamSpec, TypeVar

import trio

from aiio.context.store import Context

P = ParamSpec("P")
T = TypeVar("T")


async def flush(context: Context) -> None:
    """Do what `context.flush()` does, for what is in *context* at this moment.

    It may be changed meanwhile; those changes wait for the next flush.

    Raises:
      OSError, TypeError, ValueError: what `context.flush()` raises.

    Cancellation: nothing is written, and it stays dirty. Shield it where it saves what would be lost.
    """
    work = context.pending_flush()
    if work is None:
        await trio.lowlevel.checkpoint()
    while work is not None and not await trio.to_thread.run_sync(work, abandon_on_cancel=False):
        work = context.pending_flush()  # another flush came between


async def aclose(context: Context) -> None:
    """Do what `context.close()` does.

    Raises:
      OSError, TypeError, ValueError: what `context.flush()` raises; it stays open.

    Cancellation: it stays open.
    """
    await flush(context)
    await trio.to_thread.run_sync(context.close, abandon_on_cancel=False)


def _in_thread(fn: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return *fn* as a coroutine function."""

    @wraps(fn)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return await trio.to_thread.run_sync(partial(fn, *args, **kwargs), abandon_on_cancel=False)

    return call


open_context: Final = _in_thread(Context)
resume: Final = _in_thread(Context.resume)
rename: Final = _in_thread(Context.rename)
fork: Final = _in_thread(Context.fork)
recover: Final = _in_thread(Context.recover)
list_sessions: Final = _in_thread(Context.list)
latest: Final = _in_thread(Context.latest)
file_of: Final = _in_thread(Context.file_of)
rename_by_id: Final = _in_thread(Context.rename_by_id)
delete_by_id: Final = _in_thread(Context.delete_by_id)
delete_all: Final = _in_thread(Context.delete_all)
