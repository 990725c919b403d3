"""The fast path: one connection for one request, which writes the request and reads the answer itself.

httpx parses the URL, h11 reads the response head; the body goes past both of them, see http_body.py.
The connection ends with the answer, unless the request has a place where it is kept (http_kept.py).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from functools import lru_cache

import h11
import trio

from aiio.env.errors import ProviderError

from .base import checkpoint_with_data
from .http_body import BodyDecoder, body_decoder
from .http_errors import cut_off, fault
from .http_headers import lower_cased
from .http_kept import Place
from .http_socket import ByteStream, PlainStream, TLSStream, connect
from .target import Target

MAX_HEAD = 64 << 10
"""Bytes of a response head."""


class DirectAnswer:
    """The open answer on its own connection; see `Answer` in http_connection.py."""

    def __init__(
        self,
        head: h11.Response,
        decoder: BodyDecoder,
        stream: ByteStream,
        leftover: bytes,
        peer: str,
        place: Place | None = None,
    ) -> None:
        self.status: int = head.status_code
        self.reason: str = bytes(head.reason).decode("latin-1")
        self.headers: Mapping[str, str] = lower_cased(head.headers)
        self.decoded: bool = False
        self.closes_at_once: bool = True
        self.peer = peer
        self.bytes_received: int = 0
        self.fault: ProviderError | None = None
        self._decoder = decoder
        self._stream = stream
        self._leftover = leftover  # came with the head
        self._place = place  # None: the connection ends with the answer
        self._closed = False

    async def receive(self) -> bytes | None:
        """Return the body bytes of one read, maybe none; None at the end, be it a clean one or a `fault`."""
        decoder = self._decoder
        if decoder.done or decoder.broken:
            await trio.lowlevel.checkpoint()
            self._end()
            return None
        if self._leftover:
            await checkpoint_with_data()
            raw, self._leftover = self._leftover, b""
        else:
            try:
                await self._stream.wait()
                raw = self._stream.receive_now()
            except EOFError:
                decoder.eof()
                self._end()
                return None
            except BlockingIOError:
                return b""
            except (OSError, trio.ClosedResourceError) as exc:
                # Without its traceback, which holds this frame: a circle, with the answer in it.
                broke = exc.with_traceback(None)
                self.fault = fault(broke, phase="body", peer=self.peer, bytes_received=self.bytes_received)
                return None
        data = decoder.feed(raw)
        self.bytes_received += len(data)
        return data

    async def aclose(self) -> None:
        """Close the connection, or leave it in its place. Idempotent."""
        if self._closed:
            return
        self._closed = True
        place = None if self._leftover else self._place
        if place is None or not place.keep(self._stream, self._decoder, self.headers):
            self._stream.close()

    def _end(self) -> None:
        if self._decoder.broken:
            text = f"{self.peer} {self._decoder.broken}"
            self.fault = cut_off(text, phase="body", bytes_received=self.bytes_received)


class DirectClient:
    """One connection per request, or one that was kept; no timers: limits are the caller's cancel scopes.

    Args:
      ssl_context: called at the first https request.
    """

    def __init__(self, ssl_context: Callable[[], ssl.SSLContext]) -> None:
        self._ssl_context = ssl_context

    async def open(
        self,
        method: str,
        target: Target,
        headers: list[tuple[bytes, bytes]],
        body: bytes | None,
        place: Place | None = None,
    ) -> DirectAnswer:
        """Send a request and return its answer, of which the head has been read.

        Args:
          method: upper case.
          target: where it goes.
          headers: as `wire_headers` made them.
          body: None: the request has none.
          place: where its connection comes from and goes to; None: it is its own.

        Raises:
          ProviderError: with `detail["phase"]` resolve, connect, tls, send or head.

        Cancellation: the socket is closed.
        """
        peer = target.peer
        try:
            parser = _head_parser(method)
            if place is not None:
                parser.send(_ALL_SENT)  # else nobody asks whether the connection could last
        except h11.LocalProtocolError as exc:
            raise fault(exc, phase="send", peer=peer) from exc
        data = _request_bytes(method, target, headers, body)
        found = None
        if place is not None:
            found = await place.talk(lambda kept: exchange(kept, parser, data, peer))
        if found is not None:
            stream, head = found
        else:  # *parser* has heard nothing yet
            stream = await self._connect(target)
            try:
                head = await exchange(stream, parser, data, peer)
            except BaseException:
                stream.close()
                raise
        decoder = body_decoder(method.encode("ascii"), head)
        lasts = parser.our_state is h11.DONE and decoder.delimited  # MUST_CLOSE: the server wants it
        return DirectAnswer(head, decoder, stream, parser.trailing_data[0], peer, place if lasts else None)

    async def _connect(self, target: Target) -> ByteStream:
        try:
            plain = PlainStream(await connect(target.host, target.port))
        except (OSError, UnicodeError) as exc:
            raise fault(exc, phase="connect", peer=target.peer) from exc
        if not target.tls:
            return plain
        try:
            context = self._ssl_context()
            context.set_alpn_protocols(["http/1.1"])
            stream = TLSStream(plain, context, target.host)
            await stream.handshake()
        except OSError as exc:
            plain.close()
            raise fault(exc, phase="tls", peer=target.peer) from exc
        except BaseException:
            plain.close()
            raise
        return stream


def _head_parser(method: str) -> h11.Connection:
    """Return what reads the response head.

    h11 is told of the method alone, which decides how an answer is to be read. The request itself is written
    by `_request_bytes`: its headers were checked before, and more strictly, by `wire_headers`.
    """
    parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
    parser.send(_asked(method))
    return parser


@lru_cache
def _asked(method: str) -> h11.Request:
    return h11.Request(method=method, target="/", headers=[("Host", "")])


_ALL_SENT = h11.EndOfMessage()


def _request_bytes(
    method: str, target: Target, headers: list[tuple[bytes, bytes]], body: bytes | None
) -> bytes:
    lines = [f"{method} {target.resource} HTTP/1.1".encode("ascii")]
    if not any(name.lower() == b"host" for name, _ in headers):
        lines.append(f"Host: {target.host_header}".encode("ascii"))
    lines += [b"%s: %s" % header for header in headers]
    if body is not None or method in ("POST", "PUT", "PATCH"):
        lines.append(b"Content-Length: %d" % len(body or b""))
    return b"\r\n".join([*lines, b"", body or b""])


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
            data = await stream.receive()
        except EOFError:
            how = "in the middle of the response head" if began else "without answering"
            raise cut_off(f"{peer} closed the connection {how}", phase="head") from None
        except OSError as exc:
            raise fault(exc, phase="head", peer=peer) from exc
        if not data:
            continue  # to h11, nothing would mean the end
        began = True
        writer.receive_data(data)
        try:
            while (event := writer.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Response):
                    return event  # unlike 100, 102, 103: the answer is still to come
        except h11.RemoteProtocolError as exc:
            raise fault(exc, phase="head", peer=peer) from exc
