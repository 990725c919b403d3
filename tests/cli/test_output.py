"""Output: safe for terminals, patient with readers, bounded when asked to stop."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from aiio.cli.output import Output, OutputLost, say, visible, write_error

EVIL = "a\x1b[31mred\x07\x9b2J\x7f\r\n\tb\x00"
SHOWN = "a^[[31mred^G\\x9b2J^?^M\n\tb^@"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    yield reader, writer
    os.close(reader)
    os.close(writer)


def test_control_characters_are_made_visible() -> None:
    assert visible(EVIL) == SHOWN
    assert visible("plain \u00e9\u4e2d\U0001f600\n\t") == "plain \u00e9\u4e2d\U0001f600\n\t"


async def test_a_terminal_gets_it_visible_and_a_pipe_gets_it_raw(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    await Output(writer).text(EVIL)
    assert os.read(reader, 100) == EVIL.encode()
    await Output(writer, terminal=True).text(EVIL)
    assert os.read(reader, 100) == SHOWN.encode()
    await Output(writer).text("\ud800")
    assert os.read(reader, 100) == b"?"


async def test_a_line_of_json_keeps_its_meaning_on_a_terminal(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    line = json.dumps({"text": "\x1b \x9b \x7f"}, ensure_ascii=False).encode() + b"\n"
    await Output(writer).line(line)
    assert os.read(reader, 100) == line
    await Output(writer, terminal=True).line(line)
    shown = os.read(reader, 100)
    assert shown.isascii()
    assert json.loads(shown) == json.loads(line)


async def test_a_file_takes_everything(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        out = Output(file.fileno())
        assert not out.terminal
        await out.text("x" * 10_000)
    assert (tmp_path / "out").stat().st_size == 10_000


async def test_a_slow_reader_holds_up_the_writer_and_nobody_else(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    received = bytearray()

    async def read_all() -> None:
        while len(received) < 50_000:
            await trio.lowlevel.wait_readable(reader)
            received.extend(os.read(reader, 1000))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_all)
        await Output(writer).text("y" * 50_000)
    assert received == b"y" * 50_000


async def test_waiting_for_a_reader_ends_when_it_is_given_up(
    pipe: tuple[int, int], autojump_clock: MockClock
) -> None:
    out = Output(pipe[1])
    async with trio.open_nursery() as nursery:

        async def give_up() -> None:
            await trio.sleep(3)
            out.give_up_at(trio.current_time() + 1.5)

        nursery.start_soon(give_up)
        with pytest.raises(OutputLost, match="nobody reads it") as lost:
            await out.text("z" * 10_000)
    assert lost.value.reader_gone
    assert trio.current_time() == 4.5
    with pytest.raises(OutputLost):
        await out.text("z" * 10_000)
    assert trio.current_time() == 4.5


async def test_a_reader_that_left_and_a_full_disk_are_told_apart() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with pytest.raises(OutputLost, match="Broken pipe") as gone:
        await Output(writer).text("x")
    os.close(writer)
    assert gone.value.reader_gone
    full = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(OutputLost, match="No space left") as lost:
        await Output(full).text("x")
    os.close(full)
    assert not lost.value.reader_gone


def test_what_is_said_is_one_safe_line(capsys: pytest.CaptureFixture[str]) -> None:
    say("look: \x1b[2J\ud800")
    assert capsys.readouterr().err == "aiio: look: ^[[2J?\n"


def test_saying_without_a_stderr_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    write_error("nobody hears this")
