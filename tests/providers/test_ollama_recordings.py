"""Every Ollama recording, whole and cut, gives what the manifest says; HTTP answers too."""

from __future__ import annotations

import random
from typing import Any

import pytest

from aiio.context.events import Error, ErrorKind
from aiio.providers.ollama import Ollama
from aiio.transports.framing import NDJSONDecoder

from .conformance import check_events
from .fakes import FakeIO
from .manifest import NO_RECORDINGS, Row, all_rows, recordings_folder, replay, rows

STREAMS = rows("ollama")
ANSWERS = rows("ollama", http=True)
SMALL = 4096
streams = pytest.mark.parametrize("row", STREAMS, ids=lambda row: row.file)
answers = pytest.mark.parametrize("row", ANSWERS, ids=lambda row: row.file)


def provider(**settings: Any) -> Ollama:
    return Ollama("http://x", FakeIO(**settings))


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
    assert len(STREAMS) + len(ANSWERS) == sum(row.protocol == "ollama" for row in all_rows(folder))


@streams
def test_recording_gives_what_the_manifest_says(row: Row) -> None:
    result = replay(provider(), row.data, framer=NDJSONDecoder)
    result.check(row)
    check_events(result.events, result.content, cut=result.terminal is None)


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
    whole = without_ids(replay(one, data, framer=NDJSONDecoder).events)
    for cut in cuts:
        assert without_ids(replay(one, data, cut, framer=NDJSONDecoder).events) == whole, cut


@streams
def test_both_readers_give_the_same_events(row: Row) -> None:
    one = provider()
    slow, fast = one.new_state(), one.new_state()
    for frame in row.data.splitlines() if b"\xe2\x80\xa8" not in row.data else row.data.split(b"\n"):
        if frame:
            expected = without_ids(list(one.translate(one.decode(frame), slow, one.io)))
            assert without_ids(list(one.translate_all([frame], fast, one.io))) == expected
            assert fast.usage == slow.usage


@streams
def test_E3_a_recording_cut_after_any_line_is_no_answer(row: Row) -> None:
    frames = [frame for frame in row.data.split(b"\n") if frame]
    for upto in range(len(frames)):
        one = provider()
        state = one.new_state()
        assert not any(isinstance(event, Error) for event in one.translate_all(frames[:upto], state, one.io))
        assert not one.ending(state)
        assert list(one.finish(state, one.io)) == []


@answers
def test_http_answer_gives_what_the_manifest_says(row: Row) -> None:
    assert row.error is not None
    verdict = provider().classify_error(row.http_error)
    assert verdict.status == row.error["status_code"] == row.http_status
    assert verdict.message == f"{row.error['message']} [fake]"
    assert (verdict.kind, verdict.retryable, verdict.code) == (ErrorKind.PROVIDER, False, None)
