"""The server of `scripts/soak`, in a process of its own: it does what each request asks for.

    python -m scripts.soak_server

Says when it is ready, reads a port from its standard input, listens there, and says the port it got. So the
next server can stand by with everything imported when this one is killed. An order is a text in the request:
`soak <fate> <at> <pace>`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import trio

from aiio.testing.dialects import dialect_of
from aiio.testing.http import LAST_CHUNK, Request, chunk_bytes, head_bytes, read_request
from aiio.testing.loopback import abort, listening, wait_gone
from tests.io.ws_peers import DIALECTS as SESSIONS
from tests.matrix.answers import NDJSON, frames_of
from tests.serving import EndScript, Exchange
from tests.ws_serving import Socket, text_frame

_ORDER = re.compile(r"soak ([a-z0-9-]+) (\d+) (\d+)")
_SOCKETS = {"/responses": "responses_ws", "/realtime": "realtime", "BidiGenerateContent": "gemini_live"}
_PROVIDERS = {
    "responses_ws": "openai_responses_ws",
    "realtime": "openai_realtime",
    "gemini_live": "gemini_live",
}
_REFUSALS = {"refuse401": 401, "refuse429": 429, "refuse500": 500}


class Order:
    """What a request asks for."""

    def __init__(self, text: str) -> None:
        found = _ORDER.search(text)
        fate, at, pace = found.groups() if found else ("whole", "0", "0")
        self.fate = fate
        self._at, self._pace = int(at), int(pace)

    def pieces(self, frames: Sequence[bytes]) -> list[bytes]:
        """Return what comes of an answer, in the pieces that it comes in: cut anywhere, or frame by frame."""
        if self.fate not in ("whole", "slow"):
            return list(frames[: self._at % (len(frames) // 2)])  # before anything says that it is over
        return list(frames)

    @property
    def gives_up(self) -> bool:
        """Whether a connection that has served before is closed instead of answering."""
        return self._at % 7 == 0

    async def pause(self) -> None:
        """Wait between two pieces."""
        if self.fate == "slow":
            await trio.sleep(self._pace / 1000)
        else:
            await trio.lowlevel.checkpoint()


async def serve_one(tcp: trio.SocketStream) -> None:
    """Serve one connection, HTTP or a WebSocket, for as long as the client keeps it or a fate ends it."""
    request = await read_request(tcp)
    if "upgrade" in request.headers:
        try:
            await _socket(Exchange(tcp, tcp, request))
        except EndScript:
            return
    else:
        while await _http(tcp, request):
            request = await read_request(tcp)
            if Order(request.body.decode()).gives_up:
                return


async def _http(tcp: trio.SocketStream, request: Request) -> bool:
    """Answer a request; tell whether the connection can take another one."""
    order = Order(request.body.decode())
    found = dialect_of(request.target)
    assert found is not None
    if order.fate in _REFUSALS:
        await tcp.send_all(_refusal(order))
        return False
    if order.fate == "mute":
        await wait_gone(tcp)
        return False
    kind = "application/x-ndjson" if found.name in NDJSON else "text/event-stream"
    await tcp.send_all(head_bytes(200, {"content-type": kind, "transfer-encoding": "chunked"}))
    for frame in order.pieces(frames_of(found.name)):
        await tcp.send_all(chunk_bytes(frame))
        await order.pause()
    match order.fate:
        case "whole" | "slow":
            await tcp.send_all(LAST_CHUNK)
            return True
        case "stall":
            await wait_gone(tcp)
        case "rst":
            abort(tcp)
        case "half-close":
            await tcp.send_eof()
            await wait_gone(tcp)
    return False


def _refusal(order: Order) -> bytes:
    status, body = _REFUSALS[order.fate], b'{"error":{"message":"no","code":"no"}}'
    headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    return head_bytes(status, headers) + body


async def _socket(exchange: Exchange) -> None:
    """Serve a socket. The order is in what the client says, so it is too late to refuse the handshake."""
    socket = Socket(exchange)
    target = socket.request.target
    name = next(name for part, name in _SOCKETS.items() if part in target)
    await socket.accept()
    while True:
        await SESSIONS[_PROVIDERS[name]].session(socket)
        order = Order("\n".join(socket.messages))
        socket.messages.clear()
        for frame in order.pieces(frames_of(name)):
            await socket.raw(text_frame(frame))
            await order.pause()
        match order.fate:
            case "whole" | "slow":
                continue
            case "rst":
                abort(exchange.tcp)
                return
            case "stall" | "mute":
                await socket.until_gone()
            case "half-close":
                await exchange.tcp.send_eof()
                await socket.until_gone()
            case _:
                return


async def main() -> None:
    """Listen on the port that standard input names, until killed."""
    print("ready", flush=True)
    port = int(sys.stdin.readline())
    async with listening(serve_one, port) as loopback:
        print(loopback.port, flush=True)
        while True:
            await trio.sleep(1)
            loopback.faults.clear()  # clients that left: they were to


if __name__ == "__main__":
    trio.run(main)
