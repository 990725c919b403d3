"""`in_parallel`: several steps at a time, each on a child with a copy of the log and of the state.

all      the outputs of all; the first failure stops the others
settle   how each of them ended; never fails
race     the output (and the state) of the first to succeed; the others are stopped, and awaited
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias, assert_never

import trio

from aiio.env.groups import first_leaf

from .calling import call
from .children import child_of, run_child
from .context import RunContext
from .errors import RunError, RunErrorKind, error_kind
from .step import Step, check_id

Paths: TypeAlias = Sequence[Step] | Callable[[Any, RunContext], Any]
"""Steps, or `(input, context) -> steps`, plain or async."""

Merge: TypeAlias = Callable[[list[Any], RunContext], Any]


class ParallelMode(StrEnum):
    """What becomes of the outputs."""

    ALL = "all"
    SETTLE = "settle"
    RACE = "race"


@dataclass(slots=True)
class _Path:
    """One path, as far as it is known."""

    index: int
    step: Step
    child: RunContext | None = None
    value: Any = None
    error: Exception | None = None
    ended: bool = False

    @property
    def succeeded(self) -> bool:
        return self.ended and self.error is None

    @property
    def cancelled(self) -> bool:
        """Stopped, or never begun."""
        return not self.ended or error_kind(self.error) == RunErrorKind.CANCELLED

    def described(self) -> dict[str, Any]:
        """Return it as a `SettleResult`."""
        if self.succeeded:
            return {"step_id": self.step.id, "status": "succeeded", "value": self.value}
        status = "cancelled" if self.cancelled else "failed"
        kind = error_kind(self.error) or ("cancelled" if self.error is None else type(self.error).__name__)
        text = "not begun" if self.error is None else str(self.error)
        return {"step_id": self.step.id, "status": status, "error": {"kind": kind, "message": text}}


@dataclass(frozen=True, slots=True)
class InParallel:
    """See `in_parallel`."""

    id: str
    paths: Paths
    mode: ParallelMode
    merge: Merge | None
    concurrency: int | None
    kind: str = "in_parallel"

    async def run(self, context: RunContext, input: Any) -> Any:
        """Run the paths."""
        steps: Sequence[Step] = await call(self.paths, input, context) if callable(self.paths) else self.paths
        paths = [_Path(index, step) for index, step in enumerate(steps)]
        winner = await self._run_paths(context, input, paths)
        context.check()
        if self.mode is ParallelMode.RACE:
            if winner is None or winner.child is None:
                raise self._partial(paths)
            context.state = winner.child.state
            return winner.value
        if self.mode is ParallelMode.ALL and not all(path.succeeded for path in paths):
            raise self._partial(paths)
        settle = self.mode is ParallelMode.SETTLE
        results = [path.described() if settle else path.value for path in paths]
        return results if self.merge is None else await call(self.merge, results, context)

    async def _run_paths(self, context: RunContext, input: Any, paths: list[_Path]) -> _Path | None:
        """Run them to their ends; return the one that was first to succeed."""
        waiting = iter(paths)
        firsts: list[_Path] = []

        async def work() -> None:
            for path in waiting:
                await self._run_path(context, input, path)
                if path.succeeded:
                    firsts.append(path)
                if self._decides(path):
                    self._stop_others(paths, path, waiting)

        try:
            async with trio.open_nursery() as nursery:
                for _ in range(min(self.concurrency or len(paths), len(paths))):
                    nursery.start_soon(work, name=f"aiio.parallel {self.id}")
        except BaseExceptionGroup as group:
            leaf = first_leaf(group)
            raise leaf from leaf.__cause__
        return firsts[0] if firsts else None

    async def _run_path(self, context: RunContext, input: Any, path: _Path) -> None:
        path.child = child_of(context, items=context.item_log.items, branch=f"/[{path.index}]")
        try:
            path.value = await run_child(path.child, path.step, input, isolated=False)
        except Exception as exc:  # noqa: BLE001  # a path's failure is an outcome, told by the mode
            path.error = exc
        path.ended = True

    def _decides(self, path: _Path) -> bool:
        """Tell whether the others are not needed any more."""
        match self.mode:
            case ParallelMode.ALL:
                return not path.succeeded and not path.cancelled
            case ParallelMode.RACE:
                return path.succeeded
            case ParallelMode.SETTLE:
                return False
            case never:
                assert_never(never)

    def _stop_others(self, paths: list[_Path], decided: _Path, waiting: Iterator[_Path]) -> None:
        for _ in waiting:
            pass  # those in the queue do not begin
        why = "lost the race" if self.mode is ParallelMode.RACE else f"path {decided.index} failed"
        for path in paths:
            if path.child is not None and not path.ended:
                path.child.abort(why)

    def _partial(self, paths: list[_Path]) -> RunError:
        succeeded = [{"index": path.index, **path.described()} for path in paths if path.succeeded]
        failed = [{"index": path.index, **path.described()} for path in paths if not path.succeeded]
        error = RunError(
            RunErrorKind.FORK_PARTIAL,
            f"parallel {self.id!r}: {len(failed)} of {len(paths)} paths did not succeed",
            step_id=self.id,
            succeeded=succeeded,
            failed=failed,
        )
        genuine = (path.error for path in paths if path.error is not None and not path.cancelled)
        error.__cause__ = next(genuine, None)
        return error


def in_parallel(
    id: str,
    paths: Paths,
    *,
    mode: ParallelMode | str = ParallelMode.ALL,
    merge: Merge | None = None,
    concurrency: int | None = None,
) -> InParallel:
    """Return a step that runs *paths* at the same time with the same input.

    Args:
      id: of the step.
      paths: steps, or a function that returns them.
      mode: `all` gives a list of outputs, `settle` a list of `{step_id, status, value | error}` with the
        status `succeeded`, `failed` or `cancelled`; `race` the winner's output.
      merge: makes the output from that list (not for `race`).
      concurrency: paths at a time; None: all.

    The step raises `RunError` (fork_partial, with `succeeded` and `failed`): `all`, when a path failed;
    `race`, when none succeeded. This function raises ValueError: an id that can't name a step, no such
    mode, or a concurrency below 1.
    """
    if concurrency is not None and (type(concurrency) is not int or concurrency < 1):
        raise ValueError(f"concurrency must be an int >= 1, not {concurrency!r}")
    return InParallel(check_id(id), paths, ParallelMode(mode), merge, concurrency)
