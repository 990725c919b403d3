"""The limit: a bare trio socket, or trio.SSLStream on it, the answer parsed by hand for exactly what is sent.

No checks that a real client owes its user, no events, no partial message, no limits: split off the head,
unwrap the chunks, cut at the blank lines, decode into a typed Struct of the one field that matters, append.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

import msgspec
import trio

from .reading import Read, run_reader

READ_BYTES = 1 << 16

Receive: TypeAlias = Callable[[int], Awaitable[bytes | bytearray]]
"""Return what has come, at most so many bytes; none at the end."""


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


async def read_answer(receive: Receive, pieces: list[str], started: Callable[[], None]) -> None:
    """Read one answer by *receive*."""
    buffer = b""
    while b"\r\n\r\n" not in buffer:
        buffer += await receive(READ_BYTES)
    head, _, buffer = buffer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(f"unexpected answer: {head[:100]!r}")
    await read_body(receive, buffer, pieces, started)


async def read_body(receive: Receive, buffer: bytes, pieces: list[str], started: Callable[[], None]) -> None:
    """Read the body of an answer; *buffer* came with its head."""
    begun = False
    while True:
        bodies: list[bytes] = []
        buffer = unchunk(buffer, bodies)
        ended = bool(bodies) and take(b"".join(bodies), pieces)
        if pieces and not begun:
            begun = True
            started()
        if ended:
            return
        data = await receive(READ_BYTES)
        if not data:
            raise RuntimeError("the answer was cut")
        buffer += data


def request_to(parts: SplitResult) -> bytes:
    """Return the request for the load at *parts*."""
    body = b'{"model":"bench","stream":true,"messages":[{"role":"user","content":"Go."}]}'
    head = (
        f"POST {parts.path}/chat/completions HTTP/1.1\r\nhost: {parts.netloc}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@asynccontextmanager
async def open_client(url: str) -> AsyncIterator[Read]:
    """Yield a function that reads one stream from *url*."""
    parts = urlsplit(url)
    context = ssl.create_default_context() if parts.scheme == "https" else None
    request = request_to(parts)

    async def read(pieces: list[str], started: Callable[[], None]) -> None:
        with trio.socket.socket() as sock:
            await sock.connect((parts.hostname, parts.port))
            if context is None:
                await sock.send(request)
                await read_answer(sock.recv, pieces, started)
            else:
                stream = trio.SSLStream(trio.SocketStream(sock), context, server_hostname=parts.hostname)
                await stream.send_all(request)
                await read_answer(stream.receive_some, pieces, started)

    yield read


if __name__ == "__main__":
    run_reader(open_client)
