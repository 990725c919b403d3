"""`EventStream`: the same request, with its events pulled by an `async for` instead of pushed to callbacks.

The request runs in a task of the Env, not in a nursery opened here: no scope is held open between
`__aenter__` and `__aexit__`, so streams may be left early, closed from other tasks, and
exited in any order. What one read brought is handed over as one list; the next read waits for it
to be taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import trio

from aiio.context.events import Done, Error, ResponseEvent, Terminal

from .state import Cause

if TYPE_CHECKING:
    from aiio.env.env import Env

    from .request import Request


class EventStream:
    """Iterates over the events of one request, the terminal event last. Made by `IO.stream`."""

    def __init__(self, env: Env, begin: Callable[[Any, Any], Request]) -> None:
        self._env = env
        self._begin = begin
        self._request: Request | None = None
        self._events: deque[ResponseEvent] = deque()
        self._arrived = trio.Event()
        self._taken = trio.Event()
        self.terminal: Terminal | None = None
        """The terminal event; None while the request runs."""

    async def __aenter__(self) -> EventStream:
        """Begin the request. Raises what `IO.write` raises for misuse; a stream runs once."""
        if self._request is not None:
            raise RuntimeError("a stream runs once; call io.stream() again")
        nursery = self._env.nursery
        self._request = self._begin(self._push, self._handed_over)
        nursery.start_soon(self._run, self._request, name="aiio.stream")
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            await self._stopped()  # a block that was not entered is not left either
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop the request if it runs, and wait until it has settled. Idempotent; from any task.

        Cancellation: waits all the same, which is bounded, then goes on.
        """
        await self._stopped()
        await trio.lowlevel.checkpoint_if_cancelled()

    async def _stopped(self) -> None:
        request = self._request
        if request is not None and not request.settled:
            request.stop(Cause.LEFT)
            with trio.CancelScope(shield=True):  # bounded: clean-up of a request is
                await request.wait_settled()

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> ResponseEvent:
        """Return the next event. A checkpoint for each read of the socket, not for each event."""
        while not self._events:
            if self.terminal is not None:
                raise StopAsyncIteration
            self._taken.set()
            if self._arrived.is_set():  # else another task waits for it already
                self._arrived = trio.Event()
            await self._arrived.wait()
        return self._events.popleft()

    async def _run(self, request: Request) -> None:
        try:
            await request.run()
        finally:
            self._arrived.set()

    def _push(self, event: ResponseEvent) -> None:
        self._events.append(event)
        if isinstance(event, Done | Error):
            self.terminal = event

    async def _handed_over(self) -> None:
        """Wake the consumer, and wait until it has taken everything."""
        self._taken = trio.Event()
        self._arrived.set()
        await self._taken.wait()
