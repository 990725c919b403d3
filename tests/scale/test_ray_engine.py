"""What of the Ray engine needs no Ray."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio

from aiio.cli.exits import CliFault
from aiio.cli.ray import spread_on_ray
from aiio.cli.run import RunOptions
from aiio.scale import Job, Lost, RayEngine, Recipe
from aiio.scale.ray_engine import own_sigterm
from aiio.scale.ray_worker import RayWorker

from .envs import no_env

ROOT = Path(__file__).parents[2]


def test_a_credential_among_the_settings_never_leaves_the_process() -> None:
    for name in ("auth", "api_key", "Authorization"):
        with pytest.raises(ValueError, match=f"'{name}' is a credential") as raised:
            RayEngine(Recipe(settings={"temperature": 0, name: "sk-canary"}))
        assert "sk-canary" not in str(raised.value)
    with pytest.raises(ValueError, match="'x-api-key' is a credential"):
        RayEngine(Recipe(settings={"headers": {"x-api-key": "sk-canary"}}))


async def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match=r"aiio-runtime\[ray\]"):
        await RayEngine().__aenter__()
    with pytest.raises(CliFault, match=r"aiio-runtime\[ray\]"):
        async with spread_on_ray(iter(()), Recipe(), 4, RunOptions(prompts="p", out="o")):
            pass  # pragma: no cover
    with pytest.raises(CliFault, match="'auth' is a credential"):
        async with spread_on_ray(
            iter(()), Recipe(settings={"auth": "x"}), 4, RunOptions(prompts="p", out="o")
        ):
            pass  # pragma: no cover


async def test_a_worker_without_an_env_reports_that_it_is_lost_and_takes_no_jobs() -> None:
    worker = RayWorker("w", Recipe(), no_env)
    reports = await trio.to_thread.run_sync(worker.take)
    assert reports == [Lost(worker="w", reason="OSError: no configuration here")]
    worker.give([Job(key="k", model="m/m", text="x")])
    worker.stop("late")
    with pytest.raises(queue.Empty):
        worker._reports.get_nowait()


def test_a_handler_of_sigterm_outlives_what_starts_ray() -> None:
    """Ray's own would end the process in the middle of everything."""
    before = signal.getsignal(signal.SIGTERM)
    with own_sigterm():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) is before
    handlers = []

    def elsewhere() -> None:
        with own_sigterm():
            handlers.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert handlers == [before]


def test_the_room_is_imported_without_ray() -> None:
    code = "import sys, aiio.scale, aiio.cli.app; sys.exit('ray' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 0
