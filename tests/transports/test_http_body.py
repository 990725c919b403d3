"""Bodies: the same bytes as h11 finds, whatever the cut, and nothing it would refuse."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aiio.transports import http_body
from aiio.transports.http_body import (
    BodyDecoder,
    ChunkedDecoder,
    GzipDecoder,
    LengthDecoder,
    UnknownCoding,
    body_decoder,
    content_decoder,
)
from tests.fuzz.framing_laws import by_h11


def ours(decoder: BodyDecoder, wire: bytes, size: int, *, end: bool = True) -> tuple[bytes, str]:
    body = b"".join(decoder.feed(wire[i : i + size]) for i in range(0, len(wire), size))
    if end:
        decoder.eof()
    return body, "done" if decoder.done else "broken" if decoder.broken else "open"


CHUNK = st.builds(
    lambda data, upper, zeros, extension: (
        (b"0" * zeros + (b"%X" if upper else b"%x") % len(data)) + extension + b"\r\n" + data + b"\r\n"
    ),
    st.binary(min_size=1, max_size=40),
    st.booleans(),
    st.integers(0, 2),
    st.sampled_from([b"", b" ", b" \t", b";a", b';a="b;c"', b"; x=1 "]),
)
TRAILERS = st.sampled_from([b"", b"a: b\r\n", b"x-checksum: 1\r\ny:\r\n"])
CHUNKED = st.builds(
    lambda chunks, last, trailers, rest: b"".join(chunks) + last + trailers + b"\r\n" + rest,
    st.lists(CHUNK, max_size=6),
    st.sampled_from([b"0\r\n", b"000\r\n", b"0;end\r\n"]),
    TRAILERS,
    st.sampled_from([b"", b"HTTP/1.1 200 OK"]),
)


@given(wire=CHUNKED, size=st.integers(1, 50))
def test_chunked_bodies_are_what_h11_makes_of_them(wire: bytes, size: int) -> None:
    expected = by_h11("transfer-encoding", "chunked", wire)
    assert expected[1] == "done"
    assert ours(ChunkedDecoder(), wire, size) == expected


@given(
    bodies=st.lists(
        st.sampled_from([b"data: x\n\n", b"a\r\nb", b"\r\n", b"{}\n", b"5\r\n" * 6, b"x" * 300]),
        max_size=40,
    ),
    size=st.integers(1, 1000),
)
@example(bodies=[b"x", b"y" * 16, b"z" * 300] * 4, size=5000)  # heads of three widths, met again
def test_many_chunks_of_lengths_seen_before_are_what_they_were(bodies: list[bytes], size: int) -> None:
    wire = b"".join(b"%x\r\n%s\r\n" % (len(body), body) for body in bodies) + b"0\r\n\r\n"
    assert ours(ChunkedDecoder(), wire, size) == (b"".join(bodies), "done")


@given(
    bodies=st.lists(
        st.sampled_from([b"data: x\n\n", b"\r\n", b"a\r\nb\r\n", b"y" * 16, b"x" * 300]), max_size=20
    )
)
@example(bodies=[b"five\n", b"a\r\nb\n", b"five\n", b"y" * 16, b"z" * 16, b"five\n"])
def test_a_read_that_is_one_chunk_brings_its_body(bodies: list[bytes]) -> None:
    decoder = ChunkedDecoder()
    for body in bodies:
        assert decoder.feed(b"%x\r\n%s\r\n" % (len(body), body)) == body
    assert decoder.feed(b"0\r\n\r\n") == b""
    assert decoder.done


def test_a_read_that_is_one_chunk_but_for_its_line_end_is_broken() -> None:
    decoder = ChunkedDecoder()
    assert [decoder.feed(b"5\r\nhello\r\n") for _ in range(2)] == [b"hello"] * 2
    assert decoder.feed(b"5\r\nhelloXX") == b"hello"
    assert decoder.broken == "sent a chunk that is longer than announced"


def test_a_chunk_inside_a_chunk_is_its_body() -> None:
    decoder = ChunkedDecoder()
    reads = [b"5\r\nhello\r\n", b"5\r\nhello\r\n", b"a\r\n", b"5\r\nhello\r\n", b"\r\n0\r\n\r\n"]
    assert [decoder.feed(read) for read in reads] == [b"hello", b"hello", b"", b"5\r\nhello\r\n", b""]
    assert decoder.done


@pytest.mark.parametrize("before", [1, 2])
def test_a_read_that_only_looks_like_one_chunk_is_none(before: int) -> None:
    ChunkedDecoder().feed(b"5\r\nhello\r\n" * 2)  # the head is known
    decoder = ChunkedDecoder()
    for _ in range(before):
        assert decoder.feed(b"5\r\nhello\r\n") == b"hello"
    assert decoder.feed(b"5\r\n\r\n") == b"\r\n"
    assert decoder.feed(b"abc\r\n0\r\n\r\n") == b"abc"
    assert decoder.done


def test_lengths_are_remembered_but_not_without_bound() -> None:
    wires = [b"%x;%d\r\n%s\r\n" % (size, size, bytes(size)) for size in range(1, 3000)]
    decoder = ChunkedDecoder()
    assert [len(decoder.feed(wire)) for wire in wires] == [*range(1, 3000)]
    assert 0 < len(http_body._lengths) <= http_body._MAX_KNOWN


@given(wire=CHUNKED, cut=st.integers(0, 300), size=st.integers(1, 50))
def test_a_chunked_body_cut_anywhere_is_broken_and_keeps_what_came(wire: bytes, cut: int, size: int) -> None:
    wire = wire[:cut]
    assert ours(ChunkedDecoder(), wire, size) == by_h11("transfer-encoding", "chunked", wire)


@given(wire=CHUNKED, place=st.integers(0, 200), byte=st.integers(0, 255), size=st.integers(1, 50))
@example(wire=b"5\r\nhello\r\n0\r\n\r\n", place=8, byte=88, size=50)
def test_damage_that_h11_refuses_is_refused(wire: bytes, place: int, byte: int, size: int) -> None:
    place %= len(wire)
    wire = wire[:place] + bytes([byte]) + wire[place + 1 :]
    body, outcome = by_h11("transfer-encoding", "chunked", wire)
    our_body, our_outcome = ours(ChunkedDecoder(), wire, size)
    if our_outcome == "done":  # we may be stricter (bare LF, bare CR in an extension), never laxer
        assert (our_body, our_outcome) == (body, outcome)
    else:
        assert body.startswith(our_body)


@given(data=st.binary(max_size=60), size=st.integers(1, 60))
def test_any_bytes_are_safe_and_the_cut_does_not_matter(data: bytes, size: int) -> None:
    assert ours(ChunkedDecoder(), data, size) == ours(ChunkedDecoder(), data, 1000)


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(
    ("wire", "body", "complaint"),
    [
        (b"5\r\nhelloX", b"hello", "longer than announced"),
        (b"5\r\nhello\rX", b"hello", "longer than announced"),
        (b"g\r\n", b"", "without a proper length"),
        (b"-5\r\nhello", b"", "without a proper length"),
        (b"0x5\r\nhello", b"", "without a proper length"),
        (b"1_0\r\nhello", b"", "without a proper length"),
        (b"\r\n", b"", "without a proper length"),
        (b"5\nhello", b"", "without a proper length"),
        (b"5;" + b"e" * 5000, b"", "without a proper length"),
        (b"5\r\nhello\r\n" + b"1" * 17 + b"\r\n", b"hello", "without a proper length"),
        (b"0\r\nno colon\r\n\r\n", b"", "malformed trailer"),
        (b"0\r\na: " + b"x" * 5000, b"", "malformed trailer"),
        (b"0\r\n" + b"a: b\r\n" * 3000, b"", "too many trailers"),
        (b"5\r\nhel", b"hel", "in the middle"),
        (b"5\r\nhello\r\n", b"hello", "in the middle"),
        (b"0\r\n", b"", "in the middle"),
    ],
)
def test_what_is_wrong_with_a_chunked_body_is_said(
    wire: bytes, body: bytes, complaint: str, size: int
) -> None:
    decoder = ChunkedDecoder()
    assert ours(decoder, wire, size) == (body, "broken")
    assert decoder.broken is not None
    assert complaint in decoder.broken
    assert decoder.feed(b"5\r\nhello\r\n") == b""


def test_one_chunk_over_many_reads_is_passed_on_uncopied() -> None:
    decoder = ChunkedDecoder()
    assert decoder.feed(b"30000\r\n") == b""
    read = bytes(16384)
    assert decoder.feed(read) is read


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_length_body_ends_at_its_length(size: int) -> None:
    assert ours(LengthDecoder(5), b"hello", size) == (b"hello", "done")
    assert ours(LengthDecoder(5), b"hello, more", size) == (b"hello", "done")
    short = LengthDecoder(5)
    assert ours(short, b"hel", size) == (b"hel", "broken")
    assert short.broken == "closed the connection after 3 of 5 bytes of the answer"
    assert LengthDecoder(0).done


def test_a_body_without_any_length_ends_with_the_stream() -> None:
    assert ours(BodyDecoder(), b"hello", 2, end=False) == (b"hello", "open")
    assert ours(BodyDecoder(), b"hello", 2) == (b"hello", "done") == by_h11("x", "y", b"hello")


@pytest.mark.parametrize(
    ("method", "status", "headers", "kind"),
    [
        (b"POST", 200, [("Transfer-Encoding", "chunked")], ChunkedDecoder),
        (b"POST", 200, [("Transfer-Encoding", "chunked"), ("Content-Length", "5")], ChunkedDecoder),
        (b"POST", 200, [("Content-Length", "5")], LengthDecoder),
        (b"POST", 200, [], BodyDecoder),
        (b"POST", 204, [("Transfer-Encoding", "chunked")], LengthDecoder),
        (b"POST", 304, [("Content-Length", "5")], LengthDecoder),
        (b"HEAD", 200, [("Content-Length", "5")], LengthDecoder),
    ],
)
def test_the_head_says_how_the_body_is_framed(
    method: bytes, status: int, headers: list[tuple[str, str]], kind: type[BodyDecoder]
) -> None:
    decoder = body_decoder(method, h11.Response(status_code=status, headers=headers))
    assert type(decoder) is kind
    assert decoder.done is (status in (204, 304) or method == b"HEAD")


def inflate(decoder: GzipDecoder, wire: bytes, size: int) -> bytes:
    out = b""
    for i in range(0, len(wire), size):
        for piece in decoder.pieces(wire[i : i + size]):
            assert 0 < len(piece) <= 65536
            out += piece
    return out


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_gzip_comes_out_in_bounded_pieces(size: int) -> None:
    data = b"data: 1\n\n" * 30_000
    decoder = GzipDecoder()
    assert decoder.complete  # nothing is no half of anything
    assert inflate(decoder, gzip.compress(data), size) == data
    assert decoder.complete


@pytest.mark.parametrize("size", [1, 100])
def test_gzip_may_come_in_members_and_with_padding(size: int) -> None:
    decoder = GzipDecoder()
    wire = gzip.compress(b"a") + gzip.compress(b"b" * 1000) + b"\0\0\0"
    assert inflate(decoder, wire, size) == b"a" + b"b" * 1000
    assert decoder.complete
    assert inflate(decoder, gzip.compress(b"c")[:-3], size) == b"c"
    assert not decoder.complete


def test_gzip_flushed_per_event_comes_event_by_event() -> None:
    packer, decoder = zlib.compressobj(wbits=31), GzipDecoder()
    for event in (b"data: 1\n\n", b"data: 2\n\n"):
        wire = packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH)
        assert b"".join(decoder.pieces(wire)) == event


def test_what_is_not_gzip_raises() -> None:
    with pytest.raises(zlib.error):
        list(GzipDecoder().pieces(b"plain text, no gzip"))


@pytest.mark.parametrize("coding", ["br", "zstd", "deflate", "gzip, gzip", "compress"])
def test_J2_a_coding_that_cannot_be_bounded_is_named(coding: str) -> None:
    with pytest.raises(UnknownCoding, match=f"'{coding}'"):
        content_decoder({"content-encoding": coding})


def test_known_codings() -> None:
    assert content_decoder({}) is None
    assert content_decoder({"content-encoding": "Identity"}) is None
    assert isinstance(content_decoder({"content-encoding": "GZIP"}), GzipDecoder)
    assert isinstance(content_decoder({"content-encoding": "x-gzip"}), GzipDecoder)


class Counted(bytes):
    """Bytes that count what is cut out of them."""

    cut = 0

    def __getitem__(self, key: Any) -> Any:
        piece = super().__getitem__(key)
        if isinstance(piece, bytes):
            Counted.cut += len(piece)
        return piece


def test_unknown_chunk_heads_cost_what_their_bytes_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 8: a head is looked up and, if it is new, matched; nothing copies the rest of the read for it."""
    monkeypatch.setattr(Counted, "cut", 0)
    wire = Counted(b"".join(b"5;never=the-same-%06d\r\nhello\r\n" % number for number in range(1000)))
    assert ChunkedDecoder().feed(wire) == b"hello" * 1000
    assert 0 < Counted.cut < 2 * len(wire)
