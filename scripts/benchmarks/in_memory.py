"""The path of an event without sockets: what callgrind counts for do_instructions.py.

`python -m scripts.benchmarks.in_memory FOLDER` reads FOLDER's answers, which `SIZES` and `FACTORS` name, out
of memory: aiio by the real connection, decoders, dialect and `IO.write`, over a transport whose answer hands
out pieces, and the bare reader by its parsing. Before and after each counted reading it calls `os.getppid`,
where callgrind dumps its counters. It prints the digests of what it has read, in the order of the readings.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import trio

import aiio
from aiio.env.errors import ProviderError
from aiio.transports.base import TransportRequest
from aiio.transports.framing import SSEDecoder
from aiio.transports.http_body import ChunkedDecoder
from aiio.transports.http_connection import HTTPConnection

from .loads import text_digest
from .read_bare import take, unchunk

FACTORS = (1, 3)
"""Readings of so many times the events; their difference is what events cost."""

SIZES = ("whole", "single")
"""Pieces of 32 kB, as a busy socket gives them, and one frame a piece."""

READERS = ("aiio", "bare")


class MemoryAnswer:
    """An `Answer` whose chunked body is in memory, in pieces."""

    status = 200
    reason = "OK"
    decoded = False
    closes_at_once = True
    peer = "memory"
    fault: ProviderError | None = None

    def __init__(self, pieces: list[bytes]) -> None:
        self.headers: Mapping[str, str] = {"content-type": "text/event-stream"}
        self.bytes_received = 0
        self._pieces = iter(pieces)
        self._body = ChunkedDecoder()

    async def receive(self) -> bytes | None:
        """See `Answer`; without the checkpoint, which is a socket's cost."""
        if self._body.done:
            return None
        data = self._body.feed(next(self._pieces))
        self.bytes_received += len(data)
        return data

    async def aclose(self) -> None:
        """See `Answer`."""


class MemoryTransport:
    """A `Transport` that answers every request with the same pieces."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    async def open(self, request: TransportRequest, nursery: trio.Nursery) -> HTTPConnection:
        """See `Transport`."""
        answer = MemoryAnswer(self.pieces)
        framer = SSEDecoder(request.max_frame_bytes)
        return HTTPConnection(
            answer, {"content-type": "text/event-stream"}, framer, None, request.max_response_bytes
        )

    async def aclose(self) -> None:
        """See `Transport`."""


async def read_by_aiio(env: aiio.Env, transport: MemoryTransport, pieces: list[bytes]) -> str:
    """Run one write and return the text that its deltas brought."""
    transport.pieces = pieces
    texts: list[str] = []
    keep = texts.append

    def keep_text(event: aiio.TextDelta) -> None:
        keep(event.text)

    terminal = await aiio.IO(env=env, model="bench/bench").write(
        [aiio.user_message("Go.")], {"on_text_delta": keep_text}
    )
    if terminal.type != "done":
        raise RuntimeError(f"the write failed: {terminal}")
    return "".join(texts)


def read_bare(pieces: list[bytes]) -> str:
    """Parse *pieces* as read_bare.py does."""
    texts: list[str] = []
    buffer = b""
    for piece in pieces:
        bodies: list[bytes] = []
        buffer = unchunk(buffer + piece, bodies)
        if bodies and take(b"".join(bodies), texts):
            return "".join(texts)
    raise RuntimeError("the answer was cut")


def load_answers(folder: Path) -> dict[str, list[bytes]]:
    """Return the answers in *folder*, in pieces, by name."""
    names = [f"{size}-{factor}" for size in SIZES for factor in FACTORS]
    return {name: pickle.loads((folder / name).read_bytes()) for name in names}


async def read_all(answers: dict[str, list[bytes]]) -> dict[str, str]:
    """Read everything with everybody, first to warm up, then counted; return the digests."""
    digests: dict[str, str] = {}
    transport = MemoryTransport()
    async with aiio.open_env() as env:
        env.register_transport("memory", transport)
        env.register_endpoint("bench", provider="openai_chat", url="memory://bench/v1")

        async def read(reader: str, pieces: list[bytes]) -> str:
            return await read_by_aiio(env, transport, pieces) if reader == "aiio" else read_bare(pieces)

        cases = [(reader, name, pieces) for reader in READERS for name, pieces in answers.items()]
        for reader, _, pieces in cases:
            await read(reader, pieces)
        start_counting()
        for reader, name, pieces in cases:
            gc.collect()
            os.getppid()
            text = await read(reader, pieces)
            os.getppid()
            digests[f"{reader}-{name}"] = text_digest([text])
    return digests


def start_counting() -> None:
    """Have callgrind count from here on: to count imports takes a minute."""
    command = ["callgrind_control", "--instr=on", str(os.getpid())]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as control:
        while control.poll() is None:
            pass  # callgrind looks for orders while code runs; to reach a process that waits it needs ptrace
    if control.returncode:
        raise RuntimeError("callgrind could not be told to start counting")


if __name__ == "__main__":
    print(json.dumps(trio.run(read_all, load_answers(Path(sys.argv[1])))))
