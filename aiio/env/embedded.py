"""The embedded model of an Env, put together from its settings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from . import local_state
from .durations import parse_duration
from .local import DEFAULT_IDLE_AFTER, LocalModel, Tasks
from .local_process import ModelServer, require_runtime, server_spec, start_server
from .weights import find_weights


def embedded_model(
    settings: Callable[[], dict[str, Any]], *, tasks: Tasks, busy: Callable[[], bool]
) -> LocalModel:
    """Return the embedded model, not started.

    Args:
      settings: returns those of endpoint `local`, asked now and at every start.
      tasks: runs the watcher of idleness.
      busy: whether any request may be using the server.
    """

    async def start() -> ModelServer:
        require_runtime()
        now = settings()
        weights = find_weights(now.get("weights"), cache=now.get("cache_dir"))
        return await start_server(server_spec(now, weights))

    first = settings()
    idle_after = parse_duration(first.get("idle_after"))
    return LocalModel(
        start=start,
        adopt=partial(local_state.adopt, first.get("cache_dir")),
        tasks=tasks,
        busy=busy,
        idle_after=DEFAULT_IDLE_AFTER if idle_after is None else idle_after,
    )
