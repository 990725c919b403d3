"""Reading what a person types, line by line, while everything else goes on.

On a terminal with readline a worker thread sits in `input()`: editing, history and completion are readline's.
Nothing can interrupt that thread, so at the prompt Ctrl-C is taken from the terminal driver and bound as
a key: it enters the line with a `^C` in it, as shells show it, and `input()` returns. Everywhere else
(a pipe, no readline) the descriptor itself is read, without a thread.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
import termios
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import trio

from .output import write_error

CTRL_C = "\x03"
_PASTE_OFF = "\x1b[?2004l"  # what readline switches on while it reads
_DISABLED = b"\0"  # _POSIX_VDISABLE; here and on the BSDs


class Interrupted(Exception):
    """Ctrl-C at the prompt; the line is given up. *empty*: there was nothing in it."""

    def __init__(self, *, empty: bool) -> None:
        super().__init__()
        self.empty = empty


class Lines(Protocol):
    """Where lines come from."""

    by_hand: bool
    """A person types them, who may want a hint."""

    async def line(self, prompt: str) -> str | None:
        """Return the next line, None at the end. Interrupted: Ctrl-C was typed. Cancellation: see there."""
        ...

    def remember(self, text: str) -> None:
        """Put *text* into the history."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was found."""
        ...


class PlainLines:
    """Lines of a descriptor. Cancellation: safe, what was read of a line is kept."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.by_hand: bool = os.isatty(fd)
        self._waits = not stat.S_ISREG(os.fstat(fd).st_mode)  # a file is always ready, and epoll refuses it
        self._pending = b""
        self._ended = False

    async def line(self, prompt: str) -> str | None:
        if self.by_hand:
            write_error(prompt)
        await trio.lowlevel.checkpoint()
        while b"\n" not in self._pending and not self._ended:
            if self._waits and not select.select([self._fd], [], [], 0)[0]:
                await trio.lowlevel.wait_readable(self._fd)
            data = os.read(self._fd, 65536)
            self._pending += data
            self._ended = not data
        if not self._pending:
            return None
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode("utf-8", "replace").removesuffix("\r")

    def remember(self, text: str) -> None:
        return

    def close(self) -> None:
        return


class TerminalLines:
    """Lines typed at a terminal, with readline.

    Args:
      complete: returns what may stand for the text before the cursor, given the line and the word.
      readline: the module.
      fd: the terminal.

    Cancellation of `line`: its thread stays behind in `input()`, so it is for leaving only.
    """

    by_hand = True

    def __init__(self, complete: Callable[[str, str], Iterable[str]], readline: Any, fd: int) -> None:
        self._readline = readline
        self._fd = fd
        self._found = termios.tcgetattr(fd)
        self._complete = complete
        self._matches: list[str] = []
        readline.set_completer_delims(" ")
        readline.set_completer(self._match)
        if is_gnu(readline):
            readline.parse_and_bind("tab: complete")
            readline.parse_and_bind(r'"\C-c": "\C-v\C-c\C-m"')
        else:
            readline.parse_and_bind("bind ^I rl_complete")

    async def line(self, prompt: str) -> str | None:
        return await trio.to_thread.run_sync(self._read, prompt, abandon_on_cancel=True)

    def remember(self, text: str) -> None:
        if text and text.isprintable():
            self._readline.add_history(text)

    def close(self) -> None:
        with contextlib.suppress(termios.error):  # the terminal is gone
            if termios.tcgetattr(self._fd) != self._found:
                write_error(_PASTE_OFF + "\n")
                termios.tcsetattr(self._fd, termios.TCSANOW, self._found)

    def _read(self, prompt: str) -> str | None:
        with self._ctrl_c_is_a_key():
            try:
                text = input(prompt)
            except EOFError:
                return None
        if CTRL_C not in text:
            return text
        last = self._readline.get_current_history_length()
        if last and CTRL_C in (self._readline.get_history_item(last) or ""):
            self._readline.remove_history_item(last - 1)
        raise Interrupted(empty=text == CTRL_C)

    @contextlib.contextmanager
    def _ctrl_c_is_a_key(self) -> Iterator[None]:
        if not is_gnu(self._readline):
            yield
            return
        before = termios.tcgetattr(self._fd)
        keyed = [*before[:6], [*before[6]]]
        keyed[6][termios.VINTR] = _DISABLED
        termios.tcsetattr(self._fd, termios.TCSADRAIN, keyed)
        try:
            yield
        finally:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, before)

    def _match(self, word: str, number: int) -> str | None:
        if number == 0:
            before = self._readline.get_line_buffer()[: self._readline.get_endidx()]
            self._matches = list(self._complete(before, word))
        return self._matches[number] if number < len(self._matches) else None


def is_gnu(readline: Any) -> bool:
    """Tell GNU readline from the libedit that calls itself readline."""
    return "libedit" not in (readline.__doc__ or "")


def open_lines(complete: Callable[[str, str], Iterable[str]]) -> Lines:
    """Return the lines of stdin: with readline when a person sits at both ends."""
    if os.isatty(0) and os.isatty(1) and sys.stdin is not None:
        try:
            import readline
        except ImportError:
            pass
        else:
            return TerminalLines(complete, readline, 0)
    return PlainLines(0)
