"""Steps that run on a child of their own: `spawn`, and `detached_spawn` in the background."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import trio

from aiio.context.log import get_logger
from aiio.env.durations import Duration, parse_duration

from .children import child_of, run_child
from .context import RunContext
from .errors import RunError, RunErrorKind
from .layers import ContextLayer
from .step import Step, check_id


@dataclass(frozen=True, slots=True)
class Spawn:
    """See `spawn`."""

    id: str
    step: Step
    timeout: float
    """Seconds."""
    layers: tuple[ContextLayer, ...] = ()
    kind: str = "spawn"

    async def run(self, context: RunContext, input: Any) -> Any:
        """Run the step on a fresh child."""
        child = child_of(context, layers=self.layers)
        with trio.move_on_after(self.timeout):
            return await run_child(child, self.step, input, isolated=True)
        text = f"spawn {self.id!r} did not end within {self.timeout:g} s"
        raise RunError(
            RunErrorKind.STEP_FAILED, text, step_id=self.id, retries_exhausted=False, cause="timeout"
        ) from trio.TooSlowError(text)


def spawn(
    id: str, step: Step, *, timeout: Duration | None = None, layers: Sequence[ContextLayer] = ()
) -> Spawn:
    """Return a step that runs *step* on an isolated child: an empty log, a deep copy of the state.

    What the child uses counts for its parents at once, also when it fails.

    Args:
      id: of the step.
      step: what the child runs.
      timeout: the child is cancelled after it, and the step raises `RunError` (step_failed, cause timeout).
      layers: the child's own, in place of inherited ones of their ids.
    """
    seconds = parse_duration(timeout)
    return Spawn(check_id(id), step, math.inf if seconds is None else seconds, tuple(layers))


class DetachedStatus(StrEnum):
    """How far a detached child is."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    EVICTED = "evicted"
    """The run ended first, and it with the run."""


class DetachedHandle:
    """A child in the background. It ends with its run, at the latest."""

    def __init__(self, context: RunContext) -> None:
        self.id: str = context.id
        self.status: DetachedStatus = DetachedStatus.RUNNING
        self.result: Any = None
        self.error: BaseException | None = None
        self._ended = trio.Event()

    async def wait(self, timeout: Duration | None = None) -> Any:
        """Return its result once it has ended.

        Raises:
          RunError: step_failed: it took longer than *timeout*, and runs on; handle_evicted: the run ended.
          Exception: what it raised.

        Cancellation: only the wait ends. Always a checkpoint.
        """
        seconds = parse_duration(timeout)
        with trio.move_on_after(math.inf if seconds is None else seconds) as limit:
            await self._ended.wait()
        if limit.cancelled_caught:
            text = f"the detached run {self.id} did not end within {seconds:g} s"
            raise RunError(RunErrorKind.STEP_FAILED, text, cause="timeout")
        if self.error is not None:
            raise self.error
        return self.result

    def _end(self, status: DetachedStatus, result: Any = None, error: BaseException | None = None) -> None:
        self.status, self.result, self.error = status, result, error
        self._ended.set()


@dataclass(frozen=True, slots=True)
class WithContext:
    """See `with_context`."""

    id: str
    step: Step
    layers: tuple[ContextLayer, ...]
    kind: str = "with_context"

    async def run(self, context: RunContext, input: Any) -> Any:
        """Run the step with the layers."""
        before = await context.layers.add(self.layers)
        try:
            return await context.execute(self.step, input)
        finally:
            context.layers.put_back(before)


def with_context(id: str, step: Step, layers: Sequence[ContextLayer]) -> WithContext:
    """Return a step that runs *step* on the same context, with *layers* added; the same id replaces."""
    return WithContext(check_id(id), step, tuple(layers))


@dataclass(frozen=True, slots=True)
class DetachedSpawn:
    """See `detached_spawn`."""

    id: str
    step: Step
    kind: str = "detached_spawn"

    async def run(self, context: RunContext, input: Any) -> DetachedHandle:
        """Begin the child in the nursery of the run."""
        nursery = context._execution.nursery
        if nursery is None:
            raise RuntimeError("a detached spawn needs a run: use harness.run(...)")
        child = child_of(context)
        handle = DetachedHandle(child)
        nursery.start_soon(_run_detached, child, self.step, input, handle, name=f"aiio.detached {self.id}")
        await trio.lowlevel.checkpoint()
        return handle


def detached_spawn(id: str, step: Step) -> DetachedSpawn:
    """Return a step that begins *step* on an isolated child in the background, and returns its handle.

    An abort of its parent reaches it; the end of the run ends it. A handle is no JSON: a resumed run begins
    the child again, and what the child had done by then is handed back.
    """
    return DetachedSpawn(check_id(id), step)


async def _run_detached(child: RunContext, step: Step, input: Any, handle: DetachedHandle) -> None:
    try:
        handle._end(DetachedStatus.COMPLETED, await run_child(child, step, input, isolated=True))
    except Exception as exc:  # noqa: BLE001  # whoever holds the handle is told
        get_logger().info("run.detached_failed", run=child.id, error=type(exc).__name__)
        handle._end(DetachedStatus.FAILED, error=exc)
    except BaseException:
        text = f"the run ended before its detached child {child.id}"
        handle._end(DetachedStatus.EVICTED, error=RunError(RunErrorKind.HANDLE_EVICTED, text))
        raise
