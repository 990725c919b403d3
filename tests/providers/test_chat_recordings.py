"""What only Chat Completions' recordings hold; what all dialects' hold is in `test_recordings.py`."""

from __future__ import annotations

import pytest

from aiio.context.events import Error
from aiio.env.endpoints import KNOWN_ENDPOINTS
from aiio.providers.openai_chat import OpenAIChat
from aiio.providers.quirks import Quirks
from aiio.transports.framing import WholeBody

from .fakes import FakeIO
from .manifest import Row, recording, replay, rows


def provider() -> OpenAIChat:
    return OpenAIChat("http://x", FakeIO())


def test_the_quirks_of_known_endpoints_are_known_here() -> None:
    for known in KNOWN_ENDPOINTS.values():
        if known.provider == "openai_chat":
            Quirks.of(known.quirks)


@pytest.mark.parametrize("row", rows("chat"), ids=lambda row: row.file)
def test_recording_without_quirks_gives_the_same(row: Row) -> None:
    replay(provider(), row.data).check(row)


def _expectation(row: Row, name: str) -> str:
    value = row.extra[name]
    assert isinstance(value, str)
    return value


def test_refusal_is_text_that_is_marked() -> None:
    row = recording("chat-openai-refusal.sse")
    result = replay(provider(), row.data)
    assert result.text("refusal") == _expectation(row, "refusal")
    assert result.terminal is not None
    assert result.terminal.finish == "refusal"  # type: ignore[union-attr]


def test_audio_is_a_binary_block_with_its_transcript_beside_it() -> None:
    row = recording("chat-openai-audio.sse")
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
    perplexity = replay(provider(), recording("chat-perplexity-citations.sse").data)
    openrouter = replay(provider(), recording("chat-openrouter-annotations.sse").data)
    assert len(perplexity.content[0]["citations"]) == 7
    assert len(openrouter.content[0]["annotations"]) == 5


def test_reasoning_details_are_merged_for_replay() -> None:
    [thinking, _] = replay(provider(), recording("chat-openrouter-reasoning.sse").data).content
    [detail] = thinking["reasoning_details"]
    assert detail["text"] == thinking["text"]
    assert detail["signature"].startswith("Et0BCkgIChACGAIqQA2s7h7tA7IG")


def test_think_tags_are_read_on_demand() -> None:
    one = OpenAIChat("http://x", FakeIO(quirks={"think_tags": True}))
    result = replay(one, recording("chat-q-think-tags.sse").data)
    assert [(block["type"], block["text"]) for block in result.content] == [
        ("thinking", "\nhmm"),
        ("text", "\n\nYes."),
    ]


def test_html_body_is_shown_short_and_a_far_date_is_capped() -> None:
    row = recording("http-openai-503-html.http.json")
    verdict = provider().classify_error(row.http_error)
    assert verdict.message == "HTTP 503: 503 Service Unavailable [fake]"
    assert verdict.retry_after_ms == 2_147_483_647


def test_json_error_on_a_200_is_an_error() -> None:
    row = recording("http-200-json-error.http.json")
    result = replay(provider(), row.http_error.body.encode(), framer=WholeBody)
    assert isinstance(result.terminal, Error)
    assert result.terminal.error == "Upstream unavailable"
    assert (result.terminal.status, result.terminal.code, result.terminal.retryable) == (502, "502", True)
    assert result.message is None


def test_rate_limit_headers_are_quotas(monkeypatch: pytest.MonkeyPatch) -> None:
    for row in rows("chat", http=True):
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
