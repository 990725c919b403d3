"""`aiio local`: the embedded model, fetched, served to other processes, stopped."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import trio

from aiio.env import local_state
from aiio.env.local_process import server_spec
from aiio.env.weights import find_weights, setup_weights

from .exits import DONE, CliFault
from .models import EMBEDDED
from .output import say
from .session import Session

RUNTIME = "xllamacpp"


async def setup(session: Session) -> int:
    """Fetch the weights, unless a sound copy is there. Safe to run twice.

    ProviderError: the download failed, or is not what was expected.
    """
    if importlib.util.find_spec(RUNTIME) is None:
        raise CliFault(
            "the embedded model needs its runtime: run `pip install 'aiio-runtime[cli,local]'`, "
            "then `aiio local setup` again"
        )
    with trio.CancelScope() as scope:
        session.on_stop = scope.cancel
        path = await setup_weights(say, cache=_cache(_settings(session)))
        say(f"the embedded model is ready: {EMBEDDED}, a small demo model, from {path}")
    return session.signal_code if session.stopping else DONE


async def serve(session: Session) -> int:
    """Serve the embedded model to all processes of this user until Ctrl-C.

    ProviderError: it did not start. CliFault: the file that tells others of it can't be written.
    """
    settings = _settings(session)
    weights = find_weights(settings.get("weights"), cache=_cache(settings))
    with trio.CancelScope() as scope:
        session.on_stop = scope.cancel
        try:
            code = await local_state.serve(server_spec(settings, weights), _say_ready, cache=_cache(settings))
        except OSError as exc:
            raise CliFault(f"can't tell other processes of the server: {exc}") from exc
        raise CliFault(f"the model's server ended with exit code {code}; run `aiio local serve` again", 4)
    say("the model's server was stopped")
    return DONE


async def stop(session: Session) -> int:
    """End the server that `aiio local serve` started, wherever it runs."""
    stopped = await local_state.stop_served(_cache(_settings(session)))
    say("the model's server was stopped" if stopped else "no server was started by `aiio local serve`")
    return DONE


def _say_ready(server: Any) -> None:
    say(f"serving {EMBEDDED} at {server.url}; Ctrl-C or `aiio local stop` ends it")


def _settings(session: Session) -> dict[str, Any]:
    return session.env.endpoint_settings("local")


def _cache(settings: dict[str, Any]) -> Path | None:
    folder: str | os.PathLike[str] | None = settings.get("cache_dir")
    return None if folder is None else Path(folder)
