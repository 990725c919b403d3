"""Framing, on what hypothesis thinks of: any bytes in any pieces, and bytes that look like the real thing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aiio.transports.framing import SSEDecoder

from . import corpus
from .framing_laws import (
    check_chunked,
    check_ndjson,
    check_ndjson_limit,
    check_sse,
    check_sse_limit,
    check_whole,
    pieces,
    run,
    split,
)

CUTS = st.lists(st.integers(0, 80), max_size=5)
CHECKS: dict[str, Callable[[bytes, Sequence[int]], None]] = {
    "sse": check_sse,
    "sse-limit": check_sse_limit,
    "ndjson": check_ndjson,
    "ndjson-limit": check_ndjson_limit,
    "whole": check_whole,
    "chunked": check_chunked,
}


def made_of(kind: str) -> st.SearchStrategy[bytes]:
    """Return texts of the tokens of *kind*, with any bytes between them now and then."""
    token = st.sampled_from(corpus.tokens("ndjson" if kind == "whole" else kind.removesuffix("-limit")))
    return st.lists(token | token | token | st.binary(max_size=3), max_size=20).map(b"".join)


@pytest.mark.parametrize("kind", CHECKS)
@given(data=st.data(), cuts=CUTS)
def test_any_bytes_in_any_pieces_give_the_frames_of_the_rules(kind: str, data: Any, cuts: list[int]) -> None:
    CHECKS[kind](data.draw(made_of(kind) | st.binary(max_size=80)), cuts)


SEEDS = {
    "sse": corpus.sse_seeds,
    "ndjson": corpus.ndjson_seeds,
    "whole": corpus.ndjson_seeds,
    "chunked": corpus.chunked_seeds,
}


@pytest.mark.parametrize("kind", CHECKS)
def test_what_fuzzing_begins_with_keeps_the_laws(kind: str) -> None:
    for seed in SEEDS[kind.removesuffix("-limit")]():
        CHECKS[kind](*split(seed))


@given(data=st.binary(max_size=40), cuts=CUTS)
@example(data=b"ab", cuts=[0, 1, 2, 3])
def test_pieces_are_the_whole(data: bytes, cuts: list[int]) -> None:
    assert b"".join(pieces(data, cuts)) == data


def test_the_laws_can_be_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that loses a byte at a cut is found out by each check that has a cut."""
    take = SSEDecoder.feed
    monkeypatch.setattr(SSEDecoder, "feed", lambda self, chunk: take(self, chunk[:3] + chunk[4:]))
    with pytest.raises(AssertionError):
        check_sse(b"data: 12345\n\n", [6])
    assert run(SSEDecoder(), [b"data: 12345\n\n"]) == ([], 0)
