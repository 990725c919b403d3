"""Many machines: prompts spread over workers, each with a nursery of its own, and the results as they end.

    async with open_spread(RayEngine(), jobs, workers=8, max_active=2000) as spread:
        async for ended in spread:
            print(ended.key, ended.terminal)

`Spread` decides who gets what; an `Engine` brings workers up and carries messages. `LocalEngine` keeps them
in this process, `RayEngine` (extra `ray`) has one process each, on the machines of a Ray cluster.
"""

from __future__ import annotations

from .engine import Engine
from .jobs import Ended, Job, Joined, Lost, Recipe, Report, Timings
from .local import LocalEngine
from .ray_engine import RayEngine
from .spread import Spread, open_spread

__all__ = [
    "Ended",
    "Engine",
    "Job",
    "Joined",
    "LocalEngine",
    "Lost",
    "RayEngine",
    "Recipe",
    "Report",
    "Spread",
    "Timings",
    "open_spread",
]
