"""A log that can't be written costs one warning, never a request."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from aiio.observe.sink import FileSink, NoSink, Sinks, StreamSink, warn


def test_lines_are_appended_and_the_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"before\n")
    fresh = tmp_path / "fresh"
    for target in (path, fresh):
        sink = FileSink(target)
        sink.write(b"one\n")
        sink.close()
        sink.close()
        sink.write(b"too late\n")
    assert path.read_bytes() == b"before\none\n"
    assert fresh.stat().st_mode & 0o077 == 0


def test_a_full_disk_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    sink = FileSink("/dev/full")
    for _ in range(3):
        sink.write(b"line\n")
    err = capsys.readouterr().err
    assert (
        err
        == "aiio: the log /dev/full can't be written (No space left on device); its further lines are lost\n"
    )


def test_a_pipe_whose_reader_stalls_or_left_never_blocks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    stalled, left = FileSink(fifo), FileSink(fifo)
    left.write(b"seen\n")
    assert os.read(reader, 5) == b"seen\n"
    stalled.write(b"x" * 1_000_000)
    os.close(reader)
    left.write(b"nobody\n")
    assert capsys.readouterr().err.count("can't be written") == 2


def test_a_file_that_cannot_be_opened_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        FileSink(tmp_path / "none" / "log")


def test_a_console_is_left_open_and_given_up_in_silence(capsys: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    sink = StreamSink(writer)
    sink.write(b"hello\n")
    assert os.read(reader, 100) == b"hello\n"
    os.close(reader)
    sink.write(b"gone\n")
    sink.write(b"gone\n")
    sink.close()
    os.close(writer)
    assert capsys.readouterr().err == ""


def test_several_sinks_take_every_line_and_none_takes_none(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    sinks = Sinks(FileSink(one), FileSink(two), NoSink())
    sinks.write(b"line\n")
    sinks.close()
    assert one.read_bytes() == two.read_bytes() == b"line\n"


@pytest.mark.parametrize("broken", ["none", "closed"])
def test_warning_without_a_stderr_is_no_error(
    broken: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stream = (tmp_path / "err").open("w")
    stream.close()
    monkeypatch.setattr(sys, "stderr", None if broken == "none" else stream)
    warn("nobody hears this")
