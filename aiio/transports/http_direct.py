"""The fast path: an httpx transport that opens one connection for one request and reads it itself.

httpx stays the face: it builds the request and hands it to `DirectTransport`. The request is written and
the response head is read by h11; the body goes past both of them, see http_body.py.
There is no pool: the connection ends with the answer.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable

import h11
import httpx
import trio

from aiio.env.errors import ProviderError

from .base import checkpoint_with_data
from .http_body import BodyDecoder, body_decoder
from .http_errors import cut_off, fault, peer_name
from .http_socket import ByteStream, PlainStream, TLSStream

MAX_HEAD = 64 << 10
"""Bytes of a response head."""
ANSWER = "aiio.answer"
"""The response extension that holds the `DirectAnswer`."""


class DirectAnswer(httpx.AsyncByteStream):
    """The open answer on its own connection; see `Answer` in http_connection.py."""

    def __init__(
        self, head: h11.Response, decoder: BodyDecoder, stream: ByteStream, leftover: bytes, peer: str
    ) -> None:
        self.status = head.status_code
        self.reason = bytes(head.reason).decode("latin-1")
        self.headers: list[tuple[bytes, bytes]] = list(head.headers)
        self.decoded = False
        self.peer = peer
        self.bytes_received = 0
        self._decoder = decoder
        self._stream = stream
        self._leftover = leftover  # came with the head

    async def receive(self) -> bytes | None:
        """Return the body bytes of one read of the socket; None at the end. ProviderError: it was cut."""
        decoder = self._decoder
        if decoder.done or decoder.broken:
            await trio.lowlevel.checkpoint()
            self._raise_if_broken()
            return None
        if self._leftover:
            await checkpoint_with_data()
            raw, self._leftover = self._leftover, b""
        else:
            try:
                raw = await self._stream.receive()
            except EOFError:
                decoder.eof()
                self._raise_if_broken()
                return None
            except (OSError, trio.ClosedResourceError) as exc:
                raise fault(exc, phase="body", peer=self.peer, bytes_received=self.bytes_received) from exc
        data = decoder.feed(raw)
        self.bytes_received += len(data)
        return data

    async def aclose(self) -> None:
        """Close the connection. Idempotent."""
        self._stream.close()

    def _raise_if_broken(self) -> None:
        if self._decoder.broken:
            text = f"{self.peer} {self._decoder.broken}"
            raise cut_off(text, phase="body", bytes_received=self.bytes_received)


class DirectTransport(httpx.AsyncBaseTransport):
    """One connection per request, without timers: limits are the caller's cancel scopes.

    Args:
      ssl_context: called at the first https request.
    """

    def __init__(self, ssl_context: Callable[[], ssl.SSLContext]) -> None:
        self._ssl_context = ssl_context

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send *request*; the response's extension `ANSWER` is the answer itself.

        Raises:
          ProviderError: with `detail["phase"]` resolve, connect, tls, send or head.

        Cancellation: the socket is closed.
        """
        url = request.url
        host = url.raw_host.decode("ascii")
        port = url.port or (443 if url.scheme == "https" else 80)
        peer = peer_name(url)
        writer = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        data = _request_bytes(writer, request, await request.aread(), peer)
        stream = await self._connect(host, port, peer, tls=url.scheme == "https")
        try:
            head = await exchange(stream, writer, data, peer)
        except BaseException:
            stream.close()
            raise
        decoder = body_decoder(request.method.encode("ascii"), head)
        answer = DirectAnswer(head, decoder, stream, writer.trailing_data[0], peer)
        # Without the target of a redirect, httpx has nothing to parse, and nothing to fail on.
        headers = [(name, value) for name, value in answer.headers if name != b"location"]
        return httpx.Response(answer.status, headers=headers, stream=answer, extensions={ANSWER: answer})

    async def _connect(self, host: str, port: int, peer: str, *, tls: bool) -> ByteStream:
        try:
            tcp = await trio.open_tcp_stream(host, port)
        except (OSError, UnicodeError) as exc:
            raise fault(exc, phase="connect", peer=peer) from exc
        plain = PlainStream(socket.socket(fileno=tcp.socket.detach()))
        if not tls:
            return plain
        try:
            context = self._ssl_context()
            context.set_alpn_protocols(["http/1.1"])
            stream = TLSStream(plain, context, host)
            await stream.handshake()
        except OSError as exc:
            plain.close()
            raise fault(exc, phase="tls", peer=peer) from exc
        except BaseException:
            plain.close()
            raise
        return stream


def _request_bytes(writer: h11.Connection, request: httpx.Request, body: bytes, peer: str) -> bytes:
    try:
        pieces = [
            writer.send(
                h11.Request(method=request.method, target=request.url.raw_path, headers=request.headers.raw)
            ),
            *(writer.send_with_data_passthrough(h11.Data(data=body)) or []),
            writer.send(h11.EndOfMessage()),
        ]
    except h11.LocalProtocolError as exc:
        raise fault(exc, phase="send", peer=peer) from exc
    return b"".join(piece for piece in pieces if piece)


async def exchange(stream: ByteStream, writer: h11.Connection, data: bytes, peer: str) -> h11.Response:
    """Send *data* and return the response head, also one that comes before all is sent."""
    broken: OSError | None = None
    try:
        all_sent = stream.send_now(data)
    except OSError as exc:
        broken, all_sent = exc, True  # the answer may be there all the same
    if all_sent:
        found = await _head_or_fault(stream, writer, peer)
    else:
        found, broken = await _send_and_listen(stream, writer, peer)
    if isinstance(found, h11.Response):
        return found
    if broken is not None:
        raise fault(broken, phase="send", peer=peer) from broken
    raise found


async def _send_and_listen(
    stream: ByteStream, writer: h11.Connection, peer: str
) -> tuple[h11.Response | ProviderError, OSError | None]:
    """Send the rest of a large body while waiting for the head; return that, and what broke the sending.

    Its tasks report what fails, so nothing but cancellation comes out of the nursery.
    """
    broken: OSError | None = None

    async def send_the_rest() -> None:
        nonlocal broken
        try:
            await stream.drain()
        except OSError as exc:
            broken = exc

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_the_rest)
        found = await _head_or_fault(stream, writer, peer)
        if not isinstance(found, h11.Response) or found.status_code >= 300:
            nursery.cancel_scope.cancel()  # a refusal: the rest of the body is not wanted
    return found, broken


async def _head_or_fault(
    stream: ByteStream, writer: h11.Connection, peer: str
) -> h11.Response | ProviderError:
    try:
        return await _read_head(stream, writer, peer)
    except ProviderError as exc:
        return exc


async def _read_head(stream: ByteStream, writer: h11.Connection, peer: str) -> h11.Response:
    began = False
    while True:
        try:
            event = writer.next_event()
        except h11.RemoteProtocolError as exc:
            raise fault(exc, phase="head", peer=peer) from exc
        if isinstance(event, h11.Response):
            return event
        if event is not h11.NEED_DATA:
            continue  # 100, 102, 103: the answer is still to come
        try:
            data = await stream.receive()
        except EOFError:
            how = "in the middle of the response head" if began else "without answering"
            raise cut_off(f"{peer} closed the connection {how}", phase="head") from None
        except OSError as exc:
            raise fault(exc, phase="head", peer=peer) from exc
        if data:  # to h11, nothing would mean the end
            began = True
            writer.receive_data(data)
