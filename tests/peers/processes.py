"""Servers that nobody here wrote, as child processes: installed once, started on a free port.

They are installed under `.peers/`, a cache that may be deleted at any time. What can't be installed here (no
npm, no package registry) is a reason to skip.
"""

from __future__ import annotations

import atexit
import functools
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv
from pathlib import Path
from typing import Any

CACHE = Path(__file__).resolve().parents[2] / ".peers"
HERE = Path(__file__).resolve().parent

AIMOCK = "@copilotkit/aimock@1.43.0"
LLMOCK = "llmock==0.2.2"

PATIENCE = 30.0
"""Seconds that a server may take to be ready."""


class NotHereError(Exception):
    """A peer can't be installed on this machine; the text says why."""


def _run(*command: str | Path) -> None:
    """Run an installer. NotHereError: it failed."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotHereError(f"{command[0]} failed: {done.stderr.strip()[-300:]}")


def install_aimock() -> Path:
    """Return the script of aimock, installed if need be. NotHereError: it can't be."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise NotHereError("npm and node are not installed")
    home = CACHE / f"aimock-{AIMOCK.rpartition('@')[2]}"
    script = home / "node_modules" / "@copilotkit" / "aimock" / "dist" / "aimock-cli.js"
    if not script.exists():
        _run(npm, "install", "--no-fund", "--no-audit", "--prefix", home, AIMOCK)
    return script


def install_llmock() -> Path:
    """Return the command llmock, installed if need be in a virtual environment. NotHereError: it can't be."""
    home = CACHE / f"llmock-{LLMOCK.rpartition('=')[2]}-{sys.version_info[0]}.{sys.version_info[1]}"
    command = home / "bin" / "llmock"
    if not command.exists():
        venv.create(home, with_pip=True)
        _run(home / "bin" / "python", "-m", "pip", "install", "--quiet", LLMOCK)
    return command


def start(*command: str | Path) -> subprocess.Popen[str]:
    """Start a server, in this folder, that ends with this process."""
    process = subprocess.Popen(
        [*map(str, command)], cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    atexit.register(end, process)
    return process


def end(process: subprocess.Popen[str]) -> None:
    """End a server, kindly at first. Idempotent. Blocks for a moment."""
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
    return port


def ask(url: str, data: Any = None, *, method: str | None = None) -> Any:
    """Send *data* as JSON and return the JSON answer. OSError: no good answer. Blocks for a moment."""
    body = None if data is None else json.dumps(data).encode()
    request = urllib.request.Request(url, body, {"content-type": "application/json"}, method=method)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=10) as response:
        return json.load(response)


@functools.cache
def aimock() -> str:
    """Return the URL of the one aimock of this process, started if need be. NotHereError: it can't be."""
    process = start("node", install_aimock(), "--config", "aimock.json")
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            return found[0]
    raise RuntimeError(f"aimock ended with {process.wait()}")


@functools.cache
def llmock() -> str:
    """Return the URL of the one llmock of this process, started if need be. NotHereError: it can't be."""
    command, port = install_llmock(), free_port()
    process = start(command, "serve", "--host", "127.0.0.1", "--port", str(port), "--log-level", "error")
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            ask(f"{url}/_llmock/scenario")
        except (OSError, urllib.error.URLError):
            time.sleep(0.1)  # another process comes up: nobody here can wait for it in another way
        else:
            return url
    raise RuntimeError("llmock did not come up")


HELD = ("01", "08")
"""The kernel's numbers for sockets that their owner has not closed: established, and left by the peer."""


def connections_at(port: int) -> int:
    """Return how many connections the server that listens on *port* holds open, as the kernel says.

    NotHereError: this kernel does not say.
    """
    try:
        _, *rows = Path("/proc/net/tcp").read_text("ascii").splitlines()
    except OSError as exc:
        raise NotHereError("there is no /proc/net/tcp to count connections by") from exc
    sockets = {tuple(row.split()[1:4]) for row in rows}  # local address, remote address, state
    # A set: while others come and go, one may be listed twice.
    return sum(local.endswith(f":{port:04X}") and state in HELD for local, _, state in sockets)
