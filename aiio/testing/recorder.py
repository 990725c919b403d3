"""Real traffic, to a recording that can be shown around: what was answered, when, without credentials.

    async with aiio.open_env() as env:
        record(env, "incident.jsonl")
        ...                                     # every answer over HTTP is appended to the file

What is kept are the frames that each read of the socket completed, and when; of the request only its method,
path and size. Credentials that the Env knows, and what stands where credentials stand, are masked, and of
the response headers only harmless ones are kept. What the model said is kept: it may be private. A
credential that a model says in several pieces is not found.

Server-sent events keep their `event:` name only where it says more than the data.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
import trio

from aiio.context.log import get_logger
from aiio.env.errors import HttpStatusError, ProviderError
from aiio.transports.base import Connection, Frame, Transport, TransportRequest

from .recordings import Ending, Piece, Recording

if TYPE_CHECKING:
    from aiio.env.env import Env

_KEPT_HEADERS = re.compile(r"content-type|retry-after(-ms)?|x-should-retry|([a-z]+-)*ratelimit-[a-z0-9_-]+")
"""Headers whose values tell what the answer is and when to ask again, and nothing about whom."""
_KEEP_ALIVE = {"sse": b": keep-alive\n\n", "ndjson": b"\n", "whole": b""}


def record(env: Env, path: str | Path) -> Recorder:
    """Append every answer that *env* gets over HTTP from now on to the file *path*, each when it has ended.

    The file is made at once, for the user only. It can be given to `MockServer.replay`. A disk that is full
    later is logged and harms no request.

    Raises:
      OSError: the file can't be written.
    """
    recorder = Recorder(env, Path(path))
    recorder.append(b"")
    wrapped: dict[int, RecordingTransport] = {}
    for scheme in ("http", "https"):
        inner = env.transport(f"{scheme}://")
        env.register_transport(scheme, wrapped.setdefault(id(inner), RecordingTransport(inner, recorder)))
    return recorder


class Recorder:
    """Where the answers of one Env go."""

    def __init__(self, env: Env, path: Path) -> None:
        self.path = path
        self.answers: int = 0
        """Answers written."""
        self._env = env

    def append(self, data: bytes) -> None:
        """Write *data* at the end of the file."""
        with open(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
            file.write(data)

    def scrub(self, data: bytes) -> bytes:
        """Return *data* without credentials; bytes that are no UTF-8 are kept."""
        text = data.decode("utf-8", "surrogateescape")
        scrubbed = self._env.scrub(text)
        return data if scrubbed is text else scrubbed.encode("utf-8", "surrogateescape")

    def scrub_text(self, text: str) -> str:
        """Return *text* without credentials."""
        return self._env.scrub(text)

    def write(self, recording: Recording) -> None:
        """Write an answer; a disk that refuses is logged."""
        try:
            self.append(b"".join(msgspec.json.encode(line) + b"\n" for line in recording.lines()))
        except OSError as exc:
            get_logger().error("recording.failed", path=str(self.path), error=str(exc))
        else:
            self.answers += 1


class Take:
    """One answer while it is recorded."""

    def __init__(self, recorder: Recorder, request: TransportRequest) -> None:
        self._recorder = recorder
        self._began = trio.current_time()
        self._request = {
            "method": request.method,
            "path": recorder.scrub_text(urlsplit(request.url).path),
            "body_bytes": len(request.body or b""),
        }
        self._status: int | None = None
        self._headers: dict[str, str] = {}
        self._head_at_ms = 0.0
        self._pieces: list[Piece] = []
        self._written = False

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        """Note the response head."""
        self._status, self._head_at_ms = status, self._now_ms()
        self._headers = {
            name: self._recorder.scrub_text(value)
            for name, value in headers.items()
            if _KEPT_HEADERS.fullmatch(name)
        }

    def data(self, data: bytes) -> None:
        """Note what one read brought."""
        if data:
            self._pieces.append(Piece(self._now_ms(), self._recorder.scrub(data)))

    def end(self, ending: Ending) -> None:
        """Write it, once: the first end counts."""
        if self._written:
            return
        self._written = True
        self._recorder.write(
            Recording(
                status=self._status,
                headers=self._headers,
                head_at_ms=self._head_at_ms,
                pieces=tuple(self._pieces),
                ending=ending,
                ended_at_ms=self._now_ms(),
                request=self._request,
            )
        )

    def _now_ms(self) -> float:
        return round((trio.current_time() - self._began) * 1000, 3)


class RecordingTransport:
    """Another transport, whose answers are recorded; see `Transport`."""

    def __init__(self, inner: Transport, recorder: Recorder) -> None:
        self._inner, self._recorder = inner, recorder

    async def open(self, request: TransportRequest, nursery: trio.Nursery) -> RecordingConnection:
        """See `Transport`."""
        take = Take(self._recorder, request)
        try:
            connection = await self._inner.open(request, nursery)
        except HttpStatusError as error:
            take.head(error.status, error.headers)
            take.data(error.body.encode())
            take.end("end")
            raise
        except ProviderError as error:
            take.end(_ending(error))
            raise
        except trio.Cancelled:
            take.end("left")
            raise
        take.head(connection.status, connection.headers)
        return RecordingConnection(connection, take, request)

    async def aclose(self) -> None:
        """Close the other transport."""
        await self._inner.aclose()


class RecordingConnection:
    """Another connection, recorded; see `Connection`."""

    def __init__(self, inner: Connection, take: Take, request: TransportRequest) -> None:
        self.status: int = inner.status
        self.headers: Mapping[str, str] = inner.headers
        self._inner, self._take = inner, take
        self._framing = _framing(inner.headers, request)
        self._pings = 0

    @property
    def bytes_received(self) -> int:
        """See `Connection`."""
        return self._inner.bytes_received

    @property
    def keepalives(self) -> int:
        """See `Connection`."""
        return self._inner.keepalives

    async def receive(self) -> list[bytes] | None:
        """See `Connection`."""
        try:
            frames = await self._inner.receive()
        except ProviderError as error:
            self._take.end(_ending(error))
            raise
        if frames is None:
            self._take.end("end")
            return None
        pings, self._pings = self.keepalives - self._pings, self.keepalives
        data = b"".join(_wire(frame, self._framing) for frame in frames)
        self._take.data(_KEEP_ALIVE[self._framing] * pings + data)
        return frames

    async def aclose(self) -> None:
        """See `Connection`."""
        self._take.end("left")
        await self._inner.aclose()


def _framing(headers: Mapping[str, str], request: TransportRequest) -> str:
    """Return how the body is cut into frames, as the transport decided it."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" and request.framing == "sse":
        return "whole"
    return {"text/event-stream": "sse", "application/x-ndjson": "ndjson", "application/ndjson": "ndjson"}.get(
        kind, request.framing
    )


def _wire(frame: bytes, framing: str) -> bytes:
    """Return *frame* with what separates it from the next."""
    if framing == "whole":
        return frame
    if framing == "ndjson":
        return frame + b"\n"
    name = b"event: %b\n" % frame.name.encode() if isinstance(frame, Frame) else b""
    return name + b"".join(b"data: %b\n" % line for line in frame.split(b"\n")) + b"\n"


def _ending(error: ProviderError) -> Ending:
    return "reset" if isinstance(error.__cause__, ConnectionResetError) else "cut"
