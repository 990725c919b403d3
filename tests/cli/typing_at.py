"""A person at a terminal: the command line on a pseudo terminal, keys typed, the screen waited for."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from tests.cli.processes import PATIENCE

CTRL_C, CTRL_D, TAB, UP = "\x03", "\x04", "\t", "\x1b[A"


class Typist:
    """Made by `at_terminal`."""

    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self.process = process
        self.fd = fd
        self.screen = ""
        """All that was shown since the last `see`."""
        self.shown = ""
        """All that was shown."""
        self.found = self.terminal

    @property
    def terminal(self) -> list[Any]:
        """How the terminal is set."""
        return termios.tcgetattr(self.fd)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self.fd, keys.encode())

    def enter(self, text: str) -> None:
        """Type a line."""
        self.type(text + "\r")

    async def see(self, text: str) -> str:
        """Wait until *text* is shown; returns what was shown before it since the last call."""
        with trio.fail_after(PATIENCE):
            while text not in self.screen:
                await self._read()
        before, _, self.screen = self.screen.partition(text)
        return before

    async def end(self) -> int:
        """Wait for the end of the process and return its exit code."""
        with trio.fail_after(PATIENCE):
            while await self._read():
                pass
            return await trio.to_thread.run_sync(self.process.wait, abandon_on_cancel=True)

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def _read(self) -> bool:
        await trio.lowlevel.wait_readable(self.fd)
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # EIO: nobody has the other end any more
            return False
        text = data.decode("utf-8", "replace")
        self.screen += text
        self.shown += text
        return bool(data)


@asynccontextmanager
async def at_terminal(*arguments: str, env: Mapping[str, str]) -> AsyncIterator[Typist]:
    """Run the command line with a terminal for its streams; it is killed at the end."""
    master, slave = os.openpty()

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(  # noqa: ASYNC220  # quick, and `preexec_fn` is needed
        [sys.executable, "-m", "aiio.cli", *arguments],
        env={**env, "TERM": "xterm", "INPUTRC": "/dev/null"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=take_terminal,
    )
    os.close(slave)
    try:
        yield Typist(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)
