"""Executions as a store has them: brought back, forgotten, and what they still may have to pay."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import trio

from .layers import ContextLayer
from .ledger import ledger_prefix
from .paid import PaidCall, PaidCalls, PaidState, paid_prefix
from .snapshot import Snapshot, decode_snapshot, snapshot_key

if TYPE_CHECKING:
    from .context import RunContext
    from .harness import Harness

Lookup: TypeAlias = Callable[[PaidCall], Awaitable[float | None] | float | None]
"""Gives the bill of a held call in USD, plain or async; None: not known yet."""


async def restored(
    harness: Harness, execution_id: str, *, state: Any, layers: Iterable[ContextLayer]
) -> RunContext | None:
    """Return the root context of an execution; None: nothing is stored of it. See `Harness.restore`."""
    if harness.store is None:
        await trio.lowlevel.checkpoint()
        return None
    raw = await harness.store.get(snapshot_key(execution_id))
    snapshot = None if raw is None else decode_snapshot(raw)
    if snapshot is None and not await harness.store.keys(ledger_prefix(execution_id)):
        return None
    snapshot = snapshot or Snapshot(execution_id=execution_id, captured_at=0.0)
    context = harness.create_context(
        id=execution_id,
        thread_id=snapshot.thread_id,
        resource_id=snapshot.resource_id,
        state=state if snapshot.state is None else snapshot.state,
        items=snapshot.items,
        layers=layers,
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


async def forget(harness: Harness, execution_id: str) -> None:
    """Remove what is stored of an execution. OSError: the store can't be written."""
    store = harness.store
    if store is None:
        await trio.lowlevel.checkpoint()
        return
    keys = [snapshot_key(execution_id)]
    for prefix in (ledger_prefix(execution_id), paid_prefix(execution_id)):
        keys += await store.keys(prefix)
    await store.delete(keys)


async def paid_calls_of(harness: Harness, execution_id: str, *, dead: bool = False) -> PaidCalls:
    """Return the paid calls of an execution, live or stored.

    Args:
      harness: whose.
      execution_id: one that is not live has its calls read from the store.
      dead: whether whoever made those is gone: they are held if they are still open.
    """
    execution = harness._executions.get(execution_id)
    if execution is not None:
        await trio.lowlevel.checkpoint()
        return execution.paid
    paid = PaidCalls(execution_id, harness.store, harness.clock)
    raw = None if harness.store is None else await harness.store.get(snapshot_key(execution_id))
    await paid.load(0 if raw is None else decode_snapshot(raw).paid_sequence, dead=dead)
    return paid


async def reconciled(harness: Harness, execution_id: str, lookup: Lookup) -> tuple[PaidCall, ...]:
    """Replace holds by bills; return the calls that were. See `Harness.reconcile`."""
    paid = await paid_calls_of(harness, execution_id, dead=True)
    live = harness._executions.get(execution_id)
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
