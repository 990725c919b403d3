"""One flush: a snapshot of what must be on disk, made by the owner, and the file work, done anywhere."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

from .session_files import Stamp, append_lines, asides_of, remove_files, replace_file, set_aside
from .session_format import SUFFIX
from .session_list import read_header


class FlushKind(Enum):
    """What a flush does."""

    NOTHING = "nothing"
    REMOVE = "remove"
    """There is nothing worth a file."""
    APPEND = "append"
    REWRITE = "rewrite"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDisk:
    """What stands on disk of a session, as far as its owner knows."""

    path: str | None = None
    """None: no file."""
    stamp: Stamp | None = None
    """Which file it is. None: not one that can be appended to."""
    version: int = 0
    """The version of the context it holds."""
    entries: int = 0
    """How many messages and records of the context it holds."""
    name: str | None = None
    """The name in its file name."""
    stale: tuple[str, ...] = ()
    """Older files of this very session that could not be removed; tried again after the next full write."""
    foreign: str | None = None
    """Why it holds something that the context does not, and must be kept aside before it is replaced."""
    adopted: bool = False
    """Only its header was taken over; what else it holds is not in the context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushPlan:
    """A snapshot: independent of the context it was taken from."""

    kind: FlushKind
    base: OnDisk
    """What was on disk when it was taken."""
    version: int = 0
    entries: int = 0
    name: str | None = None
    uuid: str = ""
    target: str = ""
    """The path to write to."""
    draft: str = ""
    """The path of the temporary file."""
    lines: Sequence[bytes] = ()
    fsync: bool = True


def carry_out(plan: FlushPlan) -> OnDisk:
    """Do the file work of *plan* and return what is on disk now.

    The result has the plan's version, or that of its base: then the file was not as expected, nothing was
    written, and a new plan will write it anew. OSError: the disk refused, and what was on disk is as it was.
    """
    match plan.kind:
        case FlushKind.NOTHING:
            return replace(plan.base, version=plan.version)
        case FlushKind.REMOVE:
            path = plan.base.path
            remove_files([*([path] if path else ()), *plan.base.stale])
            return OnDisk(version=plan.version)
        case FlushKind.APPEND:
            return _append(plan)
        case FlushKind.REWRITE:
            return _rewrite(plan)
        case _:
            assert_never(plan.kind)


def _append(plan: FlushPlan) -> OnDisk:
    base = plan.base
    assert base.path is not None
    assert base.stamp is not None
    stamp = append_lines(base.path, plan.lines, base.stamp, fsync=plan.fsync)
    if stamp is None:
        return replace(base, stamp=None, foreign="it was changed by another program")
    return replace(base, stamp=stamp, version=plan.version, entries=plan.entries)


def _rewrite(plan: FlushPlan) -> OnDisk:
    base = plan.base
    if base.foreign is not None and base.path is not None and os.path.exists(base.path):
        set_aside(base.path, base.foreign)
    target = plan.target if plan.target == base.path else _free_path(plan.target, plan.uuid)
    try:
        stamp = replace_file(target, plan.lines, plan.draft, fsync=plan.fsync)
    except BaseException:
        if target != base.path:  # it may have got there; the session has its former file
            with contextlib.suppress(OSError):
                os.unlink(target)
        raise
    former = [path for path in (base.path, *base.stale) if path is not None and path != target]
    return OnDisk(
        path=target,
        stamp=stamp,
        version=plan.version,
        entries=plan.entries,
        name=plan.name,
        stale=tuple(path for path in former if not _gone(path, target)),
    )


def _gone(former: str, target: str) -> bool:
    """Remove an older file of the session; what was saved aside from it goes with *target* now.

    A file that can't be removed costs no durability: it is an older one, and is found to be.
    """
    try:
        for aside in asides_of(former):
            os.rename(aside, target + aside.removeprefix(former))
        remove_files([former])
    except OSError:
        return not os.path.lexists(former)
    return True


def _free_path(path: str, uuid: str) -> str:
    """Return *path*, or one like it where no file of another session stands."""
    stem, n = path.removesuffix(SUFFIX), 1
    while os.path.lexists(path) and not _is_of(path, uuid):
        n += 1
        path = f"{stem} {n}{SUFFIX}"
    return path


def _is_of(path: str, uuid: str) -> bool:
    try:
        return read_header(path).uuid == uuid
    except (OSError, ValueError):  # something else is there
        return False
