"""A server started by hand (`aiio local serve`): how other processes find it, and how it is stopped.

Its URL, key and process id stand in one file of the user's cache folder, readable by the user alone.
"""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import trio

from .auth import Secret
from .local_process import ModelServer, ServerSpec, start_server
from .weights import cache_folder

STATE_FILE = "local-server.json"
PROBE_LIMIT = 2.0  # seconds
STOP_LIMIT = 5.0  # seconds


class LocalState:
    """The server that the state file names."""

    def __init__(self, url: str, key: Secret, pid: int) -> None:
        self.url = url
        self.key = key
        self.pid = pid

    @property
    def alive(self) -> bool:
        """Whether a process of its id runs; `probe` tells whether it is the server."""
        try:
            os.kill(self.pid, 0)
        except OSError:
            return False
        return True


def read_state(cache: Path | None = None) -> LocalState | None:
    """Return what the state file says, or None: no file, not ours alone, not what we write."""
    path = cache_folder(cache) / STATE_FILE
    try:
        with path.open("rb") as file:
            info = os.fstat(file.fileno())
            data = json.loads(file.read(1 << 16))
    except (OSError, ValueError):
        return None
    # A file that others can write could send our prompts elsewhere.
    if (
        info.st_uid != os.getuid()
        or info.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        or not isinstance(data, dict)
    ):
        return None
    url, key, pid = data.get("url"), data.get("key"), data.get("pid")
    if not isinstance(url, str) or not isinstance(key, str) or type(pid) is not int or pid < 2:
        return None
    if urlsplit(url).hostname != "127.0.0.1":
        return None
    return LocalState(url, Secret(key), pid)


def write_state(server: ModelServer, cache: Path | None = None) -> Path:
    """Write the state file, whole at once and readable by the user alone. OSError: the disk refused."""
    path = cache_folder(cache) / STATE_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{STATE_FILE}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    text = json.dumps({"url": server.url, "key": server.key.reveal(), "pid": server.pid})
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    os.replace(draft, path)
    return path


def remove_state(pid: int, cache: Path | None = None) -> None:
    """Remove the state file if it still names the process *pid*."""
    state = read_state(cache)
    if state is not None and state.pid == pid:
        (cache_folder(cache) / STATE_FILE).unlink(missing_ok=True)


async def probe(url: str, key: Secret) -> bool:
    """Tell whether a server at *url* answers 200 to our key, within 2 s."""
    parts = urlsplit(url)
    lines = [
        f"GET {parts.path}/models HTTP/1.0",
        f"Host: {parts.netloc}",
        f"Authorization: Bearer {key.reveal()}",
        "\r\n",
    ]
    with trio.move_on_after(PROBE_LIMIT):
        try:
            stream = await trio.open_tcp_stream(parts.hostname or "", parts.port or 80)
            async with stream:
                await stream.send_all("\r\n".join(lines).encode())
                head = bytearray()
                while len(head) < 12 and (piece := await stream.receive_some(1024)):
                    head += piece
                return head[:9].startswith(b"HTTP/1.") and head[9:12] == b"200"
        except (OSError, trio.BrokenResourceError):
            return False
    return False


async def adopt(cache: Path | None = None) -> LocalState | None:
    """Return the server started by hand if there is one and it serves."""
    state = read_state(cache)
    if state is None or not state.alive or not await probe(state.url, state.key):
        return None
    return state


async def serve(
    spec: ServerSpec,
    on_ready: Callable[[ModelServer], Any],
    *,
    cache: Path | None = None,
    start: Callable[[ServerSpec], Any] = start_server,
) -> int:
    """Run a server by hand: start it, write the state file, call *on_ready*, return its exit code at its end.

    Raises:
      ProviderError: it did not start.
      OSError: the state file could not be written.

    Cancellation: the server is ended and the state file removed first.
    """
    server: ModelServer = await start(spec)
    try:
        write_state(server, cache)
        on_ready(server)
        return await server.wait()
    finally:
        remove_state(server.pid, cache)
        await server.aclose()


async def stop_served(cache: Path | None = None) -> bool:
    """End the server started by hand and wait for its end, at most 5 s. False: there was none.

    A state file whose process is gone, or is not the server (ids are used again), is only removed.
    """
    state = read_state(cache)
    if state is None:
        return False
    serving = state.alive and await probe(state.url, state.key)
    if serving:
        os.kill(state.pid, signal.SIGTERM)
        with trio.move_on_after(STOP_LIMIT):
            while state.alive:  # noqa: ASYNC110  # not a child of ours: there is nothing to wait on
                await trio.sleep(0.05)
    remove_state(state.pid, cache)
    return serving
