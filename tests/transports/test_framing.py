"""Framing: any cut gives the same frames, and the fast ways agree with the rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aiio.transports.base import Frame
from aiio.transports.framing import Framer, FrameTooLong, NDJSONDecoder, SSEDecoder, WholeBody
from tests.fuzz.framing_laws import is_json, sse_by_the_standard

from .recordings import recordings

NAMELESS = {"\v": "VT", "\f": "FF", "\x1c": "FS", "\x1d": "GS", "\x1e": "RS", "\x85": "NEL"}
SEPARATORS = "".join(NAMELESS) + "\u2028\u2029"


def run(decoder: Framer, chunks: Iterable[bytes]) -> list[bytes]:
    frames = [frame for chunk in chunks for frame in decoder.feed(chunk)]
    return frames + decoder.flush()


def named(frames: Iterable[bytes]) -> list[tuple[bytes, str]]:
    return [(bytes(frame), frame.name if isinstance(frame, Frame) else "") for frame in frames]


def pieces(wire: bytes, size: int) -> list[bytes]:
    return [wire[i : i + size] for i in range(0, len(wire), size)]


QUIRKS = (
    b"\xef\xbb\xbf: open\r\rretry: 3000\nid: 7\ndata:{}\r\n\r\n:\n\n"
    b'event: message\ndata: {\ndata:  "a":1}\n\n'
    b"data: x\n\ndata: y\n\nevent: error\ndata: z\n\nevent: e\ndata: 1\n\nevent: f\ndata: 2\n\n"
    b"data\n\ndata:\ndata\n\nid: 9\n\nfoo: bar\n\ndata: a\n: glued\ndata: b\n\nevent: lost\n\n"
    b"data:  two\n\ndata: \n\ndata: [DONE]\n\ndata: 1"
)
QUIRK_FRAMES = [
    (b"{}", ""),
    (b'{\n "a":1}', ""),
    (b"x", ""),
    (b"y", ""),
    (b"z", "error"),
    (b"1", ""),
    (b"2", ""),
    (b"a\nb", ""),
    (b" two", ""),
    (b"[DONE]", ""),
    (b"1", ""),
]


def test_the_oracle_knows_the_quirks() -> None:
    assert sse_by_the_standard(QUIRKS) == (QUIRK_FRAMES, 3)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
def test_sse_quirks_in_pieces(size: int) -> None:
    decoder = SSEDecoder()
    assert named(run(decoder, pieces(QUIRKS, size))) == QUIRK_FRAMES
    assert decoder.keepalives == 3


def test_sse_quirks_cut_at_every_byte() -> None:
    for cut in range(len(QUIRKS) + 1):
        assert named(run(SSEDecoder(), [QUIRKS[:cut], b"", QUIRKS[cut:]])) == QUIRK_FRAMES, cut


def test_what_only_looks_like_named_events_goes_by_the_rules() -> None:
    wire = b"event: a\nfoo: x\n\nevent: b\ndata: 1\n\nevent: c\ndata: \n\nevent: d\ndata: 2\n\n"
    assert run(SSEDecoder(), [wire]) == [b"1", b"2"]
    assert run(SSEDecoder(), [wire[17:]]) == [b"1", b"2"]


LINES = st.sampled_from(
    b"data: a|data: {}|data:b|data|data: |data:  c|event: error|event: m|event|: ping|:|id: 1|id|retry: 5|"
    b"unknown: x|data: \xe2\x80\xa8|data: d:e|".split(b"|")
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n", b"\n\n", b"\r\r"])
WIRES = st.lists(st.tuples(LINES, ENDS).map(b"".join), max_size=12).map(b"".join)


@given(wire=WIRES, cuts=st.lists(st.integers(0, 200), max_size=6), bom=st.booleans())
@example(wire=b"data: a\n\ndata: b\r\n\r\n", cuts=[11, 19], bom=True)
def test_sse_is_the_standard_whatever_the_cut(wire: bytes, cuts: list[int], bom: bool) -> None:
    wire = b"\xef\xbb\xbf" * bom + wire
    places = [0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]
    decoder = SSEDecoder()
    chunks = [wire[a:b] for a, b in pairwise(places)]
    assert (named(run(decoder, chunks)), decoder.keepalives) == sse_by_the_standard(wire)


@given(data=st.binary(max_size=60), cut=st.integers(0, 60))
def test_sse_takes_any_bytes(data: bytes, cut: int) -> None:
    whole, halves = run(SSEDecoder(), [data]), run(SSEDecoder(), [data[:cut], data[cut:]])
    assert named(whole) == named(halves)


@pytest.mark.parametrize("path", recordings(".sse"), ids=lambda path: path.name)
def test_recorded_streams_cut_in_pieces(path: Path) -> None:
    wire = path.read_bytes()
    frames, comments = sse_by_the_standard(wire)
    for size in (1, 37, 1460, len(wire)):
        decoder = SSEDecoder()
        found = named(run(decoder, pieces(wire, size)))
        assert found[: len(frames)] == frames
        assert decoder.keepalives == comments
        for stray, name in found[len(frames) :]:  # an error that came without `data:`
            assert (name, is_json(stray)) == ("", True)


@pytest.mark.parametrize("ends", ["\n\n", "\r\n\r\n"])
@pytest.mark.parametrize("size", [1, 10_000])
def test_D1_sse_only_cr_and_lf_end_a_line(ends: str, size: int) -> None:
    payload = json.dumps({"text": f"a{SEPARATORS}b"}, ensure_ascii=False).encode()
    wire = b"".join(b"data: " + payload + ends.encode() for _ in range(3))
    frames = run(SSEDecoder(), pieces(wire, size))
    assert frames == [payload] * 3
    assert json.loads(frames[0], strict=False)["text"] == f"a{SEPARATORS}b"


@pytest.mark.parametrize("size", [1, 10_000])
def test_D1_ndjson_only_lf_ends_a_line(size: int) -> None:
    payload = json.dumps({"text": f"a{SEPARATORS}\u2029b"}, ensure_ascii=False).encode()
    wire = payload + b"\n" + payload + b"\r\n\r\n \n" + payload
    assert run(NDJSONDecoder(), pieces(wire, size)) == [payload] * 3


@pytest.mark.parametrize("make", [SSEDecoder, NDJSONDecoder, WholeBody])
def test_D2_characters_cut_in_two_arrive_whole(make: Callable[[], Framer]) -> None:
    payload = '{"text":"a😀漢é"}'.encode()
    wire = {SSEDecoder: b"data: %b\n\n", NDJSONDecoder: b"%b\n", WholeBody: b"%b"}[make] % payload  # type: ignore[index]
    for cut in range(len(wire) + 1):
        assert run(make(), [wire[:cut], wire[cut:]]) == [payload]


def test_D2_invalid_utf8_stays_in_its_own_frame() -> None:
    assert run(SSEDecoder(), [b"data: 1\n\ndata: \xff\n\ndata: 2\n\n"]) == [b"1", b"\xff", b"2"]


def test_D5_an_event_without_data_between_reads_of_one_event_dispatches_nothing() -> None:
    decoder = SSEDecoder()
    reads = [b"data: a\n\n", b"data: \n\n", b"data: b\n\n", b"data:\n\n", b"data: c\n\n"]
    assert [decoder.feed(read) for read in reads] == [[b"a"], [], [b"b"], [], [b"c"]]


def test_a_read_of_one_event_is_told_from_one_of_several_and_from_one_too_long() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: 0\n\n") == [b"0"]
    assert decoder.feed(b"data: 1\n\ndata: 2\n\n") == [b"1", b"2"]
    decoder = SSEDecoder(5)
    assert decoder.feed(b"data: 0\n\n") == [b"0"]
    with pytest.raises(FrameTooLong):
        decoder.feed(b"data: 123456\n\n")


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_D5_comments_ids_and_empty_data_dispatch_nothing(size: int) -> None:
    wire = (
        b"id: 1\ndata: a\n\n: ping\n\n:\n\nid: 2\n\nretry: 1\n\nevent: ping\n\nother: x\n\ndata:\n\n"
        b"data: b\n: glued\ndata: c\n\n: ping\n\ndata: d\n\n"
    )
    decoder = SSEDecoder()
    assert run(decoder, pieces(wire, size)) == [b"a", b"b\nc", b"d"]
    assert decoder.keepalives == 4


@pytest.mark.parametrize(
    ("wire", "frames"),
    [
        (b'data: {"a":1}', [b'{"a":1}']),
        (b'data: {"a":1}\n', [b'{"a":1}']),
        (b"data: [DONE]", [b"[DONE]"]),
        (b'data: {"a":NaN}', [b'{"a":NaN}']),
        (b'data: {"a":', []),
        (b"data: " + b"[" * 5000, []),
        (b"data: half a wo", []),
        (b"event: error\ndata: {}", [b"{}"]),
        (b"dat", []),
        (b"\xef\xbb", []),
        (b"", []),
    ],
)
def test_the_end_flushes_what_is_whole(wire: bytes, frames: list[bytes]) -> None:
    decoder = SSEDecoder()
    assert [*decoder.feed(wire), *decoder.flush()] == frames
    assert decoder.flush() == []


@pytest.mark.parametrize("size", [1, 1000])
def test_a_json_error_without_data_lines_becomes_one_frame_at_the_end(size: int) -> None:
    error = b'{\n  "error": {\n    "code": 429,\n\n    "message": "data: no"\n  }\n}\n'
    wire = b"data: 1\n\n" + error + b"id: 3\n: ping\n"
    frames = run(SSEDecoder(), pieces(wire, size))
    assert frames[0] == b"1"
    assert [json.loads(frame) for frame in frames[1:]] == [{"error": {"code": 429, "message": "data: no"}}]
    assert run(SSEDecoder(), pieces(wire[:40], size)) == [b"1"]  # half of it is nothing


def test_an_error_event_keeps_its_name_on_every_path() -> None:
    for wire in (
        b"event: error\ndata: {}\n\n",
        b"event:error\nid: 1\ndata: {}\n\n",
        b"event: error\r\ndata: {}\r\n\r\n",
    ):
        assert named(run(SSEDecoder(), [wire])) == [(b"{}", "error")]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_frame_may_be_as_long_as_the_limit_and_no_longer(size: int) -> None:
    good, bad = b"x" * 100, b"y" * 101
    for lines, frame in ((b"data: %b\n\n", good), (b"data: a\ndata: %b\n\n", b"x" * 98)):
        frames = run(SSEDecoder(100), pieces(lines % frame, size))
        assert [len(found) for found in frames] == [100]
    for wire in (
        b"data: 1\n\ndata: %b\n\ndata: 2\n\n" % bad,
        b"data: 1\n\ndata: a\ndata: %b\n\n" % good,
        b"data: 1\n\n: %b\n\n" % (bad + bad),
        b"data: 1\n\nevent: m\ndata: %b\n\n" % bad,
        b"data: 1\n\n{\n%b\n%b\n" % (good[:60], good[:60]),
        b"data: 1\n\ndata: " + bad + b"y" * 20,
    ):
        assert too_long(SSEDecoder(100), pieces(wire, size)) == [b"1"]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_ndjson_lines_and_whole_bodies_are_bounded_too(size: int) -> None:
    assert too_long(NDJSONDecoder(10), pieces(b"1\n\n12345678901\n2\n", size)) == [b"1"]
    assert too_long(NDJSONDecoder(10), pieces(b"1\n12345678901", size)) == [b"1"]
    assert run(NDJSONDecoder(10), pieces(b"1\n1234567890\n2\n", size)) == [b"1", b"1234567890", b"2"]
    assert too_long(WholeBody(10), pieces(b"12345678901", size)) == []


def too_long(decoder: Framer, chunks: Iterable[bytes]) -> list[bytes]:
    """Return the frames before the one that *decoder* refuses."""
    frames: list[bytes] = []
    try:
        for chunk in chunks:
            frames += decoder.feed(chunk)
    except FrameTooLong as exc:
        return frames + exc.frames
    raise AssertionError("no frame was too long")


def test_ndjson_drops_a_half_line_at_the_end() -> None:
    decoder = NDJSONDecoder()
    assert decoder.feed(b'{"a":1}\n{"b"') == [b'{"a":1}']
    assert decoder.flush() == []
    assert decoder.keepalives == 0


def test_a_whole_body_is_one_frame_and_a_cut_one_only_if_complete() -> None:
    def body(data: bytes, *, cut: bool) -> list[bytes]:
        decoder = WholeBody()
        assert decoder.feed(data) == []
        return decoder.flush(cut=cut)

    assert body(b' {"a":\n1} \n', cut=False) == body(b' {"a":\n1} \n', cut=True) == [b'{"a":\n1}']
    assert body(b'{"a":', cut=False) == [b'{"a":']  # for the dialect to call malformed
    assert body(b'{"a":', cut=True) == []
    assert body(b" \n", cut=False) == []


@pytest.mark.parametrize(
    "wire",
    [
        b"data: " + b"x" * 200_000 + b"\n\n",
        b"data: {}\n\n" * 20_000,
        b"event: m\ndata: {}\n\n" * 10_000,
        b"data: x\n" * 25_000 + b"\n",
        b"{" + b"\n" * 199_999,
        b": c\n" * 50_000,
        b"\r\n" * 100_000,
    ],
    ids=["one frame", "plain", "named", "many lines", "stray", "comments", "blank"],
)
def test_M1_one_byte_at_a_time_gives_the_same_frames(wire: bytes) -> None:
    whole, cut = SSEDecoder(), SSEDecoder()
    expected = [*whole.feed(wire), *whole.flush()]
    frames = [frame for position in range(len(wire)) for frame in cut.feed(wire[position : position + 1])]
    assert [*frames, *cut.flush()] == expected
    assert cut.keepalives == whole.keepalives
