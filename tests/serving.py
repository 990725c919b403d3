"""A loopback server that does what a test tells it to, in the test's own trio run.

    async with serve(respond(sse(b'{"a":1}', b"[DONE]"))) as server:
        ...                                    # talk to server.url
    assert server.requests[0].json() == {...}

What a server does with a request is a *script*: steps that are run in order, then the connection is
closed. Steps are coroutine functions taking the `Exchange`; the ones below cover most needs, and any
`async def step(exchange): ...` will do. `serve(*steps)` answers every request with these steps.
`server.script(*steps)` changes that from now on; `server.script_next(*steps)` queues a script for one
request only, so several calls script several requests in order.

    head(200, {"content-type": "text/event-stream"}), chunk(b"data: 1\n\n"), pause(0.3), last_chunk()
    respond(sse(b"1", b"2"))               one whole answer: status 200, SSE, chunked
    respond(b"{}", status=400, headers={"retry-after": "1"})   content-length body
    raw(b"HTTP/1.1 200 OK\r\n...")         any bytes
    stall()                                hold the connection open, silent, until the client leaves
    reset()                                RST now (SO_LINGER 0)
    half_close()                           FIN of our side only, then wait until the client leaves
    drop()                                 close at once; over TLS without close_notify

Facts for assertions: `server.requests` (parsed by h11, bodies whole), `server.connections` (accepted in all),
`server.open` (now), `await server.wait_idle()` (all connections gone), `server.faults` (what broke on the
server's side: the client that went away).

`serve(..., keep=True)` reads another request from a connection whose script is at its end, and runs the next
script for it.

`serve(..., read="head")` runs the script before the request body was read, `read="nothing"` before anything
was. `serve(..., tls=authority.server_context())` speaks TLS; `Authority` is a throw-away CA:
`authority.client_context()` trusts it.

The body of the `async with` block raises its own exceptions, never a group. Time is trio's: under an
autojump clock `pause` costs nothing.
"""

from __future__ import annotations

import datetime
import socket
import ssl
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import h11
import trio
import trustme

from aiio.testing.http import Request, chunk_bytes, head_bytes, read_request

__all__ = ["Request", "chunk_bytes", "read_request"]  # of ours, for those who import them from here

EVENT_STREAM = {"content-type": "text/event-stream"}


class Exchange:
    """One connection, while its script runs."""

    def __init__(self, stream: trio.abc.Stream, tcp: trio.SocketStream, request: Request | None) -> None:
        self.stream = stream
        self.tcp = tcp
        self.request = request
        """None with `read="nothing"`."""

    async def send(self, data: bytes) -> None:
        """Send *data*."""
        await self.stream.send_all(data)

    async def wait_client_gone(self) -> None:
        """Read and drop until the client closes or resets."""
        try:
            while await self.stream.receive_some(65536):
                pass
        except trio.BrokenResourceError:
            pass


Step: TypeAlias = Callable[[Exchange], Awaitable[None]]


class EndScript(Exception):
    """A step raises this to end the connection at once."""


class Server:
    """The running server; see the module's docstring."""

    def __init__(self, url: str, steps: Iterable[Step]) -> None:
        self.url = url
        self.requests: list[Request] = []
        self.connections = 0
        self.open = 0
        self.faults: list[Exception] = []
        self._steps = tuple(steps)
        self._next: deque[tuple[Step, ...]] = deque()
        self._change = trio.lowlevel.ParkingLot()

    @property
    def port(self) -> int:
        """The TCP port on 127.0.0.1."""
        return int(self.url.rpartition(":")[2])

    def script(self, *steps: Step) -> None:
        """Answer every request with *steps* from now on."""
        self._steps = steps

    def script_next(self, *steps: Step) -> None:
        """Answer one request with *steps*; queues up."""
        self._next.append(steps)

    async def wait_idle(self) -> None:
        """Wait until no connection is open."""
        while self.open:
            await self._change.park()

    async def wait_open(self, count: int) -> None:
        """Wait until *count* connections are open at once."""
        while self.open < count:
            await self._change.park()

    def take_script(self) -> tuple[Step, ...]:
        """Return the script of the next request."""
        return self._next.popleft() if self._next else self._steps

    def count(self, opened: int) -> None:
        """Take note of a connection that came (1) or went (-1)."""
        self.open += opened
        self.connections += max(opened, 0)
        self._change.unpark_all()


@asynccontextmanager
async def serve(
    *steps: Step,
    tls: ssl.SSLContext | None = None,
    read: Literal["request", "head", "nothing"] = "request",
    host: str = "127.0.0.1",
    keep: bool = False,
) -> AsyncIterator[Server]:
    """Run a server for the length of the block."""
    listener = trio.socket.socket()
    await listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    server = Server(f"{'https' if tls else 'http'}://{host}:{listener.getsockname()[1]}", steps)

    async def handle(tcp: trio.SocketStream) -> None:
        server.count(1)
        try:
            await _run_scripts(server, tcp, tls, read, keep=keep)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError, h11.RemoteProtocolError) as exc:
            server.faults.append(exc)
        except EndScript:
            pass
        finally:
            tcp.socket.close()
            server.count(-1)

    raised: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, handle, [trio.SocketListener(listener)])
        try:
            yield server
        except Exception as exc:  # noqa: BLE001  # comes out below, not wrapped into a group
            raised = exc
        nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised


async def _run_scripts(
    server: Server, tcp: trio.SocketStream, tls: ssl.SSLContext | None, read: str, *, keep: bool
) -> None:
    stream: trio.abc.Stream = tcp
    if tls is not None:
        stream = trio.SSLStream(tcp, tls, server_side=True)
        await stream.do_handshake()
    while True:
        request = None if read == "nothing" else await read_request(stream, body=read == "request")
        if request is not None:
            server.requests.append(request)
        exchange = Exchange(stream, tcp, request)
        for step in server.take_script():
            await step(exchange)
        if not keep:
            break
    if tls is not None:
        await stream.aclose()


# --- bodies ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Body:
    """A body for `respond`: what to send in which chunks, and its content type."""

    chunks: tuple[bytes, ...]
    headers: Mapping[str, str] = field(default_factory=lambda: EVENT_STREAM)


def sse(*payloads: bytes) -> Body:
    """An event stream of `data:` events, each in a chunk of its own."""
    return Body(tuple(b"data: " + payload + b"\n\n" for payload in payloads))


def ndjson(*lines: bytes) -> Body:
    """A stream of JSON lines, each in a chunk of its own."""
    return Body(tuple(line + b"\n" for line in lines), {"content-type": "application/x-ndjson"})


# --- steps ----------------------------------------------------------------------------------------


def head(status: int = 200, headers: Mapping[str, str] | None = None, *, chunked: bool = True) -> Step:
    """Send a response head (an event stream's by default); with `chunked`, chunks may follow."""
    given = dict(EVENT_STREAM if headers is None else headers)
    if chunked:
        given["transfer-encoding"] = "chunked"
    return raw(head_bytes(status, given))


def respond(body: Body | bytes = b"", *, status: int = 200, headers: Mapping[str, str] | None = None) -> Step:
    """Send a whole answer: a `Body` in chunks, bytes with a content-length."""
    if isinstance(body, Body):
        given = {**body.headers, **(headers or {}), "transfer-encoding": "chunked"}
        return raw(head_bytes(status, given) + b"".join(map(chunk_bytes, body.chunks)) + b"0\r\n\r\n")
    return raw(head_bytes(status, {**(headers or {}), "content-length": str(len(body))}) + body)


def raw(data: bytes) -> Step:
    """Send *data* as it is."""

    async def step(exchange: Exchange) -> None:
        await exchange.send(data)

    return step


def chunk(data: bytes) -> Step:
    """Send one chunk."""
    return raw(chunk_bytes(data))


def last_chunk() -> Step:
    """End a chunked body."""
    return raw(b"0\r\n\r\n")


def pause(seconds: float) -> Step:
    """Do nothing for *seconds* on trio's clock."""

    async def step(exchange: Exchange) -> None:
        await trio.sleep(seconds)

    return step


def wait_for(event: trio.Event) -> Step:
    """Go on when the test sets *event*."""

    async def step(exchange: Exchange) -> None:
        await event.wait()

    return step


def stall() -> Step:
    """Say nothing more, until the client closes the connection."""

    async def step(exchange: Exchange) -> None:
        await exchange.wait_client_gone()

    return step


def hang() -> Step:
    """Neither read nor write until the server ends."""

    async def step(exchange: Exchange) -> None:
        await trio.sleep_forever()

    return step


def reset() -> Step:
    """Send a TCP RST; what was sent before may be lost to the client unless it has read it."""

    async def step(exchange: Exchange) -> None:
        exchange.tcp.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        exchange.tcp.socket.close()
        raise EndScript

    return step


def half_close() -> Step:
    """End our side of the connection (FIN) and wait until the client leaves."""

    async def step(exchange: Exchange) -> None:
        await exchange.tcp.send_eof()
        await exchange.wait_client_gone()

    return step


def drop() -> Step:
    """Close the TCP connection, over TLS without a closing message."""

    async def step(exchange: Exchange) -> None:
        raise EndScript

    return step


# --- TLS ------------------------------------------------------------------------------------------


class Authority:
    """A certificate authority of the test's own."""

    def __init__(self) -> None:
        self._ca = trustme.CA()

    def server_context(self, *names: str, expired: bool = False) -> ssl.SSLContext:
        """Return a server's context with a certificate for *names* (127.0.0.1 and localhost by default)."""
        ends = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC) if expired else None
        certificate = self._ca.issue_cert(*(names or ("127.0.0.1", "localhost")), not_after=ends)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
        context.set_alpn_protocols(["http/1.1"])
        return context

    def client_context(self) -> ssl.SSLContext:
        """Return a client's context that trusts this authority and nobody else."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._ca.configure_trust(context)
        return context
