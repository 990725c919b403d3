"""`AsyncioBridge`: an asyncio program's way into trio, and back for the functions it lends.

Two loops in two threads. Neither ever waits for the other while it holds its own loop: each asks the other by
a function that returns at once (`run_sync_soon`, `call_soon_threadsafe`), and waits in a task. So a busy loop
slows the other side's tasks down, and can't lock it up.

Whoever is cancelled while the other side works for him cancels that work and waits until it is over, however
often he is told to go: nothing survives its caller.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, TypeVarTuple

import anyio.abc
import trio
from anyio.from_thread import start_blocking_portal

from aiio.env.groups import first_leaf

from .call import Call, CallCancelled
from .pump import Pump
from .visit import visit

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

CLOSED = "this bridge is closed"


class AsyncioBridge:
    """A trio loop in a thread, for the length of an `async with` in asyncio. Made by `from_asyncio`.

    Objects of aiio live on trio's side: make and close what needs a loop there (`enter`, `run`). Use it from
    the asyncio loop that opened it. Callbacks given to a write run in trio's thread.
    """

    def __init__(self) -> None:
        self._manager = start_blocking_portal("trio")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open = False
        self._calls: dict[Call[Any], asyncio.Future[None]] = {}

    # -- life -------------------------------------------------------------------------------------

    async def __aenter__(self) -> AsyncioBridge:
        """Start the loop. RuntimeError: it was entered before."""
        if self._loop is not None:
            raise RuntimeError("a bridge is entered once; call from_asyncio() again")
        self._loop = asyncio.get_running_loop()
        cancelled = await _in_thread(self._start)
        self._open = True
        if cancelled is not None:
            await self._close()
            raise cancelled
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel what still runs, close what was entered, newest first, and end the loop and its thread.

        Raises what closing raised. Cancellation: hurries the closing, which is waited for all the same.
        """
        cancelled = await self._close()
        if cancelled is not None:
            raise cancelled

    def _start(self) -> None:
        portal = self._manager.__enter__()
        self._hosted, self._host = portal.start_task(_host, name="aiio.from_asyncio")

    async def _close(self) -> asyncio.CancelledError | None:
        self._open = False
        for call in self._calls:
            call.cancel("the bridge is closed")
        cancelled: asyncio.CancelledError | None = None
        for over in list(self._calls.values()):
            cancelled = await _wait_out(over) or cancelled
        self._soon(self._host.close)
        hurry = functools.partial(self._soon, self._host.cancel)
        if cancelled is not None:
            hurry()
        cancelled = await _wait_out(self._told(self._hosted), hurry) or cancelled
        cancelled = await _in_thread(lambda: self._manager.__exit__(None, None, None)) or cancelled
        failure = self._hosted.exception()
        if failure is not None:
            raise first_leaf(failure)
        return cancelled

    # -- from asyncio into trio -------------------------------------------------------------------

    async def run(self, async_fn: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Run `async_fn(*args)` in trio and return what it returns. It sees this task's context variables.

        Raises:
          trio.ClosedResourceError: the bridge is closed, or was while this ran.
          BaseException: what the function raises.

        Cancellation: the function is cancelled, and over before CancelledError goes on. What it raises
        instead of being cancelled is raised; what it returns in spite of it is dropped.
        """
        call, over = self._begin(async_fn, args)
        await _ended(call, over)
        return _outcome(call)

    async def iterate(
        self,
        fn: Callable[[*Ts], AsyncIterable[T] | AbstractAsyncContextManager[AsyncIterable[T]]],
        *args: *Ts,
    ) -> AsyncGenerator[T, None]:
        """Yield what `fn(*args)` yields in trio: an async iterable, entered first if it is to be entered.

            async for event in bridge.iterate(io.stream, context):
                ...

        Some items are fetched ahead: a slow consumer slows the other side down. When the iteration ends, or
        its task is cancelled, the other side is over before. Who leaves by `break` closes it, to be sure of
        the moment: `async with contextlib.aclosing(bridge.iterate(...)) as events`.

        Raises what `run` raises.
        """
        pump: Pump[T] = Pump(fn, args)
        feeding, over = self._begin(pump.feed, ())
        try:
            while await self.run(pump.fetch):
                while pump.items:
                    yield pump.items.popleft()
            await _ended(feeding, over)
            _outcome(feeding)
        finally:
            feeding.cancel("the iteration was left")
            await _ended(feeding, over)
            if (failure := _failure(feeding)) is not None:
                raise failure

    async def enter(self, manager: AbstractAsyncContextManager[T]) -> T:
        """Enter *manager* in trio, and return what it gives; it is left when the bridge is closed.

        Raises what entering raises; trio.ClosedResourceError: the bridge is closed.

        Cancellation: ends the wait only. What was on its way in is left when the bridge is closed.
        """
        entry: Future[T] = Future()
        self._check_open()
        self._soon(self._host.offer, manager, entry)
        await self._told(entry)
        return entry.result()

    # -- from trio into asyncio -------------------------------------------------------------------

    def wrap(self, async_fn: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return a function for trio that runs asyncio's *async_fn* in this program's loop: a tool, say.

        Its name, docstring and signature are those of *async_fn*. Raises what that raises;
        trio.BrokenResourceError: its task was cancelled from asyncio's side.

        Cancellation: the task in asyncio is cancelled, and over before Cancelled goes on.
        """

        @functools.wraps(async_fn)
        async def there(*args: P.args, **kwargs: P.kwargs) -> T:
            assert self._loop is not None  # who runs in trio came by this bridge, or is misuse
            return await visit(self._loop, functools.partial(async_fn, *args, **kwargs))

        return there

    # -- inside -----------------------------------------------------------------------------------

    def _begin(
        self, async_fn: Callable[..., Awaitable[T]], args: tuple[Any, ...]
    ) -> tuple[Call[T], asyncio.Future[None]]:
        """Begin a call; return it with a future that is done when it is over."""
        self._check_open()
        call = Call(self._host.token, async_fn, args)
        over = self._calls[call] = self._told(call.done)
        over.add_done_callback(lambda _: self._calls.pop(call, None))
        context = contextvars.copy_context()
        self._soon(context.run, self._host.spawn, call)
        return call, over

    def _check_open(self) -> None:
        if not self._open:
            raise trio.ClosedResourceError(CLOSED)

    def _soon(self, fn: Callable[..., object], *args: Any) -> None:
        """Have *fn*, which raises nothing, called in trio's thread."""
        self._host.token.run_sync_soon(fn, *args)

    def _told(self, done: Future[Any]) -> asyncio.Future[None]:
        """Return a future of this loop that is done soon after *done*, and says nothing more."""
        loop = asyncio.get_running_loop()
        told = loop.create_future()
        done.add_done_callback(lambda _: loop.call_soon_threadsafe(_tell, told))
        return told


class _Host:
    """Trio's side: where calls run, and what was entered. Its methods are called in trio's thread."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.token = trio.lowlevel.current_trio_token()
        self._nursery = nursery
        self._send, self._receive = trio.open_memory_channel[tuple[Any, Future[Any]]](float("inf"))
        self._gone = False

    def spawn(self, call: Call[Any]) -> None:
        if self._gone:
            call.stop(CLOSED)
        else:
            self._nursery.start_soon(call.go, name="aiio.bridge")

    def offer(self, manager: AbstractAsyncContextManager[Any], entry: Future[Any]) -> None:
        if self._gone:
            entry.set_exception(trio.ClosedResourceError(CLOSED))
        else:
            self._send.send_nowait((manager, entry))

    def close(self) -> None:
        self._send.close()

    def cancel(self) -> None:
        self._nursery.cancel_scope.cancel()

    async def keep(self) -> None:
        """Enter what is offered, until `close`; leave all of it then, newest first."""
        entering: Future[Any] | None = None
        try:
            async with AsyncExitStack() as stack:
                async for manager, entry in self._receive:
                    entering = entry
                    try:
                        value = await stack.enter_async_context(manager)
                    except Exception as exc:  # noqa: BLE001  # for who asked, in another thread
                        entry.set_exception(exc)
                    else:
                        entry.set_result(value)
        finally:
            self._gone = True
            if entering is not None and not entering.done():
                entering.set_exception(trio.ClosedResourceError(CLOSED))
            while self._receive.statistics().current_buffer_used:
                _, entry = self._receive.receive_nowait()
                entry.set_exception(trio.ClosedResourceError(CLOSED))


async def _host(*, task_status: anyio.abc.TaskStatus[_Host]) -> None:
    """Run trio's side until it is closed."""
    async with trio.open_nursery() as nursery:
        host = _Host(nursery)
        task_status.started(host)
        await host.keep()
        nursery.cancel_scope.cancel()


def _outcome(call: Call[T]) -> T:
    """Return what the function returned. Raises what it raised; ClosedResourceError: it was cancelled."""
    try:
        return call.done.result()
    except CallCancelled:
        raise trio.ClosedResourceError(CLOSED) from None


def _failure(call: Call[Any]) -> BaseException | None:
    """Return what the function of a call that is over raised; None: nothing, or it was cancelled."""
    failure = call.done.exception()
    return None if isinstance(failure, CallCancelled) else failure


async def _ended(call: Call[Any], over: asyncio.Future[None]) -> None:
    """Wait until *call* is over. When cancelled meanwhile, cancel it; raise its failure or CancelledError."""
    cancelled = await _wait_out(over, functools.partial(call.cancel, "the asyncio task was cancelled"))
    if cancelled is not None:
        raise _failure(call) or cancelled


async def _wait_out(
    over: asyncio.Future[None], on_cancel: Callable[[], object] = lambda: None
) -> asyncio.CancelledError | None:
    """Wait for *over*, however often cancelled; call *on_cancel* then. Return the first cancellation."""
    cancelled: asyncio.CancelledError | None = None
    while not over.done():
        try:
            await asyncio.wait([over])
        except asyncio.CancelledError as exc:
            cancelled = cancelled or exc
            on_cancel()
    return cancelled


async def _in_thread(work: Callable[[], object]) -> asyncio.CancelledError | None:
    """Call *work*, which blocks for a moment, in a thread that ends with it. Returns as `_wait_out` does.

    Not in the loop's executor: its threads stay. Raises what *work* raises.
    """
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    failure: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as exc:  # noqa: BLE001  # raised by who waits
            failure.append(exc)
        loop.call_soon_threadsafe(_tell, over)

    thread = threading.Thread(target=run, name="aiio.from_asyncio")
    thread.start()
    cancelled = await _wait_out(over)
    thread.join()
    if failure:
        raise failure[0]
    return cancelled


def _tell(told: asyncio.Future[None]) -> None:
    if not told.done():
        told.set_result(None)
