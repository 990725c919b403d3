"""`aiio sessions`: what the folder holds, shown and changed, in one sentence when it can't be."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
import pytest

from aiio.cli.app import invoke
from aiio.cli.exits import CliFault
from aiio.cli.sessions import close_session, opened, reason_of, sessions_folder
from aiio.cli.sessions_text import entry_text, text_of
from aiio.context.store import Context
from aiio.context.types import (
    assistant_message,
    system_message,
    text_content,
    tool_result_message,
    user_message,
)
from aiio.env import sessions
from aiio.env.env import Env

Captured = pytest.CaptureFixture[str]


def keep(folder: Path, name: str, *texts: str, **more: Any) -> str:
    """Put a session on disk; returns its path."""
    messages = [
        assistant_message([text_content(text)]) if at % 2 else user_message(text)
        for at, text in enumerate(texts)
    ]
    with Context(name, dir=folder, messages=messages, **more) as context:
        pass
    return str(context.file)


def add(path: str, data: bytes) -> None:
    """Append to a session file as no program of ours would."""
    Path(path).write_bytes(Path(path).read_bytes() + data)


def aiio(folder: Path, capfd: Captured, *arguments: str) -> tuple[int, str, str]:
    code = invoke(["sessions", *arguments, "--dir", str(folder)])
    captured = capfd.readouterr()
    return code, captured.out, captured.err


def test_the_list_has_the_newest_first_and_damaged_ones_as_such(tmp_path: Path, capfd: Captured) -> None:
    assert aiio(tmp_path / "none", capfd, "list")[1:] == (
        "",
        f"aiio: there are no sessions in {tmp_path}/none\n",
    )
    old = keep(tmp_path, "old", "Hello, please\x1b[2J name birds", origin="/elsewhere")
    os.utime(old, (1, 1))
    broken = keep(tmp_path, "broken", "x")
    Path(broken).write_bytes(Path(broken).read_bytes()[30:])
    os.utime(broken, (2, 2))
    keep(tmp_path, "a-longer-name", "Why?", origin=os.getcwd())
    code, out, _ = aiio(tmp_path, capfd, "list")
    first, second, third = out.splitlines()
    assert code == 0
    assert first.startswith("a-longer-name  20")
    assert first.endswith("  Why?")
    assert second.startswith("(damaged)      1970-01-01 ")
    assert f"aiio sessions recover '{os.path.basename(broken)}'" in second
    assert third.endswith("  name birds") or "name birds" in third
    assert aiio(tmp_path, capfd, "list", "-n", "1")[1].count("\n") == 1
    assert "old" not in aiio(tmp_path, capfd, "list", "--here", "--all")[1]
    facts = [json.loads(line) for line in aiio(tmp_path, capfd, "list", "--json")[1].splitlines()]
    assert [entry["id"] for entry in facts] == ["a-longer-name", None, "old"]
    assert facts[2]["file"] == old
    assert facts[1]["damaged"]


def test_a_session_is_shown_in_numbered_messages(tmp_path: Path, capfd: Captured) -> None:
    keep(tmp_path, "talk", "Hello", "Yes.")
    assert aiio(tmp_path, capfd, "show", "talk")[1] == "[0] user\nHello\n\n[1] assistant\nYes.\n\n"
    path = keep(tmp_path, "bad", "Hello", "Yes.")
    add(path, b'nonsense\n{"type":2,"content":[]}\n')
    code, out, err = aiio(tmp_path, capfd, "show", "bad", "--json")
    assert code == 0
    assert [json.loads(line)["type"] for line in out.splitlines()] == [2, 3, 2]
    assert err.startswith(f"aiio: {path}:4: ")


def test_every_kind_of_entry_has_a_text() -> None:
    call = {"type": "tool_call", "call_id": "c1", "name": "look"}
    odd: Any = None
    shown = [
        entry_text(at, entry)
        for at, entry in enumerate(
            [
                system_message("Be brief."),
                assistant_message([{"type": "thinking", "text": "hm"}, {**call, "arguments": {"a": 1}}]),
                assistant_message([{**call, "arguments": '{"a'}, {"type": "odd"}, odd]),
                {**assistant_message([]), "error": {"message": "cut", "retry": 1}},
                tool_result_message("c1", "look", "seen"),
                {**tool_result_message("c1", "look", "no"), "error": True},
                user_message([{"type": "binary", "filename": "a.pdf", "content": "QUJD" * 400}]),
                user_message([{"type": "image", "mimetype": "image/png"}]),
                {"type": "note", "value": 1},
                {"type": 9, "content": []},
            ]
        )
    ]
    assert shown == [
        "[0] system\nBe brief.\n\n",
        '[1] assistant\n(thinking) hm\n(call) look c1 {"a":1}\n\n',
        '[2] assistant\n(call) look c1 {"a\n{"type":"odd"}\nnull\n\n',
        "[3] assistant (error: cut)\n\n",
        "[4] tool result look c1\nseen\n\n",
        "[5] tool result look c1 (failed)\nno\n\n",
        "[6] user\n(a.pdf: unknown type, about 1,200 bytes)\n\n",
        "[7] user\n(image: image/png, about 0 bytes)\n\n",
        '[8] record note\n{"type":"note","value":1}\n\n',
        "[9] message of type 9\n\n",
    ]
    assert text_of({"type": "note"}) == ""
    assert text_of(user_message([text_content("a"), {"type": "text", "text": 1}, None])) == "a"


def test_sessions_are_renamed_and_deleted(
    tmp_path: Path, capfd: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path, "talk", "Hello")
    keep(tmp_path, "other", "Hello")
    code, _, err = aiio(tmp_path, capfd, "rename", "talk", "birds")
    assert code == 0
    assert err.startswith("aiio: renamed talk to birds: ")
    code, _, err = aiio(tmp_path, capfd, "delete", "birds")
    assert (code, err) == (5, "aiio: nobody is there to be asked: say --yes\n")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    answers = [False, True]
    monkeypatch.setattr(click, "confirm", lambda question, err: answers.pop(0))
    assert aiio(tmp_path, capfd, "delete", "birds")[2] == "aiio: nothing was deleted\n"
    assert aiio(tmp_path, capfd, "delete", "birds")[2] == "aiio: deleted birds\n"
    code, _, err = aiio(tmp_path, capfd, "delete", "other", "none", "--yes")
    assert (code, err) == (5, f"aiio: deleted other\naiio: there is no session 'none' in {tmp_path}\n")
    assert Context.list(tmp_path) == []


def test_what_can_be_saved_is_recovered(tmp_path: Path, capfd: Captured) -> None:
    path = keep(tmp_path, "talk", "Hello", "Yes.")
    Path(path).write_bytes(Path(path).read_bytes()[:-6])
    code, out, err = aiio(tmp_path, capfd, "recover", path, "--as", "saved")
    assert (code, out) == (0, "saved\n")
    assert f"aiio: {path}:3: " in err
    assert f"aiio: 2 messages saved; {path} is as it was\n" in err
    assert len(Context.resume("saved", tmp_path, save=False)) == 2


def test_a_session_is_forked_also_while_it_is_in_use(tmp_path: Path, capfd: Captured) -> None:
    keep(tmp_path, "talk", "Hello", "Yes.", "Why?")
    with Context.resume("talk", tmp_path):
        code, out, err = aiio(tmp_path, capfd, "fork", "talk", "--upto", "1", "--as", "branch")
        assert (code, out, err) == (0, "branch\n", "aiio: 2 messages copied\n")
        assert aiio(tmp_path, capfd, "rename", "talk", "birds")[0] == 5
    assert len(Context.resume("branch", tmp_path, save=False)) == 2
    _, out, _ = aiio(tmp_path, capfd, "fork", "talk")
    assert len(Context.resume(out.strip(), tmp_path, save=False)) == 3


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["show", "none"], "there is no session 'none': "),
        (["show", "a b"], "white space"),
        (["rename", "talk", "anon"], "asks for no session"),
        (["rename", "talk", "other"], "there is a session 'other' already"),
        (["recover", "none"], "no such session or file"),
        (["fork", "talk", "--upto", "7"], "there is no message 7"),
        (["fork", "talk", "--as", "other"], "there is a session 'other' already"),
        (["list", "--limit", "0"], "is not in the range"),
    ],
)
def test_what_can_not_be_done_is_one_sentence_and_code_5(
    arguments: list[str], reason: str, tmp_path: Path, capfd: Captured
) -> None:
    for name in ("talk", "other"):
        keep(tmp_path, name, "Hello")
    code, out, err = aiio(tmp_path, capfd, *arguments)
    assert (code, out) == (5, "")
    assert reason in err
    assert "Errno" not in err


def test_the_folder_is_named_or_configured_or_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", "/home/somebody")
    env = Env(environ={})
    assert sessions_folder(env, None) == str(tmp_path / "aiio" / "sessions")
    env.settings["sessions"] = "~/talks"
    assert sessions_folder(env, None) == "/home/somebody/talks"
    assert sessions_folder(env, "here") == os.path.abspath("here")
    for wrong in (7, ""):
        env.settings["sessions"] = wrong
        with pytest.raises(CliFault, match="setting `sessions` is the path of a folder"):
            sessions_folder(env, None)


async def test_a_session_is_gone_on_with_or_begun(tmp_path: Path, capfd: Captured) -> None:
    path = keep(tmp_path, "talk", "Hello")
    add(path, b'{"type":2,"con')
    async with opened("talk", str(tmp_path)) as context:
        assert len(context) == 1
        context.append(user_message("More."))
        with pytest.raises(CliFault, match=r"the session file .* is in use by process \d+, this one"):
            async with opened("talk", str(tmp_path)):
                pass
    assert capfd.readouterr().err.startswith(f"aiio: {path}:3: ")
    async with opened(None, str(tmp_path / "new")) as context:
        assert (len(context), context.save) == (0, True)
    with pytest.raises(CliFault, match="Not a directory"):
        async with opened("talk", path):
            pass


async def test_a_session_that_can_not_be_written_at_the_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(context: Context) -> None:
        raise OSError(28, "No space left on device")

    context = Context("talk", dir=tmp_path)
    monkeypatch.setattr(sessions, "aclose", full)
    with pytest.raises(CliFault, match=r"^No space left on device$"):
        await close_session(context)
    assert reason_of(OSError("strange")) == "strange"
    context.close()
