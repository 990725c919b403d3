"""Where log lines end up: a file, or nowhere, but never in the way of a request."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Protocol


class Sink(Protocol):
    """Takes whole lines."""

    def write(self, line: bytes) -> None:
        """Write one line, its line feed included. Never raises, never waits for a reader."""
        ...

    def close(self) -> None:
        """Give up what is held. Idempotent."""
        ...


class NoSink:
    """Drops every line."""

    def write(self, line: bytes) -> None:
        """Drop *line*."""

    def close(self) -> None:
        """Do nothing."""


class FileSink:
    """Appends lines to a file, one system call each, so that lines of several processes do not mix.

    When a line can't be written (full disk, closed pipe, a reader that stalls) that is said once on
    stderr, and later lines are dropped in silence: a log is worth less than the requests it tells about.

    Args:
      path: the file; made if it is missing, readable by its owner only.

    Raises:
      OSError: it can't be opened for writing.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        # Non-blocking matters for pipes and terminals only: one that nobody reads must not stop the loop.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
        self._fd: int | None = os.open(path, flags, 0o600)

    def write(self, line: bytes) -> None:
        """Append *line*; the first failure is the last try."""
        if self._fd is None:
            return
        try:
            while line:
                line = line[os.write(self._fd, line) :]
        except OSError as exc:
            self.close()
            warn(f"the log {self._path} can't be written ({exc.strerror}); its further lines are lost")

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)


class StreamSink:
    """Writes lines to a descriptor that somebody else owns: a console. Fails as quietly as `FileSink`."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    def write(self, line: bytes) -> None:
        """Write *line*; the first failure is the last try."""
        if self._fd is None:
            return
        try:
            while line:
                line = line[os.write(self._fd, line) :]
        except OSError:
            self._fd = None  # no word about it: the console is where it would go

    def close(self) -> None:
        """Forget the descriptor; it stays open."""
        self._fd = None


class Sinks:
    """Several sinks as one."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks

    def write(self, line: bytes) -> None:
        """Write *line* to each."""
        for sink in self._sinks:
            sink.write(line)

    def close(self) -> None:
        """Close each."""
        for sink in self._sinks:
            sink.close()


def warn(sentence: str) -> None:
    """Say *sentence* on stderr, if there is one that works."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # none, broken, closed
        sys.stderr.write(f"aiio: {sentence}\n")
        sys.stderr.flush()
