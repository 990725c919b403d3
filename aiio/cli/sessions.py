"""`aiio sessions`: what is in the folder of sessions, and how a command opens one."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import platformdirs
import trio

from aiio.context.session_list import SessionInfo
from aiio.context.session_lock import SessionLockedError
from aiio.context.store import Context
from aiio.context.text import json_line
from aiio.env import sessions
from aiio.env.env import Env

from .exits import DONE, CliFault
from .output import Output, say
from .session import Session
from .sessions_text import entry_text


def sessions_folder(env: Env, named: str | None) -> str:
    """Return the folder of session files: *named*, else setting `sessions`, else the user's own.

    CliFault: the setting is no path.
    """
    configured = env.settings.get("sessions")
    if named is None and configured is not None and (not isinstance(configured, str) or not configured):
        raise CliFault(f"setting `sessions` is the path of a folder, not {configured!r}")
    folder = named or configured or platformdirs.user_data_path("aiio") / "sessions"
    return str(Path(folder).expanduser().absolute())


@contextmanager
def told() -> Iterator[None]:
    """Make a `CliFault` of what the disk, or the rules for session names, have against it."""
    try:
        yield
    except (OSError, TypeError, ValueError) as exc:
        raise CliFault(reason_of(exc)) from exc


def reason_of(exc: Exception) -> str:
    """Return *exc* as one sentence for people."""
    if isinstance(exc, SessionLockedError) or not isinstance(exc, OSError) or exc.strerror is None:
        return str(exc)
    return exc.strerror + (f": {exc.filename}" if exc.filename else "")


@asynccontextmanager
async def opened(name: str | None, folder: str) -> AsyncIterator[Context]:
    """Go on with the session *name* of *folder*, or begin it; None: a new one. It is closed at the end.

    CliFault: it is in use, can't be read or written, or the name can't be one.
    """
    context = await open_session(name, folder)
    try:
        yield context
    finally:
        await close_session(context)


async def open_session(name: str | None, folder: str) -> Context:
    """Return the open session; see `opened`."""
    with told():
        if name is not None:
            try:
                context = await sessions.resume(name, folder)
            except FileNotFoundError:
                pass
            else:
                for problem in context.problems:
                    say(f"{context.file}:{problem.line}: {problem.reason}")
                return context
        return await sessions.open_context(name, dir=folder)


async def close_session(context: Context) -> None:
    """Flush *context* and let another process have it. CliFault: it can't be written."""
    with told(), trio.CancelScope(shield=True):
        await sessions.aclose(context)


# -- the commands --------------------------------------------------------------------------------


async def list_sessions(
    session: Session, out: Output, dir: str | None, *, limit: int | None, here: bool, json_lines: bool
) -> int:
    """Print one line per session, the one written last first; damaged ones say so."""
    folder = sessions_folder(session.env, dir)
    with told():
        found = await sessions.list_sessions(folder, cwd=os.getcwd() if here else None, limit=limit)
    if json_lines:
        for info in found:
            await out.line(json.dumps(_facts(info)).encode() + b"\n")
    elif found:
        await out.text(session_table(found))
    else:
        say(f"there are no sessions in {folder}")
    return DONE


def session_table(found: Iterable[SessionInfo]) -> str:
    """Return *found* as lines of text: id, when it was written last, how it begins."""
    rows = [
        (
            info.id or "(damaged)",
            datetime.fromtimestamp(info.mtime).strftime("%Y-%m-%d %H:%M"),
            info.preview if info.damaged is None else _damage(info),
        )
        for info in found
    ]
    width = max((len(row[0]) for row in rows), default=0)
    return "".join(
        " ".join(f"{id:<{width}}  {written}  {begins}".splitlines()).rstrip() + "\n"
        for id, written, begins in rows
    )


def _damage(info: SessionInfo) -> str:
    name = os.path.basename(info.file)
    return f"{name}: {info.damaged}; `aiio sessions recover {name!r}` saves what can be saved"


def _facts(info: SessionInfo) -> dict[str, Any]:
    written = datetime.fromtimestamp(info.mtime).astimezone().isoformat(timespec="seconds")
    return {
        "id": info.id,
        "written": written,
        "preview": info.preview,
        "cwd": info.cwd,
        "file": info.file,
        "damaged": info.damaged,
    }


async def show(session: Session, out: Output, id: str, dir: str | None, *, json_lines: bool) -> int:
    """Print what is said in a session, each message under its number; reads only, also one that is in use."""
    with told():
        context = await sessions.resume(id, sessions_folder(session.env, dir), save=False)
    for problem in context.problems:
        say(f"{context.file}:{problem.line}: {problem.reason}")
    for index, entry in enumerate(context):
        if json_lines:
            await out.line(json_line(entry, f"context[{index}]"))
        else:
            await out.text(entry_text(index, entry))
    return DONE


async def rename(session: Session, id: str, new_id: str, dir: str | None) -> int:
    """Rename a session."""
    with told():
        path = await sessions.rename_by_id(id, new_id, sessions_folder(session.env, dir))
    say(f"renamed {id} to {new_id}: {path}")
    return DONE


async def delete(session: Session, ids: Iterable[str], dir: str | None) -> int:
    """Delete sessions. CliFault: there is none of a name, or one is in use; those before it are deleted."""
    folder = sessions_folder(session.env, dir)
    for id in ids:
        with told():
            deleted = await sessions.delete_by_id(id, folder)
        if not deleted:
            raise CliFault(f"there is no session {id!r} in {folder}")
        say(f"deleted {id}")
    return DONE


async def recover(session: Session, out: Output, damaged: str, dir: str | None, new_id: str | None) -> int:
    """Save what can be saved from a damaged file into a new session, and print the id of that."""
    with told():
        recovery = await sessions.recover(damaged, sessions_folder(session.env, dir), new_id)
    await close_session(recovery.context)
    for problem in recovery.problems:
        say(f"{recovery.file}:{problem.line}: {problem.reason}")
    say(f"{len(recovery.context)} messages saved; {recovery.file} is as it was")
    await out.text(recovery.context.id + "\n")
    return DONE


async def fork(
    session: Session, out: Output, id: str, dir: str | None, *, upto: int | None, new_id: str | None
) -> int:
    """Copy a session, as far as a message, into a new one, and print the id of that. The old one stays."""
    folder = sessions_folder(session.env, dir)
    with told():
        source = await sessions.resume(id, folder, save=False)
        try:
            copy = await sessions.fork(source, upto, new_id)
        except IndexError as exc:
            raise CliFault(f"there is no message {upto}: {exc}") from exc
        await trio.to_thread.run_sync(_save, copy)
    await close_session(copy)
    say(f"{len(copy)} messages copied")
    await out.text(copy.id + "\n")
    return DONE


def _save(context: Context) -> None:
    context.save = True
