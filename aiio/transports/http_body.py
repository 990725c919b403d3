"""Bodies of HTTP/1.1 responses, sans-I/O: transfer framing, then content coding.

Written out because the general library costs several times what the rest of aiio costs a frame; fuzzed
against that library (h11), which stays the judge of what is a body and what is not.

A decoder never raises in the middle of a read: it returns the bytes that came before the trouble and puts the
trouble into `broken`, so that nothing whole is lost.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping

import h11

# No two parts of these can match the same bytes: a hostile line costs its length, not its square.
_HEAD = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*|;[^\r\n]*)")
_TRAILER_LINE = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+:[^\x00\v\f\r\n]*\r\n")
_MAX_LINE = 4096  # bytes of one chunk head or trailer line
_MAX_TRAILERS = 16 << 10
_MAX_KNOWN, _MAX_KNOWN_HEAD = 1024, 20  # heads remembered, bytes of one with its line ends
_PIECE = 64 << 10  # bytes that gzip may produce at a time


class BodyDecoder:
    """Until-close: every byte belongs to the body, and the end of the stream is its end."""

    delimited: bool = False
    """The body says itself where it ends, so that more may follow on the connection."""
    done: bool = False
    """The body is complete; bytes fed after that are not part of it."""
    exact: bool = False
    """The body is complete, and not a byte more was fed than belongs to it."""
    broken: str | None = None
    """Why no more bytes of the body can be had: what the peer did wrong, in words that follow its name."""

    def feed(self, data: bytes) -> bytes:
        """Return the body bytes in *data*, maybe none."""
        return data

    def eof(self) -> None:
        """Take note that the stream ended: the body is now `done`, or `broken`."""
        self.done = True


class LengthDecoder(BodyDecoder):
    """A body of a length announced before."""

    delimited: bool = True

    def __init__(self, length: int) -> None:
        self._length = self._missing = length
        self.done: bool = not length
        self.exact: bool = self.done

    def feed(self, data: bytes) -> bytes:
        """Return the body bytes in *data*, maybe none."""
        if len(data) >= self._missing:
            self.exact = len(data) == self._missing
            data = data[: self._missing]
            self.done = True
        self._missing -= len(data)
        return data

    def eof(self) -> None:
        """Take note that the stream ended: too early, unless the body is done."""
        if not self.done:
            got = self._length - self._missing
            self.broken: str | None = (
                f"closed the connection after {got} of {self._length} bytes of the answer"
            )


class ChunkedDecoder(BodyDecoder):
    """A body in chunks; extensions and trailers are read over."""

    delimited: bool = True

    def __init__(self) -> None:
        self._missing = 0  # bytes until the end of the chunk we are in
        self._pending = b""  # an unfinished chunk head or trailer line
        self._in_chunk = False  # a chunk was begun: its CRLF comes before the next head
        self._width = 0  # bytes of the last head, with both its CRLFs
        self._trailers: int | None = None  # bytes of them so far, once the last chunk has come

    def feed(self, data: bytes) -> bytes:
        """Return the body bytes in *data*, maybe none."""
        if len(data) < self._missing:
            self._missing -= len(data)
            return data
        if self.done or self.broken:
            return b""
        if self._pending == b"\r\n" and self._width and data.endswith(b"\r\n"):
            start = self._width - 2
            if _lengths.get(b"\r\n" + data[:start]) == len(data) - start - 2:
                return data[start:-2]  # one whole chunk: the most common read of a stream that is not fast
        pieces: list[bytes] = []
        position = 0
        if self._missing:
            position = self._missing
            pieces.append(data[:position])
            self._missing = 0
        elif self._pending:
            data, self._pending = self._pending + data, b""
        if self._trailers is None:
            position = self._chunks(data, position, pieces)
        if self._trailers is not None:
            self._read_trailers(data, position)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def eof(self) -> None:
        """Take note that the stream ended: too early, unless the last chunk and its trailers have come."""
        if not self.done and not self.broken:
            self.broken = "closed the connection in the middle of the answer"

    def _chunks(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        """Read chunks from *position* on; return where the trailers begin, or the length of *data*.

        Most heads are as wide as the one before, and have been seen before: one look-up, with the line ends
        around them, tells that.
        """
        size, keep, known, width = len(data), pieces.append, _lengths.get, self._width
        while position < size:
            start = position + width
            length = known(data[position:start])
            if length is None or start > size:
                start, length = self._other_head(data, position)
                if not length:
                    return start
                width = self._width
            position = start + length
            keep(data[start:position])
        self._missing = position - size
        return size

    def _other_head(self, data: bytes, position: int) -> tuple[int, int]:
        """Read a head that is new, or of another width; return where its chunk begins, and the length.

        A length of 0: no chunk follows, and what is to be read next, trailers or nothing, begins there.
        """
        size, begin = len(data), position
        if self._in_chunk:
            if size == position + 2 and data.endswith(b"\r\n"):  # as most reads end
                self._pending = b"\r\n"
                return size, 0
            begin = position + 2 if data.startswith(b"\r\n", position) else size
        end = data.find(b"\r\n", begin)
        start = end + 2
        length = _lengths.get(data[position:start])
        if length is None:
            head = None if end < 0 else _HEAD.fullmatch(data, begin, end)
            if head is None:
                self._keep_head(data[position:])
                return size, 0
            length = int(head[1], 16)
            if not length:
                self._trailers = 0
                return start, 0
            if self._in_chunk and start - position <= _MAX_KNOWN_HEAD:
                _remember(data[position:start], length)
        if self._in_chunk:
            self._width = start - position
        self._in_chunk = True
        return start, length

    def _read_trailers(self, data: bytes, position: int) -> None:
        while position < len(data):
            if data.startswith(b"\r\n", position):
                self.done = True
                self.exact: bool = position + 2 == len(data)
                return
            line = _TRAILER_LINE.match(data, position)
            if line is None:
                self._keep_trailer(data[position:])
                return
            self._trailers = (self._trailers or 0) + line.end() - position
            if self._trailers > _MAX_TRAILERS:
                self.broken = "sent too many trailers"
                return
            position = line.end()

    def _keep_head(self, rest: bytes) -> None:
        chunk_end, line = (rest[:2], rest[2:]) if self._in_chunk else (b"", rest)
        if not b"\r\n".startswith(chunk_end):
            self.broken = "sent a chunk that is longer than announced"
        elif b"\n" in line or len(line) > _MAX_LINE:
            self.broken = "sent a chunk without a proper length"
        else:
            self._pending = rest

    def _keep_trailer(self, rest: bytes) -> None:
        if b"\n" in rest or len(rest) > _MAX_LINE:
            self.broken: str | None = "sent a malformed trailer"
        else:
            self._pending = rest


_lengths: dict[bytes, int] = {}
"""What heads between two line ends said that were seen last, in all bodies: servers repeat a few sizes."""


def _remember(head: bytes, length: int) -> None:
    if len(_lengths) >= _MAX_KNOWN:
        _lengths.clear()
    _lengths[head] = length


class UnknownCoding(ValueError):
    """A content coding that can't be bounded, or more than one; the text names it."""


class GzipDecoder:
    """gzip, piece by piece: what one read expands to is never in memory at once."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=31)
        self._fed = False

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield what *data* expands to, in pieces of at most 64 kB. zlib.error: it is not gzip."""
        while data:
            if self._inflate.eof:  # the next of several members; zero padding after the last is allowed
                data = data.lstrip(b"\0")
                if not data:
                    return
                self._inflate = zlib.decompressobj(wbits=31)
            self._fed = True
            piece = self._inflate.decompress(data, _PIECE)
            data = self._inflate.unconsumed_tail or self._inflate.unused_data
            if piece:
                yield piece

    @property
    def complete(self) -> bool:
        """Whether the body may end here."""
        return self._inflate.eof or not self._fed


def body_decoder(method: bytes, response: h11.Response) -> BodyDecoder:
    """Return the decoder of *response*'s body; h11 has checked that its length headers make sense."""
    headers = dict(response.headers)
    if method == b"HEAD" or response.status_code in (204, 304):
        return LengthDecoder(0)
    if b"transfer-encoding" in headers:
        return ChunkedDecoder()
    if b"content-length" in headers:
        return LengthDecoder(int(headers[b"content-length"]))
    return BodyDecoder()


def content_decoder(headers: Mapping[str, str]) -> GzipDecoder | None:
    """Return the decoder of the body's content coding; None: it has none. `UnknownCoding`: can't be read."""
    coding = headers.get("content-encoding", "").strip().lower()
    match coding:
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return GzipDecoder()
        case _:
            named = coding[:60].encode("ascii", "backslashreplace").decode("ascii")
            raise UnknownCoding(f"content-encoding {named!r} was not asked for and is not read")
