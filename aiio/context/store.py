"""`Context`: a conversation in memory that may have a session file, and what the file promises."""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeVar
from uuid import uuid4

from .fork import forked_entries
from .message_list import MessageList
from .session_files import read_session
from .session_format import (
    Folder,
    Header,
    LineProblem,
    check_id,
    check_uuid,
    id_anonymous,
    is_uuid,
    timestamp,
)
from .session_list import (
    Found,
    delete_all,
    delete_by_id,
    file_of,
    find_first,
    latest,
    list_sessions,
    lock_session,
    origin_of,
)
from .session_log import SessionLog
from .session_recover import Recovery, damaged_file, salvage
from .text import json_line
from .types import Message, Record

_Self = TypeVar("_Self", bound="Context")


class Context(MessageList):
    """Messages and records, oldest first, optionally logged to a session file.

    What the file promises when a process or the machine dies:

    - What `flush` has confirmed is there, whole: it was written and fsynced, and so was the folder.
    - At most what was changed after the last flush is lost. A line that was being appended may be torn: the
      next `resume` cuts it off and keeps the fragment in `<file>.torn-<n>`. All whole lines load.
    - A change that is more than a new tail replaces the file by a rename: it is the old one or the new one.
    - A line in the middle that can't be read is skipped and reported in `problems`; the file it stood in is
      kept as `<file>.damaged-<n>` before it is replaced.
    - When the disk refuses (it is full, it is read-only), `flush` raises `OSError`, the file is as it was,
      and the context can be used and flushed again.
    - One owner at a time may write. A second gets `SessionLockedError`; the lock of a dead one is void.

    When to flush is the owner's decision: after each terminal event and before anybody is told of it, say.
    What only its methods have not written yet is lost with the process.

    Files are made 0600 and folders 0700. Methods may be called from any thread; `aiio.env.sessions` has those
    that touch the disk as coroutines. `with Context(...) as context:` closes it.

    Args:
      id: what the session is called; by default a UUID. With *save*, the id of a session that exists takes
        over that one's uuid, name, creation time and settings, but not its messages: `resume` does that.
      name: the readable part of the file name; by default the id, if it is no UUID, or the first words said.
      dir: the folder of the session files; made when it is needed.
      messages: a list, deep-copied.
      save: whether there is a session file; None: if *dir* is given.
      origin: the folder the session belongs to; by default the current one.
      uuid: by default the id, if that is a UUID, or a new one.
      settings: JSON data of the owner's, kept in the file's first line.
      fsync: False gives up the first promise, where the machine dies, for speed.
      created: by default now.

    Raises:
      TypeError: messages that are no context, *save* without *dir*, a *save*, id or settings of another type.
      ValueError: an id or uuid that can't be one, settings that are no JSON data.
      SessionLockedError: the session is open for writing elsewhere.
      OSError: the folder can't be made or read.
    """

    def __init__(
        self,
        id: str | None = None,
        name: str | None = None,
        dir: Folder | None = None,
        messages: Sequence[Message | Record] = (),
        save: bool | None = None,
        *,
        origin: Folder | None = None,
        uuid: str | None = None,
        settings: dict[str, Any] | None = None,
        fsync: bool = True,
        created: datetime | None = None,
    ) -> None:
        super().__init__(messages)
        chosen = str(uuid4()) if id is None else check_id(id)
        header = Header(
            id=chosen,
            uuid=check_uuid(uuid or (chosen if is_uuid(chosen) else str(uuid4()))),
            name=name or (None if is_uuid(chosen) else chosen),
            cwd=os.getcwd() if origin is None else os.path.abspath(origin),
            created=timestamp(created or datetime.now(UTC)),
            settings=_checked_settings(settings),
        )
        self._log = SessionLog(header, os.path.abspath(dir) if dir else None, fsync=fsync)
        self._save = bool(dir) if save is None else _checked_bool(save)
        if self._save:
            self._log.attach(adopt_name=not name)

    # -- what it is -------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """What the session is called."""
        return self._log.header.id

    @property
    def uuid(self) -> str:
        """What stays the same when it is renamed."""
        return self._log.header.uuid

    @property
    def name(self) -> str | None:
        """The readable part of the file name; None: nothing was said yet."""
        return self._log.header.name

    @property
    def origin(self) -> str:
        """The folder the session belongs to."""
        return self._log.header.cwd

    @property
    def created(self) -> str:
        """When it was made: ISO 8601, UTC."""
        return self._log.header.created

    @property
    def dir(self) -> str | None:
        """The folder of the session files."""
        return self._log.dir

    @property
    def file(self) -> str | None:
        """The session file, which need not exist yet; None without a *dir*."""
        return self._log.file

    @property
    def problems(self) -> tuple[LineProblem, ...]:
        """The lines that could not be read when the session was resumed, a torn last one included."""
        return self._log.problems

    @property
    def dirty(self) -> bool:
        """Whether there is something that a flush would write."""
        return self._save and self._version != self._log.version

    @property
    def closed(self) -> bool:
        """Whether `close` has succeeded."""
        return self._closed

    @property
    def summary(self) -> str:
        """One line: `<id> - <file>`, or that it is in memory only."""
        return f"{self.id} \u2014 {self.file if self._save else 'not logged (memory only)'}"

    def __repr__(self) -> str:
        return f"<aiio.Context {self.summary}>"

    @property
    def save(self) -> bool:
        """Whether it is logged to a session file. Turning it on makes the next flush write all of it.

        Raises (when it is set):
          TypeError: not a bool, or there is no *dir*.
          ValueError: closed.
          SessionLockedError: the session is open for writing elsewhere.
          OSError: the folder can't be made, or the file was changed since it was read (ESTALE).
        """
        return self._save

    @save.setter
    def save(self, save: bool) -> None:
        with self._changing():
            if _checked_bool(save) == self._save:
                return
            if save and not self._log.locked:
                self._log.attach(adopt_name=True)
            self._save = save
            self._changed()

    @property
    def settings(self) -> dict[str, Any] | None:
        """The owner's settings, a copy; what is set is copied too.

        Raises (when it is set):
          TypeError, ValueError: neither a dict of JSON data nor None.
        """
        return copy.deepcopy(self._log.header.settings)

    @settings.setter
    def settings(self, settings: dict[str, Any] | None) -> None:
        checked = _checked_settings(settings)
        with self._changing():
            if checked != self._log.header.settings:
                self._log.header = replace(self._log.header, settings=checked)
                self._changed()

    # -- writing ----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Make everything durable that was changed before this call. Nothing happens when nothing was.

        A context with nothing but system messages has no file: one that was there is removed.

        Raises:
          OSError: the disk refused. The file is as it was; nothing is lost, and a later flush may succeed.
          TypeError, ValueError: a message is no JSON data (bytes, NaN); the text names its index. As above.
          SessionLockedError: this is a fork of the process that opened the session.
        """
        while (work := self.pending_flush()) is not None and not work():
            pass

    def pending_flush(self) -> Callable[[], bool] | None:
        """Take a snapshot of what `flush` would write; return the work of writing it, None if it is clean.

        The work may be done once, in any thread, at any time, or never; changes made meanwhile wait for the
        next flush. It returns whether what was there at the snapshot is durable now; False: another flush
        came between, so take a new snapshot. Both raise what `flush` raises.
        """
        with self._guard:
            if not self.dirty:
                return None
            plan = self._log.plan(self._entries, self._version, self._full_version)
        return partial(self._log.carry_out, plan)

    def close(self) -> None:
        """Flush, let another owner have the session, and refuse changes from now on. May be called twice.

        Raises: what `flush` raises; the context stays open then.
        """
        while not self._closed:
            self.flush()
            with self._guard:
                if not self.dirty:
                    self._closed = True
                    self._log.release()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def rename(self, new_id: str) -> None:
        """Make *new_id* its id and name, rename its file, and flush.

        Raises:
          TypeError, ValueError: no session id, or closed.
          FileExistsError: there is another session of that id.
          SessionLockedError: the same, and it has no file yet.
          OSError: the disk refused. It has its former id.
        """
        check_id(new_id)
        with self._changing():
            if new_id == self.id:
                return
            log, former = self._log, self._log.header
            lock = lock_session(log.dir, new_id) if log.dir is not None and log.locked else None
            try:
                _check_free(new_id, log.dir)
                log.header = replace(former, id=new_id, name=new_id)
                self._changed()
                self.flush()
            except BaseException:
                log.header = former
                if lock is not None:
                    lock.release()
                raise
            if lock is not None:
                log.hold(lock)

    def fork(self, upto: int | None = None, id: str | None = None) -> Context:
        """Return a new session with a copy of this one as far as the entry *upto*, that one included.

        The copy can be sent as it is: a tool call whose result lies behind the cut gets an error result. It
        has the same folder, origin and settings, and is saved when this one is; nothing is written until its
        first flush.

        Args:
          upto: an index; None: all of it.
          id: by default a new UUID.

        Raises:
          IndexError, TypeError: no such entry.
          FileExistsError: there is a session *id* already.
          TypeError, ValueError, OSError: what the constructor raises.
        """
        with self._guard:
            entries = forked_entries(self._entries, None if upto is None else self._position(upto))
        if id is not None:
            _check_free(check_id(id), self.dir)
        return Context(
            id,
            dir=self.dir,
            messages=entries,
            save=self._save,
            origin=self.origin,
            settings=self.settings,
            fsync=self._log.fsync,
        )

    # -- folder operations ------------------------------------------------------------------------

    @classmethod
    def resume(cls: type[_Self], id: str, dir: Folder, save: bool = True, *, fsync: bool = True) -> _Self:
        """Open the session *id* of a folder.

        Args:
          save: True takes its lock, and repairs a torn end; False reads it only: no lock, no change.

        Raises:
          FileNotFoundError: there is no such session.
          SessionLockedError: *save*, and it is open for writing elsewhere.
          TypeError, ValueError: no session id.
          OSError: it can't be read, locked or repaired.
        """
        folder = os.path.abspath(dir)
        found = find_first(folder, check_id(id))
        if found is None:
            raise _no_session(id, folder)
        lock = lock_session(folder, id) if _checked_bool(save) else None
        try:
            context = cls(id, dir=folder, save=False, fsync=fsync)
            # Looked for again: its last owner may have moved or removed it before the lock was ours.
            context._load(find_first(folder, id, found), repair=save)
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        if lock is not None:
            context._log.hold(lock)
            context._save = True
        return context

    def _load(self, found: Found | None, *, repair: bool) -> None:
        """Take what the file of our session holds."""
        if found is None:
            raise _no_session(self.id, str(self.dir))
        loaded = read_session(found.path)
        self._entries = loaded.entries
        self._log.take(loaded, loaded.header or found.header, found.path, repair=repair)

    @classmethod
    def recover(cls, path_or_id: Folder, dir: Folder, id: str | None = None) -> Recovery:
        """Save what can be saved from a damaged session file, or a fragment, into a new session on disk.

        Every whole message and record is saved, also those that stand behind a fragment on one line; and of a
        message that was cut off, its whole blocks and the text that there is. The file is read only.

        Args:
          path_or_id: the file, its name in *dir*, or the id of a session of *dir*.
          id: of the new session; by default a new UUID.

        Raises:
          FileNotFoundError: there is no such file or session.
          FileExistsError: there is a session *id* already.
          TypeError, ValueError, OSError: what the constructor and `flush` raise.
        """
        path = damaged_file(path_or_id, dir)
        saved = salvage(path)
        if id is not None:
            _check_free(check_id(id), os.path.abspath(dir))
        context = cls(
            id,
            dir=dir,
            messages=forked_entries(saved.entries, None),
            origin=saved.header.cwd if saved.header else None,
            settings=saved.header.settings if saved.header else None,
        )
        context.flush()
        return Recovery(context=context, file=path, problems=saved.problems)

    @staticmethod
    def rename_by_id(id: str, new_id: str, dir: Folder) -> str:
        """Rename the session *id* of a folder, return its new path. Raises what `resume`, `rename` raise."""
        with Context.resume(id, dir) as context:
            context.rename(new_id)
            return str(context.file)

    list: Final = staticmethod(list_sessions)
    latest: Final = staticmethod(latest)
    origin_of: Final = staticmethod(origin_of)
    file_of: Final = staticmethod(file_of)
    delete_by_id: Final = staticmethod(delete_by_id)
    delete_all: Final = staticmethod(delete_all)
    id_anonymous: Final = staticmethod(id_anonymous)


def _check_free(id: str, dir: str | None) -> None:
    """Raise FileExistsError when there is a session *id* in *dir*."""
    if dir is not None and find_first(dir, id):
        raise FileExistsError(errno.EEXIST, f"there is a session {id!r} already", dir)


def _no_session(id: str, dir: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, f"there is no session {id!r}", dir)


def _checked_bool(save: object) -> bool:
    if not isinstance(save, bool):
        raise TypeError(f"save must be a bool, not {save!r}")
    return save


def _checked_settings(settings: object) -> dict[str, Any] | None:
    """Return a copy of *settings*. TypeError, ValueError: neither a dict of JSON data nor None."""
    if settings is None:
        return None
    if not isinstance(settings, dict):
        raise TypeError(f"settings must be a dict, not {settings!r:.80}")
    json_line(settings, "settings")
    return copy.deepcopy(settings)
