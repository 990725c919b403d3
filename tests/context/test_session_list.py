"""Listing a folder of sessions, and the line by which one is known again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from aiio.context.session_list import SessionInfo
from aiio.context.session_preview import message_preview
from aiio.context.store import Context
from aiio.context.types import system_message, user_message

from .sessions import answered, said, turns


def make(folder: Path, id: str, *, age: int = 0, messages: Any = None, **options: Any) -> str:
    with Context(id, dir=folder, messages=messages or turns(2), fsync=False, **options) as context:
        pass
    path = str(context.file)
    os.utime(path, ns=(0, 10**18 - age * 10**9))
    return path


def test_the_newest_comes_first(tmp_path: Path) -> None:
    paths = [make(tmp_path, f"s{age}", age=age, settings={"name": f"agent-{age}"}) for age in (2, 0, 1)]
    (tmp_path / "notes.jsonl").write_text('{"a":1}\n')
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "gone.jsonl").symlink_to("nowhere")
    (tmp_path / "readme.txt").write_text("hi")
    listed = Context.list(tmp_path)
    assert [info.id for info in listed] == ["s0", "s1", "s2"]
    assert listed[2] == SessionInfo(
        id="s2",
        uuid=Context.resume("s2", tmp_path, save=False).uuid,
        file=paths[0],
        mtime=10**9 - 2,
        preview="m0",
        cwd=os.getcwd(),
        agent=None,
        damaged=None,
    )
    assert listed[2].messages == 2
    os.unlink(paths[0])
    assert listed[2].messages == 0
    assert [info.id for info in Context.list(tmp_path, limit=1)] == ["s0"]
    assert Context.list(tmp_path, limit=0) == []
    with pytest.raises(ValueError, match="limit"):
        Context.list(tmp_path, limit=-1)
    assert Context.list(tmp_path / "missing") == []
    assert Context.latest(tmp_path / "missing") is None
    assert Context.file_of("s9", tmp_path) is None
    assert Context.origin_of("s9", tmp_path) is None


def test_the_folder_it_was_started_in_filters(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    make(tmp_path, "here", age=5, origin=link)
    make(tmp_path, "there", origin="/")
    assert [info.id for info in Context.list(tmp_path, cwd=real)] == ["here"]
    latest = Context.latest(tmp_path, real)
    assert latest is not None
    assert latest.id == "here"
    assert Context.origin_of("here", tmp_path) == str(link)
    latest = Context.latest(tmp_path)
    assert latest is not None
    assert latest.id == "there"


def test_damaged_sessions_are_never_hidden(tmp_path: Path) -> None:
    path = Path(make(tmp_path, "work"))
    path.write_bytes(b"{" + path.read_bytes())
    other = tmp_path / "any name.jsonl"
    other.write_bytes(b'{"type":"session-metadata","id":')
    os.utime(path, ns=(0, 2 * 10**9))
    os.utime(other, ns=(0, 10**9))
    for listed in (Context.list(tmp_path), Context.list(tmp_path, cwd="/nowhere")):
        assert [(info.id, info.file) for info in listed] == [(None, str(path)), (None, str(other))]
        assert all(info.damaged for info in listed)
    assert Context.latest(tmp_path) is None


def test_a_file_that_can_not_be_read_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path, "work")
    (tmp_path / "notes.jsonl").write_text("mine")

    def refuse(*args: Any) -> int:
        raise error

    monkeypatch.setattr(os, "open", refuse)
    error: OSError = PermissionError(13, "no")
    (info,) = Context.list(tmp_path)
    assert (info.id, info.file, info.damaged) == (None, path, "[Errno 13] no")
    assert Context.file_of("work", tmp_path) is None
    error = OSError(24, "Too many open files")
    with pytest.raises(OSError, match="Too many open files"):
        Context.file_of("work", tmp_path)
    error = FileNotFoundError(2, "gone")
    assert Context.list(tmp_path) == []


def test_delete_all_deletes_all_but_what_is_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for id in ("a", "b"):
        make(tmp_path, id)
    damaged = Path(make(tmp_path, "damaged"))
    damaged.write_bytes(b"{")
    Path(f"{damaged}.torn-1").write_bytes(b"x")
    (tmp_path / "notes.jsonl").write_text("mine")
    with Context.resume("a", tmp_path) as context:
        with pytest.raises(OSError, match="in use"):
            Context.delete_all(tmp_path)
        assert len(Context.list(tmp_path)) == 1
    assert Context.delete_all(tmp_path) == [context.file]
    assert Context.delete_all(tmp_path) == []
    make(tmp_path, "gone")
    with monkeypatch.context() as patch:
        patch.setattr("aiio.context.session_list.delete_by_id", lambda id, dir: False)
        assert Context.delete_all(tmp_path) == []  # somebody else was quicker
    Context.delete_all(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.jsonl"]


@pytest.mark.parametrize("resumes", [True, False])
def test_a_session_deleted_while_we_wait_for_its_lock(
    resumes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path, "work")

    def meanwhile(paths: Any) -> None:  # called first of all under the lock
        monkeypatch.undo()
        os.unlink(path)

    monkeypatch.setattr("aiio.context.session_list.remove_files", meanwhile)
    if resumes:
        with pytest.raises(FileNotFoundError, match="there is no session 'work'"):
            Context.resume("work", tmp_path)
    else:
        assert not Context.delete_by_id("work", tmp_path)
    assert [*tmp_path.iterdir()] == []


def test_a_session_moved_while_we_wait_for_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(make(tmp_path, "work"))

    for other in (None, b"", Context("other")._log.header.line()):

        def meanwhile(paths: Any, other: bytes | None = other) -> None:
            monkeypatch.undo()
            path.rename(tmp_path / "moved.jsonl")
            if other is not None:
                path.write_bytes(other)

        monkeypatch.setattr("aiio.context.session_list.remove_files", meanwhile)
        with Context.resume("work", tmp_path) as context:
            assert context.file == str(tmp_path / "moved.jsonl")
        path.unlink(missing_ok=True)
        (tmp_path / "moved.jsonl").rename(path)


def test_a_draft_that_can_not_be_removed_locks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "work")

    def refuse(paths: Any) -> None:
        raise PermissionError(1, "no")

    monkeypatch.setattr("aiio.context.session_list.remove_files", refuse)
    with pytest.raises(PermissionError):
        Context.resume("work", tmp_path)
    monkeypatch.undo()
    Context.resume("work", tmp_path).close()


def test_the_newest_50_of_1000_sessions_cost_their_first_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make(tmp_path, "s0")
    for number in range(1000):
        path = clone(first, number) if number else first
        os.truncate(path, 10_000_000)  # sparse
        os.utime(path, ns=(0, 10**18 - number * 10**9))
    read: list[int] = []
    opened: list[str] = []
    os_read, os_open = os.read, os.open

    def counted_read(fd: int, size: int) -> bytes:
        data = os_read(fd, size)
        read.append(len(data))
        return data

    def counted_open(path: str, *args: Any) -> int:
        opened.append(path)
        return os_open(path, *args)

    monkeypatch.setattr(os, "read", counted_read)
    monkeypatch.setattr(os, "open", counted_open)
    listed = Context.list(tmp_path)
    assert [info.id for info in listed] == [f"s{number}" for number in range(50)]
    assert {info.preview for info in listed} == {"m0"}
    assert len(opened) == 50
    assert sum(read) == 50 * 4096


def clone(path: str, number: int) -> str:
    """Write a session like the one at *path*."""
    with open(path, "rb") as file:
        lines = file.read(2000).split(b"\n")[:3]
    uuid = b"%08d-2222-3333-4444-555555555555" % number
    header = Context(f"s{number}", uuid=uuid.decode())._log.header
    target = os.path.join(os.path.dirname(path), header.file_name())
    with open(target, "wb") as file:
        file.write(b"\n".join([header.line().strip(), *lines[1:], b""]))
    return target


def test_a_header_of_any_length_is_read_whole(tmp_path: Path) -> None:
    make(tmp_path, "work", settings={"name": "Ada", "long": "x" * 3_000_000})
    (info,) = Context.list(tmp_path)
    assert (info.id, info.agent, info.preview) == ("work", "Ada", "m0")
    assert Context.resume("work", tmp_path, save=False).settings == {"name": "Ada", "long": "x" * 3_000_000}


def test_the_preview_of_what_is_long_or_late(tmp_path: Path) -> None:
    cases: dict[str, Any] = {
        "long": [system_message("s" * 30_000), said("Long " + "x" * 200_000)],
        "escape": [said("E " + "\n" * 200_000)],
        "surrogate": [said("half \ud83d" + "x" * 200_000)],
        "late": [system_message("s" * 100_000), said("too late")],
        "odd": [{"content": [{"type": "text", "text": "x" * 200_000}], "type": 2}],
        "silent": [answered("a")],
        "noted": [{"type": "note"}, answered("a"), said("asked")],
    }
    for id, messages in cases.items():
        make(tmp_path, id, messages=messages)
    previews = {info.id: info.preview for info in Context.list(tmp_path)}
    assert previews.pop("long").startswith("Long xxx")
    assert previews.pop("surrogate").startswith("half \ud83dxxx")
    assert previews == {"escape": "E", "late": "", "odd": "", "silent": "", "noted": "asked"}


@pytest.mark.parametrize(
    ("text", "preview"),
    [
        ("fix the build", "fix the build"),
        ("", ""),
        ("\n\n  spaced   out \n more", "spaced out"),
        ("```python\nprint(1)\n```", "print(1)"),
        ("~~~\n<task>\n---\n***\n===\nreal", "real"),
        ("- first\n- second", "first"),
        ("1. first", "first"),
        ("2) second", "second"),
        ("> quoted", "quoted"),
        ("> - ## deep", "deep"),
        ("# Heading", "Heading"),
        ("#hash", "#hash"),
        ("-5 degrees", "-5 degrees"),
        ("Please fix it", "fix it"),
        ("Hi there, could you please fix it?", "fix it?"),
        ("Hello! I'd like you to help", "help"),
        ("Hello", "Hello"),
        ("Please", "Please"),
        ("pleased to meet you", "pleased to meet you"),
        ("Do this:\nand that", "and that"),
        ("Do this:\n\n```\n```", "Do this:"),
        ("One:\nTwo:", "One:"),
        ("x" * 72, "x" * 72),
        ("x" * 73, "x" * 71 + "…"),
        ("a" * 70 + " b" * 9, "a" * 70 + "…"),
        ("*", ""),
    ],
)
def test_the_preview_is_the_first_line_that_says_something(text: str, preview: str) -> None:
    assert message_preview(user_message(text)) == preview


def test_the_preview_looks_at_texts_only() -> None:
    odd = [None, {"type": "image", "content": "aGk="}, {"type": "text"}, {"type": "text", "text": ""}]
    assert message_preview(user_message([*odd, {"type": "text", "text": "this"}])) == "this"
    assert message_preview(user_message(odd)) == ""
