"""One writer a session: a lock file beside it, held for as long as the session is open for writing.

The kernel's `flock` decides, and it lets go when its holder dies, however it dies; so there is nothing to
clean up after a crash. The file's text says who holds it. Where a disk has no `flock`, that text decides: a
lock whose process is gone, or is another process by now, is taken over.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import uuid
from dataclasses import dataclass

from .text import compact_json, parse_json

_NO_FLOCK = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK})

_held: set[SessionLock] = set()


class SessionLockedError(OSError):
    """Another owner, the process `pid`, has the session whose file is `filename` open for writing."""

    def __init__(self, file: str, pid: int | None) -> None:
        super().__init__(errno.EBUSY, "session in use", file)
        self.pid = pid
        """None: it could not be read."""

    def __str__(self) -> str:
        if self.pid is None:
            owner = "another process"
        else:
            owner = f"process {self.pid}" + (", this one" if self.pid == os.getpid() else "")
        return f"the session file {self.filename} is in use by {owner}"


@dataclass(frozen=True, slots=True)
class _Owner:
    """A process, told apart from a later one with the same id by when it was started."""

    pid: int
    started: str | None
    """In ticks since the machine was started; None where that can't be known."""

    @classmethod
    def current(cls) -> _Owner:
        return cls(os.getpid(), _start_of(os.getpid()))

    @property
    def alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:  # it is somebody else's, and it lives
            return True
        started = _start_of(self.pid)
        return started is None or self.started is None or started == self.started


class SessionLock:
    """A lock that is held. Made by `acquire`; `release` may be called twice."""

    def __init__(self, path: str, fd: int | None) -> None:
        self._path = path
        self._fd = fd
        self._pid = os.getpid()
        _held.add(self)

    @classmethod
    def acquire(cls, folder: str, session_id: str) -> SessionLock:
        """Lock the session *session_id* of *folder*, which must exist, at once or not at all.

        Raises:
          SessionLockedError: it is held, by another process or in this one. Names the lock file.
          OSError: the lock file can't be made.
        """
        path = lock_path(folder, session_id)
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            locked: bool | None = None
            try:
                locked = _try_flock(fd)
                if locked and _same_file(fd, path):
                    os.fchmod(fd, 0o600)
                    os.ftruncate(fd, 0)
                    os.pwrite(fd, _owner_text(), 0)
                    return cls(path, fd)
            except BaseException:
                if locked:
                    with contextlib.suppress(OSError):
                        os.unlink(path)
                os.close(fd)
                raise
            os.close(fd)
            if locked is None:
                return _acquire_by_text(path)
            if not locked:
                owner = _read_owner(path)
                raise SessionLockedError(path, None if owner is None else owner.pid)
            # Its last holder removed the file between our open and our lock.

    def check(self, file: str) -> None:
        """Raise `SessionLockedError` in a fork of the process that took the lock: *file* is still its."""
        if self._pid != os.getpid():
            raise SessionLockedError(file, self._pid)

    def release(self) -> None:
        """Let go, and remove the file. Does nothing in a fork, and nothing the second time."""
        if self not in _held:
            return
        _held.discard(self)
        with contextlib.suppress(OSError):  # a lock that can't be removed is still let go
            os.unlink(self._path)
        if self._fd is not None:
            os.close(self._fd)

    @classmethod
    def forget_all(cls) -> None:
        """Close what a fork inherited, or it would hold its parent's locks after the parent's death."""
        for lock in _held:
            if lock._fd is not None:
                os.close(lock._fd)
        _held.clear()


os.register_at_fork(after_in_child=SessionLock.forget_all)


def lock_path(folder: str, session_id: str) -> str:
    """Return the lock file of a session: any id makes a file name, and stays when its file is renamed."""
    return os.path.join(folder, f".lock-{hashlib.sha256(session_id.encode()).hexdigest()[:16]}")


def draft_path(folder: str, session_id: str) -> str:
    """Return the file in which whoever holds the lock prepares a new version of the session file."""
    return lock_path(folder, session_id) + ".draft"


def _try_flock(fd: int) -> bool | None:
    """Lock *fd*. False: it is held. None: there are no such locks here."""
    try:
        import fcntl
    except ImportError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as exc:
        if exc.errno in _NO_FLOCK:
            return None
        raise
    return True


def _acquire_by_text(path: str) -> SessionLock:
    """Lock by who is named in the file at *path*."""
    draft = f"{path}.{uuid.uuid4().hex}"
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, _owner_text())
        finally:
            os.close(fd)
        while True:
            try:
                os.link(draft, path)  # with its text in it, whole, or not at all
            except FileExistsError:
                owner = _read_owner(path)
                if owner is not None and owner.alive:
                    raise SessionLockedError(path, owner.pid) from None
                _discard(path, owner)
            else:
                return SessionLock(path, None)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)


def _discard(path: str, owner: _Owner | None) -> None:
    """Remove the lock at *path*, if it is still that of *owner*, who is gone."""
    grabbed = f"{path}.{uuid.uuid4().hex}"
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, grabbed)  # of all who try, one gets it
        if _read_owner(grabbed) != owner:
            with contextlib.suppress(FileExistsError):
                os.link(grabbed, path)  # somebody was quicker, and it is theirs
        os.unlink(grabbed)


def _same_file(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _owner_text() -> bytes:
    owner = _Owner.current()
    return compact_json({"pid": owner.pid, "started": owner.started}).encode()


def _read_owner(path: str) -> _Owner | None:
    """Return who is named in a lock file. None: nobody, or it is gone."""
    try:
        with open(path, "rb") as file:
            fields = parse_json(file.read(4096).decode())
    except (OSError, ValueError):
        return None
    pid = fields.get("pid") if isinstance(fields, dict) else None
    if type(pid) is not int or pid < 1:
        return None
    started = fields.get("started")
    return _Owner(pid, started if isinstance(started, str) else None)


def _start_of(pid: int) -> str | None:
    """Return when a process was started. None: no such process, or no such file here."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The second field, a name in brackets, may hold spaces and brackets itself. Source:
            # proc_pid_stat(5).
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return None
