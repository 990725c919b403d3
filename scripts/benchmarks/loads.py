"""What the server sends: loads, the frames they stand for, and the text that a reader must end up with.

A `Load` is a value that fits into the path of a URL, so that the server needs no list of loads: it renders
what the path asks for, once. Standard library only, because every contender's environment imports this.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any

from .wires import Parts, anthropic_parts, ndjson_parts, ws_parts

PIECES = (" the", " bird", " sings", ",", " über", " and", " 鳥", " goes", ".", "\n", ' "on"', " 🐦")
"""What models stream: short pieces, mostly ASCII, some that need an escape or several bytes."""

WIRE = ("text", "arguments", "anthropic", "ndjson", "ws", "tls", "kept", "timed", "held", "killed")
"""Contents that the server sends."""

OVER_TLS = ("tls", "kept")
"""Of these over TLS."""

HELD = ("held", "killed")
"""Of these it sends the first write, and then nothing more."""

LISTED = 50
"""Sessions that are listed."""

FILLER = "All work and no play makes a long frame. "


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One shape of traffic."""

    content: str = "text"
    """`"text"`, or `"arguments"`: the same pieces inside the arguments of one tool call; `"anthropic"`,
    `"ndjson"`, `"ws"`: text on these wires. `"tls"`: text over TLS; `"kept"`: the same on
    connections that last from one stream to the next; `"timed"`: text, with a timer in the
    reader's loop; `"held"`: the first piece, then silence until the reader is cancelled, `"killed"`: or ended
    by its own means. Any other names work that needs no server, see do_context.py."""
    events: int = 20_000
    """Content frames a stream."""
    piece_bytes: int = 0
    """Length of the text in each frame; 0: a few characters, as models stream them."""
    batch: int = 64
    """Frames a TCP write."""
    streams: int = 1
    """Connections at the same time."""
    period_ms: int = 0
    """Pause between two writes of a stream, whose phases are spread evenly; 0: as fast as they are taken."""

    @property
    def path(self) -> str:
        """The load as one segment of a URL's path; `parse_load` reads it."""
        return ".".join(map(str, astuple(self)))

    @property
    def total_events(self) -> int:
        """Content frames of all streams together."""
        return self.events * self.streams


def parse_load(path: str) -> Load:
    """Return the load in the first segment of a URL's *path*. ValueError: there is none."""
    content, *numbers = path.lstrip("/").split("/", 1)[0].split(".")
    events, piece_bytes, batch, streams, period_ms = map(int, numbers)
    return Load(
        content=content,
        events=events,
        piece_bytes=piece_bytes,
        batch=batch,
        streams=streams,
        period_ms=period_ms,
    )


def pieces(load: Load) -> Iterator[str]:
    """Yield the text of each content frame of one stream."""
    wanted = load.piece_bytes
    long = (FILLER * (wanted // len(FILLER) + 1))[:wanted]
    for index in range(load.events):
        piece = long or PIECES[index % len(PIECES)]
        if load.content.startswith("blocks"):
            piece = f"{index} {piece}"
        yield json.dumps(piece, ensure_ascii=False)[1:-1] if load.content == "arguments" else piece


def stream_pieces(load: Load) -> Iterator[str]:
    """Yield everything that one stream's reader gets to see, in order; of sessions, those listed; of imports,
    the modules."""
    if load.content == "arguments":
        yield '{"text":"'
        yield from pieces(load)
        yield '"}'
    elif load.content == "sessions":
        yield from (f"Question {number}" for number in range(load.events, 0, -1)[:LISTED])
    elif load.content.startswith("import"):
        yield from load.content.split("+")[1:]
    else:
        yield from pieces(load)


def text_digest(texts: list[str]) -> str:
    """Return what proves that a reader received *texts*, one a stream."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def expected_digest(load: Load) -> str:
    """Return the digest that every reader of *load* must report."""
    return text_digest(["".join(stream_pieces(load))] * load.streams)


# -- the Chat Completions wire --------------------------------------------------------------------


def _chat_frame(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    chunk = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1790000000,
        "model": "bench",
        "service_tier": "default",
        "system_fingerprint": "fp_bench",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}],
        "usage": None,
    }
    return _sse(chunk)


def _sse(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


def _chat_delta(load: Load, piece: str) -> dict[str, Any]:
    if load.content == "arguments":
        return {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
    return {"content": piece}


def chat_frames(load: Load) -> list[bytes]:
    """Return all frames of one stream of *load*: opening, content, finish, usage, end mark."""
    opening: dict[str, Any] = {"role": "assistant", "content": ""}
    finish = "stop"
    if load.content == "arguments":
        function = {"name": "write_file", "arguments": ""}
        opening |= {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]}
        finish = "tool_calls"
    usage = {"prompt_tokens": 3, "completion_tokens": load.events, "total_tokens": load.events + 3}
    last = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "choices": [], "usage": usage}
    return [
        _chat_frame(opening),
        *(_chat_frame(_chat_delta(load, piece)) for piece in stream_pieces(load)),
        _chat_frame({}, finish),
        _sse(last),
        b"data: [DONE]\n\n",
    ]


def _parts(load: Load) -> Parts:
    """Return one stream of *load* as opening, content frames, closing."""
    if load.content == "anthropic":
        return anthropic_parts(stream_pieces(load))
    if load.content == "ndjson":
        return ndjson_parts(stream_pieces(load))
    if load.content == "ws":
        return ws_parts(stream_pieces(load))
    opening, *content, finish, usage, end_mark = chat_frames(load)
    return opening, content, [finish, usage, end_mark]


@cache
def wire_writes(load: Load) -> tuple[bytes, ...]:
    """Return one stream of *load* as the TCP writes that carry it.

    Over HTTP each frame is a chunk of the chunked body, as servers send them; a batch is what TCP makes of
    chunks that nobody has taken yet. The first write has the response head and the first piece of content, so
    that every reader notices that its stream has begun; the last one has everything after the content.
    """
    opening, (first, *content), closing = _parts(load)
    groups = (content[start : start + load.batch] for start in range(0, len(content), load.batch))
    if load.content == "ws":  # the answer to the handshake is the server's
        return (opening + first, *map(b"".join, groups), b"".join(closing))
    return (
        _head(load) + _http_chunks(opening, first),
        *(_http_chunks(*group) for group in groups),
        _http_chunks(*closing) + b"0\r\n\r\n",
    )


def _head(load: Load) -> bytes:
    kind = b"application/x-ndjson" if load.content == "ndjson" else b"text/event-stream; charset=utf-8"
    lasting = b"keep-alive" if load.content == "kept" else b"close"
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: " + kind + b"\r\ntransfer-encoding: chunked\r\n"
        b"cache-control: no-cache\r\nx-request-id: req_bench\r\nconnection: " + lasting + b"\r\n\r\n"
    )


def _http_chunks(*frames: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(frame), frame) for frame in frames)
