"""What only Responses' recordings hold; what all dialects' have in common is in `test_recordings.py`."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import pytest

from aiio.context.events import Error, ErrorKind, FinishReason, ToolCallEnd
from aiio.providers.openai_responses import OpenAIResponses
from aiio.providers.responses_wire import Delta, read_frame
from aiio.transports.framing import SSEDecoder

from .fakes import FakeIO
from .manifest import Replay, Row, reads, recording, replay, rows

streams = pytest.mark.parametrize("row", rows("responses"), ids=lambda row: row.file)


def provider() -> OpenAIResponses:
    return OpenAIResponses("http://x", FakeIO())


def replay_of(file: str) -> Replay:
    return replay(provider(), recording(file).data)


@streams
def test_tier_and_refusal_are_what_the_manifest_says(row: Row) -> None:
    result = replay(provider(), row.data)
    for key in ("service_tier", "refusal"):
        if key in row.extra:
            assert {"service_tier": _tier(result), "refusal": result.text("refusal")}[key] == row.extra[key]


def _tier(result: Replay) -> Any:
    assert result.terminal is not None
    return (result.terminal.native or {}).get("service_tier")


@streams
def test_every_piece_is_read_by_the_fast_reader(row: Row) -> None:
    frames = list(chain.from_iterable(reads(SSEDecoder(), row.data)))
    pieces = sum(type(read_frame(frame)) is Delta for frame in frames)
    assert pieces == sum(b'.delta"' in frame for frame in frames)


# -- what the manifest has no column for


def test_ciphertext_of_reasoning_is_that_of_the_done_item() -> None:
    [thinking, text, call] = replay_of("responses-phase-commentary.sse").content
    row = recording("responses-phase-commentary.sse")
    said = [json.loads(line[6:]) for line in row.data.split(b"\n") if line.startswith(b"data: ")]
    done = next(event["item"] for event in said if event["type"] == "response.output_item.done")
    assert thinking["encrypted_content"] == done["encrypted_content"]
    assert (thinking["text"], thinking["summary"]) == ("", [])
    assert thinking["id"].startswith("rs_")
    assert text["phase"] == "commentary"
    assert call.keys() == {"type", "call_id", "name", "arguments"}


def test_parts_of_a_summary_are_set_apart_when_shown() -> None:
    [thinking, _] = replay_of("responses-reasoning-summary.sse").content
    assert thinking["text"] == "\n\n".join(part["text"] for part in thinking["summary"])
    assert len(thinking["summary"]) == 4


def test_raw_thoughts_are_kept_as_they_came() -> None:
    [thinking, _] = replay_of("responses-openrouter-cot.sse").content
    assert thinking["reasoning"] == [{"type": "reasoning_text", "text": thinking["text"]}]


def test_citations_are_metadata_of_the_text() -> None:
    [first, second, text] = replay_of("responses-web-search.sse").content
    assert [block["item"]["action"]["type"] for block in (first, second)] == ["search", "search"]
    assert [one["type"] for one in text["annotations"]] == ["url_citation"]
    [search, text] = replay_of("responses-file-search.sse").content
    assert search.keys() == {"type", "dialect", "item"}
    assert [one["type"] for one in text["annotations"]] == ["file_citation"]


def test_log_probabilities_are_metadata_of_the_text() -> None:
    [text] = replay_of("responses-logprobs.sse").content
    assert "".join(one["token"] for one in text["logprobs"]) == text["text"]


def test_generated_image_is_a_picture() -> None:
    row = recording("responses-image-generation.sse")
    image = replay_of(row.file).content[-1]
    assert (image["type"], image["mimetype"]) == ("binary", "image/webp")
    assert len(image["content"]) == row.extra["image_b64_len"]
    assert "result" not in image["item"]


def test_free_text_of_a_custom_tool_is_no_json() -> None:
    result = replay_of("responses-custom-tool.sse")
    [end] = [event for event in result.events if isinstance(event, ToolCallEnd)]
    assert end.metadata == {"free_text": True}
    assert result.terminal is not None
    assert result.terminal.finish is FinishReason.TOOL_USE  # type: ignore[union-attr]


FINISHES = {
    "responses-text.sse": FinishReason.STOP,
    "responses-tool.sse": FinishReason.TOOL_USE,
    "responses-refusal.sse": FinishReason.REFUSAL,
    "responses-incomplete-max.sse": FinishReason.LENGTH,
    "responses-incomplete-filter.sse": FinishReason.REFUSAL,
    "responses-mcp-approval.sse": FinishReason.PAUSED,
}


@pytest.mark.parametrize("file", FINISHES)
def test_finish_is_one_of_ours(file: str) -> None:
    terminal = replay_of(file).terminal
    assert terminal is not None
    assert terminal.finish is FINISHES[file]  # type: ignore[union-attr]


def test_E1_quota_error_and_failed_response_are_one_error() -> None:
    result = replay_of("responses-error-quota.sse")
    [error] = result.events
    assert isinstance(error, Error)
    assert (error.kind, error.retryable) == (ErrorKind.PROVIDER, False)
    assert error.native is not None
    assert error.native["type"] == "insufficient_quota"
    assert error.native["id"].startswith("resp_")


def test_E1_failed_response_says_how_long_to_wait() -> None:
    error = replay_of("responses-failed-rate-limit.sse").terminal
    assert isinstance(error, Error)
    assert (error.retryable, error.retry_after_ms) == (True, 11_054)


def test_plan_windows_in_headers_are_quotas(monkeypatch: pytest.MonkeyPatch) -> None:
    row = recording("http-200-headers-codex-plan.http.json")
    io, one = FakeIO(), provider()
    monkeypatch.setattr(one, "now", lambda: 1000.0)
    one.report_plan_usage(row.http_error.headers, io)
    [reported] = io.plan_usage
    for quota in row.extra["quotas"]:
        found = reported[quota["name"]]
        assert (found["total"], found["used"]) == (100, quota["used_percent"])
        assert found["window_seconds"] == quota["window_min"] * 60
        assert found["reset"] == quota["reset_epoch"]
