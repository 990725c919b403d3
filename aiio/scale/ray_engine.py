"""Workers on a Ray cluster: an actor each, with a trio run of its own (ray_worker.py).

Nothing here waits in a thread: an actor's answers wake the driver's trio run. Ray itself is imported when
the engine is entered. What an actor does is asked for by a call that returns what it has to report: when the
actor dies, the call fails, and that is the report.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

import trio

from aiio.env.env import open_env

from .engine import OpenEngine
from .jobs import Job, Lost, Recipe
from .ray_worker import RayWorker

if TYPE_CHECKING:
    from aiio.env.env import Env

NOT_INSTALLED = "Ray is not installed: pip install 'aiio-runtime[ray]'"
OBJECT_STORE_BYTES = 80 * 1024 * 1024
"""About the least that Ray takes; results of 100 kB and more pass through it."""
CALLS_AT_A_TIME = 4
"""Threads of an actor: one waits in `take`, the others carry jobs and the stop."""


class RayEngine(OpenEngine):
    """One Ray actor a worker, spread over the machines of the cluster. See `Engine`.

    Each worker opens an Env of its own, from the environment and the configuration of its machine:
    credentials are there, and never sent. aiio must be installed there, in the same version.

    Args:
      recipe: how jobs are asked.
      address: of a cluster (`"auto"`: the one that Ray finds); None: Ray is started on this machine and
        ended with the engine. What the program has connected to already is used as it is.
      make_env: makes a worker's Env; a function of a module, that can be pickled.
      options: for `ray.init`, over ours.

    Raises:
      ValueError: the recipe's settings hold a credential.
    """

    def __init__(
        self,
        recipe: Recipe | None = None,
        *,
        address: str | None = None,
        make_env: Callable[[], Env] = open_env,
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._recipe = recipe or Recipe()
        self._recipe.check_no_secrets()
        self._address, self._make_env, self._options = address, make_env, options or {}
        self._ray: Any = None
        self._actor_class: Any = None
        self._ours = False
        """Whether the connection to Ray is ours to close."""
        self._actors: dict[str, Any] = {}

    async def __aenter__(self) -> RayEngine:
        """Connect to Ray, or start it here: that takes seconds, in which the trio run stands still.

        Raises:
          ModuleNotFoundError: Ray is not installed.
          RuntimeError: the engine was entered before.
          ConnectionError: there is no cluster at the address, or Ray can't be started here.
        """
        self._check_new()
        try:
            self._ray = importlib.import_module("ray")
        except ModuleNotFoundError as exc:
            raise ModuleNotFoundError(NOT_INSTALLED, name="ray") from exc
        if not self._ray.is_initialized():
            await self._connect()
            self._ours = True
        self._actor_class = self._ray.remote(RayWorker)
        await self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all workers, and our connection to Ray. What the block raised leaves as itself."""
        await self._leave()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._close)

    async def start(self, worker: str, jobs: Sequence[Job]) -> None:
        """See `Engine.start`, also for cancellation. RuntimeError: the engine is not entered."""
        nursery = self._open()
        actor: Any = self._actors.get(worker)
        if actor is None:
            actor = self._actors[worker] = await trio.to_thread.run_sync(self._make_actor, worker)
            if self._stopped:
                actor.stop.remote(self._stop_reason)
            nursery.start_soon(self._listen, worker, actor)
        if jobs:
            actor.give.remote(list(jobs))

    def stop(self, reason: str | None = None) -> None:
        """See `Engine.stop`."""
        self._stopped, self._stop_reason = True, reason
        for actor in self._actors.values():
            actor.stop.remote(reason)

    # -- inside -----------------------------------------------------------------------------------

    async def _connect(self) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "_skip_env_hook": True}
        try:
            if self._address is None:  # not in a thread: it sets handlers of signals
                options |= {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
                with own_sigterm():
                    self._ray.init(address="local", **(options | self._options))
            else:  # minutes, if nobody answers there
                connect = partial(self._ray.init, address=self._address, **(options | self._options))
                await trio.to_thread.run_sync(connect, abandon_on_cancel=True)
        except Exception as exc:  # it has no family of its own: RuntimeError, ValueError, ...
            where = self._address or "started here"
            raise ConnectionError(f"no connection to Ray ({where}): {_first_line(exc)}") from exc

    def _make_actor(self, worker: str) -> Any:
        made = self._actor_class.options(
            max_concurrency=CALLS_AT_A_TIME, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        return made.remote(worker, self._recipe, self._make_env)

    async def _listen(self, worker: str, actor: Any) -> None:
        """Pass on what one worker reports, until it is lost."""
        lost: Lost | None = None
        while lost is None:
            try:
                reports = await _value_of(actor.take.remote())
            except self._ray.exceptions.RayError as exc:
                reports = [Lost(worker=worker, reason=_first_line(exc))]
            for report in reports:
                self._mailbox.put(report)
                lost = report if isinstance(report, Lost) else lost
        del self._actors[worker]

    def _close(self) -> None:
        for actor in self._actors.values():
            self._ray.kill(actor)
        if self._ours:
            self._ray.shutdown()


async def _value_of(ref: Any) -> Any:
    """Wait for the value of a Ray reference. Raises what Ray raises for it."""
    token, known = trio.lowlevel.current_trio_token(), trio.Event()
    future = ref.future()

    def tell(future: object) -> None:
        with contextlib.suppress(trio.RunFinishedError):
            token.run_sync_soon(known.set)

    future.add_done_callback(tell)
    await known.wait()
    return future.result()


@contextlib.contextmanager
def own_sigterm() -> Iterator[None]:
    """Keep the handler of SIGTERM that there is: `ray.init` puts one of its own that ends the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _first_line(exc: Exception) -> str:
    return next(iter(str(exc).strip().splitlines()), type(exc).__name__)
