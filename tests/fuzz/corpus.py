"""What fuzzing begins with: the recordings where there are some, else the fixtures, and a few odd ones."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Iterable
from pathlib import Path

from aiio.context.types import Block, assistant_message, user_message
from aiio.transports.framing import NDJSONDecoder, SSEDecoder
from tests.providers.manifest import FIXTURES, recordings_folder

from .mutations import shortened
from .rare_answers import RARE

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
SHORT = 300
"""Bytes of most seeds: an answer keeps all that is odd about it when there is less of it."""
_VARIANTS = 3
"""Short answers made of each."""

_TOKENS = {
    "sse": rb"data: |data:|data|event: |error|: |id: 1|\n|\n\n|\r|\r\n|{}|[DONE]|{|x|1|"
    b"\xef\xbb\xbf|\xe2\x80\xa8",
    "ndjson": rb'{"a":1}|{|}|"|\n|\r\n| |1|null|\f|\v|' b"\xff|\xe2\x80\xa8",
    "chunked": rb"0|1|5|a|F|ff|\r\n|\r|\n|;x=1| |hello|a: b|:|0\r\n\r\n|1\r\nx\r\n|" b"\x00|\xff",
}
"""What each format is made of, apart by bars; escapes are those of Python."""


def folder() -> Path:
    """Return where the recordings are."""
    return recordings_folder() or FIXTURES


@functools.cache
def frames_of(dialect: str) -> tuple[tuple[bytes, ...], ...]:
    """Return the frames that are received in each recording of *dialect*, cut down, and its rare answers."""
    found: list[tuple[bytes, ...]] = []
    for path in sorted({*folder().glob(f"{PREFIXES[dialect]}-*"), *FIXTURES.glob(f"{PREFIXES[dialect]}-*")}):
        if frames := _frames(path):
            found.append(tuple(_cut_down(frames)))
    return tuple(dict.fromkeys([*found, *RARE[dialect]]))


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


def tokens(kind: str) -> list[bytes]:
    """Return what texts of *kind* (sse, ndjson, chunked) are made of."""
    text = _TOKENS[kind]
    for escape, char in ((rb"\n", b"\n"), (rb"\r", b"\r"), (rb"\f", b"\f"), (rb"\v", b"\v")):
        text = text.replace(escape, char)
    return text.split(b"|")


def dialect_seeds(dialect: str) -> list[bytes]:
    """Return inputs for `answering.check_bytes`: answers, most of them short, read and ended variously."""
    choices = (b"\x00", b"\x26", b"\x0a", b"\x0f", b"\x13")
    answers = [b"\n".join(frames) for frames in (*frames_of(dialect), *short_answers(dialect))]
    return [choices[at % len(choices)] + bytes([at % 8]) + answer for at, answer in enumerate(answers)]


@functools.cache
def short_answers(dialect: str) -> tuple[tuple[bytes, ...], ...]:
    """Return the answers of `frames_of`, each cut down to `SHORT` bytes in several ways, always the same."""
    chance = random.Random(0)
    found = (
        tuple(shortened(frames, SHORT, chance)) for frames in frames_of(dialect) for _ in range(_VARIANTS)
    )
    return tuple(dict.fromkeys(found))


def sse_seeds() -> list[bytes]:
    """Return inputs for framing laws: three bytes that cut, and an event stream."""
    return _cut([*_SSE, *_short("*.sse")])


def ndjson_seeds() -> list[bytes]:
    """Return inputs for framing laws: three bytes that cut, and JSON lines."""
    return _cut([b'{"a":1}\r\n\r\n \n{"b":2}', b"1\n2\n\n3", *_short("*.ndjson")])


def chunked_seeds() -> list[bytes]:
    """Return inputs for framing laws: three bytes that cut, and a chunked body."""
    return _cut(_CHUNKED)


def _short(pattern: str) -> list[bytes]:
    ends = [path.read_bytes()[-150:] for path in sorted(folder().glob(pattern))]
    return list(dict.fromkeys([*ends, *(end[-50:] for end in ends)]))


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
