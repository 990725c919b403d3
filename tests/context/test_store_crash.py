"""What a session file promises: cut files, killed writers, full disks, two owners."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import pytest

import aiio.context.session_flush
from aiio.context.session_files import read_session
from aiio.context.session_lock import SessionLockedError
from aiio.context.store import Context

from .sessions import answered, die, names, program, run_program, said, stream, texts, turns


def saved(folder: Path, id: str = "work", count: int = 3) -> Path:
    """Write a session and return its file."""
    with Context(id, dir=folder, messages=turns(count)) as context:
        pass
    return Path(str(context.file))


# -- cut and damaged files


def test_L1_a_file_cut_at_every_byte_of_its_last_300_opens(tmp_path: Path) -> None:
    whole = saved(tmp_path, count=12).read_bytes()
    path = next(tmp_path.glob("*.jsonl"))
    for cut in range(len(whole) - 300, len(whole) + 1):
        path.write_bytes(whole[:cut])
        lines_kept = whole[:cut].count(b"\n") - 1  # without the header
        with Context.resume("work", tmp_path, fsync=False) as context:
            assert len(context) in (lines_kept, lines_kept + 1)
            assert texts(context) == [f"m{n}" for n in range(len(context))]
            if len(context) == lines_kept + 1:  # only the line end was cut off
                assert whole[cut : cut + 1] == b"\n"
            fragment = whole[:cut].rpartition(b"\n")[2]
            torn = fragment if len(context) == lines_kept and fragment else b""
            aside = Path(f"{path}.torn-1")
            assert (aside.read_bytes() if aside.exists() else b"") == torn
            assert [problem.line for problem in context.problems] == [lines_kept + 2] * bool(torn)
            kept = len(context)
            context.append(said("next"), merge=False)
            context.append(answered("and on"))
        again = Context.resume("work", tmp_path, save=False)
        assert texts(again) == [*(f"m{n}" for n in range(kept)), "next", "and on"]
        assert again.problems == ()
        aside.unlink(missing_ok=True)


def test_L1_a_torn_tail_is_reported_and_reading_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = saved(tmp_path)
    path.write_bytes(path.read_bytes()[:-9])
    torn = path.read_bytes()
    reader = Context.resume("work", tmp_path, save=False)
    assert texts(reader) == ["m0", "m1"]
    assert [problem.line for problem in reader.problems] == [4]
    assert path.read_bytes() == torn
    assert names(tmp_path) == [path.name]
    assert "torn" not in caplog.text
    reader.save = True  # what is there but not in the context is kept aside
    reader.close()
    assert Path(f"{path}.damaged-1").read_bytes() == torn
    path.write_bytes(torn)
    with Context.resume("work", tmp_path):
        assert "torn_line_cut" in caplog.text


def test_L1_fragments_never_overwrite_each_other(tmp_path: Path) -> None:
    path = saved(tmp_path)
    for n in (1, 2, 3):
        with path.open("ab") as file:
            file.write(b"fragment %d" % n)
        with Context.resume("work", tmp_path):
            pass
        assert Path(f"{path}.torn-{n}").read_bytes() == b"fragment %d" % n


def test_L1_a_bad_line_in_the_middle_is_reported_skipped_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = saved(tmp_path, count=4)
    lines = path.read_bytes().splitlines(keepends=True)
    bad = [b'{"type":2,"conte', b"\xff\xfe", b"7", b"", b'{"type":3}', b"\0\0\0", b"[" * 9999]
    bad.append(b'{"type":"session-metadata"}')  # a second header is none of ours, and no problem
    lines[2:2] = [line + b"\n" for line in bad]
    path.write_bytes(b"".join(lines))
    damaged = path.read_bytes()
    with Context.resume("work", tmp_path) as context:
        assert texts(context) == ["m0", "m1", "m2", "m3"]
        assert [problem.line for problem in context.problems] == [3, 4, 5, 7, 8, 9]
        assert all(problem.reason for problem in context.problems)
        assert caplog.text.count("bad_line_skipped") == 6
        context.append(said("appended"))
        context.flush()
        assert path.read_bytes().startswith(damaged)  # an append takes nothing away
        assert names(tmp_path) == [path.name]
        context.edit(0, said("edited"))
    assert b"appended" in Path(f"{path}.damaged-1").read_bytes()
    assert Context.resume("work", tmp_path, save=False).problems == ()


def test_L1_a_damaged_header_is_listed_and_its_messages_are_recovered(tmp_path: Path) -> None:
    path = saved(tmp_path)
    whole = path.read_bytes()
    for header in (b"", b"{", b'{"type":"session-metadata","version":1,"id":"wo', whole.splitlines()[1]):
        path.write_bytes(header + whole[whole.index(b"\n") :])
        with pytest.raises(FileNotFoundError):
            Context.resume("work", tmp_path)
        (info,) = Context.list(tmp_path)
        assert info.id is None
        assert info.damaged
        assert info.file == str(path)
        with Context.recover(path, tmp_path).context as context:
            assert texts(context)[-3:] == ["m0", "m1", "m2"]
        Context.delete_by_id(context.id, tmp_path)


def test_a_newer_version_is_not_touched(tmp_path: Path) -> None:
    path = saved(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"version":1', b'"version":2'))
    (info,) = Context.list(tmp_path)
    assert info.damaged == "the file is of version 2, this program reads version 1"


def test_a_file_that_can_not_be_read_locks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path)

    def refuse(path: str) -> None:
        raise OSError(errno.EIO, "broken")

    for save in (True, False):
        monkeypatch.setattr("aiio.context.store.read_session", refuse)
        with pytest.raises(OSError, match="broken"):
            Context.resume("work", tmp_path, save)
        monkeypatch.undo()
    Context.resume("work", tmp_path).close()


# -- crashes between two steps


def test_of_two_files_of_one_session_the_newer_counts(tmp_path: Path) -> None:
    """A crash after the new file got its name, and before the old one lost its own; or somebody's copy."""
    path = saved(tmp_path)
    for name, id in (("older.jsonl", b"work"), ("renamed.jsonl", b"former")):
        older = path.with_name(name)
        content = path.read_bytes().replace(b"m2", b"old").replace(b'"id":"work"', b'"id":"' + id + b'"')
        older.write_bytes(content)
        os.utime(older, ns=(0, 0))
    assert [info.file for info in Context.list(tmp_path)] == [str(path)]
    with Context.resume("work", tmp_path) as context:
        assert texts(context) == ["m0", "m1", "m2"]
        context.edit(0, said("new"))
    assert names(tmp_path) == [path.name, "older.jsonl", "renamed.jsonl"]  # a copy is not ours to remove
    assert Context.delete_by_id("work", tmp_path)
    assert names(tmp_path) == ["renamed.jsonl"]


def test_a_former_file_that_can_not_be_removed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path)
    with Context.resume("work", tmp_path) as context:
        former = Path(str(context.file))
        monkeypatch.setattr(aiio.context.session_flush, "remove_files", failing(1, errno.EPERM, print))
        context.rename("play")
        monkeypatch.undo()
        assert former.exists()
        assert [info.id for info in Context.list(tmp_path)] == ["play"]
        context.append(answered("more"))
        context.flush()
        assert not former.exists()


def test_a_draft_of_a_killed_owner_is_removed(tmp_path: Path) -> None:
    saved(tmp_path)
    with Context.resume("work", tmp_path) as context:
        draft = Path(context._log.plan([said("x")], 9, 9).draft)
        draft.write_text("half of it")
    with Context.resume("work", tmp_path) as context:
        assert not draft.exists()
        draft.write_text("half of it")
        context.edit(0, said("edited"))
    assert [*tmp_path.iterdir()] == [Path(str(context.file))]


# -- in what order


def test_L1_what_flush_confirms_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's data before its name, its name before the confirmation; a line in one write."""
    context = Context("work", dir=tmp_path, messages=turns(2))
    calls: list[str] = []

    def recorded(name: str) -> Callable[..., Any]:
        original = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append("fsync folder" if name == "fsync" and S_ISDIR(os.fstat(args[0]).st_mode) else name)
            return original(*args, **kwargs)

        return call

    for name in ("write", "fsync", "replace"):
        monkeypatch.setattr(os, name, recorded(name))
    context.flush()
    assert calls == ["write", "fsync", "replace", "fsync folder"]
    calls.clear()
    context.append(said("m2"), merge=False)
    context.append(answered("m3"))
    context.flush()
    assert calls == ["write", "write", "fsync"]
    calls.clear()
    context.rollback(0)
    context.flush()
    assert calls == ["fsync folder"]
    calls.clear()
    with Context("fast", dir=tmp_path, messages=turns(1), fsync=False) as fast:
        fast.flush()
        fast.append(answered("x"))
    assert calls == ["write", "replace", "write"]
    context.close()


# -- the disk refuses


def failing(
    fails_at: int, error: int, call: Callable[..., Any], *, short: bool = False
) -> Callable[..., Any]:
    """Return *call* whose calls from number *fails_at* on are refused; *short* halves those before."""
    count = 0

    def attempt(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        if count < fails_at:
            if short:
                return call(args[0], args[1][: len(args[1]) // 2 or 1])
            return call(*args, **kwargs)
        raise OSError(error, os.strerror(error))

    return attempt


@pytest.mark.parametrize("name", ["write", "fsync", "open", "replace", "fchmod"])
@pytest.mark.parametrize("fails_at", [1, 2])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EACCES, errno.EIO])
def test_L1_a_refusing_disk_leaves_the_old_file_whole(
    name: str, fails_at: int, error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path)
    with Context.resume("work", tmp_path) as context:
        changes: list[Callable[[], object]] = [
            lambda: context.append(answered("tail " * 1000)) and context.append(said("more")),
            lambda: context.edit(0, said("edited")),
            lambda: context.rename("play"),
        ]
        for change in changes:
            whole = Path(str(context.file)).read_bytes()
            refused = None
            monkeypatch.setattr(os, name, failing(fails_at, error, getattr(os, name), short=name == "write"))
            try:
                change()
                context.flush()
            except OSError as exc:
                refused = exc
            monkeypatch.undo()
            left = Path(str(context.file))
            if refused is not None:
                assert refused.errno == error
                assert context.id == "work"
                assert context.dirty or change is changes[-1]
                assert read_session(str(left)).problems == ()
                only_the_folder = fails_at == 2 and name in ("fsync", "open")
                assert left.read_bytes() == whole or only_the_folder
            context.flush()
            assert read_session(str(context.file)).entries == context.messages()
            assert len(names(tmp_path)) == 1


def test_L1_a_tail_that_could_not_be_taken_back_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path)
    context = Context.resume("work", tmp_path)
    context.append(answered("tail " * 100))
    monkeypatch.setattr(os, "write", failing(2, errno.ENOSPC, os.write, short=True))
    monkeypatch.setattr(os, "ftruncate", failing(1, errno.EIO, os.ftruncate))
    with pytest.raises(OSError, match="No space left"):
        context.flush()
    monkeypatch.undo()
    assert not path.read_bytes().endswith(b"\n")
    context.close()
    resumed = Context.resume("work", tmp_path, save=False)
    assert resumed.problems == ()
    assert len(resumed) == 4


LIMITED = """
    import os, resource, sys
    from aiio.context import Context, assistant_message, text_content, user_message
    context = Context("work", dir=sys.argv[1], messages=[user_message("first")])
    context.flush()
    path, kept = context.file, 0
    before = open(path, "rb").read()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    for change in ("append", "rewrite"):
        if change == "append":
            context.append(assistant_message([text_content("x" * 50_000)]))
        else:
            context.edit(0, user_message("edited"))
        try:
            context.flush()
        except OSError as exc:
            print(exc.errno, open(path, "rb").read() == before, context.dirty, len(os.listdir(sys.argv[1])))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    context.close()
    print(len(Context.resume("work", sys.argv[1], save=False)), context.dirty)
"""


def test_L1_a_full_disk_by_the_kernels_own_word(tmp_path: Path) -> None:
    """RLIMIT_FSIZE makes the kernel take a part of the write, and refuse the rest, as a full disk does."""
    refused = f"{errno.EFBIG} True True 2"  # the session and its lock, no draft
    assert run_program(LIMITED, tmp_path).splitlines() == [refused, refused, "2 False"]


FORBIDDEN = """
    import fcntl, os, sys, tempfile
    from aiio.context import Context, assistant_message, text_content, user_message
    folder = tempfile.mkdtemp()
    if os.getuid() == 0:  # permissions don't bind root
        os.chown(folder, 65534, 65534)
        os.setgid(65534)
        os.setuid(65534)
    context = Context("work", dir=folder, messages=[user_message("first")])
    context.flush()
    before = open(context.file, "rb").read()
    for mode, change in ((0o500, "rewrite"), (0o700, "append")):
        os.chmod(folder, mode)
        os.chmod(context.file, 0o400)
        if change == "rewrite":
            context.edit(0, user_message("edited"))
        else:
            context.append(assistant_message([text_content("more")]))
        try:
            context.flush()
        except PermissionError as exc:
            print(change, exc.errno, open(context.file, "rb").read() == before, context.dirty)
        os.chmod(folder, 0o700)
        os.chmod(context.file, 0o600)
        context.flush()
        before = open(context.file, "rb").read()
    context.close()
    print(len(Context.resume("work", folder, save=False)))
    os.chmod(folder, 0o500)
    for id in ("work", "new"):
        try:
            Context(id, dir=folder)
        except PermissionError as exc:
            print(exc.errno)
    os.chmod(folder, 0o700)
    Context.delete_all(folder)
    os.rmdir(folder)
"""


def test_L1_no_permission_by_the_kernels_own_word() -> None:
    """In a process without privileges, for which folders and files are made read-only."""
    assert run_program(FORBIDDEN).splitlines() == [
        f"rewrite {errno.EACCES} True True",
        f"append {errno.EACCES} True True",
        "2",
        str(errno.EACCES),
        str(errno.EACCES),
    ]


def test_a_file_that_another_program_changed_is_kept_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = saved(tmp_path)
    with Context.resume("work", tmp_path) as context:
        with path.open("ab") as file:
            file.write(b'{"type":2,"content":[]}\n')
        foreign = path.read_bytes()
        context.append(answered("ours"))
        context.flush()
        assert Path(f"{path}.damaged-1").read_bytes() == foreign
        assert caplog.records[-1].__dict__["why"] == "it was changed by another program"
        assert read_session(str(path)).entries == context.messages()
        path.unlink()
        context.append(said("and more"))
        context.flush()
        assert read_session(str(path)).entries == context.messages()
    assert names(tmp_path) == [path.name, path.name + ".damaged-1"]


# -- processes

HOLDER = """
    import sys
    from aiio.context import Context, user_message
    context = Context("work", dir=sys.argv[1], messages=[user_message("theirs")])
    context.flush()
    print(context.file, flush=True)
    sys.stdin.read()
"""


def test_two_processes_on_one_session_one_works_and_a_killed_owners_lock_is_taken_over(
    tmp_path: Path,
) -> None:
    with program(HOLDER, tmp_path) as holder:
        file = stream(holder.stdout).readline().strip()
        attempts: list[Callable[[], object]] = [
            lambda: Context.resume("work", tmp_path),
            lambda: Context("work", dir=tmp_path),
            lambda: Context.rename_by_id("work", "x", tmp_path),
            lambda: Context.delete_by_id("work", tmp_path),
            lambda: Context.delete_all(tmp_path),
        ]
        for attempt in attempts:
            with pytest.raises(SessionLockedError) as caught:
                attempt()
            assert caught.value.pid == holder.pid
            assert caught.value.filename == file
            assert str(caught.value) == f"the session file {file} is in use by process {holder.pid}"
        assert texts(Context.resume("work", tmp_path, save=False)) == ["theirs"]  # reading needs no lock
        assert Context.list(tmp_path)[0].messages == 1
        holder.kill()
        holder.wait()
        with Context.resume("work", tmp_path) as context:
            context.append(answered("ours"))
    assert texts(Context.resume("work", tmp_path, save=False)) == ["theirs", "ours"]
    assert len([*tmp_path.iterdir()]) == 1


FORK = """
    import os, sys
    from aiio.context import Context, SessionLockedError, assistant_message, text_content, user_message
    context = Context("work", dir=sys.argv[1], messages=[user_message("parents")])
    context.flush()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        context.append(assistant_message([text_content("childs")]))
        try:
            context.flush()
        except SessionLockedError as exc:
            os.write(1, f"{exc.pid == os.getppid()}\\n".encode())
        del context
        os.close(write)
        os.read(read, 1)  # until the parent is gone
        os._exit(0)
    os.write(1, b"ready\\n")
    sys.stdin.read()
"""


def test_a_fork_of_the_owner_can_not_write_and_does_not_keep_the_lock(tmp_path: Path) -> None:
    with program(FORK, tmp_path) as owner:
        seen = {stream(owner.stdout).readline().strip() for _ in range(2)}
        assert seen == {"ready", "True"}
        with pytest.raises(SessionLockedError):  # dropping it in the child let go of nothing
            Context.resume("work", tmp_path)
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        with Context.resume("work", tmp_path) as context:  # the child may still live
            assert texts(context) == ["parents"]


ROUNDS = """
    import os, random, signal, sys
    from aiio.context import Context, assistant_message, text_content, user_message

    folder, rounds = sys.argv[1], int(sys.argv[2])
    text_of = lambda entry: entry["content"][0]["text"]

    def write(confirm, seed):
        # Appends, mostly; now and then an edit, which replaces the file; a rename, which moves it.
        random.seed(seed)
        context = opened()
        number, edits = len(context), int(text_of(context.at(0)).split()[1]) if len(context) else 0
        while True:
            body = f"{number} " + "x" * random.choice((0, 100, 5_000, 300_000))
            body = body if number else f"0 {edits}"
            context.append(assistant_message([text_content(body)]) if number % 2 else user_message(body))
            number += 1
            if random.random() < 0.2:
                edits += 1
                context.edit(0, user_message(f"0 {edits}"))
            context.flush()
            if random.random() < 0.1:
                context.rename("b" if context.id == "a" else "a")
            os.write(confirm, f"{number} {edits}\\n".encode())

    def opened():
        ids = [info.id for info in Context.list(folder)]
        return Context.resume(ids[0], folder) if ids else Context("a", dir=folder)

    number = edits = torn = 0
    for round in range(rounds):
        read, confirm = os.pipe()
        child = os.fork()
        if child == 0:
            write(confirm, round)
        os.close(confirm)
        confirmed = b""
        for _ in range(random.Random(round).randrange(1, 12)):
            confirmed += os.read(read, 65536)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while piece := os.read(read, 65536):
            confirmed += piece
        os.close(read)
        number, edits = map(int, confirmed.splitlines()[-1].split())
        context = opened()  # the killed owner's lock is taken over
        torn += len(context.problems)
        assert len(context) in (number, number + 1), (len(context), number)
        assert [int(text_of(entry).split()[0]) for entry in context] == [*range(len(context))]
        assert int(text_of(context.at(0)).split()[1]) in (edits, edits + 1)
        assert len(Context.list(folder)) == 1
        if len(context) > 40:
            context.rollback(20)
        context.close()
    print("kept", rounds)
"""


def test_L1_a_hundred_writers_killed_lose_nothing_that_flush_had_confirmed(tmp_path: Path) -> None:
    assert run_program(ROUNDS, tmp_path, 100) == "kept 100\n"


def test_a_death_without_close_loses_only_what_was_not_flushed(tmp_path: Path) -> None:
    context = Context("work", dir=tmp_path, messages=turns(2))
    context.flush()
    context.append(said("lost"))
    die(context)
    with Context.resume("work", tmp_path) as resumed:
        assert texts(resumed) == ["m0", "m1"]
