"""Finding sessions in a folder, by the first lines of its files: nothing is locked, nothing is changed."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .session_files import asides_of, read_session, remove_files
from .session_format import (
    HEADER_TYPE,
    STRING_INSIDE,
    SUFFIX,
    Folder,
    Header,
    check_id,
    names_a_session,
    parse_entry,
    parse_header,
)
from .session_lock import SessionLock, SessionLockedError, draft_path
from .session_preview import message_preview
from .text import parse_json
from .types import Message, MessageType, user_message
from .validate import is_message

_BLOCK = 4096  # bytes read at a time
_HEAD = 64 << 10  # bytes behind the header in which the first user message is looked for
_USER_TEXT = '{"type":2,"content":[{"type":"text","text":"'
_DEFAULT_AGENT = re.compile(r"agent-\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """One session of a folder."""

    id: str | None
    """None: its header can't be read; `Context.recover` may save its messages."""
    uuid: str | None
    file: str
    mtime: float
    """When it was last written, in seconds since the epoch."""
    preview: str
    """The first line of the first user message that says something, at most 72 characters."""
    cwd: str | None
    agent: str | None
    """The name in the owner's settings, unless it is a default one (`agent-3`)."""
    damaged: str | None
    """Why its header can't be read."""

    @property
    def messages(self) -> int:
        """How many messages it holds. Reads the whole file each time; 0 when it is gone."""
        try:
            return sum(map(is_message, read_session(self.file).entries))
        except FileNotFoundError:
            return 0


@dataclass(frozen=True, slots=True)
class Found:
    """A file of a session, and its header."""

    path: str
    header: Header


class _Head:
    """The beginning of a file, read as far as it is looked at."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._pending = b""
        self.ended = False
        self.taken = 0
        """Bytes read so far."""

    def __enter__(self) -> _Head:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)

    def line(self, limit: int | None = None) -> bytes:
        """Return the next line, or what there is of it when the file, or *limit* bytes of it, end."""
        pieces = [self._pending]
        size = _BLOCK
        while b"\n" not in pieces[-1] and not self.ended and (limit is None or self.taken < limit):
            block = os.read(self._fd, size)
            pieces.append(block)
            self.taken += len(block)
            self.ended = not block
            size = min(size * 2, 1 << 20)
        line, _, self._pending = b"".join(pieces).partition(b"\n")
        return line

    @property
    def exhausted(self) -> bool:
        return self.ended and not self._pending


def read_header(path: str) -> Header:
    """Return the header of the session file at *path*. OSError; ValueError: it has none, and why."""
    with _Head(path) as head:
        return parse_header(head.line())


def list_sessions(dir: Folder, cwd: Folder | None = None, limit: int | None = 50) -> list[SessionInfo]:
    """Return the sessions of a folder, the one written last first, one entry an id.

    Only the first lines of as many files as are needed are read. A session whose header is damaged is among
    them, with `damaged` saying how. A file that is no session is not.

    Args:
      dir: the folder; one that does not exist holds none.
      cwd: only sessions that were started in this folder (and damaged ones, of which that isn't known).
      limit: how many at most; None: all.

    Raises:
      OSError: the folder can't be read.
      ValueError: a negative *limit*.
    """
    if limit is not None and limit < 0:
        raise ValueError(f"limit must be 0 or more, not {limit}")
    wanted = None if cwd is None else os.path.realpath(cwd)
    listed: list[SessionInfo] = []
    seen: set[str] = set()
    for path, mtime in _newest_first(dir):
        if limit is not None and len(listed) >= limit:
            break
        info = _look_at(path, mtime)
        if info is None or not seen.isdisjoint((info.id, info.uuid)):
            continue
        if wanted is not None and info.cwd is not None and os.path.realpath(info.cwd) != wanted:
            continue
        if info.id is not None and info.uuid is not None:
            seen |= {info.id, info.uuid}  # two files: a rename was cut short, or somebody made a copy
        listed.append(info)
    return listed


def latest(dir: Folder, cwd: Folder | None = None) -> SessionInfo | None:
    """Return the session written last, damaged ones aside, or None. See `list_sessions`."""
    return next((info for info in list_sessions(dir, cwd, None) if info.id is not None), None)


def find_session(dir: Folder, id: str) -> Iterator[Found]:
    """Yield the files of the session *id*, the one written last first: that one counts.

    There is more than one after a crash, or when somebody made a copy.
    """
    for path, _ in _newest_first(dir):
        # Anything else (too many open files, say) must not pass for "there is no such session".
        with contextlib.suppress(FileNotFoundError, PermissionError, ValueError):
            header = read_header(path)
            if header.id == id:
                yield Found(path, header)


def find_first(dir: Folder, id: str, guess: Found | None = None) -> Found | None:
    """Return the file of the session *id*, or None; *guess* is where it was a moment ago."""
    if guess is not None:
        with contextlib.suppress(FileNotFoundError, ValueError):
            header = read_header(guess.path)
            if header.id == id:
                return Found(guess.path, header)
    return next(find_session(dir, id), None)


def file_of(id: str, dir: Folder) -> str | None:
    """Return the path of the session *id*, or None."""
    found = find_first(dir, id)
    return None if found is None else found.path


def origin_of(id: str, dir: Folder) -> str | None:
    """Return the folder the session *id* was started in, or None."""
    found = find_first(dir, id)
    return None if found is None else found.header.cwd


def lock_session(folder: str, id: str) -> SessionLock:
    """Lock the session *id*. SessionLockedError: it is held; names the session's file, if there is one."""
    try:
        lock = SessionLock.acquire(folder, id)
    except SessionLockedError as exc:
        raise SessionLockedError(file_of(id, folder) or exc.filename, exc.pid) from None
    try:
        remove_files([draft_path(folder, id)])  # of an owner that was killed
    except BaseException:
        lock.release()
        raise
    return lock


def delete_by_id(id: str, dir: Folder) -> bool:
    """Delete the session *id*, with what was saved aside from it. False: there is none.

    SessionLockedError: it is open for writing. OSError: the disk refused.
    """
    folder = os.path.abspath(dir)
    if find_first(folder, check_id(id)) is None:
        return False
    lock = lock_session(folder, id)
    try:
        paths = [found.path for found in find_session(folder, id)]
        asides = [aside for path in paths for aside in asides_of(path)]
        remove_files([*paths, *asides, draft_path(folder, id)])
    finally:
        lock.release()
    return bool(paths)


def delete_all(dir: Folder) -> list[str]:
    """Delete all sessions of a folder, damaged ones and what was saved aside included; return their paths.

    Raises:
      SessionLockedError: one is open for writing; the others are deleted.
      OSError: the disk refused.
    """
    deleted: list[str] = []
    locked: SessionLockedError | None = None
    for info in list_sessions(dir, limit=None):
        if info.id is None:
            remove_files([info.file, *asides_of(info.file)])
            deleted.append(info.file)
            continue
        try:
            if delete_by_id(info.id, dir):
                deleted.append(info.file)
        except SessionLockedError as exc:
            locked = exc
    if locked is not None:
        raise locked
    return deleted


def _newest_first(dir: Folder) -> Iterator[tuple[str, float]]:
    """Yield path and mtime of the files that may be sessions."""
    files: list[tuple[int, int, str]] = []
    with contextlib.suppress(FileNotFoundError), os.scandir(os.path.abspath(dir)) as entries:
        for entry in entries:
            if entry.name.endswith(SUFFIX) and entry.is_file():
                with contextlib.suppress(FileNotFoundError):
                    info = entry.stat()
                    files.append((info.st_mtime_ns, info.st_size, entry.path))
    files.sort(reverse=True)
    for mtime_ns, _, path in files:
        yield path, mtime_ns / 1e9


def _look_at(path: str, mtime: float) -> SessionInfo | None:
    """Return what the first lines of a file tell. None: it is no session, or is gone."""
    first = b""
    try:
        with _Head(path) as head:
            first = head.line()
            header = parse_header(first)
            preview = _preview(head)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as exc:
        if not names_a_session(os.path.basename(path)) and HEADER_TYPE.encode() not in first[:200]:
            return None
        why = str(exc)
        return SessionInfo(
            id=None, uuid=None, file=path, mtime=mtime, preview="", cwd=None, agent=None, damaged=why
        )
    return SessionInfo(
        id=header.id,
        uuid=header.uuid,
        file=path,
        mtime=mtime,
        preview=preview,
        cwd=header.cwd,
        agent=_agent_name(header),
        damaged=None,
    )


def _preview(head: _Head) -> str:
    """Return the preview of the first user message in the lines that follow."""
    limit = head.taken + _HEAD
    while not head.exhausted and head.taken < limit:
        line = head.line(limit)
        with contextlib.suppress(ValueError):
            entry = parse_entry(line)
            if is_message(entry) and entry["type"] == MessageType.USER:
                return message_preview(entry)
            continue
        if (message := _cut_text(line)) is not None:
            return message_preview(message)
    return ""


def _cut_text(line: bytes) -> Message | None:
    """Return a user message as far as *line*, the beginning of one, has it; None: it begins otherwise."""
    beginning, text, rest = line.decode(errors="ignore").partition(_USER_TEXT)
    inside = STRING_INSIDE.match(rest)
    if beginning or not text or inside is None:
        return None
    return user_message(parse_json(f'"{inside[0]}"'))


def _agent_name(header: Header) -> str | None:
    name = (header.settings or {}).get("name")
    return name if isinstance(name, str) and not _DEFAULT_AGENT.fullmatch(name) else None
