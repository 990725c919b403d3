"""Where the lines of a chat come from: a descriptor, or readline at a terminal."""

from __future__ import annotations

import builtins
import os
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from aiio.cli import chat_lines
from aiio.cli.chat_lines import CTRL_C, Interrupted, PlainLines, TerminalLines, open_lines


class Readline:
    """What is used of the module."""

    def __init__(self, doc: str = "GNU readline") -> None:
        self.__doc__ = doc
        self.history: list[str] = []
        self.bound: list[str] = []
        self.line = ""
        self.completer: Any = None

    def set_completer_delims(self, delims: str) -> None:
        assert delims == " "

    def set_completer(self, completer: Any) -> None:
        self.completer = completer

    def parse_and_bind(self, line: str) -> None:
        self.bound.append(line)

    def add_history(self, text: str) -> None:
        self.history.append(text)

    def get_current_history_length(self) -> int:
        return len(self.history)

    def get_history_item(self, number: int) -> str | None:
        return self.history[number - 1]

    def remove_history_item(self, at: int) -> None:
        del self.history[at]

    def get_line_buffer(self) -> str:
        return self.line

    def get_endidx(self) -> int:
        return len(self.line) - 1  # the cursor is before the last character


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    master, slave = os.openpty()
    yield master, slave
    os.close(master)
    os.close(slave)


def no_completion(line: str, word: str) -> list[str]:
    return []


async def test_lines_of_a_pipe_come_as_they_are_written() -> None:
    reader, writer = os.pipe()
    lines = PlainLines(reader)
    assert not lines.by_hand
    os.write(writer, b"one\r\ntwo\n\nthr")
    assert [await lines.line("> ") for _ in range(3)] == ["one", "two", ""]
    with trio.move_on_after(0.01):
        await lines.line("> ")
    os.write(writer, "ee \u00fc".encode() + b"\xff")
    os.close(writer)
    assert await lines.line("> ") == "three \u00fc\ufffd"
    assert await lines.line("> ") is None
    lines.remember("nothing")
    lines.close()
    os.close(reader)


async def test_lines_of_a_file_and_of_a_terminal_without_readline(
    tmp_path: Path, terminal: tuple[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lines").write_text("one\n")
    fd = os.open(tmp_path / "lines", os.O_RDONLY)
    lines = PlainLines(fd)
    assert [await lines.line("> "), await lines.line("> ")] == ["one", None]
    os.close(fd)
    master, slave = terminal
    lines = PlainLines(slave)
    assert lines.by_hand
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lines.line, "> ")
        await wait_all_tasks_blocked()
        os.write(master, b"typed\n")
    assert capsys.readouterr().err == "> "


async def test_readline_reads_in_a_thread_and_ctrl_c_is_a_key_meanwhile(
    terminal: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, slave = terminal
    readline = Readline()
    before = termios.tcgetattr(slave)
    typed: Iterator[str | EOFError] = iter(["hello", f"half{CTRL_C}", CTRL_C, CTRL_C, EOFError()])
    seen: list[Any] = []

    def fake_input(prompt: str) -> str:
        assert threading.current_thread() is not threading.main_thread()
        seen.append(termios.tcgetattr(slave)[6][termios.VINTR])
        text = next(typed)
        if isinstance(text, EOFError):
            raise text
        if len(seen) < 4:
            readline.history.append(text)
        return text

    monkeypatch.setattr(builtins, "input", fake_input)
    lines = TerminalLines(no_completion, readline, slave)
    assert r'"\C-c": "\C-v\C-c\C-m"' in readline.bound
    assert await lines.line("> ") == "hello"
    for empty in (False, True, True):
        with pytest.raises(Interrupted) as interrupted:
            await lines.line("> ")
        assert interrupted.value.empty is empty
    assert await lines.line("> ") is None
    assert seen == [b"\0"] * 5
    assert readline.history == ["hello"]
    assert termios.tcgetattr(slave) == before
    lines.remember("said before")
    lines.remember("two\nlines")
    lines.remember("")
    assert readline.history == ["hello", "said before"]


async def test_ctrl_c_in_an_empty_history_removes_nothing(
    terminal: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtins, "input", lambda prompt: CTRL_C)
    with pytest.raises(Interrupted):
        await TerminalLines(no_completion, Readline(), terminal[1]).line("> ")


async def test_libedit_keeps_ctrl_c_a_signal(
    terminal: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, slave = terminal
    readline = Readline("libedit readline")
    seen: list[Any] = []

    def fake_input(prompt: str) -> str:
        seen.append(termios.tcgetattr(slave)[6][termios.VINTR])
        return "hi"

    monkeypatch.setattr(builtins, "input", fake_input)
    lines = TerminalLines(no_completion, readline, slave)
    assert await lines.line("> ") == "hi"
    assert seen == [b"\x03"]
    assert readline.bound == ["bind ^I rl_complete"]


def test_completion_sees_the_line_up_to_the_cursor(terminal: tuple[int, int]) -> None:
    readline = Readline()
    asked: list[tuple[str, str]] = []

    def complete(line: str, word: str) -> list[str]:
        asked.append((line, word))
        return [word + "1", word + "2"]

    TerminalLines(complete, readline, terminal[1])
    readline.line = "/model ox"
    assert [readline.completer("o", number) for number in range(3)] == ["o1", "o2", None]
    assert asked == [("/model o", "o")]


def test_a_terminal_is_left_as_it_was_found(
    terminal: tuple[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    _, slave = terminal
    lines = TerminalLines(no_completion, Readline(), slave)
    lines.close()
    assert capsys.readouterr().err == ""
    found = termios.tcgetattr(slave)
    raw = [*found[:3], found[3] & ~termios.ECHO, *found[4:]]
    termios.tcsetattr(slave, termios.TCSANOW, raw)
    lines.close()
    assert termios.tcgetattr(slave) == found
    assert capsys.readouterr().err == "\x1b[?2004l\n"
    gone = TerminalLines(no_completion, Readline(), slave)
    gone._fd = os.open(os.devnull, os.O_RDONLY)
    gone.close()
    os.close(gone._fd)


def test_readline_is_used_where_a_person_sits_at_both_ends(
    terminal: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: list[type] = []
    made: list[Any] = []

    def make(*arguments: Any) -> str:
        made.append(arguments)
        return "readline"

    monkeypatch.setattr(chat_lines, "TerminalLines", make)
    for ends in ((True, False), (False, True), (True, True)):
        monkeypatch.setattr(os, "isatty", lambda fd, ends=ends: ends[fd])
        kinds.append(type(open_lines(no_completion)))
    assert kinds == [PlainLines, PlainLines, str]
    assert made[0][2] == 0
    monkeypatch.setitem(sys.modules, "readline", None)
    assert isinstance(open_lines(no_completion), PlainLines)
