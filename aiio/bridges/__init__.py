"""Bridges: the same runtime for callers without trio, over anyio's blocking portal with trio in a thread.

`run_sync` is for scripts and notebooks, `from_asyncio` for asyncio programs. Neither asyncio nor the portal
is imported before it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .blocking import Interrupted, run_sync

if TYPE_CHECKING:
    from .asyncio_bridge import AsyncioBridge

__all__ = ["Interrupted", "from_asyncio", "run_sync"]


def from_asyncio() -> AsyncioBridge:
    """Return a bridge from the running asyncio program into a trio loop of its own.

        async with aiio.from_asyncio() as bridge:
            env = await bridge.enter(aiio.open_env())
            io = aiio.IO(env=env, model="local/smollm2")
            terminal = await bridge.run(io.write, [aiio.user_message("Name three birds.")])

    See `AsyncioBridge`.
    """
    from .asyncio_bridge import AsyncioBridge

    return AsyncioBridge()
