"""Every Responses recording, whole and cut, gives what the manifest says; HTTP answers too."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from aiio.context.events import Error, ErrorKind, FinishReason, ToolCallEnd
from aiio.providers.chat_wire import END
from aiio.providers.openai_responses import OpenAIResponses
from aiio.providers.responses_wire import Delta, read_frame, read_loosely
from aiio.transports.framing import SSEDecoder

from .conformance import check_events
from .fakes import FakeIO
from .manifest import NO_RECORDINGS, Replay, Row, all_rows, recordings_folder, replay, rows

STREAMS = rows("responses")
ANSWERS = rows("responses", http=True)
SMALL = 4096
streams = pytest.mark.parametrize("row", STREAMS, ids=lambda row: row.file)
answers = pytest.mark.parametrize(
    "row", [row for row in ANSWERS if row.http_status != 200], ids=lambda row: row.file
)


def provider() -> OpenAIResponses:
    return OpenAIResponses("http://x", FakeIO())


def replayed(file: str) -> Replay:
    """Replay one recording; skip where it isn't there."""
    found = {row.file: row for row in STREAMS}
    if file not in found:
        pytest.skip(NO_RECORDINGS)
    return replay(provider(), found[file].data)


def test_the_recordings_are_there() -> None:
    folder = recordings_folder()
    if folder is None:
        pytest.skip(NO_RECORDINGS)
    assert len(STREAMS) + len(ANSWERS) == sum(row.protocol == "responses" for row in all_rows(folder))


@streams
def test_recording_gives_what_the_manifest_says(row: Row) -> None:
    result = replay(provider(), row.data)
    result.check(row)
    check_events(result.events, result.content, cut=result.terminal is None)
    for key in ("service_tier", "refusal"):
        if key in row.extra:
            assert {"service_tier": _tier(result), "refusal": result.text("refusal")}[key] == row.extra[key]


def _tier(result: Replay) -> Any:
    assert result.terminal is not None
    return (result.terminal.native or {}).get("service_tier")


def small_cuts(data: bytes) -> Iterator[tuple[int, ...]]:
    if len(data) < SMALL:
        yield from ((at,) for at in range(1, len(data)))
        yield tuple(range(1, len(data)))


@streams
def test_any_cut_gives_the_same_events(row: Row) -> None:
    data = row.data
    cuts = list(small_cuts(data))
    if not cuts:
        chance = random.Random(row.file)
        cuts = [tuple(sorted(chance.sample(range(1, len(data)), 12))) for _ in range(20)]
    one, whole = provider(), replay(provider(), data).events
    for cut in cuts:
        assert replay(one, data, cut).events == whole, cut


@streams
def test_both_readers_give_the_same_events(row: Row) -> None:
    decoder = SSEDecoder()
    frames = [*decoder.feed(row.data), *decoder.flush()]
    typed, loose = provider().new_state(), provider().new_state()
    pieces = 0
    for frame in frames:
        native = read_frame(frame)
        pieces += type(native) is Delta
        expected = typed.take(native, lambda: 0.0)
        assert list(loose.take(END if native is END else read_loosely(frame), lambda: 0.0)) == list(expected)
    assert list(loose.finish(lambda: 0.0)) == list(typed.finish(lambda: 0.0))
    assert pieces == sum(b'.delta"' in frame for frame in frames)


@streams
def test_E3_without_its_terminal_event_an_answer_is_cut(row: Row) -> None:
    decoder = SSEDecoder()
    frames = [*decoder.feed(row.data), *decoder.flush()]
    last = [at for at, frame in enumerate(frames) if b'"response":{' in frame or b'"error"' in frame][-1]
    for length in range(last if row.error is None else 0):
        one = provider()
        state = one.new_state()
        for frame in frames[:length]:
            list(one.translate(one.decode(frame), state, one.io))
        assert list(one.finish(state, one.io)) == []
        assert not one.ending(state)


# -- what the manifest has no column for


def test_ciphertext_of_reasoning_is_that_of_the_done_item() -> None:
    [thinking, text, call] = replayed("responses-phase-commentary.sse").content
    row = next(row for row in STREAMS if row.file == "responses-phase-commentary.sse")
    said = [json.loads(line[6:]) for line in row.data.split(b"\n") if line.startswith(b"data: ")]
    done = next(event["item"] for event in said if event["type"] == "response.output_item.done")
    assert thinking["encrypted_content"] == done["encrypted_content"]
    assert (thinking["text"], thinking["summary"]) == ("", [])
    assert thinking["id"].startswith("rs_")
    assert text["phase"] == "commentary"
    assert call.keys() == {"type", "call_id", "name", "arguments"}


def test_parts_of_a_summary_are_set_apart_when_shown() -> None:
    [thinking, _] = replayed("responses-reasoning-summary.sse").content
    assert thinking["text"] == "\n\n".join(part["text"] for part in thinking["summary"])
    assert len(thinking["summary"]) == 4


def test_raw_thoughts_are_kept_as_they_came() -> None:
    [thinking, _] = replayed("responses-openrouter-cot.sse").content
    assert thinking["reasoning"] == [{"type": "reasoning_text", "text": thinking["text"]}]


def test_citations_are_metadata_of_the_text() -> None:
    [first, second, text] = replayed("responses-web-search.sse").content
    assert [block["item"]["action"]["type"] for block in (first, second)] == ["search", "search"]
    assert [one["type"] for one in text["annotations"]] == ["url_citation"]
    [search, text] = replayed("responses-file-search.sse").content
    assert search.keys() == {"type", "dialect", "item"}
    assert [one["type"] for one in text["annotations"]] == ["file_citation"]


def test_log_probabilities_are_metadata_of_the_text() -> None:
    [text] = replayed("responses-logprobs.sse").content
    assert "".join(one["token"] for one in text["logprobs"]) == text["text"]


def test_generated_image_is_a_picture() -> None:
    row = next((row for row in STREAMS if row.file == "responses-image-generation.sse"), None)
    if row is None:
        pytest.skip(NO_RECORDINGS)
    image = replayed(row.file).content[-1]
    assert (image["type"], image["mimetype"]) == ("binary", "image/webp")
    assert len(image["content"]) == row.extra["image_b64_len"]
    assert "result" not in image["item"]


def test_free_text_of_a_custom_tool_is_no_json() -> None:
    result = replayed("responses-custom-tool.sse")
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
    terminal = replayed(file).terminal
    assert terminal is not None
    assert terminal.finish is FINISHES[file]  # type: ignore[union-attr]


def test_E1_quota_error_and_failed_response_are_one_error() -> None:
    result = replayed("responses-error-quota.sse")
    [error] = result.events
    assert isinstance(error, Error)
    assert (error.kind, error.retryable) == (ErrorKind.PROVIDER, False)
    assert error.native is not None
    assert error.native["type"] == "insufficient_quota"
    assert error.native["id"].startswith("resp_")


def test_E1_failed_response_says_how_long_to_wait() -> None:
    error = replayed("responses-failed-rate-limit.sse").terminal
    assert isinstance(error, Error)
    assert (error.retryable, error.retry_after_ms) == (True, 11_054)


# -- HTTP answers


@answers
def test_http_answer_gives_what_the_manifest_says(row: Row) -> None:
    assert row.error is not None
    verdict = provider().classify_error(row.http_error)
    assert (verdict.kind, verdict.status) == (ErrorKind.PROVIDER, row.error["status_code"])
    assert verdict.code == row.error.get("code", row.error["type"])
    assert verdict.message == f"{row.error['message']} [fake]"
    assert verdict.retryable == row.error["sdk_would_retry"]


def test_plan_windows_in_headers_are_quotas(monkeypatch: pytest.MonkeyPatch) -> None:
    row = next(row for row in ANSWERS if "codex" in row.file)
    io, one = FakeIO(), provider()
    monkeypatch.setattr(one, "now", lambda: 1000.0)
    one.report_plan_usage(row.http_error.headers, io)
    [reported] = io.plan_usage
    for quota in row.extra["quotas"]:
        found = reported[quota["name"]]
        assert (found["total"], found["used"]) == (100, quota["used_percent"])
        assert found["window_seconds"] == quota["window_min"] * 60
        assert found["reset"] == quota["reset_epoch"]
