"""`Context`: identity, when and what it writes, renaming, forking."""

from __future__ import annotations

import copy
import errno
import json
import math
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from aiio.context.session_flush import FlushPlan, OnDisk, carry_out
from aiio.context.session_format import entry_line
from aiio.context.session_lock import SessionLockedError
from aiio.context.store import Context
from aiio.context.types import system_message, tool_result_message, user_message
from tests.agents.strict import assert_linked

from .sessions import answered, die, lines_of, names, said, texts, turns

DAY = datetime(2026, 5, 4, 1, 2, 3, 4567, tzinfo=UTC)
UUID_1 = "11111111-2222-3333-4444-555555555555"
NOTE = {"type": "note", "value": 1}


# -- identity


def test_an_id_is_a_uuid_unless_given(tmp_path: Path) -> None:
    context = Context(created=DAY)
    assert str(UUID(context.id)) == context.id == context.uuid
    assert context.name is None
    assert context.file is context.dir is None
    assert not context.save
    assert context.origin == os.getcwd()
    assert context.created == "2026-05-04T01:02:03.004Z"
    named = Context(
        "work", dir=tmp_path, origin="/else/where", created=DAY.astimezone(timezone(-timedelta(hours=9)))
    )
    assert (named.id, named.name, named.origin) == ("work", "work", "/else/where")
    assert named.file == str(tmp_path / f"2026-05-04 {named.uuid[:8]} work.jsonl")
    assert Context(UUID_1.upper()).uuid == UUID_1
    assert Context(UUID_1, name="work").name == "work"
    assert Context("work", uuid=UUID_1).uuid == UUID_1


@pytest.mark.parametrize(
    "bad", ["", " ", "a b", "a\tb", "a/b", "a\\b", ".", "..", "0", "false", "Anon", "a" * 65, "a\0", "\ud83d"]
)
def test_reserved_and_broken_ids_are_refused(bad: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        Context(bad, dir=tmp_path)
    with pytest.raises(ValueError):
        Context.resume(bad, tmp_path)
    with pytest.raises(ValueError):
        Context().rename(bad)
    with pytest.raises(ValueError):
        Context.delete_by_id(bad, tmp_path)


def test_ids_that_ask_for_no_session() -> None:
    assert all(map(Context.id_anonymous, [False, 0, "0", "false", " FALSE ", "anon"]))
    assert not any(map(Context.id_anonymous, [None, True, 1, "", "1", "work", 0.0]))


def test_misuse_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="save must be a bool"):
        Context(dir=tmp_path, save=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="needs a dir"):
        Context(save=True)
    with pytest.raises(TypeError, match="a session id is a string"):
        Context(7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not a UUID"):
        Context(uuid="../../etc")
    with pytest.raises(TypeError, match="settings must be a dict"):
        Context(settings=[])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="settings"):
        Context(settings={"a": math.nan})
    context = Context()
    with pytest.raises(TypeError, match="needs a dir"):
        context.save = True
    with pytest.raises(TypeError, match="save must be a bool"):
        context.save = None  # type: ignore[assignment]
    assert names(tmp_path) == []


def test_the_summary_is_one_line(tmp_path: Path) -> None:
    assert Context("work").summary == "work — not logged (memory only)"
    with Context("work", dir=tmp_path) as context:
        assert context.summary == f"work — {context.file}"
        assert context.summary in repr(context)


# -- what a flush does


def test_the_file_is_a_header_and_a_line_an_entry(tmp_path: Path) -> None:
    with Context("work", dir=tmp_path, origin="/o", settings={"model": "m"}, created=DAY) as context:
        for entry in (*turns(2), NOTE):
            context.append(entry)
        context.flush()
        header = {
            "type": "session-metadata",
            "version": 1,
            "id": "work",
            "uuid": context.uuid,
            "name": "work",
        }
        header |= {"cwd": "/o", "created": "2026-05-04T01:02:03.004Z", "agent": {"model": "m"}}
        assert lines_of(context.file) == [header, *turns(2), NOTE]


def test_a_new_tail_is_appended_and_everything_else_replaces_the_file(tmp_path: Path) -> None:
    context = Context("work", dir=tmp_path, messages=turns(2))
    context.flush()
    changes: list[tuple[Callable[[], object], bool]] = [
        (lambda: context.append(said("tail")), True),
        (lambda: context.append(said("merged")), False),
        (lambda: context.append(NOTE), True),
        (lambda: context.prepend([system_message("s")]), False),
        (lambda: context.edit(1, said("edited")), False),
        (lambda: context.pop(), False),
        (lambda: setattr(context, "settings", {"a": 1}), False),
        (lambda: context.append(answered("x")) and context.append(said("y")), True),
    ]
    for change, appends in changes:
        before = os.stat(str(context.file)).st_ino, Path(str(context.file)).read_bytes()
        change()
        context.flush()
        after = os.stat(str(context.file)).st_ino, Path(str(context.file)).read_bytes()
        assert (before[0] == after[0]) is after[1].startswith(before[1]) is appends
        assert lines_of(context.file)[1:] == context.messages()
    context.close()


def test_nothing_changed_writes_nothing(tmp_path: Path) -> None:
    with Context("work", dir=tmp_path, messages=turns(1)) as context:
        context.flush()
        assert context.pending_flush() is None
        before = os.stat(str(context.file))
        context.settings = None
        context.save = True
        context.prepend([])
        context.flush()
        assert os.stat(str(context.file)) == before


def test_only_system_messages_leave_no_file(tmp_path: Path) -> None:
    with Context("work", dir=tmp_path) as context:
        context.flush()
        context.append(system_message("be brief"))
        context.flush()
        assert not context.dirty
        assert names(tmp_path) == []
        context.append(said("hello"))
        context.flush()
        assert len(names(tmp_path)) == 1
        context.pop()
        context.flush()
        assert names(tmp_path) == []
        context.append(NOTE)  # somebody's data is worth a file
    assert lines_of(context.file)[1:] == [system_message("be brief"), NOTE]


def test_the_name_is_derived_once(tmp_path: Path) -> None:
    context = Context(dir=tmp_path, created=DAY)
    context.append(tool_result_message("c", "n", "not me"))
    context.append({"type": 3, "content": [None, {"type": "text"}, {"type": "text", "text": " \n"}]})
    context.flush()
    unnamed = f"2026-05-04 {context.uuid[:8]}.jsonl"
    assert names(tmp_path) == [unnamed]
    context.append(said("fix  a/b\\c\n\x07 and then some more"))
    context.flush()
    title = "fix a-b-c and then some"
    assert context.name == title
    assert names(tmp_path) == [f"2026-05-04 {context.uuid[:8]} {title}.jsonl"]
    context.edit(2, said("something else"))
    context.close()
    assert names(tmp_path) == [f"2026-05-04 {context.uuid[:8]} {title}.jsonl"]
    assert Context.resume(context.id, tmp_path, save=False).name == title


def test_an_unnamed_session_gets_its_name_when_it_is_resumed(tmp_path: Path) -> None:
    with Context(dir=tmp_path, messages=[NOTE]) as context:
        pass
    with Context.resume(context.id, tmp_path) as resumed:
        assert resumed.name is None
        resumed.append(said("now"))
    assert [name.endswith(" now.jsonl") for name in names(tmp_path)] == [True]


def test_a_name_of_any_kind_makes_a_file_name(tmp_path: Path) -> None:
    for name in ("/../x", "\U0001f600" * 100, "\ud83d", "a\nb"):
        with Context(name=name, dir=tmp_path, messages=turns(1)) as context:
            context.flush()
            assert os.path.dirname(str(context.file)) == str(tmp_path)
        assert texts(Context.resume(context.id, tmp_path, save=False)) == ["m0"]
    with Context("\U0001f600" * 64, dir=tmp_path, messages=turns(1)) as context:
        pass
    assert texts(Context.resume(context.id, tmp_path, save=False)) == ["m0"]


def test_a_file_of_another_session_is_not_overwritten(tmp_path: Path) -> None:
    there = tmp_path / "2026-05-04 11111111 work.jsonl"
    for content in (b"precious", b""):
        there.write_bytes(content)
        with Context("work", dir=tmp_path, uuid=UUID_1, created=DAY, messages=turns(1)) as context:
            context.flush()
            assert context.file == str(tmp_path / "2026-05-04 11111111 work 2.jsonl")
            context.append(answered("more"))
        assert there.read_bytes() == content
        Context.delete_by_id("work", tmp_path)


def test_files_and_folders_are_the_users_alone(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    former = os.umask(0o777)
    try:
        os.umask(0)
        with Context("work", dir=folder, messages=turns(1)) as context:
            context.flush()
            lock = next(path for path in folder.iterdir() if path.name.startswith(".lock"))
            assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent)] == [0o700, 0o700]
            assert [Path(path).stat().st_mode & 0o777 for path in (str(context.file), lock)] == [0o600, 0o600]
            os.umask(0o777)
            context.edit(0, said("new"))
        assert Path(str(context.file)).stat().st_mode & 0o777 == 0o600
        with Context("other", dir=tmp_path / "c", messages=turns(1)) as context:
            pass
        assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(former)


def test_a_folder_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(NotADirectoryError):
            Context(dir=folder)


# -- what can't be written


@pytest.mark.parametrize(
    ("value", "error", "place"),
    [
        (math.nan, ValueError, r"context\[1\].*nan"),
        ([1, -math.inf], ValueError, r"context\[1\]"),
        (b"bytes", TypeError, r"context\[1\]\['extra'\]: a bytes"),
        ({1: 2}, TypeError, "the key 1 is no string"),
        ({"a": {1, 2}}, TypeError, r"\['extra'\]\['a'\]: a set"),
    ],
)
def test_no_json_is_never_written(value: Any, error: type[Exception], place: str, tmp_path: Path) -> None:
    context = Context("work", dir=tmp_path, messages=turns(1))
    context.flush()
    before = Path(str(context.file)).read_bytes()
    context.append({**answered("a"), "extra": value})
    for _ in range(2):
        with pytest.raises(error, match=place):
            context.flush()
        with pytest.raises(error):
            context.close()
    assert Path(str(context.file)).read_bytes() == before
    assert context.dirty
    assert not context.closed
    context.edit(1, answered("b"))
    context.close()
    assert texts(Context.resume("work", tmp_path, save=False)) == ["m0", "b"]


def test_data_in_itself_is_refused(tmp_path: Path) -> None:
    loop: list[Any] = []
    loop += [loop, loop]
    deep: Any = 1
    for _ in range(499):
        deep = [deep]
    with Context("work", dir=tmp_path, messages=turns(1)) as context:
        context.append({**answered("a"), "extra": loop})
        with pytest.raises(ValueError, match="nested deeper"):
            context.flush()
        context.pop()
        context.append({**answered("a"), "extra": deep})
    last = Context.resume("work", tmp_path, save=False).at(1)
    assert last is not None
    assert last["extra"] == deep


def test_H3_lone_surrogates_survive_a_session_file(tmp_path: Path) -> None:
    odd = ["\ud83d", "a\ude00b", "\ude00\ud83d", "\u2028\x00\x85", "\U0001f600"]
    with Context("work", dir=tmp_path) as context:
        for text in odd:
            context.append({**said(text), text: text}, merge=False)
        context.append(answered("big", number=2**80, float=0.1, enum=errno.EIO, pair=(1, 2)))
    resumed = Context.resume("work", tmp_path, save=False)
    assert texts(resumed) == [*odd, "big"]
    assert [entry[text] for entry, text in zip(resumed, odd, strict=False)] == odd
    assert resumed.messages()[-1]["number"] == 2**80
    assert b"\\ud83d" in Path(str(context.file)).read_bytes()


def test_H3_halves_side_by_side_come_back_as_their_character(tmp_path: Path) -> None:
    with Context("work", dir=tmp_path, messages=[said("\ud83d\ude00")]):
        pass
    assert texts(Context.resume("work", tmp_path, save=False)) == ["\U0001f600"]


# -- settings and saving


def test_settings_are_snapshots(tmp_path: Path) -> None:
    given = {"a": [1]}
    with Context("work", dir=tmp_path, messages=turns(1), settings=given) as context:
        given["a"].append(2)
        seen = context.settings
        assert seen == {"a": [1]}
        seen["a"].append(3)
        assert context.settings == {"a": [1]}
        context.settings = {"b": 2}
        with pytest.raises(TypeError):
            context.settings = 7  # type: ignore[assignment]
        with pytest.raises(TypeError, match="settings"):
            context.settings = {"b": object()}
    assert Context.resume("work", tmp_path, save=False).settings == {"b": 2}
    with Context.resume("work", tmp_path) as context:
        context.settings = None
    assert Context.resume("work", tmp_path, save=False).settings is None


def test_saving_is_turned_on_and_off(tmp_path: Path) -> None:
    context = Context("work", dir=tmp_path, messages=turns(1), save=False)
    context.flush()
    assert names(tmp_path) == []
    assert not context.dirty
    context.save = True
    context.flush()
    context.save = False
    context.append(answered("unsaved"))
    context.flush()
    assert len(lines_of(context.file)) == 2
    with pytest.raises(SessionLockedError):  # it is ours until it is closed
        Context.resume("work", tmp_path)
    context.save = True
    context.close()
    assert len(lines_of(context.file)) == 3


def test_a_session_read_only_can_be_saved_if_it_was_left_alone(tmp_path: Path) -> None:
    with Context("work", dir=tmp_path, messages=turns(1)) as context:
        context.flush()
        reader = Context.resume("work", tmp_path, save=False)
        late = Context.resume("work", tmp_path, save=False)
        with pytest.raises(SessionLockedError):
            reader.save = True
        assert not reader.save
    reader.append(answered("more"))
    reader.save = True
    reader.close()
    assert texts(Context.resume("work", tmp_path, save=False)) == ["m0", "more"]
    for _ in range(2):
        with pytest.raises(OSError, match="changed since it was read") as caught:
            late.save = True
        assert caught.value.errno == errno.ESTALE
        Context.delete_by_id("work", tmp_path)
    late.close()


def test_an_explicit_id_adopts_the_session_that_has_it(tmp_path: Path) -> None:
    with Context(
        "work", name="title", dir=tmp_path, messages=turns(2), settings={"a": 1}, created=DAY
    ) as first:
        pass
    with Context("work", dir=tmp_path) as second:
        assert (second.uuid, second.name, second.created) == (first.uuid, "title", first.created)
        assert second.settings == {"a": 1}
        assert len(second) == 0
        second.append(system_message("s"))
    assert texts(Context.resume("work", tmp_path, save=False)) == [
        "m0",
        "m1",
    ]  # emptiness removes only our own
    with Context("work", name="other", dir=tmp_path, messages=[said("new")], settings={"b": 2}) as third:
        third.flush()
    assert third.settings == {"b": 2}
    assert names(tmp_path) == [
        f"2026-05-04 {first.uuid[:8]} other.jsonl",
        f"2026-05-04 {first.uuid[:8]} other.jsonl.damaged-1",
    ]
    assert texts(Context.resume("work", tmp_path, save=False)) == ["new"]
    assert texts(Context.recover(names(tmp_path)[1], tmp_path).context) == ["m0", "m1"]


# -- flushing at the same time


def test_a_snapshot_is_of_its_moment(tmp_path: Path) -> None:
    context = Context("work", dir=tmp_path, messages=turns(1))
    work = context.pending_flush()
    assert work is not None
    context.append(answered("later"))
    assert work()
    assert context.dirty
    assert len(lines_of(context.file)) == 2
    context.flush()
    assert len(lines_of(context.file)) == 3
    context.close()


def test_a_flush_that_was_overtaken_does_nothing(tmp_path: Path) -> None:
    context = Context("work", dir=tmp_path, messages=turns(1))
    context.flush()
    context.append(answered("a"))
    work = context.pending_flush()
    same = context.pending_flush()
    assert work is not None
    assert same is not None
    assert same()
    assert work()  # what it was for is durable
    context.append(said("b"))
    newer = context.pending_flush()
    assert newer is not None
    context.append(answered("c"))
    older, context._log._disk = context._log._disk, copy.copy(context._log._disk)
    assert not newer()  # another flush came between, and did not include it
    context.close()
    assert texts(Context.resume("work", tmp_path, save=False)) == ["m0", "a", "b", "c"]
    assert older.path == context.file


def test_close_waits_for_what_is_appended_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context("work", dir=tmp_path, messages=turns(1))

    def slow(plan: FlushPlan) -> OnDisk:
        monkeypatch.undo()
        context.append(answered("meanwhile"))
        return carry_out(plan)

    monkeypatch.setattr("aiio.context.session_log.carry_out", slow)
    context.close()
    assert texts(Context.resume("work", tmp_path, save=False)) == ["m0", "meanwhile"]


def test_many_threads_lose_nothing(tmp_path: Path) -> None:
    context = Context("work", dir=tmp_path, messages=turns(1), fsync=False)

    def work(number: int) -> None:
        for n in range(20):
            context.append(said(f"{number}-{n}"), merge=False)
            context.flush()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    context.close()
    resumed = Context.resume("work", tmp_path, save=False)
    assert resumed.messages() == context.messages()
    assert len(resumed) == 81
    assert resumed.problems == ()


def test_M1_appending_costs_what_is_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    encoded: list[int] = []
    write = os.write

    def counted_write(fd: int, data: bytes) -> int:
        written.append(len(data))
        return write(fd, data)

    def counted_line(entry: Any, index: int) -> bytes:
        encoded.append(index)
        return entry_line(entry, index)

    monkeypatch.setattr(os, "write", counted_write)
    monkeypatch.setattr("aiio.context.session_log.entry_line", counted_line)
    with Context("work", dir=tmp_path, fsync=False) as context:
        for message in turns(200):
            context.append(message)
            context.flush()
        assert encoded == [*range(200)]
        assert sum(written) < os.stat(str(context.file)).st_size + 200
        assert len(written) == 200


# -- renaming


def test_rename_changes_id_and_name_and_moves_the_file(tmp_path: Path) -> None:
    with Context("work", dir=tmp_path, messages=turns(1), created=DAY) as context:
        context.flush()
        context.rename("work")
        context.append(answered("unflushed"))
        context.rename("play")
        assert (context.id, context.name) == ("play", "play")
        assert names(tmp_path) == [f"2026-05-04 {context.uuid[:8]} play.jsonl"]
        with Context("work", dir=tmp_path):  # its former id is free
            pass
        with pytest.raises(SessionLockedError):
            Context.resume("play", tmp_path)
    assert texts(Context.resume("play", tmp_path, save=False)) == ["m0", "unflushed"]
    with pytest.raises(FileNotFoundError, match="no session 'work'"):
        Context.resume("work", tmp_path)


def test_rename_to_another_session_is_refused(tmp_path: Path) -> None:
    with Context("other", dir=tmp_path, messages=turns(1)):
        pass
    with Context("work", dir=tmp_path, messages=turns(1)) as context, Context("empty", dir=tmp_path):
        context.flush()
        before = names(tmp_path)
        with pytest.raises(FileExistsError, match="'other'"):
            context.rename("other")
        with pytest.raises(SessionLockedError):
            context.rename("empty")
        assert context.id == "work"
    assert names(tmp_path) == before
    with Context.resume("other", tmp_path) as other:  # its lock was given back
        other.rename("third")


def test_rename_in_memory(tmp_path: Path) -> None:
    context = Context("work")
    context.rename("play")
    assert context.id == "play"
    with Context("other", dir=tmp_path, messages=turns(1)):
        pass
    unsaved = Context("work", dir=tmp_path, save=False)
    with pytest.raises(FileExistsError):
        unsaved.rename("other")
    assert unsaved.id == "work"


def test_rename_and_delete_by_id(tmp_path: Path) -> None:
    with Context("work", dir=tmp_path, messages=turns(1)) as context:
        context.flush()
        with pytest.raises(SessionLockedError):
            Context.rename_by_id("work", "play", tmp_path)
        with pytest.raises(SessionLockedError):
            Context.delete_by_id("work", tmp_path)
    path = Context.rename_by_id("work", "play", tmp_path)
    assert Context.file_of("play", tmp_path) == path == str(tmp_path / names(tmp_path)[0])
    with pytest.raises(FileNotFoundError):
        Context.rename_by_id("work", "x", tmp_path)
    assert Context.delete_by_id("play", tmp_path)
    assert not Context.delete_by_id("play", tmp_path)
    assert [*tmp_path.iterdir()] == []


def test_what_was_saved_aside_goes_with_its_session(tmp_path: Path) -> None:
    with Context("work", dir=tmp_path, messages=turns(1)) as context:
        pass
    with open(str(context.file), "ab") as file:
        file.write(b'{"type":2')
    Context.rename_by_id("work", "play", tmp_path)
    path = str(Context.file_of("play", tmp_path))
    assert names(tmp_path) == [os.path.basename(path), os.path.basename(path) + ".torn-1"]
    assert Path(path + ".torn-1").read_bytes() == b'{"type":2'
    Context.delete_by_id("play", tmp_path)
    assert names(tmp_path) == []


# -- forking


def call(call_id: Any) -> dict[str, Any]:
    return {"type": "tool_call", "call_id": call_id, "name": "look", "arguments": {}}


def test_a_fork_is_a_session_of_its_own(tmp_path: Path) -> None:
    with Context("work", dir=tmp_path, messages=turns(4), origin="/o", settings={"a": [1]}) as context:
        with context.fork(1, "branch") as fork:
            fork.messages()[0]["content"][0]["text"] = "changed"
            assert (fork.origin, fork.settings, fork.save, fork.id) == ("/o", {"a": [1]}, True, "branch")
            assert fork.uuid != context.uuid
        assert texts(context) == ["m0", "m1", "m2", "m3"]
        with context.fork() as whole, context.fork(-2) as most:
            assert texts(whole) == texts(context)
            assert texts(most) == ["m0", "m1", "m2"]
        for taken in ("branch", "work"):
            context.flush()
            with pytest.raises(FileExistsError):
                context.fork(id=taken)
        with pytest.raises(IndexError):
            context.fork(4)
    assert texts(Context.resume("branch", tmp_path, save=False)) == ["changed", "m1"]
    assert Context(messages=turns(1)).fork(id="x").save is False


def test_F7_a_fork_cut_between_call_and_result_can_be_sent(tmp_path: Path) -> None:
    entries = [
        said("go"),
        {"type": 3, "content": [call("a"), call("b"), None]},
        tool_result_message("a", "look", "seen"),
        NOTE,
        system_message("hurry"),
        tool_result_message("b", "look", "seen too"),
        answered("done"),
    ]
    context = Context(messages=entries)
    assert context.fork().messages() == entries
    assert context.fork(5).messages() == entries[:6]
    for upto, missing in ((1, "ab"), (2, "b"), (4, "b")):
        made_up = context.fork(upto).messages()[upto + 1 :]
        assert [(result["call_id"], result["name"], result["error"]) for result in made_up] == [
            (call_id, "look", True) for call_id in missing
        ]
    assert context.fork(0).messages() == entries[:1]
    assert Context(messages=[NOTE]).fork().messages() == [NOTE]
    assert context.messages() == entries


def test_F7_a_fork_is_valid_all_through(tmp_path: Path) -> None:
    entries = [said("go"), {"type": 3, "content": [call("a"), call("")]}, said("and?"), answered("well")]
    context = Context(messages=[*entries, tool_result_message("gone", "look", "seen")])
    fork = context.fork().messages()
    assert [entry["type"] for entry in fork] == [2, 3, 4, 4, 2, 3, 1]
    assert [entry["call_id"] for entry in fork[2:4]] == ["a", "repair-1"]
    assert_linked(fork)
    assert context[:4] == entries


def test_F7_a_stored_history_loads_as_it_is(tmp_path: Path) -> None:
    orphan = [
        said("go"),
        {"type": 3, "content": [call("a")]},
        said("and?"),
        tool_result_message("z", "n", "lost"),
    ]
    with Context("work", dir=tmp_path, messages=orphan) as context:
        pass
    before = Path(str(context.file)).read_bytes()
    with Context.resume("work", tmp_path) as resumed:
        assert resumed.messages() == orphan
    assert Path(str(context.file)).read_bytes() == before


def test_F5_a_poisoned_session_loads(tmp_path: Path) -> None:
    poisoned = [
        said("hi"),
        {"type": 3, "content": []},
        {"type": 3, "content": [{"type": "text", "text": ""}]},
        {"type": 3, "content": [{"type": "thinking", "text": " "}, None]},
    ]
    with Context("work", dir=tmp_path, messages=poisoned) as context:
        pass
    with open(str(context.file), "a") as file:
        file.write(json.dumps({"type": 3, "content": None, "error": "broke"}) + "\n")
    with Context.resume("work", tmp_path) as resumed:
        assert resumed.messages() == [*poisoned, {"type": 3, "content": [], "error": "broke"}]
        assert resumed.problems == ()
        resumed.append(user_message("again"))
    assert len(Context.resume("work", tmp_path, save=False)) == 6


def test_a_context_that_is_dropped_gives_its_lock_back(tmp_path: Path) -> None:
    context = Context("work", dir=tmp_path, messages=turns(1))
    context.flush()
    del context
    with Context.resume("work", tmp_path) as resumed:
        assert texts(resumed) == ["m0"]
    die(resumed)
