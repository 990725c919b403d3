"""An open answer as a `Connection`: decompressed, counted, cut into frames; and answers that are none."""

from __future__ import annotations

import html
import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Protocol

import trio

from aiio.env.errors import ErrorKind, HttpStatusError, ProviderError

from .base import TransportRequest
from .framing import Framer, FrameTooLong, NDJSONDecoder, SSEDecoder, WholeBody
from .http_body import GzipDecoder, UnknownCoding, content_decoder
from .http_errors import cut_off, scrubbed_url

ERROR_BODY_SECONDS = 5.0
"""How long the body of an error answer is waited for; its status is known already."""

_FRAMERS: dict[str, type[SSEDecoder] | type[NDJSONDecoder]] = {"sse": SSEDecoder, "ndjson": NDJSONDecoder}
_BY_TYPE = {"text/event-stream": "sse", "application/x-ndjson": "ndjson", "application/ndjson": "ndjson"}
_TAGS = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)


class Answer(Protocol):
    """One open HTTP answer, whichever way it was got."""

    status: int
    reason: str
    headers: Mapping[str, str]
    """Names lower-cased."""
    decoded: bool
    """The content coding has been taken off already."""
    peer: str
    closes_at_once: bool
    """`aclose` waits for nothing."""
    bytes_received: int
    """Body bytes so far, without transfer framing, before decompression."""
    fault: ProviderError | None
    """What cut the body short, once `receive` has returned None for it."""

    async def receive(self) -> bytes | None:
        """Return the body bytes of one read, maybe none; None at the end, be it a clean one or a `fault`.

        A fault is not raised: each handler that a cancellation passes on its way out costs a percent of it.

        Cancellation: nothing has been consumed. Always a checkpoint.
        """
        ...

    async def aclose(self) -> None:
        """Close it. Idempotent."""
        ...


class HTTPConnection:
    """See `Connection` in base.py; made by `connection_for`."""

    def __init__(
        self, answer: Answer, headers: Mapping[str, str], framer: Framer, gzip: GzipDecoder | None, limit: int
    ) -> None:
        self.status: int = answer.status
        self.closes_at_once: bool = answer.closes_at_once
        self.headers = headers
        self._answer = answer
        self._framer = framer
        self._gzip = gzip
        self._left = limit  # decoded bytes that may still come
        self._limit = limit
        self._ended = False
        self._closed = False  # on our side, before it had ended
        self._fault: ProviderError | None = None

    @property
    def bytes_received(self) -> int:
        """Body bytes as they came over the wire, before decompression."""
        return self._answer.bytes_received

    @property
    def keepalives(self) -> int:
        """Comments so far."""
        return self._framer.keepalives

    async def receive(self) -> list[bytes] | None:
        """See `Connection`."""
        if self._ended:
            await trio.lowlevel.checkpoint()
            return self._end()
        data = await self._answer.receive()
        if data is None:
            return self._finish(self._answer.fault or self._cut_gzip())
        if self._gzip is None and len(data) <= self._left:
            self._left -= len(data)
            try:
                return self._framer.feed(data)
            except FrameTooLong as exc:
                return self._too_long(exc, [])
        return self._bounded([data] if self._gzip is None else self._gzip.pieces(data))

    async def aclose(self) -> None:
        """See `Connection`."""
        if not self._ended:
            self._ended = self._closed = True
        await self._answer.aclose()

    def _bounded(self, pieces: Iterable[bytes]) -> list[bytes] | None:
        """Feed decoded *pieces* as far as the limit allows."""
        frames: list[bytes] = []
        try:
            for piece in pieces:
                allowed = piece[: self._left]
                self._left -= len(allowed)
                frames += self._framer.feed(allowed)
                if len(allowed) < len(piece):
                    text = f"the answer is longer than {self._limit} bytes"
                    return self._finish(self._malformed(text), frames)
        except FrameTooLong as exc:
            return self._too_long(exc, frames)
        except zlib.error as exc:
            broken = self._malformed(f"the body from {self._answer.peer} does not decompress")
            broken.__cause__ = exc
            return self._finish(broken, frames)
        return frames

    def _too_long(self, error: FrameTooLong, frames: list[bytes]) -> list[bytes] | None:
        self._ended, self._fault = True, self._malformed(f"{error} from {self._answer.peer}")
        return self._end(frames + error.frames)

    def _finish(self, found: ProviderError | None, frames: Iterable[bytes] = ()) -> list[bytes] | None:
        self._ended, self._fault = True, found
        try:
            return self._end([*frames, *self._framer.flush(cut=found is not None)])
        except FrameTooLong as exc:
            return self._too_long(exc, [*frames])

    def _end(self, frames: list[bytes] | None = None) -> list[bytes] | None:
        """Return the last *frames*; when there are none, raise what ended the answer, or return None."""
        if frames:
            return frames
        if self._fault is not None:
            raise self._fault
        if self._closed:
            raise ProviderError(ErrorKind.NETWORK, "the connection was closed on our side", phase="close")
        return None

    def _cut_gzip(self) -> ProviderError | None:
        if self._gzip is None or self._gzip.complete:
            return None
        text = f"{self._answer.peer} ended the compressed answer in the middle"
        return cut_off(text, phase="body", bytes_received=self.bytes_received)

    def _malformed(self, text: str) -> ProviderError:
        return ProviderError(ErrorKind.MALFORMED, text, phase="body", bytes_received=self.bytes_received)


async def connection_for(answer: Answer, request: TransportRequest) -> HTTPConnection:
    """Return *answer* as a connection, if it is one to stream from.

    Raises:
      HttpStatusError: its status is not 2xx.
      ProviderError: an HTML page (`provider`), or a coding that can't be read (`malformed`).

    Cancellation: the answer stays open; closing it is the caller's, whatever is raised.
    """
    headers = answer.headers
    if not 200 <= answer.status <= 299:
        raise await _status_error(answer, request)
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type == "text/html":
        raise await _html_error(answer, request)
    try:
        gzip = None if answer.decoded else content_decoder(headers)
    except UnknownCoding as exc:
        text = f"the answer of {answer.peer} can't be read: {exc}"
        raise ProviderError(ErrorKind.MALFORMED, text, phase="head") from exc
    framer: Framer
    if content_type == "application/json" and request.framing == "sse":
        framer = WholeBody(request.max_frame_bytes)
    else:
        framer = _FRAMERS[_BY_TYPE.get(content_type, request.framing)](request.max_frame_bytes)
    return HTTPConnection(answer, headers, framer, gzip, request.max_response_bytes)


async def _status_error(answer: Answer, request: TransportRequest) -> HttpStatusError:
    headers = answer.headers
    if 300 <= answer.status <= 399 and "location" in headers:
        target = scrubbed_url(headers["location"])
        text = f"redirect to {target} (not followed)"
        return HttpStatusError(answer.status, answer.reason, text, {**headers, "location": target})
    body = await _read_error_body(answer, request)
    return HttpStatusError(answer.status, answer.reason, body, headers)


async def _html_error(answer: Answer, request: TransportRequest) -> ProviderError:
    page = await _read_error_body(answer, request)
    words = " ".join(html.unescape(_TAGS.sub(" ", page)).split())
    text = f"{answer.peer} answered with an HTML page instead of a stream: {words[:200]}".rstrip(": ")
    return ProviderError(ErrorKind.PROVIDER, text, phase="head", status=answer.status)


async def _read_error_body(answer: Answer, request: TransportRequest) -> str:
    """Return what of the body comes in time and fits; of one that stalls or breaks, what came before."""
    if request.head_came is not None:
        request.head_came()
    body, limit = bytearray(), request.max_error_bytes
    with trio.move_on_after(ERROR_BODY_SECONDS):
        try:
            gzip = None if answer.decoded else content_decoder(answer.headers)
            while len(body) < limit and (data := await answer.receive()) is not None:
                for piece in [data] if gzip is None else gzip.pieces(data):
                    body += piece[: limit - len(body)]
                    if len(body) == limit:
                        break
        except UnknownCoding as exc:
            return f"({exc})"
        except zlib.error:
            pass
    return body.decode("utf-8", "replace")
