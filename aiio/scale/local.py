"""Workers in this process: for one machine, for tests, and to see what an engine has to do."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from aiio.env.groups import first_leaf

from .engine import OpenEngine
from .jobs import Job, Lost, Recipe
from .worker import Worker

if TYPE_CHECKING:
    from aiio.env.env import Env


class LocalEngine(OpenEngine):
    """Workers are tasks, and share one Env. See `Engine`.

    Args:
      env: what they ask with.
      recipe: how jobs are asked.
    """

    def __init__(self, env: Env, recipe: Recipe | None = None) -> None:
        super().__init__()
        self._env, self._recipe = env, recipe or Recipe()
        self.workers: dict[str, Worker] = {}
        """Those that are up, by name."""

    async def __aenter__(self) -> LocalEngine:
        """Open it. RuntimeError: it was entered before."""
        self._check_new()
        await self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all workers. What the block raised leaves as itself, never in a group."""
        await self._leave()

    async def start(self, worker: str, jobs: Sequence[Job]) -> None:
        """See `Engine.start`. RuntimeError: the engine is not entered. Not a checkpoint."""
        nursery = self._open()
        found = self.workers.get(worker)
        if found is None:
            found = self.workers[worker] = Worker(worker, self._env, self._recipe, self._mailbox.put)
            if self._stopped:
                found.stop(self._stop_reason)
            nursery.start_soon(self._run, found, name=f"aiio.worker {worker}")
        found.give(jobs)

    def stop(self, reason: str | None = None) -> None:
        """See `Engine.stop`."""
        self._stopped, self._stop_reason = True, reason
        for worker in self.workers.values():
            worker.stop(reason)

    async def _run(self, worker: Worker) -> None:
        """Run one worker; what ends it is not ours to raise, but the others' to know."""
        reason = "it was closed"
        try:
            await worker.run()
        except Exception as exc:  # noqa: BLE001  # a worker that crashes is lost, as a process would be
            leaf = first_leaf(exc)
            reason = f"{type(leaf).__name__}: {leaf}"
        self._mailbox.put(Lost(worker=worker.name, reason=reason))
