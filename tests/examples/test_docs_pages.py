"""Every example in docs/ does what its page says it does; see pages.py for how a page says it."""

from __future__ import annotations

import functools
import json
import os
import shlex
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from aiio.cli.main import main as aiio_main
from aiio.env.local_state import STATE_FILE
from tests.model import RealModel, real_model  # noqa: F401  # a fixture

from .pages import DOCS, ROOT, Block, as_shown, blocks, commands, pages

IDLE = 0.05
"""Seconds of real idleness after which the clock jumps: also what a thread or the disk does takes less."""
MOST_NOT_RUN = 4
PORT = "8765"
"""What pages write where a server listens; the tests take a free one."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the page's own, where `aiio` can be typed."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, module in (("aiio", "aiio.cli"), ("python", ""), ("pytest", "pytest")):
        run = f"-m {module}" if module else ""
        (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable} {run} "$@"\n')
        (tools / name).chmod(0o755)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.syspath_prepend(str(here))
    return here


@contextmanager
def jumping_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let `trio.run` jump over waiting."""
    run = trio.run

    @functools.wraps(run)
    def jump(*args: Any, **options: Any) -> Any:
        return run(*args, clock=MockClock(autojump_threshold=IDLE), **options)

    with monkeypatch.context() as patch:
        patch.setattr(trio, "run", jump)
        yield


def run_python(block: Block, names: dict[str, Any]) -> None:
    code = compile("\n" * (block.line - 1) + block.text, str(block.page), "exec", dont_inherit=True)
    exec(code, names)


class Shell:
    """What is typed into the shell of one page. `aiio` runs in this process, if it can."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capfd = monkeypatch, capfd
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = str(probe.getsockname()[1])
        self._background: list[subprocess.Popen[str]] = []
        self.code = 0
        """The exit code of the last command."""

    def type(self, command: str) -> str:
        """Run *command* and return what it prints; of one that ends in `&`, its first line."""
        line = command.replace(PORT, self.port)
        match line.split():
            case ["export", *pairs]:
                for name, _, value in (pair.partition("=") for pair in pairs):
                    self._monkeypatch.setenv(name, value)
                said = ""
            case [*_, "&"]:
                said = self._start(line.removesuffix("&"))
            case ["aiio", *_] if not set("|;<>$") & set(line):
                self.code = aiio_main(shlex.split(line)[1:])
                said = "".join(self._capfd.readouterr())
            case _:
                said = self._run(line)
        return said.replace(self.port, PORT)

    def _start(self, line: str) -> str:
        process = subprocess.Popen(["bash", "-c", f"exec {line}"], stdout=subprocess.PIPE, text=True)
        self._background.append(process)
        assert process.stdout is not None
        return process.stdout.readline()

    def _run(self, line: str) -> str:
        ended = subprocess.run(
            ["bash", "-c", f"(exit {self.code}); {line}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=60,
        )
        self.code = ended.returncode
        return ended.stdout

    def close(self) -> None:
        """End what still runs."""
        for process in self._background:
            process.terminate()
            process.communicate(timeout=10)


ANSWER = """[{"say": "Once there was a wren. "}, {"say": "It lived by a lighthouse. "}, "finish"]"""
STAND_IN = {"tutorial.md", "migrating.md"}
"""Pages that talk to endpoints of the world; here a mock server answers."""
NEEDS = {
    "migrating.md": ("openai", "anthropic", "google.genai", "ollama"),
    "comparison.md": ("openai",),
    "opentelemetry.md": ("opentelemetry.sdk",),
}
"""What pages import that a user of aiio need not have."""


def stand_in_for_the_world(folder: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send endpoints to a mock server as a user would: by settings, and the variables of their SDKs."""
    script = folder.parent / "answer.jsonl"
    script.write_text(ANSWER)
    shell.type(f"aiio mock --script {script} --port {PORT} &")
    base = f"http://127.0.0.1:{shell.port}"
    settings = folder.parent / "config"
    settings.mkdir()
    (settings / "config.toml").write_text(f'[local]\nurl = "{base}/v1"\n[gemini]\nurl = "{base}/v1beta"\n')
    monkeypatch.setenv("AIIO_CONFIG_DIR", str(settings))
    monkeypatch.delenv("AIIO_NO_CONFIG")
    for name, path in {"OPENAI": "/v1", "ANTHROPIC": "", "GOOGLE_GEMINI": ""}.items():
        monkeypatch.setenv(f"{name}_BASE_URL", f"{base}{path}")
    monkeypatch.setenv("OLLAMA_HOST", base)
    for name in ("OPENAI", "ANTHROPIC", "GEMINI"):
        monkeypatch.setenv(f"{name}_API_KEY", "key-of-a-mock-server")


def run_console(block: Block, shell: Shell) -> None:
    """Type what *block* does. A command succeeds, unless the next one asks for its exit code."""
    typed = commands(block)
    for (command, shown), following in zip(typed, [*typed[1:], ("", "")], strict=True):
        said = shell.type(command)
        assert as_shown(said, shown), f"{block}: {command}\nprinted:\n{said}\nand the page shows:\n{shown}"
        assert shell.code == 0 or "$?" in following[0], f"{block}: {command}: exit code {shell.code}\n{said}"


def do_what_it_shows(
    page: Path, folder: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        match block.mark, block.language:
            case "not run", _:
                continue
            case "shown", _:
                assert block.text == (ROOT / block.value).read_text("utf-8"), f"{block} shows another file"
            case "file", _:
                (folder / block.value).write_text(block.text)
            case "waits", "python":
                with jumping_clock(monkeypatch):
                    run_python(block, names)
            case None, "python":
                run_python(block, names)
            case None, "console":
                run_console(block, shell)
            case None, "toml":
                tomllib.loads(block.text)
            case None, "json":
                json.loads(block.text)
            case None, "text" | "sh":
                continue
            case _:
                pytest.fail(f"{block}: nobody knows what to do with {block.language!r} marked {block.mark!r}")
        said = capfd.readouterr().out
        if block.language == "python" and block.mark in (None, "waits"):
            assert as_shown(said, block.prints or ""), f"{block} printed:\n{said}"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_page_does_what_it_shows(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for module in NEEDS.get(page.name, ()):
        pytest.importorskip(module, reason=f"{module} is not installed (groups `test` and `oracles`)")
    shell = Shell(monkeypatch, capfd)
    try:
        if page.name in STAND_IN:
            stand_in_for_the_world(folder, shell, monkeypatch)
        do_what_it_shows(page, folder, shell, monkeypatch, capfd)
    finally:
        shell.close()


def test_the_program_in_the_readme_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (program,) = [block for block in blocks(ROOT / "README.md") if "trio.run(main)" in block.text]
    shell = Shell(monkeypatch, capfd)
    try:
        stand_in_for_the_world(folder, shell, monkeypatch)
        run_python(program, {"__name__": "__main__"})
    finally:
        shell.close()
    assert capfd.readouterr().out.startswith(
        "Once there was a wren. It lived by a lighthouse. \n {'input_tokens'"
    )


@pytest.mark.model
def test_the_tutorial_is_true_of_the_embedded_model(
    real_model: RealModel,  # noqa: F811
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    cache = folder.parent / "cache"
    state = cache / "aiio" / STATE_FILE  # as if `aiio local serve` ran in another terminal
    state.parent.mkdir(parents=True)
    state.touch(mode=0o600)
    state.write_text(json.dumps({"url": real_model.url, "key": real_model.key, "pid": real_model.pid}))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    shell = Shell(monkeypatch, capfd)
    do_what_it_shows(DOCS / "tutorial.md", folder, shell, monkeypatch, capfd)


def test_few_examples_are_not_run_and_each_says_why() -> None:
    left_out = [block for page in pages() for block in blocks(page) if block.mark == "not run"]
    assert all(block.value for block in left_out)
    assert len(left_out) <= MOST_NOT_RUN, [str(block) for block in left_out]
