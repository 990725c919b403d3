"""`aiio chat` on a scripted provider: turns, commands, and what goes wrong in them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from aiio.cli import chat as chat_module
from aiio.cli.app import invoke
from aiio.cli.ask import Question, ask
from aiio.cli.chat import ChatOptions, chat
from aiio.cli.chat_commands import complete, parse_command
from aiio.cli.chat_lines import Interrupted
from aiio.cli.chat_turn import take_turn
from aiio.cli.exits import CliFault
from aiio.cli.models import LimitOptions
from aiio.cli.output import Output
from aiio.cli.session import Session
from aiio.context.store import Context
from aiio.context.types import system_message, user_message
from aiio.env import sessions
from aiio.env.env import Env
from aiio.env.errors import ErrorKind, ProviderError
from tests.io.scripted import HANG, MODEL, Fail, Refuse, Step, finish, say, scripts

Act = Callable[[Session], object]
Typed = str | BaseException | Act
BYE = "/quit"
OFFLINE = ProviderError(ErrorKind.NETWORK, "connection refused")


class Hand:
    """Lines typed by a test; a function among them is called when its turn comes."""

    def __init__(self, session: Session, typed: Sequence[Typed | None], *, by_hand: bool) -> None:
        self.session = session
        self.typed = [*typed]
        self.by_hand = by_hand
        self.history: list[str] = []
        self.closed = False

    async def line(self, prompt: str) -> str | None:
        while True:
            await trio.lowlevel.checkpoint()
            typed = self.typed.pop(0) if self.typed else None
            if isinstance(typed, BaseException):
                raise typed
            if typed is None or isinstance(typed, str):
                return typed
            typed(self.session)

    def remember(self, text: str) -> None:
        self.history.append(text)

    def close(self) -> None:
        self.closed = True


class Talk:
    """A chat that has ended."""

    code: int
    out: str
    hand: Hand
    folder: Path

    def on_disk(self, name: str = "talk") -> list[tuple[int, str]]:
        return [
            (entry["type"], entry["content"][0]["text"])
            for entry in Context.resume(name, self.folder, save=False)
        ]


@pytest.fixture
def talk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    async def talk(
        *typed: Typed | None,
        answers: Sequence[Sequence[Step]] = ((say("Yes."), finish()),),
        fd: int | None = None,
        by_hand: bool = True,
        **options: Any,
    ) -> Talk:
        ended = Talk()
        ended.folder = tmp_path / "sessions"
        out = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        async with scripts(*answers) as (env, _):
            session = Session(env)
            ended.hand = Hand(session, typed, by_hand=by_hand)
            monkeypatch.setattr(chat_module, "open_lines", lambda complete: ended.hand)
            given = {"session": "talk", "dir": str(ended.folder), "model": MODEL, **options}
            try:
                ended.code = await chat(session, ChatOptions(**given), Output(out if fd is None else fd))
            finally:
                os.close(out)
        assert ended.hand.closed
        ended.out = (tmp_path / "out").read_text()
        return ended

    return talk


async def test_turns_are_answered_and_kept(talk: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ended = await talk("Hello", "  ", "/etc/hosts says what?", BYE, "unheard", system="Be brief.")
    assert (ended.code, ended.out) == (0, "Yes.\nYes.\n")
    assert ended.on_disk() == [
        (1, "Be brief."),
        (2, "Hello"),
        (3, "Yes."),
        (2, "/etc/hosts says what?"),
        (3, "Yes."),
    ]
    err = capsys.readouterr().err
    assert err.startswith("aiio: session talk, script/m; ")
    assert err.endswith("aiio: to go on: aiio chat --session talk\n")
    again = await talk(model=None, system="Be brief.")
    assert (again.code, again.hand.history) == (0, ["Hello", "/etc/hosts says what?"])
    assert "(4 messages so far), script/m" in capsys.readouterr().err


async def test_a_new_session_gets_a_name_of_its_own(talk: Any) -> None:
    ended = await talk("Hello", session=None)
    (info,) = Context.list(ended.folder)
    assert info.preview == "Hello"


async def test_commands(talk: Any, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [
        "/help",
        "/sessions",
        "/undo",
        "/model",
        "/model nosuch/model",
        "/model openai/m",
        "/model script/other",
        "/system",
        "Hello",
        "/system Be kind.",
        "/system Be brief.",
        "/system",
        "/undo",
        "Good morning",
        "/retry",
        "/rename birds",
        "/rename",
        "/fork talk",
        "/fork birds",
        "/sessions",
        "/fork",
        "/nonsense",
    ]
    ended = await talk(*steps)
    err = capsys.readouterr().err
    for shown in (
        "/rename NAME             rename this session\n",
        "(none yet)\n",
        "aiio: nothing was said yet\n",
        "script/m\n",
        "aiio: unknown endpoint 'nosuch'",
        "OPENAI_API_KEY",
        "script/other\n",
        "(no system message)\n",
        "Be brief.\nBe brief.\n",
        "undone: Hello\n",
        "this session is birds\n",
        "aiio: a session id has 1 to 64 characters",
        "this session is talk, a copy of birds\n",
        "aiio: there is a session 'birds' already",
        "a copy of talk\n",
        "aiio: there is no command /nonsense; /help lists them\n",
    ):
        assert shown in err, shown
    assert ended.code == 0
    for name in ("birds", "talk"):
        assert ended.on_disk(name) == [(1, "Be brief."), (2, "Good morning"), (3, "Yes.")]
    assert len(Context.list(ended.folder)) == 3
    assert Context.resume("birds", ended.folder, save=False).settings == {"model": "script/other"}


def interrupt(number: int = signal.SIGINT) -> Act:
    def act(session: Session) -> None:
        session.stopped_by = number
        session.on_stop()

    return act


async def test_ctrl_c_and_signals_at_the_prompt(talk: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ended = await talk(
        Interrupted(empty=False),
        Interrupted(empty=True),
        interrupt(),
        "Hello",
        interrupt(signal.SIGTERM),
        "x",
    )
    assert (ended.code, len(ended.on_disk())) == (143, 2)
    assert capsys.readouterr().err.count("leaves") == 3
    ended = await talk(interrupt(), "Hello", by_hand=False)
    assert (ended.code, ended.out) == (130, "")


async def test_a_stopped_answer_is_kept_and_the_talk_goes_on(
    talk: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = take_turn

    def stopping(number: int, after: str) -> None:
        async def stopped_turn(session: Session, agent: Any, printer: Any, out: Any) -> Any:
            async with trio.open_nursery() as nursery:

                async def stop() -> None:
                    while after not in str(agent._io.state) + str(agent.context.messages()):
                        await trio.sleep(0.001)
                    interrupt(number)(session)

                nursery.start_soon(stop)
                return await plain(session, agent, printer, out)

        monkeypatch.setattr(chat_module, "take_turn", stopped_turn)

    stopping(signal.SIGINT, "reading")
    ended = await talk("Hello", BYE, answers=[[HANG]])
    assert ended.code == 0
    assert "stopped; nothing had arrived" in capsys.readouterr().err
    stopping(signal.SIGTERM, "reading")
    ended = await talk("Hello", "unheard", answers=[[say("Half"), HANG]])
    assert ended.code == 143
    assert ended.on_disk()[0] == (2, "Hello")


async def test_a_failed_request_is_told_and_the_talk_goes_on(
    talk: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [[Refuse(OFFLINE)], [say("Half"), Fail(OFFLINE)], [say("Yes."), finish()]]
    ended = await talk("Hello", "/retry", answers=answers[:2], by_hand=False)
    assert (ended.code, ended.out) == (3, "Half\n")
    assert capsys.readouterr().err.count("aiio: connection refused; check") == 2
    ended = await talk("Hello", "/retry", "/retry", answers=answers, session="other")
    assert (ended.code, ended.on_disk("other")) == (0, [(2, "Hello"), (3, "Yes.")])


async def test_a_full_disk_is_told_and_nothing_is_lost(
    talk: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = sessions.flush
    flushes = 0

    async def full(context: Context) -> None:
        nonlocal flushes
        flushes += 1
        if flushes in (2, 3):
            await trio.lowlevel.checkpoint()
            raise OSError(28, "No space left on device")
        await flush(context)

    monkeypatch.setattr(sessions, "flush", full)
    ended = await talk("Hello", "More")
    assert (ended.code, ended.out) == (0, "Yes.\nYes.\n")
    assert "aiio: No space left on device; what was said is kept in memory" in capsys.readouterr().err
    assert [text for _, text in ended.on_disk()] == ["Hello", "Yes.", "More", "Yes."]


async def test_an_output_that_is_full_ends_the_talk(talk: Any, capsys: pytest.CaptureFixture[str]) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    ended = await talk("Hello", "unheard", fd=full)
    os.close(full)
    assert ended.code == 5
    assert "stdout can't be written" in capsys.readouterr().err
    assert ended.on_disk()[0] == (2, "Hello")


async def test_what_can_not_begin_is_told_before_anything_is_asked(
    talk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(CliFault, match="unknown endpoint 'nosuch'"):
        await talk("Hello", model="nosuch/m")
    with pytest.raises(ProviderError, match="OPENAI_API_KEY"):
        await talk("Hello", model="openai/m")
    with pytest.raises(CliFault, match="white space"):
        await talk("Hello", session="a b")


async def test_a_fork_that_can_not_be_made_leaves_the_session_open(
    talk: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from aiio.cli import chat_commands

    async def refuse(context: Context) -> None:
        await trio.lowlevel.checkpoint()
        raise CliFault("the disk is gone")

    monkeypatch.setattr(chat_commands, "close_session", refuse)
    ended = await talk("Hello", "/fork branch", "More")
    assert "the disk is gone" in capsys.readouterr().err
    assert len(ended.on_disk()) == 4
    assert len(ended.on_disk("branch")) == 2


def test_the_command_line_gives_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[ChatOptions] = []

    async def converse(session: Session, options: ChatOptions, out: Output) -> int:
        given.append(options)
        return 7

    monkeypatch.setattr(chat_module, "chat", converse)
    arguments = ["--session", "talk", "--dir", "d", "-m", "a/b", "-s", "Be brief.", "--thinking"]
    assert invoke(["chat", *arguments, "--set", "seed=1", "--timeout", "9s"]) == 7
    assert given == [
        ChatOptions(
            session="talk",
            dir="d",
            model="a/b",
            system="Be brief.",
            thinking=True,
            settings={"seed": 1},
            limits=LimitOptions(timeout="9s", connect_timeout=None, stuck_timeout=None),
        )
    ]


def test_words_are_commands_and_paths_are_not() -> None:
    assert parse_command("  /model  a/b ") == ("model", "a/b")
    assert parse_command("/help") == ("help", "")
    assert parse_command("/etc/hosts") is None
    assert parse_command("hello /help") is None
    with pytest.raises(CliFault):
        parse_command("/models")


def test_completion() -> None:
    env = Env(environ={})
    assert list(complete(env, "/r", "/r")) == ["/retry", "/rename "]
    assert list(complete(env, "hello /r", "/r")) == []
    assert list(complete(env, "/model anth", "anth")) == ["anthropic/"]
    assert list(complete(env, "/model a b", "b")) == []


# -- ask in a session ----------------------------------------------------------------------------


@asynccontextmanager
async def asking(tmp_path: Path, *answers: Sequence[Step]) -> Any:
    """A function that asks in the session `talk` and returns the exit code."""
    async with scripts(*answers) as (env, wire):
        fd = os.open(os.devnull, os.O_WRONLY)

        async def run(text: str, out: int = fd, session: Session | None = None, **more: Any) -> int:
            context = more.pop("context", [user_message(text)])
            question = Question(
                context=context, **{"model": MODEL, "session": "talk", "dir": str(tmp_path), **more}
            )
            return await ask(session or Session(env), question, Output(out))

        yield run, env, wire
        os.close(fd)


def said(folder: Path) -> list[str]:
    return [entry["content"][0]["text"] for entry in Context.resume("talk", folder, save=False)]


async def test_ask_remembers_the_model_and_asks_the_same_again(tmp_path: Path) -> None:
    failing, working = [Refuse(OFFLINE)], [say("Yes."), finish()]
    async with asking(tmp_path, failing, failing, working) as (run, _, wire):
        assert await run("Hello") == 3
        assert await run("Hello", model=None) == 3
        context = [system_message("Be brief."), user_message("More"), user_message("and more")]
        assert await run("", model=None, context=context, json_lines=True) == 0
        assert len(wire.requests) == 3
    assert said(tmp_path) == ["Be brief.", "Hello\n\nMore\n\nand more", "Yes."]


async def test_ask_in_a_session_that_can_not_be_written_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(context: Context) -> None:
        await trio.lowlevel.checkpoint()
        raise OSError(28, "No space left on device")

    async with asking(tmp_path, [say("Yes."), finish()]) as (run, _, wire):
        monkeypatch.setattr(sessions, "flush", full)
        with pytest.raises(CliFault, match="No space left on device"):
            await run("Hello")
        assert wire.requests == []


async def test_ask_whose_reader_left_keeps_what_had_come(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    async with asking(tmp_path, [say("Half"), HANG]) as (run, _, wire):
        assert await run("Hello", writer) == 141
        assert wire.open == 0
    os.close(writer)
    assert said(tmp_path) == ["Hello", "Half"]


async def test_a_bug_in_a_turn_comes_out_as_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(context: Context) -> None:
        raise KeyError("a bug")

    async with asking(tmp_path, [say("Yes."), finish()]) as (run, _, _wire):
        monkeypatch.setattr(sessions, "flush", broken)
        with pytest.raises(KeyError, match="a bug"):
            await run("Hello")


async def test_a_model_that_can_not_be_asked_is_told(tmp_path: Path) -> None:
    async with asking(tmp_path, [finish()]) as (run, _, _wire):
        with pytest.raises(CliFault, match="unknown endpoint"):
            await run("Hello", model="nosuch/m")
