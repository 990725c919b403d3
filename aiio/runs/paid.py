"""Paid calls: what was sent, what it cost, and what it may have cost when nobody knows.

A record is written before its call is dispatched, so that a crash can't hide a bill:

    open        on its way
    settled     the bill is known (or the call's usage, whose price may not be)
    void        it failed before anything could be billed
    held        it was cut off, or its process died: it may cost as much as its ceiling
    reconciled  a held one whose bill was found later
    written_off a held one that the host gave up on

A change has a sequence number, and is booked right after it is stored, one change at a time. A snapshot holds
the last number it has booked; at a restore the changes after that are booked, once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from aiio.context.log import get_logger

from .ids import new_id

if TYPE_CHECKING:
    from .context import RunContext
    from .stores import CheckpointStore


class PaidState(StrEnum):
    """How far a paid call is known."""

    OPEN = "open"
    SETTLED = "settled"
    VOID = "void"
    HELD = "held"
    RECONCILED = "reconciled"
    WRITTEN_OFF = "written_off"


MOVES: dict[PaidState, frozenset[PaidState]] = {
    PaidState.OPEN: frozenset({PaidState.SETTLED, PaidState.VOID, PaidState.HELD}),
    PaidState.HELD: frozenset({PaidState.RECONCILED, PaidState.WRITTEN_OFF}),
}
"""Every pair that is missing is final: asking for it changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidCall:
    """One call that may be billed."""

    call_id: str
    execution_id: str
    """The root's."""
    context_id: str
    path: str
    """Of the step: the ids from the root to it."""
    round: int
    """Of the step's requests, which one; from 0."""
    attempt: int
    """Of the execution: how often it was restored before."""
    provider: str
    model: str
    ceiling_usd: float | None
    """What it can cost at most; None: nobody knows, and it counts as 0."""
    opened_at: float
    """Wall-clock seconds."""
    state: PaidState = PaidState.OPEN
    cost_usd: float | None = None
    """What it cost; None: not known."""
    usage: dict[str, Any] = field(default_factory=dict)
    provider_request_id: str | None = None
    sequence: int = 0
    """Of the last change."""


class PaidCalls:
    """The paid calls of one execution.

    Args:
      execution_id: the root's id.
      store: where to; None: in memory only.
      clock: wall-clock seconds.
    """

    def __init__(self, execution_id: str, store: CheckpointStore | None, clock: Callable[[], float]) -> None:
        self._execution_id = execution_id
        self._store = store
        self._clock = clock
        self._calls: dict[str, PaidCall] = {}
        self._lock = trio.Lock()
        self.sequence: int = 0
        """Of the last change that is booked."""
        self.attempt: int = 0

    @property
    def calls(self) -> tuple[PaidCall, ...]:
        """All of them, oldest first."""
        return tuple(self._calls.values())

    @property
    def held_cost(self) -> float:
        """USD that those held may cost at most; one without a ceiling counts 0, see `unpriced`."""
        return sum(call.ceiling_usd or 0.0 for call in self._calls.values() if call.state is PaidState.HELD)

    @property
    def unpriced(self) -> tuple[PaidCall, ...]:
        """Those held whose ceiling nobody knows."""
        return tuple(
            call for call in self._calls.values() if call.state is PaidState.HELD and call.ceiling_usd is None
        )

    async def load(self, booked: int, *, dead: bool = True) -> list[PaidCall]:
        """Read what earlier attempts stored; return the changes after number *booked*, to be booked.

        Args:
          booked: the number.
          dead: whether whoever made the calls is gone: those still open are held then.

        OSError: the store can't be read.
        """
        if self._store is None:
            return []
        keys = await self._store.keys(paid_prefix(self._execution_id))
        rows = await self._store.get_many(keys)
        found: list[PaidCall] = []
        for key in keys:
            try:
                found.append(msgspec.json.decode(rows.get(key, b""), type=PaidCall))
            except msgspec.DecodeError:
                get_logger().warning("run.paid_call_unreadable", key=key)
        found.sort(key=lambda call: (call.opened_at, call.call_id))
        self._calls = {call.call_id: call for call in found}
        self.sequence = max([booked, *(call.sequence for call in found)])
        self.attempt = max((call.attempt for call in found), default=-1) + 1
        late = [
            call
            for call in found
            if call.sequence > booked
            and call.state in (PaidState.SETTLED, PaidState.HELD, PaidState.RECONCILED)
        ]
        for call in found:
            if dead and call.state is PaidState.OPEN:
                await self.change(call.call_id, PaidState.HELD)
        return late

    async def open(
        self, context: RunContext, *, path: str, round: int, provider: str, model: str, ceiling: float | None
    ) -> PaidCall:
        """Record a call that is about to be made; it is stored when this returns.

        OSError: it can't be stored, and must not be made.
        """
        call = PaidCall(
            call_id=new_id(),
            execution_id=self._execution_id,
            context_id=context.id,
            path=path,
            round=round,
            attempt=self.attempt,
            provider=provider,
            model=model,
            ceiling_usd=ceiling,
            opened_at=self._clock(),
        )
        await self._put(call)
        self._calls[call.call_id] = call
        return call

    async def change(
        self,
        call_id: str,
        state: PaidState,
        *,
        cost: float | None = None,
        usage: dict[str, Any] | None = None,
        request_id: str | None = None,
        book: Callable[[PaidCall], None] | None = None,
    ) -> bool:
        """Move a call to *state*; False: it is not in a state to move from, and nothing was done.

        Args:
          call_id: one of these calls. KeyError: it is not.
          state: where to.
          cost: USD, when known.
          usage: its counts.
          request_id: the provider's.
          book: called with the changed call as soon as it is stored; a store that fails is logged, and the
            call is booked all the same.
        """
        async with self._lock:
            call = self._calls[call_id]
            if state not in MOVES.get(call.state, ()):
                return False
            changed = dataclasses.replace(
                call,
                state=state,
                cost_usd=cost,
                usage=usage or call.usage,
                provider_request_id=request_id or call.provider_request_id,
                sequence=self.sequence + 1,
            )
            try:
                await self._put(changed)
            except OSError as exc:
                get_logger().error("run.paid_call_not_saved", call_id=call_id, error=str(exc))
            self.sequence = changed.sequence
            self._calls[call_id] = changed
            if book is not None:
                book(changed)
            return True

    async def _put(self, call: PaidCall) -> None:
        if self._store is not None:
            key = paid_prefix(self._execution_id) + call.call_id
            await self._store.put(key, msgspec.json.encode(call))


def paid_prefix(execution_id: str) -> str:
    """Return what the keys of an execution's paid calls begin with."""
    return f"execution:{execution_id}:paid:"
