"""What only Anthropic's recordings hold; what all dialects' have in common is in `test_recordings.py`."""

from __future__ import annotations

import hashlib
from datetime import datetime
from itertools import chain
from typing import Any

import pytest

from aiio.context.events import Done, FinishReason
from aiio.context.types import assistant_message, tool_result_message, user_message
from aiio.providers.anthropic import Anthropic
from aiio.providers.anthropic_wire import Event, read_loosely
from aiio.transports.framing import SSEDecoder

from .fakes import FakeIO
from .manifest import Replay, Row, reads, recording, replay, rows
from .strict_anthropic import check_anthropic_body

ANSWERS = rows("anthropic", http=True)
streams = pytest.mark.parametrize("row", rows("anthropic"), ids=lambda row: row.file)


def provider() -> Anthropic:
    return Anthropic("http://x", FakeIO())


def replay_of(file: str) -> Replay:
    return replay(provider(), recording(file).data)


@streams
def test_signatures_citations_and_stop_details_are_what_the_manifest_says(row: Row) -> None:
    result = replay(provider(), row.data)
    if "signature_sha256" in row.extra:
        signatures = [block["signature"] for block in result.content if "signature" in block]
        digests = [hashlib.sha256(one.encode()).hexdigest()[:16] for one in signatures]
        assert digests == row.extra["signature_sha256"]
    if "citations" in row.extra:
        assert sum(len(block.get("citations", ())) for block in result.content) == row.extra["citations"]
    for fact in ("stop_details", "stop_sequence"):
        if fact in row.extra:
            assert isinstance(result.terminal, Done)
            assert (result.terminal.native or {})[fact] == row.extra[fact]


@streams
def test_usage_is_what_the_server_said(row: Row) -> None:
    terminal = replay(provider(), row.data).terminal
    assert terminal is not None
    usage = terminal.usage or {}
    assert {key: usage[key] for key in row.usage or {} if key in usage} == row.usage


@streams
def test_what_was_received_goes_back_as_it_came(row: Row) -> None:
    """The next request holds the answer's blocks unchanged: signatures, ciphertext, server-side items."""
    result = replay(provider(), row.data)
    if not isinstance(result.terminal, Done) or not result.content:
        return
    calls = [block for block in result.content if block["type"] == "tool_call"]
    results = [tool_result_message(block["call_id"], block["name"], "r") for block in calls]
    context = [user_message("u"), assistant_message(result.content), *results, user_message("v")]
    io = FakeIO(model="claude-sonnet-5")
    _, body = provider().request(context, io)
    check_anthropic_body(body)
    sent = body["messages"][1]["content"]
    assert [part for part in sent if part["type"] not in ("text", "tool_use")] == [
        part for part in received(row) if part["type"] not in ("text", "tool_use")
    ]
    texts = [block["text"] for block in result.content if block["type"] == "text"]
    assert [part["text"] for part in sent if part["type"] == "text"] == [one for one in texts if one.strip()]
    if any(part["type"] == "tool_use" and "caller" in part for part in received(row)):
        assert [part["caller"] for part in sent if part["type"] == "tool_use"] == [
            part["caller"] for part in received(row) if part["type"] == "tool_use"
        ]


def received(row: Row) -> list[dict[str, Any]]:
    """Return the blocks of a recording, put together here without the code that is tested."""
    blocks: list[dict[str, Any]] = []
    for frame in chain.from_iterable(reads(SSEDecoder(), row.data)):
        native = read_loosely(frame)
        assert isinstance(native, Event)
        event = native.value
        if event["type"] == "message_start":
            blocks.extend(event["message"]["content"])
        elif event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "json": ""})
        elif event["type"] == "content_block_delta":
            delta, block = event["delta"], blocks[event["index"]]
            match delta["type"]:
                case "thinking_delta":
                    block["thinking"] += delta["thinking"]
                case "signature_delta":
                    block["signature"] += delta["signature"]
                case "input_json_delta":
                    block["json"] += delta["partial_json"]
                case "compaction_delta":
                    block["content"] = delta["content"]
    for block in blocks:
        text = block.pop("json", "")
        if text:
            native = read_loosely(text.encode()) if text.endswith("}") else Event({})
            assert isinstance(native, Event)
            block["input"] = native.value
    return blocks


def test_pauses_and_refusals_have_their_own_finish() -> None:
    refused = replay_of("anthropic-refusal.sse").terminal
    assert isinstance(refused, Done)
    assert refused.finish is FinishReason.REFUSAL


def test_redacted_thinking_is_kept_whole() -> None:
    first, second, text = replay_of("anthropic-thinking-redacted.sse").content
    assert first.keys() == {"type", "text", "redacted", "data"}
    assert (first["redacted"], first["text"], first["data"][:8]) == (True, "", "EqkECkYI")
    assert second["data"].endswith("BV3yRYdZ1J0GAE=")
    assert text["type"] == "text"


def test_iterations_are_kept_beside_the_usage_of_the_last_pass() -> None:
    terminal = replay_of("anthropic-compaction.sse").terminal
    assert isinstance(terminal, Done)
    assert [one["type"] for one in (terminal.usage or {})["iterations"]] == ["compaction", "message"]


def test_the_request_id_is_in_the_body_too() -> None:
    row = recording("http-anthropic-429-spend.http.json")
    assert provider().classify_error(row.http_error).request_id == "req_syn5"


def test_G3_headers_are_quotas(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0
    now = datetime.fromisoformat("2026-01-01T00:00:00Z").timestamp()
    for row in ANSWERS:
        if "quotas" not in row.extra:
            continue
        one, io = provider(), FakeIO()
        monkeypatch.setattr(one, "now", lambda: now)
        one.report_plan_usage(row.http_error.headers, io)
        [reported] = io.plan_usage
        for quota in row.extra["quotas"]:
            found = reported[quota["name"].replace("-", "_")]
            if "limit" in quota:
                assert (found["total"], found["remaining"]) == (quota["limit"], quota["remaining"])
                assert found["reset"] == datetime.fromisoformat(quota["reset_at"]).timestamp()
            else:
                assert found["used"] == pytest.approx(quota["used_fraction"] * 100)
                assert found["reset"] == pytest.approx(quota["reset_epoch"])
            seen += 1
    assert seen >= 6


def test_headers_without_limits_report_nothing() -> None:
    io = FakeIO()
    provider().report_plan_usage({"request-id": "1"}, io)
    assert io.plan_usage == []
