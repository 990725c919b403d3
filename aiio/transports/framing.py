"""Bytes of a body in, frames out: SSE, NDJSON, and the body that is one frame. No I/O.

A frame is the payload of one provider message, as bytes: nothing is decoded here, so a character cut
in two by the network is whole again before anybody looks at it. All decoders have one face (`Framing`):
feed them chunks cut anywhere, and the frames are the same.

How SSE gets fast without getting loose: at an event boundary the bytes up to the last blank line of a
chunk are split at `\\n\\ndata: `, and that no piece holds a newline proves that nothing but such events is in
there (then something alike for events that carry one `event:` line). Whatever fails the proof, a carriage
return included, goes through the full rules line by line. The rules are the WHATWG's, plus what
servers really do at the end of a stream.
"""

from __future__ import annotations

import json
from typing import Protocol

import msgspec

from .base import Frame

BOM = b"\xef\xbb\xbf"
DONE_MARK = b"[DONE]"

_LF, _CR = 10, 13  # nothing else ends a line: U+2028, U+0085, VT and FF are text
_FIELD_SLACK = 16  # bytes of a line that are field name and colon, not payload


class FrameTooLong(ValueError):
    """A frame outgrew the limit; `frames` are those that were whole before it."""

    def __init__(self, limit: int, frames: list[bytes]) -> None:
        super().__init__(f"frame longer than {limit} bytes")
        self.frames = frames


class Framer(Protocol):
    """What all decoders here can do."""

    keepalives: int
    """Comments so far: signs of life that carry nothing."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the frames that *chunk* completes. `FrameTooLong`: give up."""
        ...

    def flush(self, *, cut: bool = False) -> list[bytes]:
        """Return what is still pending at the end, where it makes a frame.

        Args:
          cut: the end is not a clean one, so only what is complete in itself counts.
        """
        ...


class SSEDecoder:
    """Server-sent events. One instance reads one body.

    Args:
      max_frame_bytes: payload of one event; also bounds what is buffered of an unfinished line.
    """

    def __init__(self, max_frame_bytes: int = 64 << 20) -> None:
        self.keepalives: int = 0
        self._limit = max_frame_bytes
        self._started = False  # the place where a BOM may stand is behind us
        self._line = bytearray()  # an unfinished line
        self._after_cr = False  # a LF now would be the second half of a CRLF
        self._data: bytes | bytearray | None = None  # payload of the open event
        self._name = b""  # its `event:` field
        self._stray = bytearray()  # lines of a JSON text that came without `data:`
        self._between = False  # nothing is kept: the next byte begins an event

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the frames that *chunk* completes. `FrameTooLong`: give up."""
        if self._between and chunk.endswith(b"\n\n") and b"\r" not in chunk:
            size = len(chunk)
            if 8 < size <= self._limit and chunk.find(b"\n") == size - 2 and chunk.startswith(b"data: "):
                return [chunk[6:-2]]  # one event: the most common read of a stream that is not fast
            found = self._plain_events(chunk[:-2])
            if found is not None:
                return found
        frames = self._feed(chunk)
        self._between = self._started and not (
            self._line or self._data is not None or self._name or self._after_cr
        )
        return frames

    def _feed(self, chunk: bytes) -> list[bytes]:
        if not self._started:
            chunk = self._start(chunk)
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        if b"\r" in chunk:  # all three line ends mean the same: from here on there is only LF
            self._after_cr = chunk[-1] == _CR
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        frames: list[bytes] = []
        if self._data is not None or self._name:
            # Inside an event: finish it by the rules, then the rest stands at a boundary again.
            end = 1 if chunk[0] == _LF else _after_blank_line(chunk)
            self._by_the_rules(chunk[:end], frames)
            chunk = chunk[end:]
        end = chunk.rfind(b"\n\n")
        if end >= 0 and self._data is None and not self._name:
            block = bytes(self._line) + chunk[:end] if self._line else chunk[:end]
            if (found := self._plain_events(block)) is not None:
                self._line.clear()
                frames = frames + found if frames else found
                chunk = chunk[end + 2 :]
        if chunk:
            self._by_the_rules(chunk, frames)
        return frames

    def flush(self, *, cut: bool = False) -> list[bytes]:
        """Return the pending event if it is whole JSON or `[DONE]`, and a whole JSON text without `data:`.

        The standard discards an event without its blank line; in practice servers leave out the last
        blank line, or even the last line end. An error may come as bare JSON over several lines.
        """
        frames: list[bytes] = []
        line, self._line = bytes(self._line), bytearray()
        if line:
            self._take_line(line, frames)
        if self._data and (_is_json(self._data) or self._data.strip().startswith(DONE_MARK)):
            self._dispatch(frames)
        if self._stray and _is_json(self._stray):
            frames.append(bytes(self._stray))
        self._data, self._name, self._stray = None, b"", bytearray()
        return frames

    def _start(self, chunk: bytes) -> bytes:
        head = bytes(self._line) + chunk
        if len(head) < len(BOM) and BOM.startswith(head):
            self._line[:] = head
            return b""
        self._started = True
        self._line.clear()
        return head.removeprefix(BOM)

    def _plain_events(self, block: bytes) -> list[bytes] | None:
        """Return the frames of *block* (last blank line cut off) if it is plain events and nothing else."""
        if len(block) > self._limit:
            return None  # the slow path knows which frame is too long
        if block.startswith(b"data: "):
            frames = block[6:].split(b"\n\ndata: ")
            if block.count(b"\n") != 2 * len(frames) - 2:
                return None
            return [frame for frame in frames if frame] if b"" in frames else frames
        if block.startswith(b"event: "):
            return _named_events(block)
        return None

    def _by_the_rules(self, chunk: bytes, frames: list[bytes]) -> None:
        first, *rest = chunk.split(b"\n")
        self._line += first
        if rest:
            line = bytes(self._line)
            self._line = bytearray(rest.pop())
            self._take_line(line, frames)
            for line in rest:
                self._take_line(line, frames)
        if len(self._line) > self._limit + _FIELD_SLACK:
            raise FrameTooLong(self._limit, frames)

    def _take_line(self, line: bytes, frames: list[bytes]) -> None:
        if not line:
            self._dispatch(frames)
            return
        if len(line) > self._limit + _FIELD_SLACK:
            raise FrameTooLong(self._limit, frames)
        field, _, value = line.partition(b":")
        if field == b"data":
            self._add_data(value.removeprefix(b" "), frames)
        elif field == b"event":
            self._name = value.removeprefix(b" ")
        elif not field:
            self.keepalives += 1
        elif field in (b"id", b"retry"):
            pass
        elif self._stray or line.lstrip()[:1] in (b"{", b"["):
            self._stray += line + b"\n"
            if len(self._stray) > self._limit:
                raise FrameTooLong(self._limit, frames)

    def _add_data(self, value: bytes, frames: list[bytes]) -> None:
        if self._data is None:
            self._data = value
        else:
            if isinstance(self._data, bytes):
                self._data = bytearray(self._data)
            self._data += b"\n"
            self._data += value
        if len(self._data) > self._limit:
            raise FrameTooLong(self._limit, frames)

    def _dispatch(self, frames: list[bytes]) -> None:
        data, name = self._data, self._name
        self._data, self._name = None, b""
        if data and data.strip(b"\n"):
            payload = bytes(data)
            frames.append(Frame(payload, "error") if name == b"error" else payload)


def _after_blank_line(chunk: bytes) -> int:
    end = chunk.find(b"\n\n")
    return end + 2 if end >= 0 else len(chunk)


def _named_events(block: bytes) -> list[bytes] | None:
    """Return the frames if every event is one `event: ` line and one `data: ` line, else None."""
    events = block[7:].split(b"\n\nevent: ")
    if block.count(b"\n") != 3 * len(events) - 2:
        return None
    frames: list[bytes] = []
    for event in events:
        name, found, data = event.partition(b"\ndata: ")
        if not found:
            return None
        if data:
            frames.append(Frame(data, "error") if name == b"error" else data)
    return frames


class NDJSONDecoder:
    """One JSON text a line; CRLF and blank lines are tolerated, nothing else ends a line."""

    def __init__(self, max_frame_bytes: int = 64 << 20) -> None:
        self.keepalives = 0
        self._limit = max_frame_bytes
        self._line = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the frames that *chunk* completes. `FrameTooLong`: give up."""
        lines = chunk.split(b"\n")
        self._line += lines[0]
        last = lines.pop()
        if lines:
            lines[0], self._line = bytes(self._line), bytearray(last)
        if (
            len(chunk) > self._limit
            or len(self._line) > self._limit
            or (lines and len(lines[0]) > self._limit)
        ):
            self._check(lines)
        return _not_blank(lines)

    def flush(self, *, cut: bool = False) -> list[bytes]:
        """Return the last line if it lacks only its line end."""
        line, self._line = bytes(self._line).strip(), bytearray()
        return [line] if line and _is_json(line) else []

    def _check(self, lines: list[bytes]) -> None:
        for position, line in enumerate([*lines, self._line]):
            if len(line) > self._limit:
                raise FrameTooLong(self._limit, _not_blank(lines[:position]))


class WholeBody:
    """The whole body is one frame: a proxy that ignored `stream`, or an error under status 200."""

    def __init__(self, max_frame_bytes: int = 64 << 20) -> None:
        self.keepalives = 0
        self._limit = max_frame_bytes
        self._body = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Keep *chunk*; there is no frame before the end. `FrameTooLong`: give up."""
        self._body += chunk
        if len(self._body) > self._limit:
            raise FrameTooLong(self._limit, [])
        return []

    def flush(self, *, cut: bool = False) -> list[bytes]:
        """Return the body; one that was cut off only if it is whole JSON all the same."""
        body, self._body = bytes(self._body).strip(), bytearray()
        return [body] if body and (not cut or _is_json(body)) else []


def _not_blank(lines: list[bytes]) -> list[bytes]:
    return list(filter(None, map(bytes.strip, lines)))


def _is_json(data: bytes | bytearray) -> bool:
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        try:
            # Knows NaN, lone surrogates and raw control characters, as dialects do. Given bytes it would
            # guess at their encoding and skip a BOM, which dialects do not; characters are their concern.
            json.loads(data.decode("latin-1"), strict=False)
        except (ValueError, RecursionError):
            return False
    return True
