"""The books of the soak, and a short run of it, ended by Ctrl-C."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.soak_run import Books, Held, left_behind, slope, watched

ROOT = Path(__file__).parents[2]
MB = 1 << 20


def books(**fields: int) -> Books:
    found = Books(returned=3, cancelled=1, io_start=4, io_done=4)
    found.started.update(chat=2, ollama=2)
    found.ended.update(done=3, cancelled=1)
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def test_books_that_add_up_have_no_problems() -> None:
    assert books().problems() == []


def test_what_does_not_add_up_is_told() -> None:
    lost = books()
    lost.ended["done"] -= 1
    assert lost.problems() == ["4 were started and 3 ended"]
    assert books(returned=2).problems() == ["4 were started, 2 returned and 1 were cancelled"]
    assert books(io_done=3).problems() == ["4 events io_start, 3 io_done"]
    broken = books()
    for number in range(30):
        broken.complain(f"law {number}")
    assert broken.problems() == [f"law {number}" for number in range(20)]


def test_warnings_and_what_nobody_heard_are_taken_down() -> None:
    found = books()
    with watched(found):
        open(__file__, "rb")  # noqa: SIM115  # left open on purpose
    assert [problem.partition(":")[0] for problem in found.problems()] == ["ResourceWarning"]


def held(*sizes: float, more: int = 0, leak: int = 0) -> list[Held]:
    """What was held every 5 seconds: so many MB; in the end *more* files; each time *leak* blocks more."""
    last = len(sizes) - 1
    return [
        Held(at * 5.0, 9 + more * (at == last), 30, 2, int(size * MB), 300_000 + at * leak)
        for at, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ([], None),
        (held(50), None),
        (held(40, 50, 50, 50, 50, 50, 50, 50), None),  # warm-up
        (held(50, 50, 50.2, 49.9, 50.1, 50, 50.2, 50), None),
        (held(50, 52, 54, 56, 58, 60, 62, 64), "memory grows by 409.6 kB/s"),
        (held(50, 50, 50, 50, 50, 50, 50, 50, more=1), "files: 9 at first, 10 at the end"),
        (held(50, 50, 50, 50, 50, 50, 50, 50, leak=900), None),
        (held(50, 50, 50, 50, 50, 50, 50, 50, leak=1100), "memory grows by 220.0 blocks/s"),
    ],
)
def test_what_grows_is_left_behind(found: list[Held], problem: str | None) -> None:
    problems = left_behind(found)
    assert [one.startswith(problem or "") for one in problems] == ([True] if problem else [])


def test_the_slope_of_a_line_is_its_own() -> None:
    rate, error = slope(held(50, 51, 52, 53))
    assert rate == pytest.approx(MB / 5, rel=1e-6)
    assert error == pytest.approx(0, abs=1)


def test_a_run_adds_up_and_ctrl_c_prints_what_there_is() -> None:
    command = [sys.executable, "-m", "scripts.soak_run", "--minutes", "10", "--workers", "8", "--seed", "1"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "seed 1\n"
            assert process.stdout.readline() == "began\n"
            process.send_signal(signal.SIGINT)
            said, complaints = process.communicate(timeout=90)
        finally:
            process.kill()
    assert process.returncode == 0, said + complaints
    found = re.match(r"([\d,]+) requests in ", said)
    assert found is not None, said
    assert int(found[1].replace(",", "")) >= 8
    assert "each request had its one end, and nothing is left" in said
