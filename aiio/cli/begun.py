"""Which prompts of a run on a cluster are in flight, on the disk: a run that dies can't tell any more.

Beside the results file lies `OUT.jsonl.begun`, a line as a prompt is handed out and a line as it has ended.
What began and did not end in a run that died may have been billed; the next run says so, and counts it in
the result. When nothing is open any more the file goes.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import replace
from pathlib import Path

from aiio.scale import Ended

BEGAN, ENDED = b"+", b"-"


class Begun:
    """The file, taken up from an earlier run. The lock of the results file is its lock.

    What can't be written is passed over: a full disk is noticed by the results.

    Args:
      results: path of the results file; None: there is no file to lie beside, and nothing is kept.
      done: keys with an answer in it: they ended, even if the run died before it could say so here.
    """

    def __init__(self, results: str | None, done: Container[str] = ()) -> None:
        self._path = None if results is None else Path(f"{results}.begun")
        self._open = Counter[str]()
        self._fd: int | None = None
        with contextlib.suppress(OSError):
            self._take_up()
        self._open = Counter({key: times for key, times in self._open.items() if key not in done})
        self.lost: Counter[str] = Counter(self._open)
        """How often each prompt was in flight when a run died, since its last result."""

    def begin(self, key: str) -> None:
        """Note that *key* is about to be sent."""
        self._open[key] += 1
        self._write(BEGAN, key)

    def end(self, key: str) -> None:
        """Note that the result of *key* is kept."""
        self._open.pop(key, None)
        self.lost.pop(key, None)
        self._write(ENDED, key)

    def counted(self, ended: Ended) -> Ended:
        """Return *ended* with what was lost in earlier runs counted in."""
        return replace(ended, unknown_billed=ended.unknown_billed + self.lost[ended.key])

    def close(self) -> None:
        """Close the file; it goes if nothing is open."""
        if self._fd is None or self._path is None:
            return
        os.close(self._fd)
        self._fd = None
        if not self._open:
            self._path.unlink(missing_ok=True)

    def _take_up(self) -> None:
        if self._path is None:
            return
        self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        line = b"\n"
        with open(self._fd, "rb", closefd=False) as lines:
            for line in lines:
                with contextlib.suppress(ValueError):  # a torn line: it was not sent, or runs again anyway
                    self._note(line[:1], str(json.loads(line[1:])))
        if not line.endswith(b"\n"):
            os.write(self._fd, b"\n")

    def _note(self, sign: bytes, key: str) -> None:
        if sign == BEGAN:
            self._open[key] += 1
        else:
            self._open.pop(key, None)

    def _write(self, sign: bytes, key: str) -> None:
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.write(self._fd, sign + json.dumps(key).encode() + b"\n")


@contextlib.contextmanager
def opened(results: str | None, done: Container[str] = ()) -> Iterator[Begun]:
    """Give a `Begun`, and close it."""
    begun = Begun(results, done)
    try:
        yield begun
    finally:
        begun.close()
