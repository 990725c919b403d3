"""`SessionLog`: the session file of one context, its lock, and what the next flush must do to it."""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .log import get_logger
from .session_files import Loaded, Stamp, make_folder, repair_end
from .session_flush import FlushKind, FlushPlan, OnDisk, carry_out
from .session_format import Header, LineProblem, entry_line, title_of
from .session_list import find_first, lock_session
from .session_lock import SessionLock, draft_path
from .types import ContentType, MessageType
from .validate import is_message


class SessionLog:
    """What a context knows about its file. The context's guard is held around everything but `carry_out`."""

    def __init__(self, header: Header, dir: str | None, *, fsync: bool) -> None:
        self.header: Header = header
        self.dir = dir
        self.fsync = fsync
        self.problems: tuple[LineProblem, ...] = ()
        self._disk = OnDisk()
        self._lock: SessionLock | None = None
        self._unlock: Callable[[], object] = bool
        self._file_work = threading.Lock()
        """Held during file work: one flush at a time."""

    @property
    def locked(self) -> bool:
        """Whether this context may write."""
        return self._lock is not None

    @property
    def version(self) -> int:
        """The version of the context that is on disk."""
        return self._disk.version

    @property
    def file(self) -> str | None:
        """The session file, as it is or will be; None without a folder."""
        if self.dir is None:
            return None
        if self._disk.path is not None and self._disk.name == self.header.name:
            return self._disk.path
        return os.path.join(self.dir, self.header.file_name())

    # -- opening ----------------------------------------------------------------------------------

    def attach(self, *, adopt_name: bool) -> None:
        """Take the lock, and the header of a session of our id unless we have read it before.

        Raises:
          TypeError: there is no folder.
          SessionLockedError: another owner has it.
          OSError: the folder can't be made or read, or the file was changed since it was read.
        """
        if self.dir is None:
            raise TypeError("a context that is saved needs a dir")
        make_folder(self.dir)
        lock = lock_session(self.dir, self.header.id)
        try:
            self._find_again() if self._disk.path is not None else self._adopt(self.dir, adopt_name)
        except BaseException:
            lock.release()
            raise
        self.hold(lock)

    def take(self, loaded: Loaded, header: Header, path: str, *, repair: bool) -> None:
        """Begin with what was read from *path*, repairing its end if we may."""
        self.header = header
        self.problems = loaded.problems
        for problem in loaded.problems[: loaded.bad_lines]:
            get_logger().warning(
                "context.bad_line_skipped", file=path, line=problem.line, reason=problem.reason
            )
        broken = loaded.bad_lines or (loaded.torn and not repair)
        self._disk = OnDisk(
            path=path,
            stamp=repair_end(path, loaded) if repair else loaded.stamp,
            entries=len(loaded.entries),
            name=header.name,
            foreign="it has lines that can't be read" if broken else None,
        )

    def hold(self, lock: SessionLock) -> None:
        """Keep *lock*, instead of the one there is, until `release` or the end of this object."""
        self._unlock()
        self._lock = lock
        self._unlock = weakref.finalize(self, lock.release)

    def release(self) -> None:
        """Let another owner have the session."""
        self._unlock()
        self._lock = None

    def _adopt(self, dir: str, adopt_name: bool) -> None:
        found = find_first(dir, self.header.id)
        if found is None:
            return
        there = found.header
        own = self.header
        self.header = replace(
            own,
            uuid=there.uuid,
            created=there.created,
            name=there.name if adopt_name else own.name,
            settings=there.settings if own.settings is None else own.settings,
        )
        self._disk = OnDisk(
            path=found.path,
            name=there.name,
            foreign="another context has taken its id",
            adopted=True,
        )

    def _find_again(self) -> None:
        path, stamp = str(self._disk.path), self._disk.stamp
        try:
            unchanged = Stamp.of(os.stat(path)) == stamp
        except FileNotFoundError:
            unchanged = False
        if not unchanged:
            raise OSError(errno.ESTALE, "the session was changed since it was read; resume it again", path)

    # -- writing ----------------------------------------------------------------------------------

    def plan(self, entries: Sequence[Any], version: int, full_version: int) -> FlushPlan:
        """Return what makes *entries* durable: a snapshot of them, as far as it is needed.

        Args:
          version: of the context; counts its changes.
          full_version: when it last changed by more than a new tail.

        Raises:
          TypeError, ValueError: an entry is no JSON data; names its index.
        """
        disk = self._disk
        if all(map(_is_system, entries)):
            removes = disk.path is not None and not disk.adopted
            kind = FlushKind.REMOVE if removes else FlushKind.NOTHING
            return FlushPlan(kind=kind, base=disk, version=version)
        if self.header.name is None:
            self.header = replace(self.header, name=_title(entries))
        header, target, dir = self.header, str(self.file), str(self.dir)
        appends = (
            disk.stamp is not None
            and disk.entries > 0
            and full_version <= disk.version
            and disk.path == target
            and not disk.stale
        )
        first = disk.entries if appends else 0
        lines = [entry_line(entry, index) for index, entry in enumerate(entries[first:], first)]
        return FlushPlan(
            kind=FlushKind.APPEND if appends else FlushKind.REWRITE,
            base=disk,
            version=version,
            entries=len(entries),
            name=header.name,
            uuid=header.uuid,
            target=target,
            draft=draft_path(dir, header.id),
            lines=lines if appends else [header.line(), *lines],
            fsync=self.fsync,
        )

    def carry_out(self, plan: FlushPlan) -> bool:
        """Do the file work of *plan*. False: it was overtaken by another flush, make a new plan.

        Raises:
          OSError: the disk refused, and nothing has changed.
          SessionLockedError: this is a fork of the process that took the lock.
        """
        with self._file_work:
            if self._disk is plan.base:
                assert self._lock is not None  # or it would not be saved
                self._lock.check(plan.target)
                self._disk = carry_out(plan)
            return self._disk.version >= plan.version


def _is_system(entry: Any) -> bool:
    return is_message(entry) and entry["type"] == MessageType.SYSTEM


def _title(entries: Sequence[Any]) -> str | None:
    """Return the first words that a user or assistant says; None: nothing is said yet."""
    for entry in filter(is_message, entries):
        if entry["type"] not in (MessageType.USER, MessageType.ASSISTANT):
            continue
        for block in entry["content"]:
            if isinstance(block, dict) and block.get("type") == ContentType.TEXT:
                text = block.get("text")
                if isinstance(text, str) and (title := title_of(text)):
                    return title
    return None
