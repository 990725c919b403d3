"""Sessions: conversations that a harness keeps by thread, and the turns that move them on.

`execute` only puts a message into a thread's queue. What waits there when a turn begins is that turn: one
run of the harness's step, on a new context that begins with the items of the thread. What a turn adds is kept
when it succeeds, and only then. Messages choose how soon they are heard: with the next turn, between two
rounds of the turn that runs, or at once, by an abort of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any

import trio

from aiio.env.groups import first_leaf

from .errors import RunConfigError, cancelled
from .ids import new_id
from .item_log import ItemLog
from .items import Item, extract_assistant_text, input_items
from .layers import ContextLayer
from .streams import Broadcaster
from .totals import TokenTotals

if TYPE_CHECKING:
    from .context import RunContext
    from .harness import Harness
    from .step import Step

LEFT = "the harness was left"


class Delivery(StrEnum):
    """When a message is heard."""

    NEXT_TURN = "next-turn"
    """By the turn that comes next."""
    BETWEEN_ROUNDS = "between-rounds"
    """By the model step of the turn that runs, after the calls of its round; else by the next turn."""
    INTERRUPT = "interrupt"
    """At once: the turn that runs is aborted, and this is first in the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMessage:
    """A message in the queue of a session, with what its turn is to be like if it is the first of it."""

    id: str
    input: Any
    delivery: Delivery
    resource_id: str | None
    state: Any
    layers: tuple[ContextLayer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessResponse:
    """What a turn brought."""

    thread_id: str
    execution_id: str
    """Of the turn's context."""
    message_ids: tuple[str, ...]
    """Messages that were heard."""
    output: Any
    """Of the harness's step."""
    items: tuple[Item, ...]
    """What the turn added to the thread, with what was said to it."""
    tokens: TokenTotals
    cost: float
    """USD."""
    last_layer_usage: Any
    """Of its last model call; None: there was none."""

    @property
    def text(self) -> str:
        """The text of the last assistant message of the turn, "" when there is none."""
        return extract_assistant_text(self.items)


class _Waiter:
    """Somebody who waits for a session to be idle."""

    __slots__ = ("ended", "error", "response")

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.response: HarnessResponse | None = None
        self.error: Exception | None = None


class Session:
    """One thread: its items, its queue, and the turn that runs.

    Args:
      harness: what its turns run on.
      thread_id: whose.
    """

    def __init__(self, harness: Harness, thread_id: str) -> None:
        self.thread_id = thread_id
        self.items: tuple[Item, ...] = ()
        self.stream: Broadcaster = Broadcaster(harness.event_buffer)
        self.queue: deque[SessionMessage] = deque()
        self.context: RunContext | None = None
        """Of the turn that runs."""
        self.working: bool = False
        """Whether a task sees to the queue."""
        self._harness = harness
        self._heard: list[str] = []
        self._response: HarnessResponse | None = None
        self._error: Exception | None = None
        self._waiters: dict[_Waiter, None] = {}

    def put(self, message: SessionMessage) -> None:
        """Queue *message*; one that interrupts goes to the head, behind others that do."""
        self._error = None
        if message.delivery is not Delivery.INTERRUPT:
            self.queue.append(message)
            return
        at = sum(waiting.delivery is Delivery.INTERRUPT for waiting in self.queue)
        self.queue.insert(at, message)
        self.abort("interrupted by a message")

    def abort(self, reason: str | None) -> bool:
        """Cut the turn that runs, keep the queue. False: none runs."""
        if self.context is None:
            return False
        self.context.abort(reason)
        return True

    def seed(self, items: Iterable[Item]) -> None:
        """Begin with *items*. RunError (item_schema_mismatch); trio.BusyResourceError: a turn runs."""
        if self.working:
            raise trio.BusyResourceError(f"a turn of the thread {self.thread_id!r} is running")
        self.items = ItemLog(self._harness.item_schemas, items).items

    async def settled(self) -> HarnessResponse | None:
        """Wait until nothing runs and nothing waits; see `Harness.get_agent_response`."""
        if not self.working:
            await trio.lowlevel.checkpoint()
            if self._error is not None:
                raise self._error
            return self._response
        waiter = _Waiter()
        self._waiters[waiter] = None
        try:
            await waiter.ended.wait()
        finally:
            self._waiters.pop(waiter, None)
        if waiter.error is not None:
            raise waiter.error
        return waiter.response

    async def work(self, step: Step) -> None:
        """Run turns until the queue is empty. Raises nothing that a turn raises."""
        try:
            while self.queue:
                await self._turn(step)
            self.working = False
            self._release(self._response, self._error)
        finally:
            self.working = False
            self._release(None, cancelled(LEFT))  # nobody is left, unless this was cancelled

    async def _turn(self, step: Step) -> None:
        batch = list(self.queue)
        self.queue.clear()
        first = batch[0]
        context = self._harness.create_context(
            thread_id=self.thread_id,
            resource_id=first.resource_id,
            state=first.state,
            items=self.items,
            layers=first.layers,
        )
        execution = context._execution
        execution.session_stream, execution.inbox = self.stream, self._between_rounds
        self._heard = [message.id for message in batch]
        self.context = context
        execution.tell(context, "turn_started", thread_id=self.thread_id, message_ids=list(self._heard))
        outcome = "cancelled"
        try:
            output = await self._harness.run(step, _input_of(batch), context=context)
        except Exception as exc:  # noqa: BLE001  # told to those who wait for it
            outcome = type(exc).__name__
            self._failed(exc, aborted=context.aborted)
        else:
            outcome = "done"
            self._succeeded(context, output)
        finally:
            self.context = None
            name = "turn_completed" if outcome == "done" else "turn_aborted"
            execution.tell(
                context, name, thread_id=self.thread_id, message_ids=list(self._heard), outcome=outcome
            )

    def _succeeded(self, context: RunContext, output: Any) -> None:
        begun, self.items = len(self.items), context.item_log.items
        self._error = None
        self._response = HarnessResponse(
            thread_id=self.thread_id,
            execution_id=context.id,
            message_ids=tuple(self._heard),
            output=output,
            items=self.items[begun:],
            tokens=context.tokens.copy(),
            cost=context.cost,
            last_layer_usage=context.last_layer_usage,
        )

    def _failed(self, error: Exception, *, aborted: bool) -> None:
        if aborted and self.queue:
            return  # it was cut in favour of what waits, and so is the wait for it
        self._error = error
        self._release(None, error)

    def _release(self, response: HarnessResponse | None, error: Exception | None) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.response, waiter.error = response, error
            waiter.ended.set()

    def _between_rounds(self) -> list[Item]:
        """Take what the turn that runs is to hear now."""
        waiting, self.queue = self.queue, deque()
        now: list[SessionMessage] = []
        for message in waiting:
            (now if message.delivery is Delivery.BETWEEN_ROUNDS else self.queue).append(message)
        self._heard += [message.id for message in now]
        return [item for message in now for item in input_items(message.input)]


class Sessions:
    """The sessions of one harness, and the nursery that their turns run in while the harness is entered."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._sessions: dict[str, Session] = {}
        self._manager: Any = None
        self._nursery: trio.Nursery | None = None

    async def enter(self) -> None:
        """Open the nursery. RuntimeError: it is open."""
        if self._manager is not None:
            raise RuntimeError("this harness is entered already")
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()

    async def leave(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the turns that run and wait; after an exception they are aborted, and dropped."""
        if exc is not None:
            self._nursery = None  # what turns still put in while they end is refused
            for session in self._sessions.values():
                session.queue.clear()
                session.abort(LEFT)
        try:
            # Not told of `exc`: it would come back in a group, and lose its cause when taken out.
            await self._manager.__aexit__(None, None, None)
        except BaseException as raised:  # noqa: BLE001  # one of several is picked, none is swallowed
            leaf = first_leaf(raised)
            if exc is None or not isinstance(leaf, trio.Cancelled):
                raise leaf from None
        finally:
            self._manager = self._nursery = None

    def of(self, thread_id: str | None) -> Session:
        """Return the session of a thread, None: of the harness's own. A new one is empty."""
        key = self._harness.thread_id if thread_id is None else thread_id
        if key not in self._sessions:
            self._sessions[key] = Session(self._harness, key)
        return self._sessions[key]

    def forget(self, thread_id: str | None) -> None:
        """Drop a session's items. trio.BusyResourceError: a turn runs."""
        session = self.of(thread_id)
        session.seed(())
        session.stream.close()
        del self._sessions[session.thread_id]

    def put(
        self,
        input: Any,
        *,
        thread_id: str | None,
        resource_id: str | None,
        state: Any,
        layers: Sequence[ContextLayer],
        delivery: Delivery | str,
        message_id: str | None,
    ) -> str:
        """Queue a message, and see to it that a turn begins; see `Harness.execute`."""
        step = self._harness.step
        if step is None:
            raise RunConfigError(
                "NO_STEP_CONFIGURED", "this harness has no step for turns", hint="give Harness(step=...)"
            )
        if self._nursery is None:
            raise RuntimeError("turns need a task to run in: use `async with harness:`")
        message = SessionMessage(
            id=message_id or new_id(),
            input=input,
            delivery=Delivery(delivery),
            resource_id=resource_id,
            state=state,
            layers=tuple(layers),
        )
        session = self.of(thread_id)
        session.put(message)
        if not session.working:
            session.working = True
            self._nursery.start_soon(session.work, step, name=f"aiio.session {session.thread_id}")
        return message.id


def _input_of(batch: Sequence[SessionMessage]) -> Any:
    """Return what the step of a turn gets: the one message's input as it is, else the items of all."""
    if len(batch) == 1:
        return batch[0].input
    return [item for message in batch for item in input_items(message.input)]
