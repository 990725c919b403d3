"""The disk under a session: reading a file whatever is left of it, repairing its end, appending, replacing.

Every function here either has done its work or raises `OSError` and leaves the session file as it was.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from glob import escape, glob
from itertools import count
from typing import Any

from .log import get_logger
from .session_format import Header, LineProblem, parse_entry, parse_header

FILE_MODE = 0o600
FOLDER_MODE = 0o700

_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP})
_ASIDES = ("torn", "damaged")


@dataclass(frozen=True, slots=True)
class Stamp:
    """Which file it is, and how long: what a file has when nobody else has written to it."""

    inode: int
    size: int

    @classmethod
    def of(cls, info: os.stat_result) -> Stamp:
        return cls(info.st_ino, info.st_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What was found in a session file."""

    header: Header | None
    """None: the first line is damaged; `problems` says how."""
    entries: list[Any]
    """The messages and records of all lines that could be read."""
    problems: tuple[LineProblem, ...]
    """The other lines, a torn last one included."""
    stamp: Stamp
    torn: bytes
    """The fragment behind the last line end, unless it is a whole entry."""
    unended: bool
    """The last entry is whole and lacks its line end only."""

    @property
    def bad_lines(self) -> int:
        """How many problems are not the torn end."""
        return len(self.problems) - bool(self.torn)


def read_session(path: str) -> Loaded:
    """Read the session file at *path*, whatever its state. OSError: it can't be read at all."""
    with open(path, "rb") as file:
        data = file.read()
        inode = os.fstat(file.fileno()).st_ino
    *lines, last = data.split(b"\n")
    header: Header | None = None
    entries: list[Any] = []
    problems: list[LineProblem] = []
    for number, line in enumerate([*lines, last] if last else lines, 1):
        if not line.strip():
            continue
        try:
            if number == 1:
                header = parse_header(line)
            elif (entry := parse_entry(line)) is not None:
                entries.append(entry)
        except ValueError as exc:
            problems.append(LineProblem(number, str(exc)))
    if header is None and (not problems or problems[0].line > 1):
        problems.insert(0, LineProblem(1, "the first line is blank" if data else "the file is empty"))
    torn = bool(last and problems and problems[-1].line == len(lines) + 1)
    return Loaded(
        header=header,
        entries=entries,
        problems=tuple(problems),
        stamp=Stamp(inode, len(data)),
        torn=last if torn else b"",
        unended=bool(last) and not torn,
    )


def repair_end(path: str, loaded: Loaded) -> Stamp:
    """Make the file at *path* end in a line end, and return its stamp.

    A torn last line is cut off and kept in `<path>.torn-<n>`; a whole one gets its line end. OSError: the
    disk refused; nothing is lost.
    """
    if loaded.torn:
        aside = _new_aside(path, "torn")
        with _created(aside) as fd:
            _write(fd, loaded.torn)
            os.fsync(fd)
        size = loaded.stamp.size - len(loaded.torn)
        with _opened(path, os.O_WRONLY) as fd:
            os.ftruncate(fd, size)
            os.fsync(fd)
        sync_folder(os.path.dirname(path))
        get_logger().warning(
            "context.torn_line_cut",
            file=path,
            line=loaded.problems[-1].line,
            cut_bytes=len(loaded.torn),
            saved_in=aside,
        )
        return Stamp(loaded.stamp.inode, size)
    if loaded.unended:
        return append_lines(path, [b"\n"], loaded.stamp) or loaded.stamp
    return loaded.stamp


def append_lines(path: str, lines: Sequence[bytes], expected: Stamp, *, fsync: bool = True) -> Stamp | None:
    """Append *lines* to the file at *path*, one write a line, and return its new stamp.

    None: the file is gone, or is not as *expected*; nothing was written. OSError: the disk refused; what had
      been
    written of *lines* was cut off again.
    """
    try:
        with _opened(path, os.O_WRONLY | os.O_APPEND) as fd:
            if Stamp.of(os.fstat(fd)) != expected:
                return None
            try:
                for line in lines:
                    _write(fd, line)
                if fsync:
                    os.fsync(fd)
            except BaseException:
                # If even this fails the stamp won't fit the next time, and the file is written anew.
                with contextlib.suppress(OSError):
                    os.ftruncate(fd, expected.size)
                raise
            return Stamp.of(os.fstat(fd))
    except FileNotFoundError:
        return None


def replace_file(path: str, lines: Iterable[bytes], draft: str, *, fsync: bool = True) -> Stamp:
    """Make *lines* the content of the file at *path*, at once, by way of the file *draft* beside it.

    OSError: the disk refused. *path* is as it was, or, if only the folder could not be synced, new.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft)  # of a process that was killed
    try:
        with _created(draft) as fd:
            _write(fd, b"".join(lines))
            if fsync:
                os.fsync(fd)
            stamp = Stamp.of(os.fstat(fd))
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
    if fsync:
        sync_folder(os.path.dirname(path))
    return stamp


def set_aside(path: str, why: str) -> str:
    """Keep the file at *path* as `<path>.damaged-<n>` too, log a warning with *why*, and return that name."""
    aside = _new_aside(path, "damaged")
    try:
        os.link(path, aside)
    except OSError:  # not every disk has links
        with _created(aside) as fd, open(path, "rb") as source, open(fd, "wb", closefd=False) as copy:
            shutil.copyfileobj(source, copy)
    get_logger().warning("context.session_set_aside", file=path, why=why, saved_in=aside)
    return aside


def remove_files(paths: Iterable[str]) -> None:
    """Remove files, those that are gone already included. OSError: one can't be removed."""
    folders = set()
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
            folders.add(os.path.dirname(path))
    for folder in folders:
        sync_folder(folder)


def asides_of(path: str) -> list[str]:
    """Return what was saved aside from the session file at *path*."""
    return sorted(found for kind in _ASIDES for found in glob(f"{escape(path)}.{kind}-*"))


def make_folder(folder: str) -> None:
    """Make *folder* (absolute) and those above it, for the user alone. One that exists is left as it is."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    if above != folder:
        make_folder(above)
    with contextlib.suppress(FileExistsError):  # somebody else was quicker
        os.mkdir(folder, FOLDER_MODE)
        os.chmod(folder, FOLDER_MODE)  # whatever the umask took away
    if not os.path.isdir(folder):
        raise NotADirectoryError(errno.ENOTDIR, "session files need a folder", folder)


def sync_folder(folder: str) -> None:
    """Make the names in *folder* durable. OSError: the disk refused; one that can't do so at all does not."""
    with _opened(folder, os.O_RDONLY | os.O_DIRECTORY) as fd:
        try:
            os.fsync(fd)
        except OSError as exc:
            if exc.errno not in _NO_FOLDER_SYNC:
                raise


def _write(fd: int, data: bytes) -> None:
    """Write all of *data*: with one call, unless the kernel takes less."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


@contextlib.contextmanager
def _opened(path: str, flags: int) -> Iterator[int]:
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _created(path: str) -> Iterator[int]:
    """Open a new file of the user's alone, whatever the umask."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        os.fchmod(fd, FILE_MODE)
        yield fd
    finally:
        os.close(fd)


def _new_aside(path: str, kind: str) -> str:
    return next(name for n in count(1) if not os.path.lexists(name := f"{path}.{kind}-{n}"))
