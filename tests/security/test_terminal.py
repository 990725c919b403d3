"""No text of a provider, a file or a project steers the terminal, or passes for a line of ours."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from aiio.cli.output import visible, visible_line
from aiio.cli.results import Rescue
from aiio.cli.session import LogOptions, crashed
from aiio.env.toml_text import toml_text
from tests.cli.processes import MODEL, answer, delta, environment, forked
from tests.serving import Exchange, Server, Step, chunk, head, last_chunk, respond, serve

from .evil import EVIL, FORGED, HARMFUL, at_terminal

MODELS = json.dumps({"data": [{"id": EVIL}, {"id": FORGED}, {"id": "plain"}]}).encode()
REFUSAL = json.dumps({"error": {"message": f"{EVIL}{FORGED}", "code": EVIL, "type": FORGED}}).encode()


def checked(shown: str) -> str:
    """Return *shown*; fails if it steers the terminal, or holds a line that we did not write."""
    found = HARMFUL.search(shown)
    assert found is None, repr(shown[max(0, found.start() - 60) : found.end() + 60])
    assert "aiio: your key" not in [line[:14] for line in shown.splitlines()], shown
    return shown


async def list_or_refuse(exchange: Exchange) -> None:
    """A server whose names of models mean harm, and whose refusals."""
    assert exchange.request is not None
    step = respond(MODELS) if exchange.request.method == "GET" else respond(REFUSAL, status=400)
    await step(exchange)


def environ(server: Server, folder: Path) -> dict[str, str]:
    """A process with files of its own, in *folder*."""
    known = environment(server, AIIO_CONFIG_DIR=str(folder / "user"), AIIO_CACHE_DIR=str(folder / "cache"))
    del known["AIIO_NO_CONFIG"]
    return {**known, "TERM": "xterm-256color", "XDG_DATA_HOME": str(folder / "data")}


@pytest.mark.parametrize(
    "command",
    [
        ("ask", "Hello", "-m", MODEL, "--debug"),
        ("models", "openai", "--refresh"),
        ("doctor", f"openai/{FORGED}{EVIL.replace(chr(0), '')}"),
        ("run", "prompts.jsonl", "--out", "out.jsonl", "-m", MODEL),
    ],
    ids=lambda command: " ".join(command[:1] + command[3:])[:24].encode("ascii", "replace").decode(),
)
async def test_what_a_server_says_does_not_steer_the_terminal(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "prompts.jsonl").write_text('"Hello"\n')
    async with serve(list_or_refuse) as server:
        shown = checked(await at_terminal(tmp_path, *command, env=environ(server, tmp_path)))
    assert "^[" in shown or "\\u001b" in shown


async def test_a_name_of_a_model_forges_no_line_of_the_doctor(tmp_path: Path) -> None:
    models = json.dumps({"data": [{"id": FORGED}]}).encode()

    async def forge(exchange: Exchange) -> None:
        assert exchange.request is not None
        for step in [respond(models)] if exchange.request.method == "GET" else answer("OK"):
            await step(exchange)

    async with serve(forge) as server:
        shown = await at_terminal(tmp_path, "doctor", "openai", env=environ(server, tmp_path))
    assert "answered, " in checked(shown)


def test_a_crash_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise RuntimeError(EVIL + FORGED)
    except RuntimeError as exc:
        crashed(exc, LogOptions(debug=True), str)
    shown = capsys.readouterr().err
    assert HARMFUL.search(shown) is None
    assert "Traceback" in shown


@pytest.mark.parametrize("options", [(), ("--json",), ("--thinking",)])
async def test_what_a_model_says_does_not_steer_the_terminal(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    thought: dict[str, Any] = {"choices": [{"index": 0, "delta": {"reasoning_content": EVIL}}]}
    thinking = chunk(b"data: " + json.dumps(thought).encode() + b"\n\n")
    async with serve(head(), thinking, *answer(EVIL)[1:]) as server:
        env = environ(server, tmp_path)
        shown = checked(await at_terminal(tmp_path, "ask", "Hi", "-m", MODEL, *options, env=env))
        assert "\\u202e" in shown


async def test_a_pipe_gets_what_was_said(tmp_path: Path) -> None:
    async with serve(*answer(EVIL)) as server:
        piped = await forked(tmp_path, "ask", "Hi", "-m", MODEL, env=environ(server, tmp_path))
    assert piped.out == EVIL.encode() + b"\n"


def hostile_session() -> str:
    """A session file that somebody sent."""
    uuid = "9f1c5d0e-6a1b-4c7e-9a58-0d6f3a4b5c6d"
    said = {"type": "session-metadata", "version": 1, "id": "evil", "uuid": uuid, "name": EVIL + FORGED}
    said |= {"cwd": EVIL, "created": "2026-05-04T10:00:00.000Z", "agent": {"model": MODEL}}
    call = {"type": "tool_call", "call_id": EVIL, "name": FORGED, "arguments": EVIL}
    entries = [
        said,
        {"type": 2, "content": [{"type": "text", "text": EVIL}]},
        {"type": 3, "content": [{"type": "thinking", "text": EVIL}, call], "error": EVIL},
        {"type": 4, "call_id": EVIL, "name": EVIL, "content": [{"type": "text", "text": EVIL}]},
        {"type": f"note-{EVIL}", "of": EVIL},
    ]
    return "".join(json.dumps(entry) + "\n" for entry in entries) + f"{EVIL} is no JSON\n"


@pytest.mark.parametrize(
    "command",
    [
        ("sessions", "list", "--dir", "."),
        ("sessions", "show", "evil", "--dir", "."),
        ("sessions", "show", "evil", "--dir", ".", "--json"),
    ],
)
async def test_a_session_file_does_not_steer_the_terminal(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "2026-05-04 9f1c5d0e.jsonl").write_text(hostile_session())
    (tmp_path / f"2026-05-04 9f1c5d0f {FORGED.replace('/', '')}\x1b]0;harmed\x07.jsonl").write_text("no\n")
    async with serve() as server:
        checked(await at_terminal(tmp_path, *command, env=environ(server, tmp_path)))


async def test_a_log_does_not_steer_the_terminal(tmp_path: Path) -> None:
    line = {"timestamp": "2026-05-04T10:00:00Z", "event": "request.settled", "elapsed_ms": 5, "outcome": EVIL}
    line |= {"write": EVIL, "model": EVIL + FORGED, "agent": FORGED, "limit": EVIL, "error": EVIL}
    (tmp_path / "log").write_text(json.dumps(line) + "\n")
    async with serve() as server:
        shown = await at_terminal(tmp_path, "trace", "log", env=environ(server, tmp_path))
    assert "1 write" in checked(shown)


async def test_a_project_does_not_steer_the_terminal(tmp_path: Path) -> None:
    project = {EVIL: 1, FORGED: 2, "providers": {EVIL: {"url": EVIL}, "x": {"url": "http://h", FORGED: 1}}}
    (tmp_path / "aiio.toml").write_text(toml_text(project))
    async with serve() as server:
        shown = await at_terminal(tmp_path, "config", "show", env=environ(server, tmp_path))
    assert "may not say it" in checked(shown)


async def test_a_conversation_does_not_steer_the_terminal(tmp_path: Path) -> None:
    steps: list[Step] = [head(), delta(EVIL), last_chunk()]
    async with serve(*steps) as server:
        env = environ(server, tmp_path)
        shown = await at_terminal(tmp_path, "ask", "Hi", "-m", MODEL, "--session", "s", env=env)
        assert "was cut" in checked(shown)


def test_results_that_found_no_file_do_not_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*args: Any, **more: Any) -> Any:
        raise OSError("no room")

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    Rescue().append(json.dumps({"text": EVIL}, ensure_ascii=False).encode() + b"\n")
    assert json.loads(checked(capsys.readouterr().err)) == {"text": EVIL}


def test_marks_that_single_characters_of_some_scripts_need_stay() -> None:
    assert visible("\u05d0\u200f\u0627\u200e\u061c\u200d") == "\u05d0\u200f\u0627\u200e\u061c\u200d"
    assert visible("a\u202eb\u2069") == "a\\u202eb\\u2069"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x85", "\u2028"])
def test_a_sentence_of_ours_is_one_line_whatever_is_in_it(end: str) -> None:
    assert visible_line(f"a{end}aiio: b") == "a aiio: b"
    assert os.linesep == "\n"
