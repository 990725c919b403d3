"""Frames that repeat an earlier one: the same text as decoding them whole gives, or none at all."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aiio.providers import repeated
from aiio.providers.chat_wire import read_plain
from aiio.providers.repeated import RepeatedFrames

FRAME = b'{"id":"1","choices":[{"index":0,"delta":{"content":%s},"finish_reason":null}],"usage":null}'


def frame(text: str) -> bytes:
    return FRAME % json.dumps(text).encode()


def known(first: bytes = FRAME % b'"a"') -> RepeatedFrames:
    frames = RepeatedFrames("content", read_plain)
    frames.learn(first)
    return frames


def test_nothing_is_known_at_first() -> None:
    assert RepeatedFrames("content", read_plain).text(frame("a")) is None


@pytest.mark.parametrize("text", ["", " the", 'say "on"\n', "\\", "über 鳥 🐦", "\u2028", "x" * 100_000])
@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_the_text_between_the_known_parts(text: str, ensure_ascii: bool) -> None:
    encoded = json.dumps(text, ensure_ascii=ensure_ascii).encode()
    assert known().text(FRAME % encoded) == text


@pytest.mark.parametrize(
    "other",
    [
        frame("a").replace(b'"1"', b'"2"'),  # before the text
        frame("a").replace(b"usage", b"Usage"),  # after it
        FRAME % b'"a","role":"assistant"',  # a string, but not the only thing in there
        FRAME % b"null",
        FRAME % b'"\\ud83d"',  # half a character: the whole frame has to be looked at
        FRAME % b'"\xff"',
        FRAME % b'"\x01"',
        (FRAME % b'""').replace(b'""', b'"'),  # head and tail overlap
        b"",
        b"[DONE]",
    ],
)
def test_a_frame_that_differs_in_anything_else_is_left_to_the_decoder(other: bytes) -> None:
    assert known().text(other) is None


@given(st.binary(max_size=40))
@example(b'"a","content":"b"')
@example(b'"a" ')
def test_any_bytes_in_the_place_of_the_text_read_as_the_decoder_reads_them(inner: bytes) -> None:
    text = known().text(FRAME % inner)
    if text is not None:
        assert text == read_plain(FRAME % inner)


@pytest.mark.parametrize(
    "first",
    [
        b'{"choices":[{"delta":{"role":"x"}}],"content":"a"}',  # not the delta's
        b'{"note":{"content":"a"},"choices":[{"delta":{"content":"b"}}]}',  # that name twice
        b'{"choices":[{"delta":{"content":null}}]}',
        b"[DONE]",
        b"",
    ],
)
def test_nothing_is_learnt_where_the_member_is_not_proven_to_be_the_text(first: bytes) -> None:
    assert known(first).text(first) is None
    assert known(first).text(frame("a")) is None


def test_spaces_in_the_json_don_t_matter() -> None:
    spaced = b'{ "choices" : [ { "delta" : { "content" : %s } } ] }'
    assert known(spaced % b'"a"').text(spaced % b'"b"') == "b"


def test_a_stream_whose_frames_all_differ_is_soon_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = RepeatedFrames("content", read_plain)
    tries: list[bytes] = []

    def noted(data: bytes) -> str:
        tries.append(data)
        return read_plain(data)

    monkeypatch.setattr(frames, "_text_of", noted)
    for number in range(100):
        changing = FRAME.replace(b'"1"', b'"%d"' % number) % b'"a"'
        assert frames.text(changing) is None
        frames.learn(changing)
    assert len(tries) == repeated.MOST_IN_VAIN


def test_a_stream_that_changes_now_and_then_is_learnt_anew_each_time() -> None:
    frames = RepeatedFrames("content", read_plain)
    for second in range(50):
        changing = FRAME.replace(b'"1"', b'"%d"' % second)
        assert frames.text(changing % b'"a"') is None
        frames.learn(changing % b'"a"')
        for _ in range(repeated.WORTH_IT):
            assert frames.text(changing % b'"b"') == "b"


def test_the_probe_is_a_json_string() -> None:
    assert msgspec.json.decode(repeated.PROBE) == repeated.PROBE_TEXT
