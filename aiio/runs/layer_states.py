"""The states of one context's layers, and their copies in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from aiio.context.log import get_logger

from .layers import ContextLayer, LayerStorage, Scope, scope_key

if TYPE_CHECKING:
    from .context import RunContext

STATE = "state"
"""The key under which a state is stored, and returned by hooks."""


class LayerStates:
    """States by layer id. What is written is soon in the store, too, unless it is one execution's alone.

    Args:
      context: whose layers they are.
    """

    __slots__ = ("_context", "_dirty", "_mirroring", "_writing", "mirrored", "values")  # there may be many

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self.values: dict[str, Any] = {}
        self._dirty: dict[str, ContextLayer] = {}
        self._writing: trio.Lock | None = None
        """Held while states are stored: of those that change meanwhile the latest is. None: none ever was."""
        self._mirroring = False
        self.mirrored: bool = True
        """Whether states are stored at all."""

    def write(self, layer: ContextLayer, state: Any) -> None:
        """Write a state; None clears it, and removes what is stored. Stored in the background of the run."""
        self.values[layer.id] = state
        if not self.mirrored or layer.scope is Scope.EXECUTION or self._context.harness.store is None:
            return
        self._dirty[layer.id] = layer
        if not trio.lowlevel.in_trio_run():
            return  # a plain tool, in its thread; it is stored with the next answer, or at the end
        nursery = self._context._execution.nursery
        if nursery is not None and not self._mirroring:
            self._mirroring = True
            nursery.start_soon(self._mirror, name="aiio.layers")

    async def _mirror(self) -> None:
        try:
            await self.flush()
        finally:
            self._mirroring = False

    async def flush(self) -> None:
        """Store what was written; a store that fails is logged. A checkpoint, if anything ever was.

        Cancellation: what was not stored is still to be.
        """
        if self._writing is None:
            if not self._dirty:
                return
            self._writing = trio.Lock()
        async with self._writing:
            while self._dirty:
                id, layer = self._dirty.popitem()
                try:
                    await self._store(layer, self.values.get(id))
                except (OSError, TypeError, ValueError) as exc:
                    log_failure(layer, "storing", exc)
                except BaseException:
                    self._dirty.setdefault(id, layer)
                    raise

    async def _store(self, layer: ContextLayer, state: Any) -> None:
        storage = self.storage(layer)
        if state is None:
            await storage.delete(STATE)
        else:
            await storage.put(STATE, state)

    def storage(self, layer: ContextLayer) -> LayerStorage:
        """Return what *layer* keeps between executions; nothing, if its states are one execution's alone."""
        prefix = f"layers/{layer.id}/{scope_key(layer, self._context)}/"
        return LayerStorage(None if layer.scope is Scope.EXECUTION else self._context.harness.store, prefix)


def log_failure(layer: ContextLayer, hook: str, exc: Exception) -> None:
    """Log that something of a layer failed; the run goes on without it."""
    get_logger().warning("run.layer_failed", layer=layer.id, hook=hook, error=type(exc).__name__)
