"""`aiio run --engine ray`: the prompts of one run spread over the machines of a Ray cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from aiio.context.events import ErrorKind
from aiio.scale import Job, RayEngine, Recipe, Spread, open_spread

from .exits import BY_KIND, CliFault
from .output import say

if TYPE_CHECKING:
    from .run import RunOptions

AGENTS_PER_WORKER = 500
"""What one process does at ease; see docs/scale.md."""
FEWEST_WORKERS = 2
"""By default, so that the loss of one does not stop all."""


@asynccontextmanager
async def spread_on_ray(
    jobs: Iterator[Job], recipe: Recipe, agents: int, options: RunOptions
) -> AsyncIterator[Spread]:
    """Let Ray workers run *jobs*, *agents* at a time altogether; on leaving they are gone.

    CliFault: no Ray, no cluster, a credential among the settings, or no worker that stays alive.
    """
    workers = options.workers or max(FEWEST_WORKERS, -(-agents // AGENTS_PER_WORKER))
    try:
        engine = RayEngine(recipe, address=options.ray_address)
    except ValueError as exc:
        raise CliFault(str(exc)) from exc
    try:
        async with open_spread(engine, jobs, workers=workers, max_active=agents) as spread:
            say(f"{len(spread.shares)} Ray workers, {max(spread.shares.values())} requests at a time each")
            yield spread
    except (ModuleNotFoundError, ConnectionError) as exc:
        raise CliFault(str(exc)) from exc
    except trio.BrokenResourceError as exc:
        sentence = f"{exc}; what has ended is in the results, and the same command run again does the rest"
        raise CliFault(sentence, BY_KIND[ErrorKind.NETWORK]) from exc
