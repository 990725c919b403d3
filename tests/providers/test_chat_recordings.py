"""Every chat recording, whole and cut, gives what the manifest says; HTTP answers too."""

from __future__ import annotations

import random

import pytest

from aiio.context.events import Error, ErrorKind
from aiio.env.endpoints import KNOWN_ENDPOINTS
from aiio.providers.chat_wire import END, read_frame, read_loosely
from aiio.providers.openai_chat import OpenAIChat
from aiio.providers.quirks import Quirks
from aiio.transports.framing import SSEDecoder, WholeBody

from .conformance import check_events
from .fakes import FakeIO
from .manifest import FIXTURES, NO_RECORDINGS, Row, all_rows, recordings_folder, replay, rows

STREAMS = rows("chat")
ANSWERS = rows("chat", http=True)
SMALL = 4096
streams = pytest.mark.parametrize("row", STREAMS, ids=lambda row: row.file)
ERRORS = [row for row in ANSWERS if row.http_status != 200]
answers = pytest.mark.parametrize("row", ERRORS, ids=lambda row: row.file)


def provider(row: Row | None = None) -> OpenAIChat:
    known = KNOWN_ENDPOINTS.get(row.dialect) if row else None
    return OpenAIChat("http://x", FakeIO(quirks=known.quirks if known else {}))


def test_the_recordings_are_there() -> None:
    folder = recordings_folder()
    if folder is None:
        pytest.skip(NO_RECORDINGS)
    assert len(STREAMS) + len(ANSWERS) == sum(row.protocol == "chat" for row in all_rows(folder))


def test_the_fixtures_are_synthetic_rows() -> None:
    assert {row.provenance for row in all_rows(FIXTURES)} == {"synthetic"}
    assert {row.file for row in all_rows(FIXTURES)} <= {path.name for path in FIXTURES.iterdir()}


def test_the_quirks_of_known_endpoints_are_known_here() -> None:
    for known in KNOWN_ENDPOINTS.values():
        if known.provider == "openai_chat":
            Quirks.of(known.quirks)


@streams
def test_recording_gives_what_the_manifest_says(row: Row) -> None:
    result = replay(provider(row), row.data)
    result.check(row)
    check_events(result.events, result.content, cut=result.terminal is None)


@streams
def test_recording_without_quirks_gives_the_same(row: Row) -> None:
    replay(provider(), row.data).check(row)


@streams
def test_any_cut_gives_the_same_events(row: Row) -> None:
    data = row.data
    cuts: list[tuple[int, ...]]
    if len(data) < SMALL:
        cuts = [(at,) for at in range(1, len(data))]
        cuts.append(tuple(range(1, len(data))))
    else:
        chance = random.Random(row.file)
        cuts = [tuple(sorted(chance.sample(range(1, len(data)), 12))) for _ in range(20)]
    one, whole = provider(row), replay(provider(row), data).events
    for cut in cuts:
        assert replay(one, data, cut).events == whole, cut


@streams
def test_both_readers_give_the_same_events(row: Row) -> None:
    decoder = SSEDecoder()
    frames = [*decoder.feed(row.data), *decoder.flush()]
    typed, loose = provider(row).new_state(), provider(row).new_state()
    for frame in frames:
        try:
            native = read_frame(frame)
        except ValueError:
            with pytest.raises(ValueError):
                read_loosely(frame)
            break
        expected = typed.take(native, lambda: 0.0)
        assert loose.take(END if native is END else read_loosely(frame), lambda: 0.0) == expected
    assert loose.finish() == typed.finish()


@streams
def test_reading_plain_text_at_once_gives_the_same_events(row: Row) -> None:
    decoder = SSEDecoder()
    frames = [*decoder.feed(row.data), *decoder.flush()]
    one, another = provider(row), provider(row)
    state, other_state = one.new_state(), another.new_state()
    for frame in frames:
        try:
            expected = list(one.translate(one.decode(frame), state, one.io))
        except ValueError:
            break
        assert list(another.translate_all([frame], other_state, another.io)) == expected


def _expectation(row: Row, name: str) -> str:
    value = row.extra[name]
    assert isinstance(value, str)
    return value


def _row(file: str) -> Row:
    return next(row for row in STREAMS if row.file == file)


def test_refusal_is_text_that_is_marked() -> None:
    files = {row.file for row in STREAMS}
    if "chat-openai-refusal.sse" not in files:
        pytest.skip(NO_RECORDINGS)
    row = _row("chat-openai-refusal.sse")
    result = replay(provider(), row.data)
    assert result.text("refusal") == _expectation(row, "refusal")
    assert result.terminal is not None
    assert result.terminal.finish == "refusal"  # type: ignore[union-attr]


def test_audio_is_a_binary_block_with_its_transcript_beside_it() -> None:
    row = _row("chat-openai-audio.sse")
    content = replay(provider(), row.data).content
    assert [block["type"] for block in content] == ["text", "binary"]
    assert content[0] == {
        "type": "text",
        "text": _expectation(row, "audio_transcript"),
        "audio_transcript": True,
    }
    assert content[1]["audio_id"] == row.extra["audio_id"]
    assert content[1]["mimetype"] == "audio/wav"
    assert len(content[1]["content"]) * 3 // 4 == row.extra["audio_bytes"]


def test_citations_are_metadata_of_the_text() -> None:
    found = {row.file: row for row in STREAMS}
    if "chat-perplexity-citations.sse" not in found:
        pytest.skip(NO_RECORDINGS)
    perplexity = replay(provider(), found["chat-perplexity-citations.sse"].data)
    openrouter = replay(provider(), found["chat-openrouter-annotations.sse"].data)
    assert len(perplexity.content[0]["citations"]) == 7
    assert len(openrouter.content[0]["annotations"]) == 5


def test_reasoning_details_are_merged_for_replay() -> None:
    found = {row.file: row for row in STREAMS}
    if "chat-openrouter-reasoning.sse" not in found:
        pytest.skip(NO_RECORDINGS)
    [thinking, _] = replay(provider(), found["chat-openrouter-reasoning.sse"].data).content
    [detail] = thinking["reasoning_details"]
    assert detail["text"] == thinking["text"]
    assert detail["signature"].startswith("Et0BCkgIChACGAIqQA2s7h7tA7IG")


def test_think_tags_are_read_on_demand() -> None:
    one = OpenAIChat("http://x", FakeIO(quirks={"think_tags": True}))
    result = replay(one, _row("chat-q-think-tags.sse").data)
    assert [(block["type"], block["text"]) for block in result.content] == [
        ("thinking", "\nhmm"),
        ("text", "\n\nYes."),
    ]


@answers
def test_http_answer_gives_what_the_manifest_says(row: Row) -> None:
    error = row.http_error
    assert row.error is not None
    verdict = provider(row).classify_error(error)
    assert verdict.status == row.error["status_code"]
    assert verdict.code == row.error.get("code")
    assert verdict.kind == (ErrorKind.AUTH if verdict.status in (401, 403) else ErrorKind.PROVIDER)
    message = row.error["message"]
    assert verdict.message.endswith(" [fake]")
    assert message in verdict.message or message == f"Error code: {verdict.status}"
    assert verdict.request_id == row.error.get("request_id")
    if "retry_after_s" in row.error:
        assert verdict.retry_after_ms == row.error["retry_after_s"] * 1000
    if (
        "html" not in row.file
    ):  # there the SDK refuses because the date is years away; the wait is shown instead
        assert verdict.retryable == row.error["sdk_would_retry"]


def test_html_body_is_shown_short_and_a_far_date_is_capped() -> None:
    row = next(row for row in ANSWERS if row.file == "http-openai-503-html.http.json")
    verdict = provider().classify_error(row.http_error)
    assert verdict.message == "HTTP 503: 503 Service Unavailable [fake]"
    assert verdict.retry_after_ms == 2_147_483_647


def test_json_error_on_a_200_is_an_error() -> None:
    row = next(row for row in ANSWERS if row.file == "http-200-json-error.http.json")
    result = replay(provider(), row.http_error.body.encode(), framer=WholeBody)
    assert isinstance(result.terminal, Error)
    assert result.terminal.error == "Upstream unavailable"
    assert (result.terminal.status, result.terminal.code, result.terminal.retryable) == (502, "502", True)
    assert result.message is None


def test_rate_limit_headers_are_quotas(monkeypatch: pytest.MonkeyPatch) -> None:
    for row in ANSWERS:
        if "quotas" in row.extra:
            one = provider()
            monkeypatch.setattr(one, "now", lambda: 1000.0)
            io = FakeIO()
            one.report_plan_usage(row.http_error.headers, io)
            [reported] = io.plan_usage
            for quota in row.extra["quotas"]:
                found = reported[quota["name"]]
                assert (found["total"], found["remaining"]) == (quota["limit"], quota["remaining"])
                assert found["reset"] - 1000 == pytest.approx(quota["reset_s"])


def test_headers_without_limits_report_nothing() -> None:
    io = FakeIO()
    provider().report_plan_usage({"x-request-id": "1"}, io)
    assert io.plan_usage == []
