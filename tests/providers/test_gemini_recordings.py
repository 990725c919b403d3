"""What only Gemini's recordings hold; what all dialects' have in common is in `test_recordings.py`."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from aiio.context.events import FinishReason
from aiio.context.types import user_message
from aiio.providers.gemini import Gemini
from aiio.providers.gemini_contents import SKIP_SIGNATURE

from .fakes import FakeIO
from .manifest import Row, recording, replay, rows
from .strict_gemini import check_gemini_body


def provider() -> Gemini:
    return Gemini("http://x", FakeIO(model="gemini-3-pro"))


def signatures(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get(key), str):
            yield value[key]
        for inner in value.values():
            yield from signatures(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from signatures(inner, key)


@pytest.mark.parametrize("row", rows("gemini"), ids=lambda row: row.file)
def test_signatures_are_kept_and_go_back_byte_for_byte(row: Row) -> None:
    expected = row.extra.get("thought_signature_sha256", [])
    one = provider()
    content = replay(one, row.data).content
    kept = [*signatures(content, "thought_signature"), *signatures(content, "thoughtSignature")]
    assert sorted(_digest(signature) for signature in kept) == sorted(expected)
    if content:
        _, body = one.request([user_message("Hi."), {"type": 3, "content": content}], one.io)
        sent = [one for one in signatures(body, "thoughtSignature") if one != SKIP_SIGNATURE]
        assert [_digest(signature) for signature in sent] == expected
        check_gemini_body(body, signatures=True)


def _digest(signature: str) -> str:
    return hashlib.sha256(base64.b64decode(signature)).hexdigest()[:16]


def test_grounding_is_metadata_of_the_text() -> None:
    [block] = replay(provider(), recording("gemini-search-grounding.sse").data).content
    assert block["grounding"]["groundingChunks"]
    [block] = replay(provider(), recording("gemini-url-context.sse").data).content
    assert block["grounding"]["groundingSupports"]
    assert block["url_context"]["urlMetadata"][0]["retrievedUrl"] == "https://ai.pydantic.dev"


def test_the_answer_of_the_servers_own_tools_is_kept_for_replay() -> None:
    row = recording("gemini-code-execution.sse")
    one = provider()
    content = replay(one, row.data).content
    assert [block.get("dialect") for block in content] == ["gemini", "gemini", None]
    _, body = one.request([user_message("Compute."), {"type": 3, "content": content}], one.io)
    parts = body["contents"][1]["parts"]
    assert [next(iter(part)) for part in parts] == ["executableCode", "codeExecutionResult", "text", "text"]
    assert parts[0]["thoughtSignature"]
    assert parts[3]["text"] == ""


def test_arguments_in_pieces_show_as_json_text() -> None:
    row = recording("gemini-vertex-partial-array.sse")
    result = replay(provider(), row.data)
    text = "".join(getattr(event, "arguments", "") for event in result.events[:-2])
    [block] = result.content
    assert block["arguments"] == json.loads(text)


def test_service_tier_is_the_traffic_type() -> None:
    terminal = replay(provider(), recording("gemini-vertex-flex.sse").data).terminal
    assert terminal is not None
    assert terminal.usage is not None
    assert terminal.usage["trafficType"] == "ON_DEMAND_FLEX"
    assert terminal.finish is FinishReason.STOP  # type: ignore[union-attr]


def test_a_used_up_quota_of_an_error_is_reported() -> None:
    reported = 0
    for row in rows("gemini", http=True):
        one, io = provider(), FakeIO()
        one.io = io
        verdict = one.classify_error(row.http_error)
        assert io.plan_usage == [
            {quota["name"]: {"total": quota["limit"], "used": quota["limit"], "remaining": 0}}
            for quota in row.extra.get("quotas", ())
        ]
        for quota in row.extra.get("quotas", ()):
            assert verdict.retry_after_ms == quota["retry_s"] * 1000
            reported += 1
    assert reported
