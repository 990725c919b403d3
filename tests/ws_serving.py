"""A loopback WebSocket server that does what a test tells it to, frame by frame, in the test's own trio run.

    async def script(socket: Socket) -> None:
        await socket.accept()
        assert await socket.message() == "hello"
        await socket.text('{"a":1}')
        await socket.close(1000)

    async with serve_ws(script) as server:
        ...                                   # talk to server.url
    assert server.sockets[0].messages == ["hello"]

It stands on `tests/serving.py`: a script may use `socket.exchange` with that module's steps (`reset()`,
`hang()`, ...). Frames are cut by wsproto's frame protocol, nothing else of it. When the script returns, the
connection is closed; `Gone` (the client left) ends it early.
"""

from __future__ import annotations

import base64
import hashlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from wsproto.frame_protocol import FrameProtocol, Opcode

from tests.serving import EndScript, Exchange, Request, Server, respond, serve

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Gone(EndScript):
    """The client closed the socket, or its connection ended."""


class Socket:
    """The server's side of one connection."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.messages: list[str] = []
        """Text messages of the client, so far."""
        self.pings = 0
        """Pings of the client."""
        self.pongs = 0
        self.close_code: int | None = None
        """How the client closed; None: it has not."""
        self.answers_pings = True
        self._protocol = FrameProtocol(client=False, extensions=[])
        self._ready: list[str] = []
        self._pieces: list[str] = []

    @property
    def request(self) -> Request:
        """The handshake."""
        assert self.exchange.request is not None
        return self.exchange.request

    async def accept(self, headers: Mapping[str, str] | None = None) -> None:
        """Open the socket."""
        await self.raw(self.acceptance(headers))

    def acceptance(self, headers: Mapping[str, str] | None = None) -> bytes:
        """Return the answer to the handshake."""
        key = self.request.headers["sec-websocket-key"]
        proof = base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()
        given = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-accept": proof}
        lines = [f"{name}: {value}" for name, value in {**given, **(headers or {})}.items()]
        return "\r\n".join(["HTTP/1.1 101 Switching Protocols", *lines, "", ""]).encode()

    async def refuse(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """Answer the handshake with an HTTP status."""
        await respond(body, status=status, headers=headers)(self.exchange)

    async def text(self, *messages: str | bytes) -> None:
        """Send text messages in one write."""
        await self.raw(b"".join(map(text_frame, messages)))

    async def binary(self, data: bytes) -> None:
        """Send a binary message."""
        await self.raw(bytes(FrameProtocol(client=False, extensions=[]).send_data(data, True)))

    async def ping(self) -> None:
        """Send a ping."""
        await self.raw(b"\x89\x00")

    async def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        await self.exchange.send(data)

    async def close(self, code: int, reason: str = "") -> None:
        """Send a close frame (1005: without a code), and wait until the client has gone."""
        payload = b"" if code == 1005 else code.to_bytes(2, "big") + reason.encode()
        await self.raw(bytes([0x88, len(payload)]) + payload)
        await self.until_gone()

    async def message(self) -> str:
        """Return the next text message. Gone: there is none."""
        while not self._ready:
            data = await self.exchange.stream.receive_some(65536)
            if not data:
                raise Gone
            self._protocol.receive_bytes(bytes(data))
            await self._take()
        self.messages.append(self._ready[0])
        return self._ready.pop(0)

    async def until_gone(self) -> None:
        """Take messages until the client has left."""
        try:
            while True:
                await self.message()
        except Gone:
            pass

    async def _take(self) -> None:
        for frame in self._protocol.received_frames():
            if frame.opcode is Opcode.PING:
                self.pings += 1
                if self.answers_pings:
                    assert isinstance(frame.payload, bytes | bytearray)
                    await self.raw(bytes([0x8A, len(frame.payload)]) + frame.payload)
            elif frame.opcode is Opcode.PONG:
                self.pongs += 1
            elif frame.opcode is Opcode.CLOSE:
                self.close_code = int(frame.payload[0])  # a tuple of code and reason
                await self._answer_close()
                raise Gone
            else:
                self._pieces.append(str(frame.payload))
                if frame.message_finished:
                    self._ready.append("".join(self._pieces))
                    self._pieces = []

    async def _answer_close(self) -> None:
        await self.raw(b"\x88\x00")


def text_frame(message: str | bytes) -> bytes:
    """Return one unmasked text frame."""
    text = message if isinstance(message, str) else message.decode()
    return bytes(FrameProtocol(client=False, extensions=[]).send_data(text, True))


Script: TypeAlias = Callable[[Socket], Awaitable[None]]


@dataclass
class SocketServer:
    """The running server; `http` is what it stands on."""

    http: Server
    url: str
    sockets: list[Socket] = field(default_factory=list)


@asynccontextmanager
async def serve_ws(script: Script, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[SocketServer]:
    """Run a server that answers every connection with *script*."""

    async def step(exchange: Exchange) -> None:
        socket = Socket(exchange)
        server.sockets.append(socket)
        await script(socket)

    async with serve(step, tls=tls, read="head") as http:
        server = SocketServer(http, http.url.replace("http", "ws", 1))
        yield server
