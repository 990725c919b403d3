"""The results file: taken up where it was left, mended at its end, refused when it is somebody else's."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiio.cli.exits import CliFault
from aiio.cli.results import Rescue, open_results

DONE = b'{"key":"a","terminal":{"type":"done"}}\n'
FAILED = b'{"key":2,"terminal":{"type":"error","error":"no"}}\n'


@pytest.fixture
def file_limit() -> Iterator[None]:
    """Files of this process may grow to 200 bytes: a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def taken_up(path: Path) -> tuple[set[str], set[str], bool]:
    results = open_results(str(path))
    results.close()
    return results.done, results.failed, results.repaired


def test_a_new_file_is_made(tmp_path: Path) -> None:
    path = tmp_path / "out"
    results = open_results(str(path))
    results.append(DONE)
    results.close()
    assert path.read_bytes() == DONE
    assert taken_up(path) == ({"a"}, set(), False)


def test_the_last_line_of_a_key_decides(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(FAILED + DONE + b"\n" + FAILED.replace(b"2", b'"a"') + DONE.replace(b'"a"', b"2"))
    assert taken_up(path) == ({"2"}, {"a"}, False)


@pytest.mark.parametrize("cut", range(1, len(DONE) - 1))
def test_a_torn_last_line_is_cut_off_wherever_it_was_torn(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(FAILED + DONE[:cut])
    assert taken_up(path) == (set(), {"2"}, True)
    assert path.read_bytes() == FAILED


def test_zeros_that_a_power_cut_left_are_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(DONE + bytes(5000))
    assert taken_up(path) == ({"a"}, set(), True)
    assert path.read_bytes() == DONE


def test_a_missing_line_feed_is_put_right(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(FAILED + DONE[:-1])
    assert taken_up(path) == ({"a"}, {"2"}, False)
    assert path.read_bytes() == FAILED + DONE


@pytest.mark.parametrize(
    "foreign", [b"my precious notes", b"notes\n", b'{"key":1}\n', b"[]\n", b'{"a":', b"\xff\n", b'{"key":\n']
)
def test_a_file_of_somebody_else_is_not_touched(foreign: bytes, tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(DONE + foreign)
    with pytest.raises(CliFault, match=r"out:2 is not a result of `aiio run`"):
        open_results(str(path))
    assert path.read_bytes() == DONE + foreign


def test_a_second_run_on_the_same_file_is_refused(tmp_path: Path) -> None:
    first = open_results(str(tmp_path / "out"))
    with pytest.raises(CliFault, match="another `aiio run` is writing"):
        open_results(str(tmp_path / "out"))
    first.close()
    open_results(str(tmp_path / "out")).close()


def test_an_output_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none" / "out"):
        with pytest.raises(CliFault, match=r"can't be written .*; name another file with --out"):
            open_results(str(path))


def test_a_device_or_pipe_takes_lines_and_is_not_read_back(tmp_path: Path) -> None:
    results = open_results("/dev/null")
    assert not results.regular
    results.append(DONE)
    results.close()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    results = open_results(str(fifo))
    results.append(DONE)
    assert os.read(reader, 1000) == DONE
    results.close()
    os.close(reader)
    results = open_results("/dev/full")
    with pytest.raises(OSError, match="No space"):
        results.append(DONE)
    results.close()


@pytest.mark.usefixtures("file_limit")
def test_a_line_the_disk_has_no_room_for_leaves_no_torn_end(tmp_path: Path) -> None:
    path = tmp_path / "out"
    results = open_results(str(path))
    fitting = 200 // len(DONE)
    for _ in range(fitting):
        results.append(DONE)
    for _ in range(2):
        with pytest.raises(OSError, match="File too large"):
            results.append(DONE)
    with pytest.raises(OSError, match="File too large"):
        results.append(b"x" * 1000)
    results.close()
    assert path.read_bytes() == DONE * fitting


def test_the_rescue_takes_lines_into_a_private_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    unused = Rescue()
    unused.close()
    assert unused.path is None
    rescue = Rescue()
    rescue.append(DONE)
    rescue.append(FAILED)
    rescue.close()
    (path,) = tmp_path.iterdir()
    assert rescue.path == str(path)
    assert path.read_bytes() == DONE + FAILED
    assert path.stat().st_mode & 0o077 == 0
    assert rescue.lines == 2


def test_the_rescue_of_last_resort_is_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    rescue = Rescue()
    rescue.append(DONE)
    rescue.close()
    assert rescue.path is None
    assert capsys.readouterr().err.encode() == DONE
