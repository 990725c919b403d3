"""Tasks that live beside the body of `async with open_env()`, and harm nobody when they crash.

A plain nursery would cancel the body when a child crashes, and wrap the body's own exception into a
group. Here each child runs in a cancel scope of its own; what it raises is logged; and what the body
raises leaves as itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from .groups import first_leaf


class Background:
    """A nursery's `start_soon` and `start`, without its groups.

    An exception of a child is passed to *report* and goes no further (`start` hands it to its caller, as
    trio does, when it comes before the child has started). KeyboardInterrupt and SystemExit in a child
    end the body and come out of `aclose` as themselves.
    """

    def __init__(self, report: Callable[[str, Exception], None]) -> None:
        self._report = report
        self._manager: Any = None
        self._around = trio.CancelScope()  # never cancelled; a shield while the nursery closes
        self._nursery: trio.Nursery | None = None
        self._scopes: set[trio.CancelScope] = set()
        self._idle = trio.Event()

    async def open(self) -> None:
        """Open the nursery; from now on it encloses the caller's code until `aclose`. Not a checkpoint."""
        self._around.__enter__()
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()

    def start_soon(self, fn: Callable[..., Awaitable[Any]], *args: Any, name: object = None) -> None:
        """Run `fn(*args)` in a task of its own. RuntimeError: not open (any more)."""
        self._opened().start_soon(self._run, self._scope(), fn, args, name=fn if name is None else name)

    async def start(self, fn: Callable[..., Awaitable[Any]], *args: Any, name: object = None) -> Any:
        """Run `fn(*args, task_status=...)`, and return what it reports when it has started.

        RuntimeError: not open (any more), or it ended without a report. Cancellation: it is cancelled too,
        unless it has reported.
        """
        return await self._opened().start(
            self._run_started, self._scope(), fn, args, name=fn if name is None else name
        )

    async def cancel(self) -> None:
        """Cancel all children and wait until they are gone. New ones may be started afterwards."""
        for scope in self._scopes:
            scope.cancel()
        if self._scopes:
            self._idle = trio.Event()
            await self._idle.wait()
        else:
            await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Cancel the children, wait for them, close the nursery. Shielded.

        To be called where `open` was, with every scope opened since then closed.

        Raises: what a child raised that is not an Exception.
        """
        if self._nursery is None:
            return
        self._around.shield = True
        self._nursery = None
        for scope in self._scopes:
            scope.cancel()
        try:
            await self._manager.__aexit__(None, None, None)
        except BaseExceptionGroup as group:
            leaf = first_leaf(group)
            raise leaf from leaf.__cause__
        finally:
            self._around.__exit__(None, None, None)

    def check_open(self) -> None:
        """Raise RuntimeError when no task can be started."""
        self._opened()

    def _opened(self) -> trio.Nursery:
        if self._nursery is None:
            raise RuntimeError(
                "this Env runs no background tasks: enter it with `async with aiio.open_env() as env:`"
            )
        return self._nursery

    async def _run(
        self, scope: _Registered, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...]
    ) -> None:
        with scope:
            try:
                await fn(*args)
            except Exception as exc:  # noqa: BLE001  # a child's crash must not take the body down
                self._report(_name_of(fn), exc)

    async def _run_started(
        self,
        scope: _Registered,
        fn: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        *,
        task_status: trio.TaskStatus[Any],
    ) -> None:
        status = _Status(task_status)
        with scope:
            try:
                await fn(*args, task_status=status)
            except Exception as exc:
                if not status.is_started:
                    raise  # trio hands it to the caller of start
                self._report(_name_of(fn), exc)

    def _scope(self) -> _Registered:
        return _Registered(self)

    def _left(self, scope: trio.CancelScope) -> None:
        self._scopes.discard(scope)
        if not self._scopes:
            self._idle.set()


class _Registered:
    """A child's cancel scope, known to its Background from before the child first runs until it ends."""

    def __init__(self, owner: Background) -> None:
        self._owner = owner
        self._scope = trio.CancelScope()
        owner._scopes.add(self._scope)

    def __enter__(self) -> None:
        self._scope.__enter__()

    def __exit__(self, *exc: Any) -> bool | None:
        self._owner._left(self._scope)
        return self._scope.__exit__(*exc)


class _Status:
    """Passes `started` on and remembers that it was called."""

    def __init__(self, inner: trio.TaskStatus[Any]) -> None:
        self._inner = inner
        self.is_started = False

    def started(self, value: Any = None) -> None:
        self._inner.started(value)
        self.is_started = True


def _name_of(fn: object) -> str:
    return getattr(fn, "__qualname__", None) or repr(fn)
