"""The command line itself: options, help, and codes for what never came to a request."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

import aiio
import aiio.cli.app as app
import aiio.cli.local as local_module
from aiio.cli import main as main_module
from aiio.cli.app import invoke
from aiio.cli.main import main

CANARY = "sk-canary-0123456789abcdef"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)


@pytest.fixture
def refusing() -> Iterator[str]:
    """The URL of a port where nobody listens, and nobody else will."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


def test_help_shows_examples_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert 'aiio ask "Name three birds."' in out
    assert "130 Ctrl-C" in out
    for command in (["ask"], ["run"], ["local"], ["local", "setup"], ["local", "serve"], ["local", "stop"]):
        assert invoke([*command, "--help"]) == 0
        assert command[-1] in capsys.readouterr().out
    assert invoke(["--version"]) == 0
    assert aiio.__version__ in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["ask", "--nosuch"], "No such option"),
        (["nosuch"], "No such command"),
        (["run", "p.jsonl"], "Missing option '--out'"),
        (["run", "p.jsonl", "-o", "x", "--agents", "0"], "is not in the range"),
        (["ask", "x", "--timeout", "soon"], "--timeout: not a duration: 'soon'"),
        (["ask", "x", "--stuck-timeout", "-1s"], "--stuck-timeout: "),
        (["ask", "x", "--set", "y"], "--set takes KEY=VALUE, not 'y'"),
        (["ask", ""], "the prompt is empty"),
        (["ask", "x", "-m", "alone"], "'alone'"),
        (["ask", "x", "-m", "nosuch/model"], "unknown endpoint 'nosuch'"),
        (["run", "none.jsonl", "-o", "/dev/null"], "none.jsonl can't be read: No such file"),
        (["ask", "x", "--log", "/"], "the log / can't be written"),
    ],
)
def test_bad_input_is_one_sentence_and_code_5(
    arguments: list[str], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert invoke(arguments) == 5
    captured = capfd.readouterr()
    assert captured.out == ""
    assert reason in captured.err
    assert all(line.startswith("aiio: ") for line in captured.err.splitlines())


def test_a_refused_connection_is_code_3(refusing: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert invoke(["ask", "x", "-m", "openai/m", "--set", f"url={refusing}"]) == 3
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "refused" in captured.err
    assert "check the address and the network" in captured.err


def test_a_missing_key_is_code_2_for_one_and_for_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('"x"\n')
    out = tmp_path / "out.jsonl"
    for command in (["ask", "x"], ["run", str(prompts), "-o", str(out), "--no-progress"]):
        assert invoke([*command, "-m", "openai/m"]) == 2
        assert "OPENAI_API_KEY" in capfd.readouterr().err
    assert not out.exists()


def test_run_goes_from_the_options_to_the_results(
    refusing: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    prompts, out = tmp_path / "p.jsonl", tmp_path / "out.jsonl"
    prompts.write_text('"x"\n{\n')
    arguments = ["run", str(prompts), "-o", str(out), "-m", "openai/m", "--set", f"url={refusing}"]
    assert invoke(arguments) == 5
    assert f"{prompts}:2: not JSON" in capfd.readouterr().err
    assert invoke([*arguments, "--skip-bad", "-n", "2", "--timeout", "5s"]) == 3
    (line,) = out.read_text().splitlines()
    assert json.loads(line)["terminal"]["kind"] == "network"
    assert "0 of 1 done, 1 failed (1 network)" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["setup", "serve", "stop"])
def test_local_commands_are_wired(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def command(session: Any) -> int:
        return 9

    monkeypatch.setattr(local_module, name, command)
    assert invoke(["local", name]) == 9


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (KeyboardInterrupt(), 130, "stopped"),
        (click.Abort(), 130, "stopped"),
        (click.UsageError("no"), 5, "no"),
        (
            RuntimeError(f"Authorization: Bearer {CANARY}"),
            1,
            "unexpected RuntimeError: Authorization: Bearer ***",
        ),
    ],
)
def test_nothing_raises_out_of_it(
    error: BaseException,
    code: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(**options: Any) -> None:
        raise error

    monkeypatch.setattr(app.cli, "main", fail)
    assert invoke(["--debug"]) == code
    assert sentence in capsys.readouterr().err


def test_help_into_a_closed_pipe_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**options: Any) -> None:
        raise BrokenPipeError

    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(app.cli, "main", fail)
    with os.fdopen(writer, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert invoke([]) == 141
        stdout.write("goes nowhere")


def test_a_command_without_a_code_is_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.cli, "main", lambda **options: None)
    assert invoke([]) == 0


def test_a_missing_extra_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main_module, "EXTRA", ("click", "no_such_module"))
    assert main(["ask", "x"]) == 5
    assert (
        capsys.readouterr().err == "aiio: the command line needs its extra: pip install 'aiio-runtime[cli]'\n"
    )


def test_the_arguments_of_the_process_are_the_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["aiio", "--version"])
    assert main() == 0
    assert capsys.readouterr().out.startswith("aiio")


def test_ctrl_c_while_it_loads_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "aiio.cli.app", SimpleNamespace(invoke=interrupted))
    assert main(["ask"]) == 130


def interrupted(arguments: list[str]) -> int:
    raise KeyboardInterrupt


def test_stdin_is_read_when_there_is_no_prompt(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    stdin = SimpleNamespace(buffer=io.BytesIO(b"\xff"), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stdin)
    assert invoke(["ask"]) == 5
    assert "stdin is not UTF-8" in capfd.readouterr().err


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "aiio.cli", "--version"]
    assert aiio.__version__ in subprocess.run(command, capture_output=True, text=True, check=True).stdout
