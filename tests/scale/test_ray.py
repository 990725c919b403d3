"""Two Ray workers, which are processes, against a server in the test's trio run: stopped, killed, left alone.

Ray is started once. In the ordinary suite these tests skip where it is not installed; scripts/test-scale
installs it. The clock is the real one, as processes have no other.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from aiio.context.events import Done, Error, ErrorKind
from aiio.scale import Ended, Job, Lost, RayEngine, Recipe, Spread, open_spread
from aiio.testing import MockServer, finish, hang, mock_server, say
from aiio.testing.http import Request
from tests.cli.processes import end_of, start

from .envs import no_env, telling_env

pytestmark = pytest.mark.xdist_group("ray")

PATIENCE = 60
"""Seconds for what has no limit of its own: processes start slowly on a busy machine."""


def jobs(count: int) -> list[Job]:
    return [Job(key=str(number), model="vllm/mock", text=f"prompt-{number}-") for number in range(count)]


def recipe(server: MockServer) -> Recipe:
    return Recipe(settings={"url": f"{server.url}/v1"})


async def until(condition: Callable[[], object]) -> None:
    """Wait until *condition* holds; the processes that make it true tell nobody."""
    with trio.fail_after(PATIENCE):
        while not condition():
            await trio.sleep(0.02)


async def until_all_is_read(server: MockServer, requests: int, open_now: int) -> None:
    """Wait until so many requests have come, and what they were answered is in the hands of the workers."""
    await until(lambda: len(server.requests) == requests and server.loopback.open == open_now)
    await trio.testing.wait_all_tasks_blocked()  # sent
    await until(lambda: not unread_bytes(server.port))  # and received


def unread_bytes(port: int) -> int:
    """Return how many bytes from the server on *port* its clients have not read yet. Linux only."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]]
    return sum(int(row[4].partition(":")[2], 16) for row in rows if row[2].endswith(f":{port:04X}"))


async def collect(spread: Spread, into: list[Ended]) -> None:
    async for ended in spread:
        into.append(ended)


def text_of(ended: Ended) -> str:
    assert ended.terminal.message is not None
    return str(ended.terminal.message["content"][0]["text"])


async def test_200_streams_cancelled_from_the_driver_are_closed_in_2_s_with_their_partials(
    ray_address: str,
) -> None:
    ended: list[Ended] = []
    async with mock_server(say("Half "), hang()) as server:
        engine = RayEngine(recipe(server))
        async with (
            open_spread(engine, jobs(300), workers=2, max_active=200) as spread,
            trio.open_nursery() as n,
        ):
            n.start_soon(collect, spread, ended)
            await until_all_is_read(server, 200, 200)
            spread.stop_nowait("enough")
            with trio.fail_after(2):
                await server.loopback.wait_idle()
        assert len(server.requests) == 200
    assert Counter(one.worker for one in ended) == {"worker-1": 100, "worker-2": 100}
    for one in ended:
        assert isinstance(one.terminal, Error)
        assert (one.terminal.kind, one.terminal.error) == (ErrorKind.CANCELLED, "cancelled: enough")
        assert text_of(one) == "Half "
        assert one.timings["first_event_ms"] > 0


async def test_the_prompts_of_a_worker_killed_with_9_finish_elsewhere(
    ray_address: str, tmp_path: Path
) -> None:
    ended: list[Ended] = []
    async with mock_server(say("Half "), hang()) as server:
        engine = RayEngine(recipe(server), make_env=partial(telling_env, tmp_path))
        async with open_spread(engine, jobs(30), workers=2, max_active=20) as spread:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(collect, spread, ended)
                await until(lambda: server.loopback.open == 20)
                server.play(say("Whole."), finish())
                os.kill(int(os.listdir(tmp_path)[0]), signal.SIGKILL)
                await until(lambda: len(ended) == 10 + 10)  # what it had, and what had not begun
                spread.stop_nowait()  # the 10 that hang at the other one
            assert spread.lost_workers == 1
            assert spread.unknown_billed == 10
        assert len(server.requests) == 40
    assert sorted(one.key for one in ended) == sorted(job.key for job in jobs(30))
    done = [one for one in ended if isinstance(one.terminal, Done)]
    assert {text_of(one) for one in done} == {"Whole."}
    assert Counter(one.unknown_billed for one in done) == {0: 10, 1: 10}
    assert all(one.unknown_billed == 0 for one in ended if one not in done)


async def test_a_worker_that_can_t_come_up_says_why(ray_address: str) -> None:
    engine = RayEngine(make_env=no_env)
    with trio.fail_after(PATIENCE), pytest.raises(KeyError, match="mine"):
        async with engine:
            with pytest.raises(RuntimeError, match="entered once"):
                await engine.__aenter__()
            await engine.start("w", ())
            assert await engine.results() == [Lost(worker="w", reason="OSError: no configuration here")]
            engine.stop("all")
            raise KeyError("mine")


class CommandLine:
    """`aiio run --engine ray`, on the cluster of the tests or with a Ray of its own."""

    def __init__(self, folder: Path, server: MockServer, *more: str, **variables: str) -> None:
        self.out = folder / "out.jsonl"
        prompts = folder / "prompts.jsonl"
        lines = (json.dumps({"prompt": job.text, "key": job.key}) for job in jobs(12))
        prompts.write_text("\n".join(lines))
        words = f"run {prompts} --out {self.out} -m vllm/mock --set url={server.url}/v1 --agents 4"
        self._words = [*words.split(), "--no-progress", "--engine", "ray", *more]
        self._env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | variables
        self._env.pop("RAY_ADDRESS", None)

    def start(self) -> subprocess.Popen[bytes]:
        """Start it as a terminal would: all that it starts gets its Ctrl-C, too."""
        return start(*self._words, env=self._env, preexec=os.setsid)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.read_bytes().splitlines()] if self.out.exists() else []


def four_then_hang(request: Request) -> Any:
    """Whole answers for the prompts 0 to 3, half an answer for all others."""
    answered = any(f"prompt-{number}-" in request.body.decode() for number in range(4))
    return [say("Whole."), finish()] if answered else [say("Half "), hang()]


async def test_a_driver_killed_with_9_ends_all_requests_and_started_again_it_does_what_is_left(
    ray_address: str, tmp_path: Path
) -> None:
    async with mock_server() as server:
        command = CommandLine(tmp_path, server, "--ray-address", ray_address)
        server.answer(four_then_hang)
        driver = command.start()
        await until(lambda: len(command.lines()) == 4 and server.loopback.open == 4)
        driver.kill()
        await end_of(driver)
        with trio.fail_after(PATIENCE):
            await server.loopback.wait_idle()
        assert len(server.requests) == 8

        server.play(say("Now."), finish())
        again = await end_of(command.start())
        assert (again.code, again.out) == (0, b""), again.err
        assert "4 of 12 have a result" in again.err
        assert "8 of 8 done, 0 failed" in again.err
        assert len(server.requests) == 8 + 8
    assert sorted(line["key"] for line in command.lines()) == sorted(job.key for job in jobs(12))
    assert {line["terminal"]["type"] for line in command.lines()} == {"done"}
    assert sum(line.get("unknown_billed", 0) for line in command.lines()) == 4
    assert "4 requests were lost on their way" in again.err
    assert sorted(os.listdir(tmp_path)) == ["out.jsonl", "prompts.jsonl"]


async def test_ctrl_c_on_the_driver_ends_every_request_with_its_partial_in_the_results(
    tmp_path: Path, ray_folder: str
) -> None:
    async with mock_server() as server:
        command = CommandLine(tmp_path, server, RAY_TMPDIR=ray_folder)
        server.answer(four_then_hang)
        driver = command.start()
        await until(lambda: len(command.lines()) == 4)
        await until_all_is_read(server, 8, 4)
        os.killpg(driver.pid, signal.SIGINT)
        ended = await end_of(driver)
        assert ended.code == 130, ended.err
        assert server.loopback.open == 0
        assert len(server.requests) == 8
    assert "2 Ray workers, 2 requests at a time each" in ended.err
    assert "4 of 12 done, 4 failed (4 cancelled), 4 not sent" in ended.err
    assert "lost on their way" not in ended.err
    cut = [line for line in command.lines() if line["terminal"]["type"] == "error"]
    assert len(cut) == 4
    assert {line["terminal"]["kind"] for line in cut} == {"cancelled"}
    assert {line["message"]["content"][0]["text"] for line in cut} == {"Half "}
