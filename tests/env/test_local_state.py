from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from aiio.env import local_state
from aiio.env.auth import Secret
from aiio.env.local_process import ModelServer, ServerSpec
from aiio.env.local_state import (
    STATE_FILE,
    adopt,
    probe,
    read_state,
    remove_state,
    serve,
    stop_served,
    write_state,
)

KEY = "state-key-0123456789"


class FakeServer:
    def __init__(self, url: str, pid: int) -> None:
        self.url, self.key, self.pid = url, Secret(KEY), pid
        self.ended = trio.Event()
        self.closed = False

    async def wait(self) -> int:
        await self.ended.wait()
        return 0

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        self.closed = True


def fake(url: str = "http://127.0.0.1:9/v1", pid: int | None = None) -> Any:
    return FakeServer(url, os.getpid() if pid is None else pid)


async def listen(nursery: trio.Nursery, answer: bytes | None) -> str:
    """Serve *answer* to whoever knows the key; None: say nothing."""

    async def handler(stream: trio.SocketStream) -> None:
        request = await stream.receive_some(4096)
        if answer is None:
            await trio.sleep_forever()
        elif f"Authorization: Bearer {KEY}\r\n".encode() in request:
            await stream.send_all(answer)
        await stream.aclose()

    listeners = await nursery.start(partial(trio.serve_tcp, handler, 0, host="127.0.0.1"))
    return f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1"


def test_the_state_is_for_the_user_alone(tmp_path: Path) -> None:
    path = write_state(fake(), tmp_path / "cache")
    assert path.stat().st_mode & 0o777 == 0o600
    state = read_state(tmp_path / "cache")
    assert state is not None
    assert (state.url, state.key, state.pid) == ("http://127.0.0.1:9/v1", Secret(KEY), os.getpid())
    assert state.alive
    assert [entry.name for entry in path.parent.iterdir()] == [STATE_FILE]
    path.chmod(0o644)
    assert read_state(tmp_path / "cache") is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        json.dumps({"url": 1, "key": "k", "pid": 5}),
        json.dumps({"url": "http://127.0.0.1:1/v1", "key": None, "pid": 5}),
        json.dumps({"url": "http://127.0.0.1:1/v1", "key": "k", "pid": True}),
        json.dumps({"url": "http://127.0.0.1:1/v1", "key": "k", "pid": 1}),
        json.dumps({"url": "http://elsewhere:1/v1", "key": "k", "pid": 5}),
    ],
)
def test_a_state_we_did_not_write_is_ignored(tmp_path: Path, content: str) -> None:
    path = tmp_path / STATE_FILE
    path.write_text(content)
    path.chmod(0o600)
    assert read_state(tmp_path) is None
    remove_state(5, tmp_path)
    assert path.exists()


def test_no_file_is_no_state_and_only_ones_own_is_removed(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    write_state(fake(pid=4242), tmp_path)
    remove_state(4243, tmp_path)
    assert read_state(tmp_path) is not None
    remove_state(4242, tmp_path)
    assert read_state(tmp_path) is None


def test_a_process_that_is_gone_is_not_alive(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    write_state(fake(pid=gone.pid), tmp_path)
    state = read_state(tmp_path)
    assert state is not None
    assert not state.alive


@pytest.mark.parametrize(
    ("answer", "serves"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n{}", True),
        (b"HTTP/1.0 200 OK\r\n\r\n", True),
        (b"HTTP/1.1 503 Loading\r\n\r\n", False),
        (b"SSH-2.0-OpenSSH_9", False),
        (b"", False),
    ],
)
async def test_a_probe_wants_a_200_to_our_key(nursery: trio.Nursery, answer: bytes, serves: bool) -> None:
    url = await listen(nursery, answer)
    assert await probe(url, Secret(KEY)) is serves
    assert await probe(url, Secret("wrong-key")) is False
    nursery.cancel_scope.cancel()


async def test_a_probe_gives_up_on_a_closed_port_and_on_silence(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await probe("http://127.0.0.1:9/v1", Secret(KEY)) is False
    monkeypatch.setattr(local_state, "PROBE_LIMIT", 0.01)
    assert await probe(await listen(nursery, None), Secret(KEY)) is False
    nursery.cancel_scope.cancel()


async def test_only_a_server_that_serves_is_adopted(nursery: trio.Nursery, tmp_path: Path) -> None:
    assert await adopt(tmp_path) is None
    write_state(fake(), tmp_path)
    assert await adopt(tmp_path) is None
    write_state(fake(await listen(nursery, b"HTTP/1.1 200 OK\r\n\r\n")), tmp_path)
    state = await adopt(tmp_path)
    assert state is not None
    assert state.key == Secret(KEY)
    nursery.cancel_scope.cancel()


async def test_serving_by_hand_keeps_the_state_file_while_it_runs(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    server = fake()
    begun = trio.Event()

    async def start(spec: ServerSpec) -> ModelServer:
        await trio.lowlevel.checkpoint()
        return server  # type: ignore[no-any-return]

    codes: list[int] = []

    async def run() -> None:
        spec = ServerSpec(weights=tmp_path)
        codes.append(await serve(spec, lambda found: begun.set(), cache=tmp_path, start=start))

    nursery.start_soon(run)
    await begun.wait()
    assert read_state(tmp_path) is not None
    server.ended.set()
    await trio.testing.wait_all_tasks_blocked()
    assert codes == [0]
    assert server.closed
    assert read_state(tmp_path) is None


async def stop(tmp_path: Path, nursery: trio.Nursery, answer: bytes) -> tuple[bool, trio.Process]:
    url = await listen(nursery, answer)
    run: Callable[..., Awaitable[trio.Process]] = trio.lowlevel.open_process
    process = await run([sys.executable, "-c", "import time; time.sleep(60)"])
    nursery.start_soon(process.wait)  # reaps it, as `serve` does
    write_state(fake(url, process.pid), tmp_path)
    stopped = await stop_served(tmp_path)
    assert read_state(tmp_path) is None
    return stopped, process


async def test_stopping_ends_the_process_that_serves(nursery: trio.Nursery, tmp_path: Path) -> None:
    assert await stop_served(tmp_path) is False
    stopped, process = await stop(tmp_path, nursery, b"HTTP/1.1 200 OK\r\n\r\n")
    assert stopped
    assert await process.wait() == -15
    nursery.cancel_scope.cancel()


async def test_stopping_never_ends_a_process_that_is_not_the_server(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    stopped, process = await stop(tmp_path, nursery, b"HTTP/1.1 404 Not Found\r\n\r\n")
    assert not stopped
    assert process.returncode is None
    process.kill()
    await process.wait()
    nursery.cancel_scope.cancel()


async def test_stopping_gives_up_on_a_process_that_stays(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_state, "STOP_LIMIT", 0.01)
    monkeypatch.setattr(signal, "SIGTERM", 0)
    stopped, process = await stop(tmp_path, nursery, b"HTTP/1.1 200 OK\r\n\r\n")
    assert stopped
    assert process.returncode is None
    process.kill()
    await process.wait()
    nursery.cancel_scope.cancel()
