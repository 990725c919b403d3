"""The inside of a Ray actor: a `Worker` on a trio run in a thread, and queues to Ray's own threads.

Ray calls the methods in threads of its own, several at a time, as none of them is `async`: one such method,
also a private one, and Ray would call all of them on an asyncio loop. They touch the trio run through its
token only.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio

from aiio.env.groups import first_leaf

from .jobs import Job, Lost, Recipe, Report
from .worker import Worker

if TYPE_CHECKING:
    from aiio.env.env import Env


GATHER = 0.02
"""Seconds in which reports gather: a call costs its driver more CPU than the report in it."""


class RayWorker:
    """What the engine makes an actor of. Its trio run begins at once, and ends with the process."""

    def __init__(self, name: str, recipe: Recipe, make_env: Callable[[], Env]) -> None:
        self._name, self._recipe, self._make_env = name, recipe, make_env
        self._reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self._up = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._worker: Worker | None = None
        threading.Thread(target=self._run, name=f"aiio.worker {name}", daemon=True).start()

    def give(self, jobs: Sequence[Job]) -> None:
        """Let the worker run *jobs*, too."""
        self._tell(lambda worker: worker.give(jobs))

    def stop(self, reason: str | None = None) -> None:
        """Let it kill what is in flight."""
        self._tell(lambda worker: worker.stop(reason))

    def take(self) -> list[Report]:
        """Wait for a report, and for those that come soon after it; return all of them."""
        reports = [self._reports.get()]
        time.sleep(GATHER)
        with contextlib.suppress(queue.Empty):
            while True:
                reports.append(self._reports.get_nowait())
        return reports

    def _tell(self, what: Callable[[Worker], None]) -> None:
        self._up.wait()
        if self._worker is None or self._token is None:
            return  # it never came up, and said so
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(what, self._worker)

    def _run(self) -> None:
        reason = "its run ended"
        try:
            trio.run(_work, self._name, self._recipe, self._make_env, self._reports.put, self._came_up)
        except Exception as exc:  # noqa: BLE001  # whatever it is: the worker is lost, and the driver must know
            leaf = first_leaf(exc)
            reason = f"{type(leaf).__name__}: {leaf}"
        finally:
            self._up.set()
            self._reports.put(Lost(worker=self._name, reason=reason))

    def _came_up(self, worker: Worker) -> None:
        self._worker, self._token = worker, trio.lowlevel.current_trio_token()
        self._up.set()


async def _work(
    name: str,
    recipe: Recipe,
    make_env: Callable[[], Env],
    report: Callable[[Report], None],
    came_up: Callable[[Worker], None],
) -> None:
    async with make_env() as env:
        worker = Worker(name, env, recipe, report)
        came_up(worker)
        await worker.run()
