"""D1, D2, D5: bytes are cut into lines, lines into events, and only then anything is decoded."""

from __future__ import annotations

import json

import pytest
from trio.testing import MockClock

import aiio
from tests.serving import Step, chunk, head, last_chunk, pause, serve

from .peer import DONE, GOOD, MODEL, chunk_end, drip, event, events, one_byte_each, peer, stop, text, write

NDJSON = {"content-type": "application/x-ndjson"}
ENDING = (stop(), DONE)

# --- D1: only CR and LF end a line ----------------------------------------------------------------

BOUNDARIES = {
    "VT": "\x0b",
    "FF": "\x0c",
    "FS": "\x1c",
    "GS": "\x1d",
    "RS": "\x1e",
    "US": "\x1f",
    "NEL": "\x85",
    "LS": "\u2028",
    "PS": "\u2029",
}
"""What Python calls a line boundary (and US, the ninth of the family), and the wire does not."""

SPOKEN = "".join(f"{name}{character}|" for name, character in BOUNDARIES.items())

LEGAL = "NEL\x85LS\u2028PS\u2029."
"""Those that JSON lets stand unescaped."""


def raw_text(piece: str) -> bytes:
    """A text chunk with *piece* as it is: not escaped, not even where JSON wants it."""
    before, after = text("\0").split(json.dumps("\0").encode())
    return before + b'"' + piece.encode() + b'"' + after


EACH_WAY = [(which, "sse", "whole") for which in BOUNDARIES] + [
    (which, framing, cut)
    for which in ("all-nine", "legal-json")
    for framing in ("sse", "ndjson")
    for cut in ("whole", "bytewise")
]


@pytest.mark.parametrize(("which", "framing", "cut"), EACH_WAY)
async def test_D1_other_line_boundaries_arrive_unchanged(
    patient_clock: MockClock, which: str, framing: str, cut: str
) -> None:
    said = {"all-nine": SPOKEN, "legal-json": LEGAL}.get(which) or f"a{BOUNDARIES[which]}b"
    frame = raw_text(said)
    if framing == "sse":
        begin, data = head(), event(frame)
        ending = [events(*ENDING), last_chunk()]
    else:
        begin, data = head(200, NDJSON), frame + b"\n"
        ending = [chunk(stop() + b"\n"), last_chunk()]
    body = [chunk(data)] if cut == "whole" else [drip(*one_byte_each(data))]
    async with serve(begin, *body, *ending) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL))
        assert isinstance(seen.terminal, aiio.Done), seen.terminal
        assert seen.text == said


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_D1_lf_crlf_and_cr_end_lines(patient_clock: MockClock, end: bytes) -> None:
    body = b"".join(event(one) for one in GOOD).replace(b"\n", end)
    async with serve(head(), drip(*one_byte_each(body)), last_chunk()) as server, peer(server) as env:
        assert (await write(aiio.IO(env=env, model=MODEL))).text == "Hi"


# --- D2: a character cut in two -------------------------------------------------------------------

WORDS = "a🙂b語c👩‍👩‍👧é"
FRAME = event(text(WORDS))
TYPES = [
    "text/event-stream",
    "text/event-stream; charset=utf-8",
    "text/event-stream; charset=iso-8859-1",
    "text/event-stream; charset=nonsense",
    "text/plain",
]


def inside_characters() -> list[int]:
    """Offsets that cut a character of FRAME in two, and those around them."""
    first, last = FRAME.index("🙂".encode()), FRAME.index("é".encode())
    return list(range(first, last + 3))


@pytest.mark.parametrize("at", inside_characters())
async def test_D2_a_character_cut_at_any_byte_is_whole(patient_clock: MockClock, at: int) -> None:
    cut = drip(FRAME[:at], FRAME[at:])
    async with serve(head(), cut, events(*ENDING), last_chunk()) as server, peer(server) as env:
        assert (await write(aiio.IO(env=env, model=MODEL))).text == WORDS


@pytest.mark.parametrize("content_type", [None, *TYPES])
async def test_D2_it_is_utf8_whatever_the_header_says(
    patient_clock: MockClock, content_type: str | None
) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    body = drip(*one_byte_each(FRAME))
    async with serve(head(200, headers), body, events(*ENDING), last_chunk()) as server, peer(server) as env:
        assert (await write(aiio.IO(env=env, model=MODEL))).text == WORDS


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\xf0\x9f\x99"])
async def test_D2_invalid_utf8_is_one_malformed_error_that_keeps_earlier_text(
    patient_clock: MockClock, bad: bytes
) -> None:
    broken = text("Z").replace(b'"Z"', b'"' + bad + b'"')
    async with (
        serve(head(), events(text("Kept."), broken, *ENDING), last_chunk()) as server,
        peer(server) as env,
    ):
        seen = await write(aiio.IO(env=env, model=MODEL))
        assert seen.error.kind is aiio.ErrorKind.MALFORMED
        assert seen.text == "Kept."


# --- D5: comments, blank lines and empty events ---------------------------------------------------

FIRST, SECOND = event(text("Hi ")), event(text("you"))
SPLIT = text("you").replace(b',"model"', b',\ndata: "model"')
CASES = {
    "ping-after-an-id": b"id: 1\n" + FIRST + b": ping\n\n" + SECOND,
    "bare-colon": FIRST + b":\n\n" + SECOND,
    "colon-without-blank-line": FIRST + b":\n" + SECOND,
    "comment-inside-an-event": FIRST + b"data: " + SPLIT.replace(b"\ndata:", b"\n:\n: ping\ndata:") + b"\n\n",
    "comment-first": b": hello\n\n\n\n" + FIRST + SECOND,
    "empty-data": FIRST + b"data:\n\ndata: \n\ndata\n\n" + SECOND,
    "id-alone": b"id: 7\n\n" + FIRST + b"id: 8\n\nid\n\n" + SECOND,
    "retry-alone": FIRST + b"retry: 3000\n\n" + SECOND,
    "event-alone": FIRST + b"event: ping\n\n" + SECOND,
    "unknown-field": FIRST + b"mood: good\n\nmood\n\n" + SECOND,
    "everything-at-once": b"id: 1\nretry: 5\nmood: x\n: c\n" + FIRST + b"id: 2\n\n:\n\n:\n" + SECOND,
    "ping-with-payload-after-id": b"id: 1\n" + FIRST + b'event: ping\ndata: {"type": "ping"}\n\n' + SECOND,
    "no-space-after-colon": FIRST.replace(b"data: ", b"data:") + b":x\n\n" + SECOND.replace(b": ", b":", 1),
}


@pytest.mark.parametrize("cut", ["whole", "bytewise"])
@pytest.mark.parametrize("case", list(CASES))
async def test_D5_what_is_no_data_is_no_event(patient_clock: MockClock, case: str, cut: str) -> None:
    body = CASES[case] + b"".join(map(event, ENDING))
    steps: list[Step] = [chunk(body)] if cut == "whole" else [drip(*one_byte_each(body))]
    async with serve(head(), *steps, last_chunk()) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL))
        assert isinstance(seen.terminal, aiio.Done), seen.terminal
        assert seen.text == "Hi you"


async def test_D5_a_slow_reply_with_keep_alives_arrives(patient_clock: MockClock) -> None:
    pings = [step for _ in range(4) for step in (pause(15), chunk(b"id: 1\n\n: ping\n\n"))]
    async with serve(head(), *pings, events(*GOOD), chunk_end()) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL))
        assert seen.text == "Hi"
        assert seen.took == pytest.approx(60)
