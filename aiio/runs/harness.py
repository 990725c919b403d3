"""`Harness`: what runs share: an env, a checkpoint store, channels, schemas; and where runs begin."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import trio

from aiio.context.log import get_logger
from aiio.env.groups import first_leaf
from aiio.env.prices import Pricer

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
from .item_stream import ItemStream
from .items import Item
from .layers import ContextLayer
from .ledger import Retention
from .paid import PaidCall, PaidState
from .recall import Recalls
from .restoring import Lookup, forget, paid_calls_of, reconciled, restored
from .running import run_within
from .sessions import Delivery, HarnessResponse, Sessions
from .streams import EVENTS_KEPT, EventStream

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
      step: what a turn of a session does; None: there are no sessions.
      projection: how much models are shown.
      cache: how prefixes are kept for the caches of providers.
      force_atomic_recall: whether all layers are recalled for every view, the eventual ones too.
      name: what its events begin with, and what its runs are called in traces.
      event_buffer: events that a stream keeps for readers who are late or slow; 0: there are no streams.
      tracer_provider: OpenTelemetry's, for spans; None: the global one, if it is installed.
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
        step: Step | None = None,
        projection: ProjectionPolicy | None = None,
        cache: CachePolicy | None = None,
        force_atomic_recall: bool = False,
        name: str = "aiio",
        event_buffer: int = EVENTS_KEPT,
        tracer_provider: Any = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.env = env
        self.model = model
        self.store = store
        self.retention: Retention = retention or Retention()
        self.params: dict[str, Any] = dict(params or {})
        self.fs: FsAdapter = fs or MemoryFs()
        self.item_schemas: ItemSchemaRegistry = item_schemas or ItemSchemaRegistry()
        self.prices = prices
        self.layers: tuple[ContextLayer, ...] = tuple(layers)
        self.step = step
        self.projection: ProjectionPolicy = projection or ProjectionPolicy()
        self.cache: CachePolicy = cache or CachePolicy()
        self.recalls: Recalls = Recalls(forced=force_atomic_recall)
        self.name = name
        self.event_buffer = event_buffer
        self.tracer_provider = tracer_provider
        self.thread_id: str = new_id()
        """Of the session that is meant when no thread is named."""
        self.clock = clock
        self.channels: ChannelStore = ChannelStore()
        self._lifetimes = Lifetimes()
        self._lineages: OrderedDict[str, Lineage] = OrderedDict()
        self._listeners: dict[Listener, None] = {}
        self._executions: WeakValueDictionary[str, Execution] = WeakValueDictionary()
        self._sessions = Sessions(self)

    async def __aenter__(self) -> Harness:
        """Open the harness for `execute`. RuntimeError: it is open."""
        await self._sessions.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for all turns, also those whose messages wait; after an exception they are aborted."""
        await self._sessions.leave(kind, exc, trace)

    # -- runs -------------------------------------------------------------------------------------

    def create_context(
        self,
        *,
        id: str | None = None,
        thread_id: str | None = None,
        resource_id: str | None = None,
        state: Any = None,
        items: Iterable[Item] = (),
        layers: Iterable[ContextLayer] = (),
    ) -> RunContext:
        """Return a root context, to be given to `run`. Inside a trio run only.

        Args:
          id: of the execution; None: a fresh one.
          thread_id: None: a fresh one.
          resource_id: what the thread is about, if anything.
          state: the user's own, given to the context as it is.
          items: what its log begins with.
          layers: added to the harness's; the same id replaces.

        Raises:
          RunError: item_schema_mismatch: an item that the log does not take.
        """
        given = tuple(layers)
        replaced = {layer.id for layer in given}
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
            layers=[*(layer for layer in self.layers if layer.id not in replaced), *given],
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
        execution.stream.reopen()
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
            cut = isinstance(error, trio.Cancelled)
            outcome = "cancelled" if cut else f"raised {type(error).__name__}"
            raise error from error.__cause__
        finally:
            try:
                await context.layers.end(ending(context, outcome))
            finally:
                context.span.end(outcome)
                context._ended.set()
                self._lifetimes.end(execution.id)
                execution.stream.close()

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

    # -- sessions ---------------------------------------------------------------------------------

    def execute(
        self,
        input: Any,
        *,
        thread_id: str | None = None,
        resource_id: str | None = None,
        state: Any = None,
        layers: Sequence[ContextLayer] = (),
        delivery: Delivery | str = Delivery.NEXT_TURN,
        message_id: str | None = None,
    ) -> str:
        """Put a message into the queue of a thread, and return its id at once; a turn takes it from there.

        All that waits when a turn begins is one turn: a run of the harness's step on a new context that
        begins with the thread's items. Its input is the message's, or, of several, the items of all.
        What it adds to the log is kept if it succeeds. Only inside `async with harness`.

        Args:
          input: for the step; a text, an item or a list of items, or JSON data.
          thread_id: which conversation; None: the harness's own.
          resource_id, state, layers: of the turn's context, if this is the first message of the turn.
          delivery: how soon it is heard.
          message_id: by which events and the response name it; None: a fresh one.

        Raises:
          RunConfigError: NO_STEP_CONFIGURED.
          RuntimeError: the harness is not entered.
          ValueError: an unknown delivery.
        """
        return self._sessions.put(
            input,
            thread_id=thread_id,
            resource_id=resource_id,
            state=state,
            layers=layers,
            delivery=delivery,
            message_id=message_id,
        )

    async def get_agent_response(self, thread_id: str | None = None) -> HarnessResponse | None:
        """Wait until no turn of a thread runs and its queue is empty; return what its last turn brought.

        None: there was no turn. Raises what a turn raises that fails meanwhile, or was the last and failed;
        `RunError` (cancelled): it was aborted and nothing waits, or the harness was left.

        Cancellation: only the wait ends. Always a checkpoint.
        """
        return await self._sessions.of(thread_id).settled()

    def abort(self, thread_id: str | None = None, reason: str | None = None) -> bool:
        """Cut the turn that runs on a thread; what waits in its queue is kept. False: no turn runs.

        See `cancel` for a run. Nothing of the turn is kept.
        """
        return self._sessions.of(thread_id).abort(reason)

    def seed_session_history(self, thread_id: str | None, items: Iterable[Item]) -> None:
        """Let the next turn of a thread begin with *items*, in place of what the thread holds.

        Raises:
          RunError: item_schema_mismatch.
          trio.BusyResourceError: a turn runs, or waits.
        """
        self._sessions.of(thread_id).seed(items)

    def session_history(self, thread_id: str | None = None) -> tuple[Item, ...]:
        """Return the items of a thread: what its turns that succeeded have left."""
        return self._sessions.of(thread_id).items

    def forget_session(self, thread_id: str | None = None) -> None:
        """Drop what is kept of a thread. trio.BusyResourceError: a turn runs, or waits."""
        self._sessions.forget(thread_id)

    def event_stream(self, thread_id: str | None = None) -> EventStream:
        """Return the events of a thread, turn after turn, from the oldest that is kept; to be entered.

        It ends when the thread is forgotten. A single run has `RunContext.event_stream`.
        """
        return EventStream(self._sessions.of(thread_id).stream)

    def item_stream(self, thread_id: str | None = None) -> ItemStream:
        """Return the items of a thread as they grow, turn after turn; to be entered."""
        return ItemStream(self.event_stream(thread_id))

    # -- checkpoints ------------------------------------------------------------------------------

    async def restore(
        self, execution_id: str, *, state: Any = None, layers: Iterable[ContextLayer] = ()
    ) -> RunContext | None:
        """Return the context of an execution as its last checkpoint has it; None: there is none.

        Tokens, cost, step count, items and the ledger come back; `elapsed` and `billed_cost` begin again. Run
        the same workflow on it: what had ended is handed back.

        Args:
          execution_id: the root's id.
          state: the user's own, when the checkpoint holds none.
          layers: as for `create_context`; their states come back under their ids.

        Raises:
          RunConfigError: CHECKPOINT_SCHEMA_MISMATCH: the checkpoint is not one of ours, or is broken.
          OSError: the store can't be read.

        Cancellation: nothing has changed in the store.
        """
        return await restored(self, execution_id, state=state, layers=layers)

    async def clear_checkpoint(self, execution_id: str) -> None:
        """Forget the snapshot, the recorded results and the paid calls of an execution.

        OSError: the store can't be read or written. Cancellation: part of it may be gone; call again. Always
        a checkpoint.
        """
        await forget(self, execution_id)

    # -- money ------------------------------------------------------------------------------------

    async def paid_calls(self, execution_id: str) -> tuple[PaidCall, ...]:
        """Return the paid calls of an execution, live or stored, oldest first.

        OSError: the store can't be read. Cancellation: nothing has changed.
        """
        return (await paid_calls_of(self, execution_id)).calls

    async def reconcile(self, execution_id: str, lookup: Lookup) -> tuple[PaidCall, ...]:
        """Replace holds by bills; return the calls that were reconciled. Asking again does nothing more.

        Args:
          execution_id: live or stored.
          lookup: gives the bill of a held call in USD; None: not known yet.

        An execution that is not of this harness's contexts is taken for dead: its open calls are held.

        Raises:
          OSError: the store can't be read; one that can't be written is only logged.
          Exception: what *lookup* raises, as it is.

        Cancellation: those whose bill was found are reconciled; call again for the rest. Always a checkpoint.
        """
        return await reconciled(self, execution_id, lookup)

    async def write_off(self, execution_id: str, call_id: str) -> bool:
        """Give up on the bill of a held call; False: it is not held.

        KeyError: no such call. OSError: the store can't be read. Cancellation: it may be done; call again.
        """
        paid = await paid_calls_of(self, execution_id, dead=True)
        return await paid.change(call_id, PaidState.WRITTEN_OFF)

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
