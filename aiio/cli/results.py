"""The results file of `aiio run`: one line per prompt as it ends, so that a run can be taken up again.

A line goes out in one system call, so whatever kills the process leaves at most one torn line, the last.
Started again, the file says what is done; a torn line is cut off (its prompt runs again) and a
missing line feed put right. A file that does not look like ours is refused rather than written to.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile

from aiio.context.text import parse_json

from .exits import CliFault
from .output import safe_json, write_error

_BEGIN = b'{"key":'
"""What every line of ours begins with."""


class ResultsFile:
    """A results file, open and locked against a second run. Made by `open_results`."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self.regular: bool = stat.S_ISREG(os.fstat(fd).st_mode)
        """Whether it is a file, which can be read back and mended; a pipe or a device can't."""
        self.done: set[str] = set()
        """Keys whose last line says `done`."""
        self.failed: set[str] = set()
        """Keys whose last line says something else."""
        self.repaired: bool = False
        """Whether a torn last line was cut off."""

    def append(self, line: bytes) -> None:
        """Write one line. OSError: it can't be written; a file is then as it was before."""
        rest = line
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            if self.regular and len(rest) < len(line):
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, os.fstat(self._fd).st_size - (len(line) - len(rest)))
            raise

    def close(self) -> None:
        """See the lines to the disk, and close."""
        with contextlib.suppress(OSError):  # a pipe or a device can't be synced
            os.fsync(self._fd)
        os.close(self._fd)

    def take_up(self) -> None:
        """Read what an earlier run wrote, and mend the end of it.

        CliFault: it holds something else. OSError: it can't be read or mended.
        """
        whole = 0  # bytes up to the end of the last line that is kept
        line = b"\n"
        with open(self._fd, "rb", closefd=False) as lines:
            for number, line in enumerate(lines, 1):
                if self._note(line) or not line.strip():
                    whole += len(line)
                elif _torn(line):
                    self.repaired = True
                else:
                    raise CliFault(
                        f"{self.path}:{number} is not a result of `aiio run`; name another file with --out"
                    )
        if self.repaired:
            os.ftruncate(self._fd, whole)
        elif not line.endswith(b"\n"):
            self.append(b"\n")

    def _note(self, line: bytes) -> bool:
        """Take note of a result line. False: it is none."""
        try:
            value = parse_json(line.decode())
        except ValueError:
            return False
        if not isinstance(value, dict) or "key" not in value or not isinstance(value.get("terminal"), dict):
            return False
        key, done = str(value["key"]), value["terminal"].get("type") == "done"
        (self.done if done else self.failed).add(key)
        (self.failed if done else self.done).discard(key)
        return True


def open_results(path: str) -> ResultsFile:
    """Open the results file at *path*, make it if it is missing, and take up what it holds.

    CliFault: it can't be written, another run writes it, or it holds something else.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        try:
            fd = os.open(path, flags, 0o666)
        except OSError:
            if not os.path.exists(path) or os.path.isfile(path):
                raise
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)  # a pipe or a device that can't be read
        results = ResultsFile(path, fd)
        try:
            if results.regular:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                results.take_up()
        except BaseException:
            os.close(fd)
            raise
    except BlockingIOError as exc:
        raise CliFault(
            f"another `aiio run` is writing {path}; wait for it, or name another file with --out"
        ) from exc
    except OSError as exc:
        raise CliFault(f"{path} can't be written ({exc.strerror}); name another file with --out") from exc
    return results


class Rescue:
    """Takes results that the results file did not: a file in the temporary folder, else stderr."""

    def __init__(self) -> None:
        self._fd: int | None = None
        self.path: str | None = None
        """The file; None: there is none."""
        self.lines: int = 0
        """How many were taken."""

    def append(self, line: bytes) -> None:
        """Keep *line*, somewhere."""
        self.lines += 1
        try:
            if self._fd is None:
                self._fd, self.path = tempfile.mkstemp(prefix="aiio-rescue-", suffix=".jsonl")
            rest = line
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            write_error(safe_json(line).decode())

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _torn(line: bytes) -> bool:
    """Tell whether *line* is the beginning of one of ours, or zeros that a crash of the machine left."""
    if line.endswith(b"\n"):
        return False
    return line.startswith(_BEGIN) or _BEGIN.startswith(line) or not line.strip(b"\0")
