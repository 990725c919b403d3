"""Session files as bytes: headers, names, locks, folders, asides."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiio.context.session_files import make_folder, remove_files, set_aside, sync_folder
from aiio.context.session_format import (
    Header,
    entry_line,
    is_uuid,
    names_a_session,
    parse_entry,
    parse_header,
    title_of,
)
from aiio.context.session_lock import SessionLock, SessionLockedError, lock_path
from aiio.context.text import parse_json_at

from .strategies import messages

HEADER = Header(
    id="work", uuid="11111111-2222-3333-4444-555555555555", name=None, cwd="/", created="2026-05-04"
)


# -- lines


@given(messages())
def test_an_entry_survives_its_line(message: dict[str, Any]) -> None:
    line = entry_line(message, 0)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert parse_entry(line) == message


@given(st.text(max_size=40))
def test_any_text_makes_a_title_and_a_file_name(text: str) -> None:
    title = title_of(text)
    assert len(title) <= 24
    assert title == title.strip()
    name = HEADER.renamed(text or None).file_name()
    assert names_a_session(name)
    assert not {"/", "\\", "\n", "\0"} & {*name}
    assert len(name.encode()) <= 255


def test_a_header_survives_its_line() -> None:
    for header in (HEADER, HEADER.renamed("n\ud83d"), Header(**{**as_dict(HEADER), "settings": {"a": [1]}})):
        assert parse_header(header.line()) == header


def as_dict(header: Header) -> dict[str, Any]:
    return {name: getattr(header, name) for name in Header.__slots__}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"type": "note"}, "no session-metadata record"),
        ({"version": 2}, "version 2"),
        ({"version": "1"}, "version '1'"),
        ({"id": None}, "a session id is a string"),
        ({"id": "../x"}, "no white space, slashes"),
        ({"uuid": None}, "not a UUID"),
        ({"uuid": "../../x"}, "not a UUID"),
        ({"created": None}, "not a time"),
        ({"created": "../../etc"}, "not a time"),
    ],
)
def test_a_damaged_header_says_why(change: dict[str, Any], reason: str) -> None:
    fields = {**json.loads(HEADER.line()), **change}
    with pytest.raises(ValueError, match=reason):
        parse_header(json.dumps(fields).encode())


def test_a_header_is_read_tolerantly() -> None:
    fields = {**json.loads(HEADER.line()), "name": 7, "cwd": None, "agent": [], "new": 1}
    del fields["version"]
    header = parse_header(json.dumps(fields).encode())
    assert (header.name, header.cwd, header.settings) == (None, "", None)


def test_what_looks_like_a_uuid() -> None:
    assert is_uuid(HEADER.uuid)
    assert is_uuid(HEADER.uuid.upper())
    assert not is_uuid(HEADER.uuid.replace("-", ""))
    assert not is_uuid("work")


def test_json_that_something_follows() -> None:
    assert parse_json_at('x{"a":1}{', 1) == ({"a": 1}, 8)
    for text in ("NaN", "[" * 100_000, "{", "1e999"):
        with pytest.raises(ValueError):
            parse_json_at(text, 0)


# -- locks


def test_a_lock_is_held_once_and_let_go(tmp_path: Path) -> None:
    lock = SessionLock.acquire(str(tmp_path), "work")
    with pytest.raises(SessionLockedError) as caught:
        SessionLock.acquire(str(tmp_path), "work")
    assert caught.value.pid == os.getpid()
    assert isinstance(caught.value, OSError)
    assert str(caught.value).endswith(f"in use by process {os.getpid()}, this one")
    SessionLock.acquire(str(tmp_path), "other").release()
    lock.release()
    lock.release()
    assert [*tmp_path.iterdir()] == []
    SessionLock.acquire(str(tmp_path), "work").release()


def test_an_owner_that_can_not_be_read_is_another_process(tmp_path: Path) -> None:
    lock = SessionLock.acquire(str(tmp_path), "work")
    for text in ("", "{", "[]", '{"pid": true}', '{"pid": 0}'):
        Path(lock_path(str(tmp_path), "work")).write_text(text)
        with pytest.raises(SessionLockedError, match=r"in use by another process$") as caught:
            SessionLock.acquire(str(tmp_path), "work")
        assert caught.value.pid is None
    lock.release()


def test_a_lock_that_vanished_between_open_and_lock_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    flock = fcntl.flock
    path = Path(lock_path(str(tmp_path), "work"))

    def late(fd: int, operation: int) -> None:
        monkeypatch.undo()
        path.unlink()
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    lock = SessionLock.acquire(str(tmp_path), "work")
    assert json.loads(path.read_text())["pid"] == os.getpid()
    lock.release()


def test_a_disk_that_refuses_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def refuse(*args: object) -> None:
        raise OSError(errno.EIO, "broken")

    for module, name in ((fcntl, "flock"), (os, "pwrite"), (os, "fchmod")):
        monkeypatch.setattr(module, name, refuse)
        with pytest.raises(OSError, match="broken"):
            SessionLock.acquire(str(tmp_path), "work")
        monkeypatch.undo()
    SessionLock.acquire(str(tmp_path), "work").release()
    assert [*tmp_path.iterdir()] == []


def test_a_fork_forgets_what_it_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = SessionLock.acquire(str(tmp_path), "work")
    lock.check("file")
    owner = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: owner + 1)
    with pytest.raises(SessionLockedError, match=f"file is in use by process {owner}$"):
        lock.check("file")
    monkeypatch.setitem(sys.modules, "fcntl", None)
    by_text = SessionLock.acquire(str(tmp_path), "other")
    SessionLock.forget_all()
    monkeypatch.undo()
    lock.release()
    by_text.release()
    assert len([*tmp_path.iterdir()]) == 2  # they are the parent's
    SessionLock.acquire(str(tmp_path), "work").release()


@pytest.fixture(params=["no module", "no support"])
def _no_flock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "no module":
        monkeypatch.setitem(sys.modules, "fcntl", None)
        return
    import fcntl

    def refuse(*args: object) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.usefixtures("_no_flock")
def test_without_flock_the_owners_life_decides(tmp_path: Path) -> None:
    folder, path = str(tmp_path), Path(lock_path(str(tmp_path), "work"))
    lock = SessionLock.acquire(folder, "work")
    with pytest.raises(SessionLockedError) as caught:
        SessionLock.acquire(folder, "work")
    assert caught.value.pid == os.getpid()
    text = json.loads(path.read_text())
    lock.release()
    assert [*tmp_path.iterdir()] == []
    dead: list[dict[str, object]] = [
        {"pid": 2**22 + 1, "started": "1"},
        {"pid": os.getpid(), "started": "1"},
        {},
    ]
    for owner in dead:  # gone; its id is another process's by now; not known
        path.write_text(json.dumps(owner))
        lock = SessionLock.acquire(folder, "work")
        assert json.loads(path.read_text()) == text
        lock.release()
    alive: list[dict[str, object]] = [{"pid": os.getpid()}, {"pid": 1, "started": None}]
    for owner in alive:  # perhaps another's by now, or not
        path.write_text(json.dumps(owner))
        with pytest.raises(SessionLockedError):
            SessionLock.acquire(folder, "work")
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.usefixtures("_no_flock")
def test_of_two_who_take_over_a_dead_owners_lock_one_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, path = str(tmp_path), Path(lock_path(str(tmp_path), "work"))
    path.write_text('{"pid": 4194305}')
    rename = os.rename

    def late(source: str, target: str) -> None:
        monkeypatch.setattr(os, "rename", rename)
        path.unlink()
        quicker.append(SessionLock.acquire(folder, "work"))
        rename(source, target)

    quicker: list[SessionLock] = []
    monkeypatch.setattr(os, "rename", late)
    with pytest.raises(SessionLockedError):
        SessionLock.acquire(folder, "work")
    assert json.loads(path.read_text())["pid"] == os.getpid()
    quicker[0].release()
    assert [*tmp_path.iterdir()] == []


def test_without_flock_a_process_that_can_not_be_looked_at_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)

    def forbidden(pid: int, number: int) -> None:
        raise PermissionError

    Path(lock_path(str(tmp_path), "work")).write_text('{"pid": 4194305, "started": "1"}')
    for kill in (forbidden, lambda pid, number: None):
        monkeypatch.setattr(os, "kill", kill)
        with pytest.raises(SessionLockedError):
            SessionLock.acquire(str(tmp_path), "work")


# -- folders and asides


def test_two_who_make_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mkdir = os.mkdir

    def quicker(path: str, mode: int) -> None:
        mkdir(path, mode)
        mkdir(path, mode)

    monkeypatch.setattr(os, "mkdir", quicker)
    make_folder(str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").is_dir()
    make_folder("/")
    monkeypatch.setattr(os.path, "isdir", lambda path: False)
    with pytest.raises(NotADirectoryError):
        make_folder("/")


def test_a_disk_that_can_not_sync_folders_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int) -> None:
        raise OSError(error, "no")

    monkeypatch.setattr(os, "fsync", refuse)
    error = errno.EINVAL
    sync_folder(str(tmp_path))
    error = errno.EIO
    with pytest.raises(OSError, match="no"):
        sync_folder(str(tmp_path))


def test_a_disk_without_links_gets_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(errno.EPERM, "no links")

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"content")
    aside = set_aside(str(path), "test")
    assert Path(aside).read_bytes() == b"content"
    assert os.stat(aside).st_mode & 0o777 == 0o600


def test_removing_what_is_gone_is_fine(tmp_path: Path) -> None:
    remove_files([str(tmp_path / "a"), str(tmp_path / "gone" / "a")])
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):  # EISDIR here, EPERM elsewhere
        remove_files([str(tmp_path / "folder")])
