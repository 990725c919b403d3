"""Every Gemini recording, whole and cut, gives what the manifest says; HTTP answers too."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from aiio.context.events import Error, ErrorKind, FinishReason
from aiio.context.types import user_message
from aiio.providers.gemini import Gemini
from aiio.providers.gemini_contents import SKIP_SIGNATURE
from aiio.transports.framing import SSEDecoder

from .conformance import check_events
from .fakes import FakeIO
from .manifest import NO_RECORDINGS, Row, all_rows, recordings_folder, replay, rows
from .strict_gemini import check_gemini_body

STREAMS = rows("gemini")
ANSWERS = rows("gemini", http=True)
SMALL = 4096
MALFORMED = "gemini-malformed-call.sse"
streams = pytest.mark.parametrize("row", STREAMS, ids=lambda row: row.file)
answers = pytest.mark.parametrize("row", ANSWERS, ids=lambda row: row.file)


def provider(**settings: Any) -> Gemini:
    return Gemini("http://x", FakeIO(model="gemini-3-pro", **settings))


def without_ids(events: list[Any]) -> list[Any]:
    """Make ids that were made here alike, so that two readings can be compared."""
    for event in events:
        if getattr(event, "call_id", "").startswith("call_"):
            event.call_id = "made"
    return events


def test_the_recordings_are_there() -> None:
    folder = recordings_folder()
    if folder is None:
        pytest.skip(NO_RECORDINGS)
    assert len(STREAMS) + len(ANSWERS) == sum(row.protocol == "gemini" for row in all_rows(folder))


@streams
def test_recording_gives_what_the_manifest_says(row: Row) -> None:
    result = replay(provider(), row.data)
    result.check_answer(row)
    check_events(result.events, result.content, cut=result.terminal is None)
    if row.file != MALFORMED:
        result.check_terminal(row)
        return
    assert isinstance(result.terminal, Error)  # FORMATS 7.4; the SDK gives an answer with nothing in it
    assert (result.terminal.code, result.terminal.retryable) == (row.finish, True)


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
    one = provider()
    whole = without_ids(replay(one, data).events)
    for cut in cuts:
        assert without_ids(replay(one, data, cut).events) == whole, cut


@streams
def test_both_readers_give_the_same_events(row: Row) -> None:
    decoder = SSEDecoder()
    frames = [*decoder.feed(row.data), *decoder.flush()]
    one = provider()
    slow, fast = one.new_state(), one.new_state()
    for frame in frames:
        expected = without_ids(list(one.translate(one.decode(frame), slow, one.io)))
        assert without_ids(list(one.translate_all([frame], fast, one.io))) == expected
        assert fast.usage == slow.usage
    assert list(one.finish(fast, one.io)) == list(one.finish(slow, one.io))


@streams
def test_E3_a_recording_cut_after_any_frame_is_no_answer(row: Row) -> None:
    decoder = SSEDecoder()
    frames = [*decoder.feed(row.data), *decoder.flush()]
    for upto in range(len(frames)):
        one = provider()
        state = one.new_state()
        events = list(one.translate_all(frames[:upto], state, one.io))
        if not one.ending(state) and not any(isinstance(event, Error) for event in events):
            assert list(one.finish(state, one.io)) == []


def signatures(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get(key), str):
            yield value[key]
        for inner in value.values():
            yield from signatures(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from signatures(inner, key)


@streams
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


def _row(file: str) -> Row:
    found = [row for row in STREAMS if row.file == file]
    if not found:
        pytest.skip(NO_RECORDINGS)
    return found[0]


def test_grounding_is_metadata_of_the_text() -> None:
    [block] = replay(provider(), _row("gemini-search-grounding.sse").data).content
    assert block["grounding"]["groundingChunks"]
    [block] = replay(provider(), _row("gemini-url-context.sse").data).content
    assert block["grounding"]["groundingSupports"]
    assert block["url_context"]["urlMetadata"][0]["retrievedUrl"] == "https://ai.pydantic.dev"


def test_the_answer_of_the_servers_own_tools_is_kept_for_replay() -> None:
    row = _row("gemini-code-execution.sse")
    one = provider()
    content = replay(one, row.data).content
    assert [block.get("dialect") for block in content] == ["gemini", "gemini", None]
    _, body = one.request([user_message("Compute."), {"type": 3, "content": content}], one.io)
    parts = body["contents"][1]["parts"]
    assert [next(iter(part)) for part in parts] == ["executableCode", "codeExecutionResult", "text", "text"]
    assert parts[0]["thoughtSignature"]
    assert parts[3]["text"] == ""


def test_arguments_in_pieces_show_as_json_text() -> None:
    row = _row("gemini-vertex-partial-array.sse")
    result = replay(provider(), row.data)
    text = "".join(getattr(event, "arguments", "") for event in result.events[:-2])
    [block] = result.content
    assert block["arguments"] == json.loads(text)


def test_service_tier_is_the_traffic_type() -> None:
    terminal = replay(provider(), _row("gemini-vertex-flex.sse").data).terminal
    assert terminal is not None
    assert terminal.usage is not None
    assert terminal.usage["trafficType"] == "ON_DEMAND_FLEX"
    assert terminal.finish is FinishReason.STOP  # type: ignore[union-attr]


@answers
def test_http_answer_gives_what_the_manifest_says(row: Row) -> None:
    assert row.error is not None
    one = provider()
    verdict = one.classify_error(row.http_error)
    assert verdict.status == row.error["code"] == row.http_status
    assert verdict.code == row.error["status"]
    assert verdict.message == f"{row.error['message']} [fake]"
    assert verdict.kind == (ErrorKind.AUTH if "key" in row.file else ErrorKind.PROVIDER)
    assert verdict.retryable == (row.http_status == 503)
    assert isinstance(one.io, FakeIO)
    reported = one.io.plan_usage
    for quota in row.extra.get("quotas", ()):
        assert reported == [
            {quota["name"]: {"total": quota["limit"], "used": quota["limit"], "remaining": 0}}
        ]
        assert verdict.retry_after_ms == quota["retry_s"] * 1000
    assert bool(reported) == ("quotas" in row.extra)
