"""What fuzzing begins with: the recordings where there are some, else the fixtures, and a few odd ones."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from aiio.context.types import Block, assistant_message, user_message
from aiio.transports.framing import NDJSONDecoder, SSEDecoder
from tests.providers.manifest import FIXTURES, recordings_folder

PREFIXES = {
    "openai_chat": "chat",
    "openai_responses": "responses",
    "openai_responses_ws": "responses",
    "openai_realtime": "realtime",
    "anthropic": "anthropic",
    "gemini": "gemini",
    "gemini_live": "live",
    "ollama": "ollama",
}
"""What names of recordings begin with, by dialect."""

_LIVE = (
    b'{"setupComplete":{}}',
    b'{"serverContent":{"modelTurn":{"parts":[{"text":"hm","thought":true}]}}}',
    b'{"serverContent":{"modelTurn":{"parts":[{"text":"Hi"}]}}}',
    b'{"toolCall":{"functionCalls":[{"id":"c1","name":"look","args":{"at":"sky"}}]}}',
    b'{"serverContent":{"turnComplete":true},"usageMetadata":{"promptTokenCount":1,"totalTokenCount":3}}',
    b'{"serverContent":{"interrupted":true}}',
    b'{"toolCallCancellation":{"ids":["c1"]}}',
    b'{"goAway":{"timeLeft":"1s"}}',
)
_CHUNKED = (
    b"5\r\nhello\r\n0\r\n\r\n",
    b"5;a=b\r\nhello\r\n00A \r\n0123456789\r\n0\r\nx: y\r\n\r\nHTTP/1.1 200 OK\r\n",
    b"1\r\na\r\n1\r\nb\r\n1\r\nc\r\nff\r\n",
)
_SSE = (
    b"\xef\xbb\xbf: open\r\rretry: 3000\nid: 7\ndata:{}\r\n\r\n:\n\n"
    b'event: message\ndata: {\ndata:  "a":1}\n\n',
    b"data: x\n\ndata: y\n\nevent: error\ndata: z\n\nevent: e\ndata: 1\n\nevent: f\ndata: 2\n\n",
    b"data\n\ndata:\ndata\n\nid: 9\n\nfoo: bar\n\ndata: a\n: glued\ndata: b\n\nevent: lost\n\ndata: [DONE]",
    b'data: 1\n\n{\n "error": {"code": 429}\n}\n',
)
MOST = 2 << 10
"""Bytes of a seed: longer ones make every try slow."""


def folder() -> Path:
    """Return where the recordings are."""
    return recordings_folder() or FIXTURES


@functools.cache
def frames_of(dialect: str) -> tuple[tuple[bytes, ...], ...]:
    """Return the frames of each recording of *dialect*, those that are received; long ones cut down."""
    found: list[tuple[bytes, ...]] = []
    for path in sorted({*folder().glob(f"{PREFIXES[dialect]}-*"), *FIXTURES.glob(f"{PREFIXES[dialect]}-*")}):
        if frames := _frames(path):
            found.append(tuple(_cut_down(frames)))
    if dialect == "gemini_live":
        found.append(_LIVE)
    return tuple(dict.fromkeys(found))


def _frames(path: Path) -> list[bytes]:
    data = path.read_bytes()
    match path.suffix:
        case ".sse":
            decoder = SSEDecoder()
            frames = [*decoder.feed(data), *decoder.flush()]
        case ".ndjson":
            frames = NDJSONDecoder().feed(data + b"\n")
        case ".jsonl":
            entries = map(json.loads, data.splitlines())
            frames = [
                json.dumps(entry["data"], ensure_ascii=False).encode("utf-8", "surrogatepass")
                for entry in entries
                if entry.get("dir") == "recv" and "data" in entry
            ]
        case _:
            frames = []
    return [bytes(frame).replace(b"\n", b" ") for frame in frames]


def _cut_down(frames: list[bytes]) -> list[bytes]:
    """Return the first frames and the last ones, as many as make no long answer."""
    frames = [frame for frame in frames if len(frame) <= MOST // 2]
    while sum(map(len, frames)) > MOST and len(frames) > 2:
        del frames[len(frames) // 2]
    return frames


def dialect_seeds(dialect: str) -> list[bytes]:
    """Return inputs for `answering.check_bytes`: whole answers, each read and ended in several ways."""
    choices = (b"\x00", b"\x25", b"\x2a", b"\x0f", b"\x31")
    answers = [b"\n".join(frames) for frames in frames_of(dialect)]
    return [
        choices[at % len(choices)] + bytes([at % 8]) + answer
        for at, answer in enumerate(chain(answers, answers[::-1]))
    ]


def sse_seeds() -> list[bytes]:
    """Return inputs for framing laws: three bytes that cut, and an event stream."""
    return _cut([*_SSE, *_short(("*.sse",))])


def ndjson_seeds() -> list[bytes]:
    """Return inputs for framing laws: three bytes that cut, and JSON lines."""
    return _cut([b'{"a":1}\r\n\r\n \n{"b":2}', b"1\n2\n\n3", *_short(("*.ndjson",))])


def chunked_seeds() -> list[bytes]:
    """Return inputs for framing laws: three bytes that cut, and a chunked body."""
    return _cut(_CHUNKED)


def _short(patterns: Iterable[str]) -> list[bytes]:
    paths = sorted(path for pattern in patterns for path in folder().glob(pattern))
    return [path.read_bytes()[-150:] for path in paths]


def _cut(datas: Iterable[bytes]) -> list[bytes]:
    return [cuts + data for data in datas for cuts in (b"\x00\x00\x00", b"\x05\x02\x09", b"\xff\x00\x00")]


def session_seeds() -> list[bytes]:
    """Return session files: a good one, and damaged ones."""
    header = (
        b'{"type":"session-metadata","version":1,"id":"s","uuid":"12345678-1234-4234-8234-123456789abc",'
        b'"name":null,"cwd":"/","created":"2026-01-01T00:00:00.000Z"}'
    )
    blocks: list[Block] = [
        {"type": "thinking", "text": "hm", "signature": "s"},
        {"type": "text", "text": 'Hello "there" \\ \U0001f600'},
        {"type": "tool_call", "call_id": "a", "name": "look", "arguments": {"text": "x", "n": [1, 2.5]}},
    ]
    lines = [
        header,
        *(json.dumps(one).encode() for one in (user_message("Hi"), assistant_message(blocks))),
        b'{"type":"usage","n":1}',
    ]
    whole = b"\n".join(lines) + b"\n"
    glued = lines[2][:90] + lines[1]
    return [
        whole,
        whole[:-1],
        whole[:-40],
        b"",
        b"\n\n",
        b"\n".join([header, glued, lines[3]]),
        b"\n".join(lines[1:]),
        header
        + b'\n{"type":3,"content":null}\n{"type":2,"content":[NaN]}\n\xff\n'
        + b'{"type":2,"content":[{"type":"text","text":"\\ud83d',
    ]
