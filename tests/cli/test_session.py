"""Exceptions become a sentence and an exit code; signals become a stop, and then an end."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import trio

import aiio.cli.session as session_module
from aiio.cli.exits import CliFault
from aiio.cli.session import LogOptions, Session, execute, leave_now
from aiio.context.log import get_logger
from aiio.env.env import open_env
from aiio.env.errors import ErrorKind, ProviderError

CANARY = "sk-canary-0123456789abcdef"


def failing(error: BaseException) -> session_module.Command:
    async def command(session: Session) -> int:
        session.env.scrubber.add(CANARY)
        raise error

    return command


def test_the_code_of_the_command_comes_out_and_the_log_is_written(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def command(session: Session) -> int:
        assert not session.stopping
        get_logger().info("seen")
        get_logger().debug("not seen")
        return 7

    assert execute(command, LogOptions(log=str(log))) == 7
    (line,) = log.read_text().splitlines()
    assert json.loads(line)["event"] == "seen"


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (CliFault(f"mend {CANARY}"), 5, "mend ***"),
        (CliFault("no", 4), 4, "no"),
        (ProviderError(ErrorKind.AUTH, f"no key {CANARY}"), 2, "no key ***"),
        (ProviderError(ErrorKind.NETWORK, "offline"), 3, "offline"),
        (ProviderError(ErrorKind.PROVIDER, "x", code="no_weights"), 4, "aiio local setup"),
        (KeyboardInterrupt(), 130, "stopped"),
        (
            KeyError(CANARY),
            1,
            "unexpected KeyError: '***'; this is a bug of aiio (--log FILE keeps the details",
        ),
    ],
)
def test_every_exception_is_one_sentence(
    error: BaseException, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(failing(error), LogOptions()) == code
    err = capsys.readouterr().err
    assert err.startswith("aiio: ")
    assert err.count("\n") == 1
    assert sentence in err


def test_K1_a_bug_is_logged_and_shown_scrubbed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    options = LogOptions(log=str(log), debug=True)
    assert execute(failing(RuntimeError(f"https://u:{CANARY}@h/?key={CANARY}")), options) == 1
    err = capsys.readouterr().err
    assert f"the log {log} has the details" in err
    assert "Traceback" in err
    assert "cli.crashed" in log.read_text()
    assert "Traceback" in log.read_text()
    assert CANARY not in err + log.read_text()


def test_a_log_that_cannot_be_written_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(failing(AssertionError("not run")), LogOptions(log=str(tmp_path))) == 5
    assert "can't be written: Is a directory; name another file with --log" in capsys.readouterr().err


@pytest.mark.parametrize(("first", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_the_first_signal_stops_and_the_second_leaves(first: signal.Signals, code: int) -> None:
    left: list[int] = []
    async with open_env() as env:
        session = Session(env)
        assert session.signal_code == 130
        await env.nursery.start(session.watch, left.append)
        signal.raise_signal(first)
        while not session.stopping:
            await trio.lowlevel.checkpoint()
        assert (session.stopped_by, session.signal_code, left) == (first, code, [])
        stopped: list[bool] = []
        session.on_stop = lambda: stopped.append(True)
        signal.raise_signal(signal.SIGINT)
        while not left:
            await trio.lowlevel.checkpoint()
        assert (left, stopped) == ([130], [])


async def test_the_first_signal_calls_on_stop() -> None:
    async with open_env() as env:
        session = Session(env)
        stopped = trio.Event()
        session.on_stop = stopped.set
        await env.nursery.start(session.watch, lambda code: None)
        signal.raise_signal(signal.SIGINT)
        await stopped.wait()


@pytest.mark.parametrize("terminal", [True, False])
def test_leaving_ends_the_process_and_gives_the_cursor_back(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Left(BaseException):
        pass

    def leave(code: int) -> None:
        raise Left(code)

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(os, "isatty", lambda fd: terminal)
    with pytest.raises(Left, match="130"):
        leave_now(130)
    assert ("\x1b[?25h" in capsys.readouterr().err) is terminal
