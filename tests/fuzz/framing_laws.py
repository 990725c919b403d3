"""What framing must do with any bytes in any pieces: the frames of the plain rules, or what h11 finds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import h11

from aiio.transports.base import Frame
from aiio.transports.framing import Framer, FrameTooLong, NDJSONDecoder, SSEDecoder, WholeBody
from aiio.transports.http_body import BodyDecoder, ChunkedDecoder

SMALL = 40
"""A limit on frames that fuzzed input reaches."""


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """Return *data* cut at the places *cuts*, those beyond its end left out."""
    places = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


def split(data: bytes) -> tuple[bytes, list[int]]:
    """Return the bytes and the cuts that a fuzzer's input stands for: three bytes say where to cut."""
    a, b, c = (*data[:3], 0, 0, 0)[:3]
    data = data[3:]
    if a == 255:
        return data, list(range(1, len(data)))
    return data, [a, a + b, a + b + c]


def run(
    decoder: Framer, chunks: Iterable[bytes], *, cut: bool = False
) -> tuple[list[tuple[bytes, str]], int]:
    """Return the frames with their names, and how many comments came; -1: a frame was too long."""
    frames: list[bytes] = []
    try:
        for chunk in chunks:
            frames += decoder.feed(chunk)
        frames += decoder.flush(cut=cut)
    except FrameTooLong as exc:
        return named([*frames, *exc.frames]), -1
    return named(frames), decoder.keepalives


def named(frames: Iterable[bytes]) -> list[tuple[bytes, str]]:
    """Return each frame with its name."""
    return [(bytes(frame), frame.name if isinstance(frame, Frame) else "") for frame in frames]


def sse_by_the_standard(wire: bytes) -> tuple[list[tuple[bytes, str]], int]:
    """Return what the WHATWG's algorithm makes of the whole text, written to be obviously right."""
    text = wire.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    frames: list[tuple[bytes, str]] = []
    data: list[bytes] = []
    name, comments = b"", 0
    *lines, last = text.split(b"\n")
    for line in [*lines, last] if last else lines:
        field, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if not line:
            if any(data):
                frames.append((b"\n".join(data), "error" if name == b"error" else ""))
            data, name = [], b""
        elif not field:
            comments += 1
        elif field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    pending = b"\n".join(data)
    if any(data) and (is_json(pending) or pending.strip().startswith(b"[DONE]")):
        frames.append((pending, "error" if name == b"error" else ""))
    return frames, comments


def is_json(data: bytes) -> bool:
    """Tell whether *data* is a JSON text. Whether its characters are UTF-8 is for a dialect to say."""
    try:
        json.loads(re.sub(rb"[\x80-\xff]", b"x", data).decode("ascii"), strict=False)
    except (ValueError, RecursionError):
        return False
    return True


def check_sse(data: bytes, cuts: Sequence[int]) -> None:
    """Assert that an event stream in pieces is what the standard says, but for JSON without `data:`."""
    frames, comments = sse_by_the_standard(data)
    found, seen = run(SSEDecoder(), pieces(data, cuts))
    assert (found[: len(frames)], seen) == (frames, comments), (found, frames)
    assert len(found) - len(frames) <= 1
    for stray, name in found[len(frames) :]:
        assert name == ""
        assert is_json(stray)


def check_ndjson(data: bytes, cuts: Sequence[int]) -> None:
    """Assert that JSON lines in pieces are the lines, without blank ones and half a last one."""
    *lines, last = data.split(b"\n")
    frames = [line.strip() for line in lines if line.strip()]
    if last.strip() and is_json(last.strip()):
        frames.append(last.strip())
    found, seen = run(NDJSONDecoder(), pieces(data, cuts))
    assert ([frame for frame, _ in found], seen) == (frames, 0), (found, frames)


def check_whole(data: bytes, cuts: Sequence[int]) -> None:
    """Assert that a body that is one frame is one frame, and a cut one only if it is JSON."""
    whole = [data.strip()] if data.strip() else []
    assert run(WholeBody(), pieces(data, cuts)) == (named(whole), 0)
    complete = whole if whole and is_json(whole[0]) else []
    assert run(WholeBody(), pieces(data, cuts), cut=True) == (named(complete), 0)


def check_sse_limit(data: bytes, cuts: Sequence[int]) -> None:
    """Assert for events what `_check_limit` says."""
    _check_limit(SSEDecoder, data, cuts)


def check_ndjson_limit(data: bytes, cuts: Sequence[int]) -> None:
    """Assert for lines what `_check_limit` says."""
    _check_limit(NDJSONDecoder, data, cuts)


def _check_limit(make: Callable[[int], Framer], data: bytes, cuts: Sequence[int]) -> None:
    """Assert that where a frame is too long does not depend on the cut, and that no longer one comes out."""
    frames, verdict = run(make(SMALL), [data])
    assert all(len(frame) <= SMALL for frame, _ in frames)
    assert run(make(SMALL), pieces(data, cuts)) == (frames, verdict)


_FRAMING_FIELD = re.compile(rb"\r\n(content-length|transfer-encoding):", re.IGNORECASE)
"""In a trailer it says nothing, and is read over; h11 is particular about its value there too."""


def check_chunked(data: bytes, cuts: Sequence[int]) -> None:
    """Assert that a chunked body is what h11 finds in it, or is refused; and that the cut does not matter."""
    body, outcome = unchunked(ChunkedDecoder(), pieces(data, cuts))
    assert unchunked(ChunkedDecoder(), [data]) == (body, outcome)
    expected, verdict = chunked_by_h11(data)
    if outcome == "done" and not _FRAMING_FIELD.search(
        data
    ):  # we may be stricter (bare LF, bare CR in an extension), never laxer
        assert (body, outcome) == (expected, verdict)
    else:
        assert expected.startswith(body)


def unchunked(decoder: BodyDecoder, chunks: Iterable[bytes]) -> tuple[bytes, str]:
    """Return the body in *chunks*, and whether it is `done` or `broken`."""
    body = b"".join(map(decoder.feed, chunks))
    decoder.eof()
    return body, "done" if decoder.done else "broken"


_ASKED = h11.Request(method="GET", target="/", headers=[("host", "x")])


def by_h11(name: str, value: str, wire: bytes) -> tuple[bytes, str]:
    """Return what h11 makes of a body under a header, at once and with the stream's end after it."""
    peer = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    peer.send(_ASKED)
    peer.send(h11.EndOfMessage())
    peer.receive_data(f"HTTP/1.1 200 OK\r\nconnection: close\r\n{name}: {value}\r\n\r\n".encode() + wire)
    return _body_from(peer)


def chunked_by_h11(wire: bytes) -> tuple[bytes, str]:
    """Return what `by_h11` makes of a chunked body, at half the cost: as the body of a request."""
    peer = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    peer.receive_data(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + wire)
    return _body_from(peer)


def _body_from(peer: h11.Connection) -> tuple[bytes, str]:
    """Return the body behind the head that *peer* was fed, with the stream's end after it."""
    body, ended = b"", False
    try:
        peer.next_event()
        while True:
            event = peer.next_event()
            if isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                return body, "done"
            elif ended:
                return body, "broken"
            else:
                peer.receive_data(b"")
                ended = True
    except h11.RemoteProtocolError:
        return body, "broken"
