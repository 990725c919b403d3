"""The command line in a process of its own, against a server in the test's trio run.

async with serve(*answer("Hi")) as server:
    ended = await aiio("ask", "Hello", env=environment(server))
assert (ended.code, ended.out) == (0, b"Hi\\n")
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from aiio.cli.main import main
from tests.serving import Server, Step, chunk, head, last_chunk

ROOT = Path(__file__).parents[2]
CANARY = "sk-canary-0123456789abcdef"
MODEL = "openai/gpt-test"
PATIENCE = 30
"""Seconds after which a process that should have ended is given up."""


@dataclass(frozen=True)
class Ended:
    """A process that has ended."""

    code: int
    out: bytes
    err: str


def environment(server: Server, **more: str) -> dict[str, str]:
    """Return the variables of a process that knows nothing but the server and the canary."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "error",
        "AIIO_NO_CONFIG": "1",
        "OPENAI_API_KEY": CANARY,
        "OPENAI_BASE_URL": f"{server.url}/v1",
        **more,
    }


def start(
    *arguments: str, env: Mapping[str, str], preexec: Callable[[], None] | None = None
) -> subprocess.Popen[bytes]:
    """Start the command line with pipes for stdout and stderr and nothing on stdin."""
    return subprocess.Popen(
        [sys.executable, "-m", "aiio.cli", *arguments],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=preexec,
    )


async def end_of(process: subprocess.Popen[bytes]) -> Ended:
    """Wait for the end of *process* and return what it printed. TooSlowError: it does not end."""
    try:
        with trio.fail_after(PATIENCE):
            out, err = await trio.to_thread.run_sync(process.communicate, abandon_on_cancel=True)
    finally:
        process.kill()
        process.wait()
    return Ended(process.returncode, out, err.decode())


async def aiio(
    *arguments: str, env: Mapping[str, str], preexec: Callable[[], None] | None = None, stdin: bytes = b""
) -> Ended:
    """Run the command line with *arguments* to its end."""
    with trio.fail_after(PATIENCE):
        ended = await trio.run_process(
            [sys.executable, "-m", "aiio.cli", *arguments],
            env=env,
            stdin=stdin,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            preexec_fn=preexec,
        )
    return Ended(ended.returncode, ended.stdout, ended.stderr.decode())


_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["aiio.cli.app", __name__])


async def forked(folder: Path, *arguments: str, env: Mapping[str, str]) -> Ended:
    """As `aiio`, with no stdin, in a fork of a process that has imported all of it: a tenth of the price.

    For tests of what is said, not of how a process begins. What it says passes through files in *folder*.
    """
    process = _FORKS.Process(target=_run_command, args=(folder, arguments, env))
    with trio.fail_after(PATIENCE):
        await trio.to_thread.run_sync(process.start)
        await trio.lowlevel.wait_readable(process.sentinel)
    process.join()
    code = process.exitcode
    process.close()
    assert code is not None
    return Ended(code, (folder / "stdout").read_bytes(), (folder / "stderr").read_text("utf-8"))


def _run_command(folder: Path, arguments: Sequence[str], env: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)
    warnings.simplefilter("error")
    for number, name in (1, "stdout"), (2, "stderr"):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.exit(main(arguments))


def delta(text: str) -> Step:
    """A chunk with a piece of text."""
    return chunk(frame({"choices": [{"index": 0, "delta": {"content": text}}]}))


def answer(text: str) -> list[Step]:
    """A whole answer of one piece."""
    stop = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return [head(), delta(text), chunk(frame(stop)), chunk(b"data: [DONE]\n\n"), last_chunk()]


def frame(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def set_event(event: trio.Event) -> Step:
    """Tell the test that the script got here."""

    async def step(exchange: object) -> None:
        event.set()

    return step
