"""What fuzzing found: each input, as small as it gets, and what it must become."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aiio.context.events import Error
from aiio.context.session_format import entry_line, parse_entry
from aiio.context.types import assistant_message, text_content
from aiio.providers.base import decode_json
from aiio.transports.framing import Framer, NDJSONDecoder, SSEDecoder, WholeBody
from aiio.transports.http_body import ChunkedDecoder

from .answering import End, answered, check_message, check_outcome, check_replay
from .framing_laws import check_chunked, check_ndjson, check_sse, check_whole, unchunked


def frames(*values: Any) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]


RESPONSES_SEARCH_AND_TEXT = frames(
    {"type": "response.web_search_call.in_progress", "output_index": 0},
    {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "Hi"},
    {"type": "response.output_text.done", "output_index": 1, "content_index": 0, "text": "Hi"},
    {
        "type": "response.output_item.done",
        "output_index": 1,
        "item": {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]},
    },
)
ANTHROPIC_EMPTY_AND_TEXT = frames(
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
    {"type": "content_block_stop", "index": 0},
)


@pytest.mark.parametrize(
    ("dialect", "sent"),
    [("openai_responses", RESPONSES_SEARCH_AND_TEXT), ("anthropic", ANTHROPIC_EMPTY_AND_TEXT)],
)
def test_B1_text_that_came_in_one_read_behind_mere_work_is_said_to_have_been_emitted(
    dialect: str, sent: list[bytes]
) -> None:
    """Else `safe_to_retry` would have it delivered twice."""
    outcome = answered(dialect, [sent], End.FAULT)
    check_outcome(outcome)
    assert isinstance(outcome.terminal, Error)
    assert (outcome.terminal.emitted, outcome.terminal.safe_to_retry) == (True, False)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_number_that_is_none_does_not_make_a_message_that_cannot_be_stored(number: str) -> None:
    frame = b'{"message":{"tool_calls":[{"function":{"name":"f","arguments":{"n":[%b]}}}]},"done":true}'
    outcome = answered("ollama", [[frame % number.encode()]], End.STREAM)
    check_outcome(outcome)
    assert outcome.terminal.message["content"][0]["arguments"] == {"n": [None]}
    assert decode_json(number.encode()) is None


@pytest.mark.parametrize("dialect", ["openai_realtime", "gemini_live"])
def test_half_a_surrogate_pair_can_be_sent_on_over_a_socket(dialect: str) -> None:
    check_replay(assistant_message([text_content("a\udc00b")]), dialect)


@pytest.mark.parametrize("item", [{"id": "x"}, {"type": None}, {"type": ""}])
def test_an_item_without_a_type_does_not_go_back(item: dict[str, Any]) -> None:
    sent = frames(
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"status": "completed"}},
    )
    outcome = answered("openai_responses", [sent], End.STREAM)
    check_outcome(outcome)
    if outcome.terminal.message is not None:
        check_message(outcome.terminal.message)
    for dialect in ("openai_responses", "openai_realtime"):
        block = {"type": "server", "dialect": "openai_responses", "item": item}
        check_replay(assistant_message([text_content("a"), block]), dialect)
        check_replay(assistant_message([block]), dialect)


@pytest.mark.parametrize("key", ["limit", "remaining", "reset_seconds"])
def test_a_number_of_four_hundred_digits_is_no_rate_limit(key: str) -> None:
    frame = json.dumps({"type": "rate_limits.updated", "rate_limits": [{"name": "tokens", key: 10**400}]})
    check_outcome(answered("openai_realtime", [[frame.encode()]], End.FAULT))


@pytest.mark.parametrize(
    "key", ["used_percent", "window_minutes", "resets_at", "reset_at", "limit_window_seconds"]
)
def test_a_number_of_four_hundred_digits_is_no_plan_usage(key: str) -> None:
    windows = {"primary": {"used_percent": 5, key: 10**400}}
    frame = json.dumps({"type": "codex.rate_limits", "rate_limits": windows})
    check_outcome(answered("openai_responses_ws", [[frame.encode()]], End.FAULT))


TEXTS_IN_OTHER_CODES = [b"\xef\xbb\xbf1", b"1\x00", b"\x00\x00\x001", b"{\x00}\x00"]


@pytest.mark.parametrize("last", TEXTS_IN_OTHER_CODES)
def test_a_last_frame_counts_as_whole_only_if_a_dialect_can_read_it(last: bytes) -> None:
    """JSON behind a BOM, or in UTF-16, was taken for whole, and its answer for malformed instead of cut."""
    decoders: tuple[tuple[Framer, bytes], ...] = (
        (SSEDecoder(), b"\ndata: "),
        (NDJSONDecoder(), b""),
        (WholeBody(), b""),
    )
    for decoder, head in decoders:
        decoder.feed(head + last)
        assert decoder.flush(cut=True) == []
    with pytest.raises(ValueError):
        decode_json(last)
    check_sse(b"[\ndata: " + last + b"\ndddd", [5])
    check_ndjson(last, [1])
    check_whole(last, [1])


def test_a_last_frame_with_a_raw_control_character_is_whole() -> None:
    frame = b'{"text":"a\tb"}'
    decoder = SSEDecoder()
    assert [*decoder.feed(b"data: " + frame), *decoder.flush()] == [frame]
    assert decode_json(frame) == {"text": "a\tb"}


def test_a_record_is_read_as_its_owner_wrote_it() -> None:
    """Its `content` became a list, as that of an empty message does."""
    record = {"type": "note", "content": None}
    assert parse_entry(entry_line(record, 0)) == record
    assert parse_entry(b'{"type":2,"content":null}') == {"type": 2, "content": []}


@pytest.mark.parametrize("end", End)
def test_sound_that_is_no_base64_comes_as_it_was_sent(end: End) -> None:
    """A piece that is not even ASCII raised while a cut answer was settled, and its sound was lost."""
    sent = [frames({"type": "response.audio.delta", "delta": piece})[0] for piece in ("AAA=", "é", "A")]
    outcome = answered("openai_responses_ws", [sent], end)
    check_outcome(outcome)
    assert outcome.terminal.message["content"][0]["content"] == "AAA=éA"


def test_a_request_id_that_is_no_text_is_none() -> None:
    """It raised out of the write when the answer failed."""
    sent = frames({"choices": [], "x_groq": {"id": 7}}, {"error": {"message": "m"}})
    outcome = answered("openai_chat", [sent], End.STREAM)
    check_outcome(outcome)
    assert isinstance(outcome.terminal, Error)
    assert outcome.terminal.request_id is None


@pytest.mark.parametrize("value", [b"\f", b" \v", b"a\fb", b"a\v"])
def test_a_trailer_holds_no_white_space_but_spaces_and_tabs(value: bytes) -> None:
    """A trailer that h11 refuses made a whole body."""
    wire = b"1\r\na\r\n0\r\nx: " + value + b"\r\n\r\n"
    assert unchunked(ChunkedDecoder(), [wire]) == (b"a", "broken")
    for cut in range(len(wire)):
        check_chunked(wire, [cut])


@pytest.mark.parametrize("field", [b"Content-Length: x", b"content-length: 1,2", b"transfer-encoding: gzip"])
def test_a_trailer_about_framing_is_read_over_like_any_other(field: bytes) -> None:
    wire = b"1\r\na\r\n0\r\n" + field + b"\r\n\r\n"
    assert unchunked(ChunkedDecoder(), [wire]) == (b"a", "done")
    check_chunked(wire, [9])
