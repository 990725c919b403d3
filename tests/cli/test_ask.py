"""`aiio ask` on a scripted provider: what goes where, and which code comes out."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from aiio.cli.ask import Question, ask, read_context
from aiio.cli.exits import CliFault
from aiio.cli.models import LimitOptions
from aiio.cli.output import Output
from aiio.cli.session import Session
from aiio.context.types import system_message, user_message
from aiio.env.errors import ErrorKind, ProviderError
from tests.io.scripted import CONTEXT, HANG, MODEL, Fail, Pause, Refuse, Step, finish, frames, say, scripted

Facts = dict[str, Any]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def asked(
    tmp_path: Path, *steps: Step, stop_after: float | None = None, **question: Any
) -> tuple[int, bytes]:
    """Run `ask` over *steps* with stdout in a file; returns the exit code and what was printed."""
    path = tmp_path / "stdout"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        async with scripted(*steps) as (env, _):
            session = Session(env)

            async def stop() -> None:
                await trio.sleep(stop_after or 0)
                session.stopped_by = signal.SIGINT
                session.on_stop()

            if stop_after is not None:
                env.nursery.start_soon(stop)
            question = {"context": CONTEXT, "model": MODEL, **question}
            code = await ask(session, Question(**question), Output(fd))
    finally:
        os.close(fd)
    return code, path.read_bytes()


def events(*dicts: Facts) -> Step:
    return frames(list(dicts))


async def test_text_comes_out_and_ends_with_a_line_feed(tmp_path: Path, autojump_clock: MockClock) -> None:
    assert await asked(tmp_path, say("Hi "), say("there"), finish()) == (0, b"Hi there\n")
    assert await asked(tmp_path, say("Hi\n"), finish()) == (0, b"Hi\n")


async def test_two_blocks_are_two_paragraphs_and_an_authoritative_end_adds_what_is_missing(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    steps = [
        events(
            {"type": "text_start", "content_index": 0},
            {"type": "text_delta", "content_index": 0, "text": "One"},
            {"type": "text_end", "content_index": 0, "text": "One."},
            {"type": "text_start", "content_index": 1},
            {"type": "text_end", "content_index": 1, "text": "Two"},
            {"type": "text_start", "content_index": 2},
            {"type": "text_delta", "content_index": 2, "text": "Three"},
            {"type": "text_end", "content_index": 2, "text": "Drei"},
            {"type": "text_start", "content_index": 3},
            {"type": "text_delta", "content_index": 3, "text": "Four"},
            {"type": "text_end", "content_index": 3, "text": "Four"},
            {"type": "text_start", "content_index": 4},
            {"type": "text_end", "content_index": 4},
        ),
        finish(),
    ]
    assert await asked(tmp_path, *steps) == (0, b"One.\n\nTwo\n\nThree\n\nFour\n\n")


THOUGHT = events(
    {"type": "thinking_start", "content_index": 0},
    {"type": "thinking_delta", "content_index": 0, "text": "hm\x1b[2J"},
    {"type": "thinking_end", "content_index": 0},
)


async def test_thinking_goes_to_stderr_when_asked_for(
    tmp_path: Path,
    autojump_clock: MockClock,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = say("x", index=1)
    assert await asked(tmp_path, THOUGHT, answer, finish()) == (0, b"x\n")
    assert capsys.readouterr().err == ""
    assert await asked(tmp_path, THOUGHT, answer, finish(), thinking=True) == (0, b"x\n")
    assert capsys.readouterr().err == "hm^[[2J\n"
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    await asked(tmp_path, THOUGHT, answer, finish(), thinking=True)
    assert terminal.getvalue().startswith("\x1b[2mhm^[[2J\x1b[0m")


async def test_json_prints_every_event_as_a_line(tmp_path: Path, autojump_clock: MockClock) -> None:
    code, out = await asked(tmp_path, say("\x9b"), say("x"), finish(), json_lines=True)
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [line["type"] for line in lines] == ["start", "text_delta", "text_delta", "done"]
    assert lines[1]["text"] == "\x9b"
    assert lines[-1]["message"]["content"][0]["text"] == "\x9bx"


FAULTS = {
    2: ProviderError(ErrorKind.AUTH, "the key was refused", status=401),
    3: ProviderError(ErrorKind.NETWORK, "connection refused"),
    4: ProviderError(ErrorKind.PROVIDER, "overloaded", retryable=True),
    5: ProviderError(ErrorKind.MALFORMED, "no JSON"),
}


@pytest.mark.parametrize("code", FAULTS)
async def test_a_failure_is_one_sentence_and_its_exit_code(
    code: int, tmp_path: Path, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await asked(tmp_path, Refuse(FAULTS[code])) == (code, b"")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"aiio: {FAULTS[code].message}")


async def test_a_cut_answer_stays_printed(
    tmp_path: Path, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await asked(tmp_path, say("Half an"), Fail(FAULTS[3])) == (3, b"Half an\n")
    assert "connection refused; check" in capsys.readouterr().err


async def test_a_limit_names_its_option(
    tmp_path: Path, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = LimitOptions(timeout=None, connect_timeout=None, stuck_timeout="2s")
    assert await asked(tmp_path, say("Half"), HANG, limits=limits) == (3, b"Half\n")
    assert trio.current_time() == 2
    assert "--stuck-timeout" in capsys.readouterr().err


async def test_ctrl_c_keeps_the_partial(
    tmp_path: Path, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await asked(tmp_path, say("Half"), HANG, stop_after=1) == (130, b"Half\n")
    assert "what had arrived is above" in capsys.readouterr().err
    code, out = await asked(tmp_path, say("Half"), HANG, stop_after=1, json_lines=True)
    assert code == 130
    last = json.loads(out.splitlines()[-1])
    assert (last["type"], last["kind"], last["message"]["content"][0]["text"]) == (
        "error",
        "cancelled",
        "Half",
    )
    capsys.readouterr()
    assert await asked(tmp_path, HANG, stop_after=1) == (130, b"")
    assert "nothing had arrived" in capsys.readouterr().err


async def test_a_signal_after_the_end_changes_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with scripted(say("x"), finish()) as (env, _):
        session = Session(env)
        session.stopped_by = signal.SIGTERM
        fd = os.open(os.devnull, os.O_WRONLY)
        assert await ask(session, Question(context=CONTEXT, model=MODEL), Output(fd)) == 0
        os.close(fd)


async def test_a_full_disk_under_stdout_loses_nothing(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    async with scripted(THOUGHT, say("All of\x1b it", index=1), say(".", index=1), finish()) as (env, wire):
        session = Session(env)
        assert await ask(session, Question(context=CONTEXT, model=MODEL), Output(full)) == 5
        assert wire.open == 0
    os.close(full)
    err = capsys.readouterr().err
    assert "No space left on device" in err
    assert "All of^[ it" in err


async def test_a_full_disk_before_any_answer_has_nothing_to_show(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    async with scripted(HANG) as (env, _):
        question = Question(context=CONTEXT, model=MODEL, json_lines=True)
        assert await ask(Session(env), question, Output(full)) == 5
    os.close(full)
    assert "follows here" in capsys.readouterr().err


async def test_a_reader_that_leaves_ends_the_request_in_silence(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    async with scripted(say("x"), HANG) as (env, wire):
        assert await ask(Session(env), Question(context=CONTEXT, model=MODEL), Output(writer)) == 141
        assert wire.open == 0
    os.close(writer)
    assert capsys.readouterr().err == ""


async def test_ctrl_c_is_not_held_up_by_a_reader_that_stalls(autojump_clock: MockClock) -> None:
    reader, writer = os.pipe()
    async with scripted(say("x" * 1_000_000), Pause(1), finish()) as (env, _):
        session = Session(env)

        async def stop() -> None:
            await trio.sleep(10)
            session.stopped_by = signal.SIGINT
            session.on_stop()

        env.nursery.start_soon(stop)
        assert await ask(session, Question(context=CONTEXT, model=MODEL), Output(writer)) == 130
        assert trio.current_time() == 11.5
    os.close(reader)
    os.close(writer)


def stdin(data: bytes, *, terminal: bool = False) -> Any:
    return SimpleNamespace(buffer=io.BytesIO(data), isatty=lambda: terminal)


def test_the_context_comes_from_the_argument_or_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_context('["as it stands"]', None) == [user_message('["as it stands"]')]
    assert read_context("x", "Be brief.") == [system_message("Be brief."), user_message("x")]
    context = [user_message("a"), user_message("b")]
    for prompt, data in ((None, json.dumps(context).encode()), ("-", b"\xef\xbb\xbfa\n\nb\n")):
        monkeypatch.setattr(sys, "stdin", stdin(data, terminal=prompt == "-"))
        assert read_context(prompt, None) == context


@pytest.mark.parametrize(
    ("data", "terminal", "reason"),
    [
        (b"", False, "the prompt is empty"),
        (b"x", True, "give a prompt as an argument"),
        (b"\xff", False, "not UTF-8 text"),
        (b"[1]", False, r"no valid context: context\[0\]"),
    ],
)
def test_nothing_to_ask_is_bad_input(
    data: bytes, terminal: bool, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", stdin(data, terminal=terminal))
    with pytest.raises(CliFault, match=reason) as fault:
        read_context(None, None)
    assert fault.value.code == 5
    with pytest.raises(CliFault, match="empty"):
        read_context("", "system")
