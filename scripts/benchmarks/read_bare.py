"""The limit: a bare trio socket, the answer parsed by hand for exactly what the server sends.

No checks that a real client owes its user, no events, no partial message, no limits: split off the head,
unwrap the chunks, cut at the blank lines, decode into a typed Struct of the one field that matters, append.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import msgspec
import trio

from .reading import Read, run_reader

READ_BYTES = 1 << 16


class Delta(msgspec.Struct, gc=False):
    """What the model said."""

    content: str | None = None


class Choice(msgspec.Struct, gc=False):
    """One of the answers; there is one."""

    delta: Delta


class Chunk(msgspec.Struct, gc=False):
    """One frame."""

    choices: list[Choice] = []  # msgspec copies an empty list for each instance


decode = msgspec.json.Decoder(Chunk).decode


def unchunk(buffer: bytes, bodies: list[bytes]) -> bytes:
    """Append the whole HTTP chunks in *buffer* to *bodies* and return the rest."""
    start = 0
    while (line_end := buffer.find(b"\r\n", start)) >= 0:
        begin = line_end + 2
        end = begin + int(buffer[start:line_end], 16)
        if end + 2 > len(buffer):
            break
        bodies.append(buffer[begin:end])
        start = end + 2
    return buffer[start:]


def take(body: bytes, pieces: list[str]) -> bool:
    """Append the text in the frames of *body*, which are whole; tell whether the end mark was among them."""
    for frame in body.removeprefix(b"data: ").removesuffix(b"\n\n").split(b"\n\ndata: "):
        if frame == b"[DONE]":
            return True
        chunk = decode(frame)
        if chunk.choices and (text := chunk.choices[0].delta.content):
            pieces.append(text)
    return False


async def read_answer(sock: trio.socket.SocketType, started: Callable[[], None]) -> list[str]:
    """Read one answer from *sock*."""
    buffer = b""
    while b"\r\n\r\n" not in buffer:
        buffer += await sock.recv(READ_BYTES)
    head, _, buffer = buffer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(f"unexpected answer: {head[:100]!r}")
    pieces: list[str] = []
    started()
    while True:
        bodies: list[bytes] = []
        buffer = unchunk(buffer, bodies)
        if bodies and take(b"".join(bodies), pieces):
            return pieces
        data = await sock.recv(READ_BYTES)
        if not data:
            raise RuntimeError("the answer was cut")
        buffer += data


@asynccontextmanager
async def open_client(url: str) -> AsyncIterator[Read]:
    """Yield a function that reads one stream from *url*."""
    parts = urlsplit(url)
    body = b'{"model":"bench","stream":true,"messages":[{"role":"user","content":"Go."}]}'
    request = (
        f"POST {parts.path}/chat/completions HTTP/1.1\r\nhost: {parts.netloc}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body

    async def read(started: Callable[[], None]) -> list[str]:
        with trio.socket.socket() as sock:
            await sock.connect((parts.hostname, parts.port))
            await sock.send(request)
            return await read_answer(sock, started)

    yield read


if __name__ == "__main__":
    run_reader(open_client)
