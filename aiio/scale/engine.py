"""What a `Spread` asks of whoever runs its workers: three calls, inside `async with`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol

import trio

from .jobs import Job, Report


class Engine(Protocol):
    """Brings workers up, carries jobs to them and reports back.

    Entered once. Leaving it ends every worker at once, with what it has in flight; a worker holds nothing
    that its reports have not told.
    """

    async def start(self, worker: str, jobs: Sequence[Job]) -> None:
        """Let *worker* run *jobs*, too. A new name is a new worker, which says `Joined` once it is up.

        Raises nothing for a worker that is gone: `Lost` is among the reports, or will be.
        Cancellation: it was given nothing.
        """
        ...

    async def results(self) -> list[Report]:
        """Return what workers have reported since the last time: one report at least, oldest first.

        Every job ends in one `Ended`, unless its worker is `Lost`. Cancellation: safe, no report is lost.
        """
        ...

    def stop(self, reason: str | None = None) -> None:
        """Let every worker kill what it has in flight; each is reported as `Ended`, with its partial message.

        Jobs that arrive afterwards are not sent. Returns at once. Idempotent.
        """
        ...

    async def __aenter__(self) -> Engine: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Mailbox:
    """Reports on their way to whoever calls `Engine.results`; in one trio run."""

    def __init__(self) -> None:
        self._reports: list[Report] = []
        self._filled = trio.Event()

    def put(self, report: Report) -> None:
        """Add one."""
        self._reports.append(report)
        self._filled.set()

    async def take(self) -> list[Report]:
        """Return all there are, one at least. Cancellation: none is lost. Always a checkpoint."""
        await self._filled.wait()
        self._filled = trio.Event()
        reports, self._reports = self._reports, []
        return reports


class OpenEngine:
    """What engines share: one entrance, a nursery while they are open, the mailbox, the order to stop."""

    def __init__(self) -> None:
        self._mailbox = Mailbox()
        self._manager: AbstractAsyncContextManager[trio.Nursery] | None = None
        self._nursery: trio.Nursery | None = None
        self._stopped = False
        self._stop_reason: str | None = None

    async def results(self) -> list[Report]:
        """See `Engine.results`."""
        return await self._mailbox.take()

    def _check_new(self) -> None:
        if self._manager is not None:
            raise RuntimeError("an engine is entered once; make another one")

    async def _enter(self) -> None:
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()

    async def _leave(self) -> None:
        """Cancel what runs in the nursery. What the block raised is not told to it: it leaves as itself."""
        assert self._nursery is not None  # it is entered
        assert self._manager is not None  # likewise
        self._nursery.cancel_scope.cancel()
        self._nursery = None
        await self._manager.__aexit__(None, None, None)

    def _open(self) -> trio.Nursery:
        """Return the nursery. RuntimeError: the engine is not entered."""
        if self._nursery is None:
            raise RuntimeError("this engine is not open: enter it with `async with`")
        return self._nursery
