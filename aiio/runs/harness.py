"""`Harness`: what runs share: an env, a checkpoint store, channels, schemas; and where runs begin."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import trio

from aiio.context.log import get_logger
from aiio.env.groups import first_leaf

from .anchoring import CachePolicy, Lineage
from .budgets import ProjectionPolicy
from .channel_outside import ChannelHandle, ChannelStream, Lifetimes
from .channel_store import ChannelStore
from .channels import Channel
from .children import ending
from .context import RunContext
from .errors import RunConfigError
from .execution import Execution
from .fs import FsAdapter, MemoryFs
from .ids import new_id
from .item_schemas import ItemSchemaRegistry
from .items import Item
from .layers import ContextLayer
from .ledger import Retention, ledger_prefix
from .paid import PaidCall, PaidCalls, PaidState, paid_prefix
from .prices import Pricer
from .running import run_within
from .snapshot import Snapshot, decode_snapshot, snapshot_key

if TYPE_CHECKING:
    from aiio.env.env import Env

    from .step import Step
    from .stores import CheckpointStore

Listener = Callable[[str, Mapping[str, Any]], object]
"""Called with an event's type (`<harness name>:<event>`) and its data; a plain function."""


LINEAGES = 256
"""Prefixes that one harness keeps track of."""


class Harness:
    """What runs share.

    Args:
      env: for model calls; None: there can be none.
      model: a selector for steps that name no model.
      store: where checkpoints live; None: nothing is saved.
      retention: what the step ledger keeps.
      params: the user's own, for steps to read.
      fs: the files steps see; None: in memory.
      item_schemas: which items logs take; None: the built-in ones, strictly.
      prices: what calls cost; None: `genai-prices`, if it is installed.
      layers: of every root context.
      projection: how much models are shown.
      cache: how prefixes are kept for the caches of providers.
      name: what its events begin with.
      clock: wall-clock seconds.
    """

    def __init__(
        self,
        *,
        env: Env | None = None,
        model: str | None = None,
        store: CheckpointStore | None = None,
        retention: Retention | None = None,
        params: Mapping[str, Any] | None = None,
        fs: FsAdapter | None = None,
        item_schemas: ItemSchemaRegistry | None = None,
        prices: Pricer | None = None,
        layers: Iterable[ContextLayer] = (),
        projection: ProjectionPolicy | None = None,
        cache: CachePolicy | None = None,
        name: str = "aiio",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.env = env
        self.model = model
        self.store = store
        self.retention = retention or Retention()
        self.params = dict(params or {})
        self.fs: FsAdapter = fs or MemoryFs()
        self.item_schemas = item_schemas or ItemSchemaRegistry()
        self.prices = prices
        self.layers = tuple(layers)
        self.projection = projection or ProjectionPolicy()
        self.cache = cache or CachePolicy()
        self.name = name
        self.clock = clock
        self.channels = ChannelStore()
        self._lifetimes = Lifetimes()
        self._lineages: OrderedDict[str, Lineage] = OrderedDict()
        self._listeners: dict[Listener, None] = {}
        self._executions: WeakValueDictionary[str, Execution] = WeakValueDictionary()

    # -- runs -------------------------------------------------------------------------------------

    def create_context(
        self,
        *,
        id: str | None = None,
        thread_id: str | None = None,
        resource_id: str | None = None,
        state: Any = None,
        items: Iterable[Item] = (),
    ) -> RunContext:
        """Return a root context, to be given to `run`. Inside a trio run only."""
        execution = Execution(self, new_id() if id is None else id)
        self._executions[execution.id] = execution
        execution.root = RunContext(
            self,
            execution=execution,
            id=execution.id,
            thread_id=thread_id,
            resource_id=resource_id,
            state=state,
            items=items,
            layers=self.layers,
        )
        return execution.root

    async def run(self, step: Step, input: Any = None, *, context: RunContext | None = None) -> Any:
        """Run *step* as one execution and return its output, or what `complete` was given.

        Args:
          step: what to do.
          input: given to it.
          context: a root of `create_context` or `restore`; None: a fresh one.

        Raises:
          RunError: cancelled: the context was aborted; what steps raise.
          Exception: what steps raise, as it is, never in a group.

        Cancellation: everything below has ended when it comes out. What is detached ends with the run.
        Always a checkpoint.
        """
        context = self.create_context() if context is None else context
        execution = context._execution
        outermost = execution.nursery is None
        if not outermost or context.parent is not None:
            return await run_within(context, step, input)
        self._lifetimes.begin(execution.id)
        context._ended = trio.Event()
        outcome = "done"
        try:
            async with trio.open_nursery() as nursery:
                execution.nursery = nursery
                try:
                    await context.layers.begin(execution.restored)
                    return await run_within(context, step, input)
                finally:
                    execution.nursery = None
                    nursery.cancel_scope.cancel("the run has ended")
        except BaseException as exc:  # noqa: BLE001  # taken out of its group, and raised
            error = first_leaf(exc)
            outcome = f"raised {type(error).__name__}"
            raise error from error.__cause__
        finally:
            try:
                await context.layers.end(ending(context, outcome))
            finally:
                context.span.end(outcome)
                context._ended.set()
                self._lifetimes.end(execution.id)

    async def cancel(self, context: RunContext, reason: str | None = None) -> None:
        """Abort *context* and all below it, and wait until they have ended, the deepest first, layers too.

        Nothing happens when it was stopped before, or does not run. Always a checkpoint.
        """
        running = bool(context._scopes) and context.stopped is None
        context.abort(reason)
        if running:
            await context._ended.wait()
        else:
            await trio.lowlevel.checkpoint()

    def lineage(self, context: RunContext) -> Lineage:
        """Return whose prefix a model call of *context* continues; the least recently used are forgotten."""
        name = context.thread_id if context.depth == 0 else context.id
        found = self._lineages.pop(name, None) or Lineage(name, self.cache)
        self._lineages[name] = found
        if len(self._lineages) > LINEAGES:
            self._lineages.popitem(last=False)
        return found

    # -- checkpoints ------------------------------------------------------------------------------

    async def restore(self, execution_id: str, *, state: Any = None) -> RunContext | None:
        """Return the context of an execution as its last checkpoint has it; None: there is none.

        Tokens, cost, step count, items and the ledger come back; `elapsed` and `billed_cost` begin again. Run
        the same workflow on it: what had ended is handed back.

        Args:
          execution_id: the root's id.
          state: the user's own, when the checkpoint holds none.

        Raises:
          RunConfigError: CHECKPOINT_SCHEMA_MISMATCH: the checkpoint is not one of ours, or is broken.
          OSError: the store can't be read.
        """
        if self.store is None:
            await trio.lowlevel.checkpoint()
            return None
        raw = await self.store.get(snapshot_key(execution_id))
        snapshot = None if raw is None else decode_snapshot(raw)
        if snapshot is None and not await self.store.keys(ledger_prefix(execution_id)):
            return None
        snapshot = snapshot or Snapshot(execution_id=execution_id, captured_at=0.0)
        context = self.create_context(
            id=execution_id,
            thread_id=snapshot.thread_id,
            resource_id=snapshot.resource_id,
            state=state if snapshot.state is None else snapshot.state,
            items=snapshot.items,
        )
        context.step_count = snapshot.step_count
        totals = context._totals
        totals.cost = snapshot.cost
        totals.tokens.input = snapshot.tokens.get("input") or 0
        totals.tokens.output = snapshot.tokens.get("output") or 0
        totals.tokens.total = totals.tokens.input + totals.tokens.output
        totals.tokens.cached = snapshot.tokens.get("cached")
        context._execution.restored = snapshot.layers
        await context._execution.ledger.load()
        for call in await context._execution.paid.load(snapshot.paid_sequence):
            used = {} if call.state is PaidState.RECONCILED else call.usage
            context._book(used, call.cost_usd, billed=False)
        return context

    async def clear_checkpoint(self, execution_id: str) -> None:
        """Forget the snapshot, the recorded results and the paid calls of an execution."""
        if self.store is None:
            await trio.lowlevel.checkpoint()
            return
        keys = [snapshot_key(execution_id)]
        for prefix in (ledger_prefix(execution_id), paid_prefix(execution_id)):
            keys += await self.store.keys(prefix)
        await self.store.delete(keys)

    # -- money ------------------------------------------------------------------------------------

    async def paid_calls(self, execution_id: str) -> tuple[PaidCall, ...]:
        """Return the paid calls of an execution, live or stored, oldest first."""
        return (await self._paid(execution_id)).calls

    async def reconcile(
        self, execution_id: str, lookup: Callable[[PaidCall], Awaitable[float | None] | float | None]
    ) -> tuple[PaidCall, ...]:
        """Replace holds by bills; return the calls that were reconciled. Asking again does nothing more.

        Args:
          execution_id: live or stored.
          lookup: gives the bill of a held call in USD; None: not known yet.

        An execution that is not of this harness's contexts is taken for dead: its open calls are held.
        """
        paid = await self._paid(execution_id, dead=True)
        live = self._executions.get(execution_id)
        found: list[PaidCall] = []

        def book(call: PaidCall) -> None:
            found.append(call)
            if live is not None and live.root is not None:
                live.root._book({}, call.cost_usd, billed=call.attempt == paid.attempt)

        for call in paid.calls:
            if call.state is not PaidState.HELD:
                continue
            asked = lookup(call)
            bill = await asked if isinstance(asked, Awaitable) else asked
            if bill is not None:
                await paid.change(call.call_id, PaidState.RECONCILED, cost=bill, book=book)
        await trio.lowlevel.checkpoint()
        return tuple(found)

    async def write_off(self, execution_id: str, call_id: str) -> bool:
        """Give up on the bill of a held call; False: it is not held. KeyError: no such call."""
        return await (await self._paid(execution_id, dead=True)).change(call_id, PaidState.WRITTEN_OFF)

    async def _paid(self, execution_id: str, *, dead: bool = False) -> PaidCalls:
        execution = self._executions.get(execution_id)
        if execution is not None:
            await trio.lowlevel.checkpoint()
            return execution.paid
        paid = PaidCalls(execution_id, self.store, self.clock)
        raw = None if self.store is None else await self.store.get(snapshot_key(execution_id))
        await paid.load(0 if raw is None else decode_snapshot(raw).paid_sequence, dead=dead)
        return paid

    # -- outside ----------------------------------------------------------------------------------

    def channel_handle(self, channel: Channel[Any], execution_id: str) -> ChannelHandle[Any]:
        """Return the sending end of an external channel, open until the root run ends."""
        self._check_external(channel)
        self._lifetimes.know(execution_id)
        return ChannelHandle(channel, self.channels, self._lifetimes, execution_id)

    def channel_stream(self, channel: Channel[Any], execution_id: str) -> ChannelStream[Any]:
        """Return the reading end of an external channel, to be entered with `async with`."""
        self._check_external(channel)
        self._lifetimes.know(execution_id)
        return ChannelStream(channel, self.channels, self._lifetimes, execution_id)

    def _check_external(self, channel: Channel[Any]) -> None:
        if not channel.external:
            raise RunConfigError(
                "CHANNEL_NOT_EXTERNAL",
                f"channel {channel.name!r} can't be reached from outside",
                hint="declare it with external=True",
            )

    # -- events -----------------------------------------------------------------------------------

    def on_event(self, listener: Listener) -> Callable[[], None]:
        """Tell *listener* of everything that runs do from now on. Returns what ends it."""
        self._listeners[listener] = None

        def forget() -> None:
            self._listeners.pop(listener, None)

        return forget

    def tell(self, name: str, data: Mapping[str, Any]) -> None:
        """Tell all listeners. One that raises is logged: watching must not change what is watched."""
        for listener in list(self._listeners):
            try:
                listener(f"{self.name}:{name}", data)
            except Exception as exc:  # noqa: BLE001  # somebody else's function
                get_logger().warning("run.listener_failed", event_name=name, error=type(exc).__name__)
