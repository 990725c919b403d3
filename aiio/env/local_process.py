"""One model server as a child process: started, awaited until it serves, and ended for certain."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from aiio.context.events import ErrorKind

from .auth import Secret
from .errors import ProviderError
from .weights import SETUP_HINT

MODEL_ALIAS = "smollm2"
SCRIPT = Path(__file__).with_name("local_server.py")
TEMPLATE = Path(__file__).with_name("smollm2.jinja")
"""Chat template that makes the default weights call tools."""

_HINTS = {
    "no_runtime": "the embedded model needs xllamacpp: pip install 'aiio-runtime[local]'",
    "no_start": f"the embedded model's server did not start; {SETUP_HINT}",
}
_STOP_GRACE = 3.0  # seconds between SIGTERM and SIGKILL; it takes about one
_TAIL_BYTES = 2000
_LINE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """What to start."""

    weights: Path
    alias: str = MODEL_ALIAS
    """The model id it answers to."""
    slots: int = 4
    """Requests generated at the same time; more wait inside the server."""
    context: int = 2048
    """Tokens a slot holds."""
    threads: int = 1
    chat_template: str | None = None
    """A Jinja template in place of the model's own."""
    start_timeout: float = 120.0
    """Seconds until it must serve."""


def default_threads() -> int:
    """One on small machines, where two spin against other work and get slower; else half, at most four."""
    cores = os.cpu_count() or 1
    return 1 if cores <= 2 else min(4, cores // 2)


class ModelServer:
    """A running server. `aclose` it."""

    def __init__(self, process: trio.Process, url: str, key: Secret) -> None:
        self._process = process
        self.url = url
        """Base URL, with `/v1`."""
        self.key = key

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    async def wait(self) -> int:
        """Return the exit code once the process has ended, however it ends."""
        return await self._process.wait()

    async def aclose(self) -> None:
        """End the process and wait for it. Idempotent; shielded, bounded; Cancelled comes afterwards."""
        await end_process(self._process)


async def start_server(spec: ServerSpec, command: Sequence[str] | None = None) -> ModelServer:
    """Start a server and return when it would serve a request.

    Args:
      spec: what to start.
      command: what to run instead of the real thing; speaks the lines that `local_server` documents.

    Raises:
      ProviderError: kind provider; it did not start, and the text says what to do about it.

    Cancellation: the process is ended before Cancelled goes on.
    """
    key = Secret(secrets.token_urlsafe(32))
    process = await trio.lowlevel.open_process(
        list(command) if command is not None else [sys.executable, "-P", str(SCRIPT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C on the terminal must not reach it
    )
    try:
        answer = await _ask(process, spec, key)
        for pipe in filter(None, (process.stdout, process.stderr)):
            await pipe.aclose()
        return ModelServer(process, f"http://127.0.0.1:{answer['port']}/v1", key)
    except BaseException:
        await end_process(process)
        raise


async def end_process(process: trio.Process) -> None:
    """Close the process's pipes and end it: SIGTERM, and SIGKILL after 3 s. Shielded."""
    with trio.CancelScope(shield=True):
        for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
            await pipe.aclose()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with trio.move_on_after(_STOP_GRACE):
                await process.wait()
            if process.poll() is None:
                process.kill()
        await process.wait()
    await trio.lowlevel.checkpoint_if_cancelled()


async def _ask(process: trio.Process, spec: ServerSpec, key: Secret) -> dict[str, Any]:
    """Give the process its configuration and return its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    line = b""
    tail = bytearray()
    with trio.move_on_after(spec.start_timeout) as limit:
        with suppress(trio.BrokenResourceError):  # it has ended already: its answer, or its stderr, says why
            await process.stdin.send_all(config_line(spec, key))
        async with trio.open_nursery() as nursery:  # raises no group: neither task raises but for Cancelled
            nursery.start_soon(_keep_tail, process.stderr, tail)
            line = await _read_line(process.stdout)
            if line.endswith(b"\n"):
                nursery.cancel_scope.cancel()
            # Else it is ending without an answer, and what it says on stderr until its end tells why.
    if limit.cancelled_caught:
        raise _not_started(f"it was not ready after {spec.start_timeout:g} s")
    try:
        answer = json.loads(line)
    except ValueError:
        answer = None
    if isinstance(answer, dict) and isinstance(answer.get("port"), int):
        return answer
    if isinstance(answer, dict) and "error" in answer:
        raise _not_started(str(answer["error"]), str(answer.get("code")))
    last = tail.decode("utf-8", "replace").strip().splitlines()
    raise _not_started(last[-1] if last else "it ended without a word")


def config_line(spec: ServerSpec, key: Secret) -> bytes:
    """Return what the child reads from its stdin. It holds the key."""
    config = {
        "weights": str(spec.weights),
        "key": key.reveal(),
        "alias": spec.alias,
        "threads": spec.threads,
        "slots": spec.slots,
        "context": spec.context,
        "chat_template": spec.chat_template,
    }
    return json.dumps(config).encode() + b"\n"


async def _read_line(stream: trio.abc.ReceiveStream) -> bytes:
    """Return what comes up to a newline or the end."""
    line = bytearray()
    while b"\n" not in line and len(line) < _LINE_BYTES:
        piece = await stream.receive_some()
        if not piece:
            break
        line += piece
    return bytes(line)


async def _keep_tail(stream: trio.abc.ReceiveStream, tail: bytearray) -> None:
    """Read a stream to its end, so that its writer never blocks, and keep the last of it."""
    while piece := await stream.receive_some():
        tail += piece
        del tail[:-_TAIL_BYTES]


def _not_started(reason: str, code: str = "no_start") -> ProviderError:
    hint = _HINTS.get(code, _HINTS["no_start"])
    return ProviderError(ErrorKind.PROVIDER, f"{hint} ({reason})", code=code, retryable=False)


def require_runtime() -> None:
    """Raise ProviderError, saying what to install, when xllamacpp is missing."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise ProviderError(ErrorKind.PROVIDER, _HINTS["no_runtime"], code="no_runtime")


def server_spec(settings: Any, weights: Path) -> ServerSpec:
    """Return the spec that the settings of the endpoint ask for. ProviderError: a number in it is not one.

    Weights that the settings name keep their own chat template, the default ones get ours.
    """
    template = settings.get("chat_template")
    if template is None and settings.get("weights") is None:
        template = TEMPLATE.read_text("utf-8")
    return ServerSpec(
        weights=weights,
        alias=str(settings.get("alias") or MODEL_ALIAS),
        slots=_count(settings, "slots", 4),
        context=_count(settings, "context_window", 2048),
        threads=_count(settings, "threads", default_threads()),
        chat_template=template,
    )


def _count(settings: Any, key: str, default: int) -> int:
    value = settings.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 1:
        raise ProviderError(
            ErrorKind.PROVIDER, f"settings['local'][{key!r}] must be a number >= 1, not {value!r}"
        )
    return int(value)
