"""Output that waits for its reader without stopping the clock, and that a terminal can be trusted with.

Text of a model can hold anything: an escape sequence in it could rewrite what a terminal shows, its
title, even its clipboard, and marks for text from right to left could show a command as another. To a
terminal such characters go out made visible; files and pipes get what came: programs want it as it is.
"""

from __future__ import annotations

import math
import os
import select
import stat
import sys

import trio

_PIECE = 4096  # PIPE_BUF: what a pipe that is ready takes without blocking

_VISIBLE = {code: f"^{chr(code ^ 0x40)}" for code in (*range(0x20), 0x7F) if chr(code) not in "\n\t"}
_VISIBLE |= {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}
# What reorders the text after it: embeddings, overrides and isolates. The marks that Arabic and Hebrew need
# for a single character stay. Source: Unicode Standard Annex #9, section 2; "Trojan Source", CVE-2021-42574.
_BIDI = {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
_VISIBLE |= _BIDI
_IN_JSON = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}  # those below 0x20 are escaped already
_IN_JSON |= _BIDI


def visible(text: str) -> str:
    """Return *text* with what steers a terminal, but for line feed and tab, as `^[` and the like."""
    return text.translate(_VISIBLE)


def safe_json(line: bytes) -> bytes:
    """Return a line of JSON that means the same, and that a terminal can be trusted with."""
    return line.decode().translate(_IN_JSON).encode()


def visible_line(text: str) -> str:
    """Return *text* as `visible` does, on one line: nothing in it can pass for a line of its own."""
    return visible(" ".join(text.splitlines()))


def say(sentence: str) -> None:
    """Print *sentence*, on one line, on stderr after `aiio: `. Never raises for a stderr that is gone."""
    write_error(f"aiio: {visible_line(sentence)}\n")


def write_error(text: str) -> None:
    """Write *text* to stderr as it is. Never raises for a stderr that is gone."""
    try:
        sys.stderr.write(text.encode("utf-8", "replace").decode())
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # none, broken, closed
        return


class OutputLost(Exception):
    """The output takes nothing more. *reader_gone*: a closed pipe, which is no fault of anybody."""

    def __init__(self, reason: str, *, reader_gone: bool = False) -> None:
        super().__init__(reason)
        self.reader_gone = reader_gone


class Output:
    """Writes text to a descriptor of somebody else's.

    Args:
      fd: open for writing; stays open.
      terminal: whether control characters must not pass; None: ask the descriptor.
    """

    def __init__(self, fd: int, *, terminal: bool | None = None) -> None:
        self._fd = fd
        self.terminal: bool = os.isatty(fd) if terminal is None else terminal
        self._waits = not stat.S_ISREG(os.fstat(fd).st_mode)  # a file is always ready, and epoll refuses it
        self._patience = math.inf  # trio time
        self._waiting: trio.CancelScope | None = None

    def give_up_at(self, deadline: float) -> None:
        """Wait for a reader until *deadline* on trio's clock and no longer, now and later."""
        self._patience = deadline
        if self._waiting is not None:
            self._waiting.deadline = deadline

    async def text(self, text: str) -> None:
        """Write *text*, made safe if this is a terminal. Raises `OutputLost`."""
        await self._write((visible(text) if self.terminal else text).encode("utf-8", "replace"))

    async def line(self, line: bytes) -> None:
        """Write a line of JSON, which keeps its meaning on a terminal too. Raises `OutputLost`."""
        await self._write(safe_json(line) if self.terminal else line)

    async def _write(self, data: bytes) -> None:
        """Write all of *data*; waits, in other tasks' favour, while the reader is slow."""
        try:
            while data:
                if self._waits and not select.select([], [self._fd], [], 0)[1]:
                    await self._wait()
                data = data[os.write(self._fd, data[:_PIECE]) :]
        except OSError as exc:
            raise OutputLost(exc.strerror or str(exc), reader_gone=isinstance(exc, BrokenPipeError)) from exc

    async def _wait(self) -> None:
        with trio.CancelScope(deadline=self._patience) as self._waiting:
            await trio.lowlevel.wait_writable(self._fd)
        if self._waiting.cancelled_caught:
            raise OutputLost("nobody reads it", reader_gone=True)
        self._waiting = None
