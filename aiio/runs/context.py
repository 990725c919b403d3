"""`RunContext`: one execution, threaded through every step of it.

A context owns a cancel scope, entered by the task that runs it, inside its parent's: abort is a scope, a
child is a task, nothing outlives its run. What stops a context (`abort`, `complete`) is noted first, on it
and on all below it; then waits are refused and scopes cancelled. So whoever is woken finds the reason.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from aiio.context.log import get_logger
from aiio.context.text import compact_json
from aiio.env.durations import Duration

from .channels import Channel, Wait
from .dispatch import execute
from .errors import RunError, cancelled
from .frames import Frame
from .ids import new_id
from .item_log import ItemLog
from .item_stream import ItemStream
from .items import Item
from .layer_set import LayerSet
from .layers import ContextLayer
from .spans import Span
from .streams import EventStream
from .totals import StepMeta, TokenTotals, Totals

if TYPE_CHECKING:
    from .execution import Execution
    from .fs import FsAdapter
    from .harness import Harness
    from .step import Step

T = TypeVar("T")

STATE_WARNING_BYTES = 10 << 20
"""A state of more JSON than this is copied with a warning."""


class RunContext:
    """One execution: its log, its state, what it has used, and how it is stopped.

    Made by `Harness.create_context` (a root) and by steps that have children; in a trio run.

    Args:
      harness: what it belongs to.
      execution: what the whole tree shares; None: it is a root, and this begins one.
      parent: None: it is a root.
      id: its own id; None: a fresh UUIDv7.
      thread_id: None: the parent's, or a fresh one.
      resource_id: None: the parent's.
      state: the user's own; given to this context as it is.
      items: what its log begins with.
      ground: what the paths of its steps begin with, and whether their results are recorded.
      layers: its own; a child gets more from its parent.
    """

    def __init__(
        self,
        harness: Harness,
        *,
        execution: Execution,
        parent: RunContext | None = None,
        id: str | None = None,
        thread_id: str | None = None,
        resource_id: str | None = None,
        state: Any = None,
        items: Iterable[Item] = (),
        ground: tuple[str, bool] = ("", True),
        layers: Iterable[ContextLayer] = (),
    ) -> None:
        self.harness = harness
        self.id: str = new_id() if id is None else id
        self.parent: RunContext | None = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.thread_id: str = thread_id or (new_id() if parent is None else parent.thread_id)
        self.resource_id: str | None = resource_id or (None if parent is None else parent.resource_id)
        self.state: Any = {} if state is None else state
        layers = tuple(layers)
        schemas = harness.item_schemas if parent is None else parent.item_log.schemas
        for layer in layers:
            schemas = schemas.extended(layer.item_schemas)
        self.item_log: ItemLog = ItemLog(schemas, items)
        self.step_count = 0
        self.last_step_meta: StepMeta | None = None
        self.last_layer_usage: Any = None
        self.span: Span = Span(
            harness.name if parent is None else "child",
            None if parent is None else parent.span,
            tracer_provider=harness.tracer_provider,
            run=self.id,
        )
        self._totals = Totals(TokenTotals())
        self._began = trio.current_time()
        self._execution = execution
        self._ground = Frame(self, ground[0], recorded=ground[1])
        self.layers: LayerSet = LayerSet(self, layers)
        self._children: dict[RunContext, None] = {}
        self._scopes: list[trio.CancelScope] = []
        self._waits: set[Wait] = set()
        self.item_log.on_append = self._appended
        self._ended = trio.Event()
        self._aborted = False
        self._completed = False
        self._reason: str | None = None
        self._completion: Any = None
        if parent is not None:
            parent._children[self] = None
            if parent.stopped is not None:
                self._aborted, self._reason = True, _inherited(parent)

    def __repr__(self) -> str:
        return f"<aiio.RunContext {self.id} depth={self.depth} steps={self.step_count}>"

    # -- readouts ---------------------------------------------------------------------------------

    @property
    def tokens(self) -> TokenTotals:
        """Tokens of all model calls, also of those below; live."""
        return self._totals.tokens

    @property
    def cost(self) -> float:
        """USD of the work on this context and below, with what a checkpoint brought back."""
        return self._totals.cost

    @property
    def billed_cost(self) -> float:
        """USD paid in this attempt: what replay handed back adds nothing."""
        return self._totals.billed_cost

    @property
    def held_cost(self) -> float:
        """USD that paid calls which were cut off may cost at most; 0 below the root. Not in the others."""
        return 0.0 if self.parent is not None else self._execution.paid.held_cost

    @property
    def elapsed(self) -> float:
        """Milliseconds since this object was made; begins again when restored."""
        return (trio.current_time() - self._began) * 1000

    @property
    def context(self) -> Mapping[str, Any]:
        """What the layers provide, by layer id; empty without layers."""
        return self.layers.provided

    @property
    def fs(self) -> FsAdapter:
        """The harness's files."""
        return self.harness.fs

    @property
    def aborted(self) -> bool:
        """Whether `abort` was called, here or above."""
        return self._aborted

    @property
    def abort_reason(self) -> str | None:
        """The reason given to `abort`."""
        return self._reason if self._aborted else None

    @property
    def completed(self) -> bool:
        """Whether `complete` was called."""
        return self._completed

    @property
    def completion_value(self) -> Any:
        """What `complete` was given; None before."""
        return self._completion

    # -- stopping ---------------------------------------------------------------------------------

    @property
    def stopped(self) -> RunError | None:
        """The error that steps of this context raise now: it was aborted or completed; else None."""
        return cancelled(self._stop_text) if self._aborted or self._completed else None

    @property
    def _stop_text(self) -> str:
        return (self._reason or "context aborted") if self._aborted else "context completed"

    def check(self) -> None:
        """Raise `RunError` (cancelled) if this context was stopped. Steps do, between their parts."""
        if (stopped := self.stopped) is not None:
            raise stopped

    def abort(self, reason: str | None = None) -> None:
        """Stop this context and all below it, never one above. The first call (or `complete`) wins."""
        if self.stopped is None:
            self._aborted, self._reason = True, reason
            self._stop()

    def complete(self, value: Any) -> None:
        """End the run of this context with *value*, where `abort` would. The first of both wins."""
        if self.stopped is None:
            self._completed, self._completion = True, value
            self._stop()

    def tree(self) -> list[RunContext]:
        """Return this context and the live ones below it, pre-order."""
        nodes: list[RunContext] = []
        stack = [self]
        while stack:
            node = stack.pop()
            nodes.append(node)
            stack.extend(reversed(node._children))
        return nodes

    def _stop(self) -> None:
        """This context has its flag: give those below theirs, then wake and cancel."""
        nodes = [node for node in self.tree() if node is self or node.stopped is None]
        for node in nodes:
            if node is not self:
                assert node.parent is not None  # only a root has none
                node._aborted, node._reason = True, _inherited(node.parent)
        for node in nodes:
            node._children = {}
            for wait in list(node._waits):
                wait.refuse(cancelled(node._stop_text))
        for node in nodes:
            for scope in node._scopes:
                scope.cancel(node._stop_text)

    def _settled(self) -> None:
        """What ran this context has ended: nobody above needs to stop it any more."""
        self._ended.set()
        assert self.parent is not None  # a root's run sees to it itself
        self.parent._children.pop(self, None)

    # -- channels ---------------------------------------------------------------------------------

    async def recv(self, channel: Channel[T], *, timeout: Duration | None = None) -> T:
        """Return a value from *channel*, waiting for one if need be.

        Args:
          channel: where from.
          timeout: 0 or `"never"`: no limit; None: 30 s.

        Raises:
          RunError: channel_timeout; cancelled: this context was stopped.

        Cancellation: no value is lost. A checkpoint.
        """
        self.check()
        value: T = await self.harness.channels.recv(channel, self._waits, timeout)
        return value

    async def send(self, channel: Channel[T], value: T) -> None:
        """Send *value*; parks while a queue is full, at most 30 s.

        Raises:
          RunError: item_schema_mismatch; channel_timeout; cancelled: this context was stopped, and no room.

        Cancellation: the value was not sent. A checkpoint.
        """
        await self.harness.channels.send(channel, value, self._waits, self.stopped)

    def try_recv(self, channel: Channel[T]) -> T | None:
        """Return a value if there is one now. Always None for a topic."""
        value: T | None = self.harness.channels.try_recv(channel)
        return value

    # -- watching ---------------------------------------------------------------------------------

    def event_stream(self) -> EventStream:
        """Return the events of the whole execution, from the oldest that is kept; to be entered."""
        return EventStream(self._execution.stream)

    def item_stream(self) -> ItemStream:
        """Return the items of the whole execution as they grow; to be entered."""
        return ItemStream(self.event_stream())

    def _appended(self, item: Item) -> None:
        self._execution.tell(self, "item_appended", item=item)

    # -- work -------------------------------------------------------------------------------------

    async def execute(self, step: Step, input: Any = None) -> Any:
        """Run one step on this context, as part of the running step, and return its output.

        A result that was recorded at this place is returned, and nothing runs.

        Raises:
          RunError: step_failed: contexts nested too deep, or what the step says; cancelled: the context was
            stopped before, or while it ran.
          Exception: what the step raises, as it is.

        Cancellation: a step that had ended is recorded all the same. Always a checkpoint.
        """
        return await execute(self, step, input)

    async def checkpoint(self) -> None:
        """Save the state of the whole execution, if there is a store. A save that fails is only logged.

        Cancellation: the store has the snapshot of before, or the new one. Always a checkpoint.
        """
        await self._execution.checkpoint()

    def _book(self, usage: Mapping[str, Any], cost: float | None, *, billed: bool = True) -> None:
        """Add one call to this context and all above it."""
        node: RunContext | None = self
        while node is not None:
            node._totals.tokens.add(usage)
            node._totals.cost += cost or 0.0
            if billed:
                node._totals.billed_cost += cost or 0.0
            node = node.parent

    def _copied_state(self) -> Any:
        """Return a deep copy of the state, for a child. A big one is worth a warning."""
        if self.state == {}:
            return {}
        try:
            size = len(compact_json(self.state))
        except (TypeError, ValueError):
            size = 0
        if size > STATE_WARNING_BYTES:
            get_logger().warning("run.state_is_big", run=self.id, bytes=size)
        return copy.deepcopy(self.state)


def _inherited(parent: RunContext) -> str:
    """Return why a child is aborted whose parent was stopped."""
    if parent.completed:
        return "parent context completed"
    return parent.abort_reason or "parent context aborted"
