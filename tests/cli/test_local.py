"""`aiio local`, with what it calls replaced: the real server has its own tests in env."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import aiio.cli.local as local
from aiio.cli.exits import CliFault
from aiio.cli.session import Session
from aiio.env import local_state
from aiio.env.env import Env, open_env


def session_in(tmp_path: Path) -> Session:
    return Session(open_env({"local": {"cache_dir": str(tmp_path)}}))


async def test_setup_fetches_into_the_cache_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fetch(progress: Any, *, cache: Path | None) -> Path:
        progress("downloading")
        assert cache is not None
        return cache / "weights.gguf"

    monkeypatch.setattr(local, "setup_weights", fetch)
    monkeypatch.setattr(local, "RUNTIME", "json")
    assert await local.setup(session_in(tmp_path)) == 0
    err = capsys.readouterr().err
    assert "aiio: downloading\n" in err
    assert str(tmp_path / "weights.gguf") in err


async def test_setup_without_the_runtime_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CliFault, match=r"pip install 'aiio-runtime\[cli,local\]'") as fault:
        await local.setup(session_in(tmp_path))
    assert fault.value.code == 5


async def test_setup_stops_on_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async def fetch(progress: Any, *, cache: Path | None) -> Path:
        session.stopped_by = 2
        session.on_stop()
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(local, "setup_weights", fetch)
    monkeypatch.setattr(local, "RUNTIME", "json")
    session = session_in(tmp_path)
    assert await local.setup(session) == 130


class Served:
    """Stands in for `local_state.serve`."""

    url = "http://127.0.0.1:9/v1"

    def __init__(self, outcome: int | OSError | None) -> None:
        self.outcome = outcome

    async def __call__(self, spec: Any, on_ready: Any, *, cache: Path | None) -> int:
        if isinstance(self.outcome, OSError):
            raise self.outcome
        on_ready(self)
        if self.outcome is None:
            await trio.sleep_forever()
        return self.outcome or 0


def serving(outcome: int | OSError | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "find_weights", lambda named, cache: Path("w.gguf"))
    monkeypatch.setattr(local_state, "serve", Served(outcome))


async def test_serve_runs_until_it_is_stopped(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
    capsys: pytest.CaptureFixture[str],
) -> None:
    serving(None, monkeypatch)
    session = session_in(tmp_path)
    async with trio.open_nursery() as nursery:

        async def stop() -> None:
            await trio.sleep(60)
            session.on_stop()

        nursery.start_soon(stop)
        assert await local.serve(session) == 0
    err = capsys.readouterr().err
    assert "serving local/smollm2 at http://127.0.0.1:9/v1" in err
    assert "was stopped" in err


@pytest.mark.parametrize(
    ("outcome", "reason", "code"),
    [(3, "ended with exit code 3", 4), (OSError("disk full"), "can't tell other processes .*: disk full", 5)],
)
async def test_serve_says_why_it_ended(
    outcome: int | OSError, reason: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving(outcome, monkeypatch)
    with pytest.raises(CliFault, match=reason) as fault:
        await local.serve(session_in(tmp_path))
    assert fault.value.code == code


@pytest.mark.parametrize(("found", "said"), [(True, "was stopped"), (False, "no server was started")])
async def test_stop_ends_what_serve_started(
    found: bool, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def stop(cache: Path | None) -> bool:
        assert cache is None
        return found

    monkeypatch.setattr(local_state, "stop_served", stop)
    assert await local.stop(Session(Env(environ={}))) == 0
    assert said in capsys.readouterr().err
