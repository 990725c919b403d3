"""What the whole tree of one root context shares: ledgers, checkpoints, the steps in progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import trio

from aiio.context.log import get_logger
from aiio.context.text import compact_json

from .frames import Frame
from .ledger import StepLedger
from .paid import PaidCalls
from .snapshot import Snapshot, encode_snapshot, snapshot_key
from .streams import Broadcaster, EventSource, StreamEvent

if TYPE_CHECKING:
    from .context import RunContext
    from .harness import Harness
    from .items import Item

SAVE = 5.0
"""Seconds that saving may take while a run is being cancelled."""


class Execution:
    """One execution: a root context and all below it.

    Args:
      harness: what it belongs to.
      id: the root's id.
    """

    def __init__(self, harness: Harness, id: str) -> None:
        self.id = id
        self.harness = harness
        self.ledger: StepLedger = StepLedger(id, harness.store, harness.retention, harness.clock)
        self.paid: PaidCalls = PaidCalls(id, harness.store, harness.clock)
        self.frontier: dict[Frame, None] = {}
        self.restored: Mapping[str, Any] | None = None
        """States of layers, as a checkpoint has them."""
        self.root: RunContext | None = None
        self.nursery: trio.Nursery | None = None
        """Of the root's run, for what is detached; None while it does not run."""
        self.stream: Broadcaster = Broadcaster(harness.event_buffer)
        self.session_stream: Broadcaster | None = None
        """Of the session whose turn this is; None: it is no turn. Its readers see turn after turn."""
        self.inbox: Callable[[], list[Item]] | None = None
        """Takes what was said to the session since, for its model step; None: it is no turn."""
        self._writing = trio.Lock()
        self._wanted = 0
        self._written = 0

    def tell(self, context: RunContext, name: str, /, **data: Any) -> None:
        """Tell those who listen to the harness, and the streams, of something that happened in *context*."""
        self.tell_by(self.publish, context, name, data)

    def tell_by(
        self, publish: Callable[[StreamEvent], None], context: RunContext, name: str, data: Mapping[str, Any]
    ) -> None:
        """Do that, with *publish* for the streams."""
        told = {"execution_id": self.id, "context_id": context.id, **data}
        self.harness.tell(name, told)
        if self.watched:
            publish(StreamEvent(EventSource.FRAMEWORK, f"{self.harness.name}:{name}", told))

    @property
    def watched(self) -> bool:
        """Whether somebody reads a stream of this, or may come to."""
        return self.stream.wanted or (self.session_stream is not None and self.session_stream.wanted)

    def publish(self, event: StreamEvent) -> None:
        """Put *event* into the streams."""
        self.stream.publish(event)
        if self.session_stream is not None:
            self.session_stream.publish(event)

    @contextmanager
    def saving(self) -> Iterator[None]:
        """What was done is recorded although the run is being cancelled, for at most `SAVE` seconds."""
        with trio.move_on_after(SAVE, shield=True):
            yield

    async def checkpoint(self) -> None:
        """Save a snapshot. One that is being written when this is called does not count, one that waits does.

        A save that fails is logged. Always a checkpoint.
        """
        store = self.harness.store
        if store is None or self.root is None:
            await trio.lowlevel.checkpoint()
            return
        self._wanted += 1
        mine = self._wanted
        async with self._writing:
            if self._written >= mine:
                return  # a snapshot taken after this call was saved meanwhile
            covers = self._wanted
            try:
                await store.put(snapshot_key(self.id), encode_snapshot(self._snapshot(self.root)))
            except (OSError, TypeError, ValueError) as exc:
                get_logger().warning("run.checkpoint_failed", run=self.id, error=str(exc))
            self._written = covers

    def _snapshot(self, root: RunContext) -> Snapshot:
        tokens = root.tokens
        return Snapshot(
            execution_id=self.id,
            captured_at=self.harness.clock(),
            thread_id=root.thread_id,
            resource_id=root.resource_id,
            frontier=[_described(frame) for frame in self.frontier],
            layers={id: state for id, state in root.layers.states.items() if _is_json(state)},
            items=list(root.item_log.items),
            state=root.state if _is_json(root.state) else None,
            cost=root.cost,
            tokens={"input": tokens.input, "output": tokens.output, "cached": tokens.cached},
            step_count=root.step_count,
            paid_sequence=self.paid.sequence,
        )


def _described(frame: Frame) -> dict[str, Any]:
    described = {"step_id": frame.step_id, "path": frame.path}
    return {**described, "input": frame.input} if _is_json(frame.input) else described


def _is_json(value: Any) -> bool:
    try:
        compact_json(value)
    except (TypeError, ValueError):
        return False
    return True
