"""The embedded default: one small model server, shared by everything that uses the endpoint `local`.

It starts when somebody first needs it, ends with the Env or when nobody has used it for a while, and
starts anew if it was gone. Starting and stopping happen under one lock, so a user either gets a
server that runs or waits for the next one.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from aiio.context.log import get_logger

from .auth import Secret
from .errors import ProviderError

DEFAULT_IDLE_AFTER = 600.0  # seconds


class Server(Protocol):
    """A server that runs: `ModelServer`, or one started by hand (`LocalState`), which is not ours to stop."""

    url: str
    key: Secret

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        ...


class OwnServer(Server, Protocol):
    """A server that is ours to stop."""

    async def aclose(self) -> None:
        """End it and wait for its end."""
        ...


class Tasks(Protocol):
    """Where the watcher of idleness runs."""

    def start_soon(self, fn: Callable[[], Awaitable[None]], /) -> None:
        """Run *fn* in a task of its own."""
        ...


class LocalModel:
    """Hands out the address of a running server.

    Args:
      start: starts a server of our own; raises ProviderError.
      adopt: finds one that was started by hand, or returns None.
      tasks: runs the watcher.
      busy: whether any request may be using the server now.
      idle_after: seconds without use until it is stopped; `math.inf`: never.
    """

    def __init__(
        self,
        *,
        start: Callable[[], Awaitable[OwnServer]],
        adopt: Callable[[], Awaitable[Server | None]],
        tasks: Tasks,
        busy: Callable[[], bool],
        idle_after: float = DEFAULT_IDLE_AFTER,
    ) -> None:
        self._start = start
        self._adopt = adopt
        self._tasks = tasks
        self._busy = busy
        self._idle_after = idle_after
        self._lock = trio.Lock()
        self._own: OwnServer | None = None
        self._adopted: Server | None = None
        self._last_used = -math.inf
        self._watched = False
        self._attempts = 0
        self._failure: ProviderError | None = None  # of the latest attempt

    @property
    def running(self) -> bool:
        """Whether a server of our own runs."""
        return self._own is not None and self._own.alive

    async def address(self) -> tuple[str, Secret]:
        """Return (URL, key) of a running server, starting one if need be.

        Those who come while one is starting wait for it, and share its failure.

        Raises:
          ProviderError: it could not be started; the text says what to do.
          RuntimeError: the Env was not entered, so nothing could end the server again.

        Cancellation: safe; a start in progress is undone, and the next in line starts anew.
        Always a checkpoint.
        """
        seen = self._attempts
        async with self._lock:
            self._last_used = trio.current_time()
            server = self._current()
            if server is None:
                if self._attempts != seen and self._failure is not None:
                    raise _again(self._failure)
                server = await self._obtain()
            self._last_used = trio.current_time()
            return server.url, server.key

    async def aclose(self) -> None:
        """End the server, if it is ours. Idempotent; the next `address` starts one again."""
        async with self._lock:
            await self._stop("closed")

    def _current(self) -> Server | None:
        """Return the server in use if it still runs."""
        if self._adopted is not None and self._adopted.alive:
            return self._adopted
        self._adopted = None
        return self._own if self._own is not None and self._own.alive else None

    async def _obtain(self) -> Server:
        if self._own is not None:
            get_logger().warning("local.crashed")
            await self._stop("crashed")
        self._adopted = await self._adopt()
        if self._adopted is not None:
            return self._adopted
        self._watch()  # first, because it refuses when nothing could end the server again
        begun, self._failure = trio.current_time(), None
        try:
            self._own = await self._start()
        except ProviderError as exc:
            self._failure = exc
            raise
        finally:
            self._attempts += 1
        get_logger().info("local.started", seconds=round(trio.current_time() - begun, 3))
        return self._own

    async def _stop(self, reason: str) -> None:
        server, self._own = self._own, None
        if server is not None:
            await server.aclose()
            get_logger().info("local.stopped", reason=reason)

    def _watch(self) -> None:
        if not self._watched:
            self._tasks.start_soon(self._stop_when_idle)
            self._watched = True

    async def _stop_when_idle(self) -> None:
        """Stop the server after *idle_after* without use; runs while there is a server."""
        try:
            while True:
                await trio.sleep_until(self._last_used + self._idle_after)
                async with self._lock:
                    if self._busy():
                        self._last_used = trio.current_time()
                    if trio.current_time() >= self._last_used + self._idle_after:
                        await self._stop("idle")
                        return
        finally:
            self._watched = False


def _again(error: ProviderError) -> ProviderError:
    """Return a copy of *error*: one exception object must not be raised in many tasks at once."""
    return ProviderError(error.kind, error.message, error.detail)
