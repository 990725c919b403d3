"""Every recording of every dialect: whole, cut, cut short, read the slow way; HTTP answers too.

What only one dialect's recordings hold is in `test_<dialect>_recordings.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

from aiio.context.types import assistant_message, user_message
from aiio.providers import anthropic_wire, chat_wire, responses_wire

from .conformance import check_events
from .dialects import (
    DIALECTS,
    SMALL,
    check_every_cut,
    check_http,
    check_random_cuts,
    check_whole,
    without_ids,
)
from .manifest import (
    FIXTURES,
    NO_RECORDINGS,
    Row,
    all_rows,
    reads,
    recordings_folder,
    replay_frames,
    rows,
)

STREAMS = [row for name in DIALECTS for row in rows(name)]
ANSWERS = [row for name in DIALECTS for row in rows(name, http=True)]
streams = pytest.mark.parametrize("row", STREAMS, ids=lambda row: row.file)

LOOSE: dict[str, Callable[[bytes], Any]] = {
    "chat": chat_wire.read_loosely,
    "responses": responses_wire.read_loosely,
    "anthropic": anthropic_wire.read_loosely,
}
"""Dialects with a fast and a loose reader of frames: the loose one."""


def frames_of(row: Row) -> list[bytes]:
    return list(chain.from_iterable(reads(DIALECTS[row.protocol].framer(), row.data)))


def test_the_recordings_are_there() -> None:
    folder = recordings_folder()
    if folder is None:
        pytest.skip(NO_RECORDINGS)
    assert {row.file for row in [*STREAMS, *ANSWERS]} == {
        row.file for row in all_rows(folder) if row.protocol in DIALECTS
    }


def test_the_fixtures_are_synthetic_rows() -> None:
    assert {row.provenance for row in all_rows(FIXTURES)} == {"synthetic"}
    assert {row.file for row in all_rows(FIXTURES)} <= {path.name for path in FIXTURES.iterdir()}


@streams
def test_recording_gives_what_the_manifest_says(row: Row) -> None:
    check_whole(DIALECTS[row.protocol], row)


@streams
def test_any_cut_gives_the_same_events(row: Row) -> None:
    (check_every_cut if len(row.data) < SMALL else check_random_cuts)(DIALECTS[row.protocol], row)


@streams
def test_one_by_one_gives_the_same_events_as_all_at_once(row: Row) -> None:
    """`decode` and `translate`, which a plug-in may build on, say of each frame what `translate_all` says."""
    one, frames = DIALECTS[row.protocol].provider(row), frames_of(row)
    slow, fast, at_once = one.new_state(), one.new_state(), one.new_state()
    said = []
    for frame in frames:
        try:
            expected = without_ids(list(one.translate(one.decode(frame), slow, one.io)))
        except ValueError:
            with pytest.raises(ValueError):
                list(one.translate_all([frame], fast, one.io))
            return
        assert without_ids(list(one.translate_all([frame], fast, one.io))) == expected
        assert fast.usage == slow.usage
        said += expected
    assert without_ids(list(one.translate_all(frames, at_once, one.io))) == said
    ends = [without_ids(list(one.finish(state, one.io))) for state in (slow, fast, at_once)]
    assert ends == ends[:1] * 3


@pytest.mark.parametrize("row", [row for row in STREAMS if row.protocol in LOOSE], ids=lambda row: row.file)
def test_both_readers_give_the_same_events(row: Row) -> None:
    one, read_loosely = DIALECTS[row.protocol].provider(row), LOOSE[row.protocol]
    typed, loose = one.new_state(), one.new_state()
    for frame in frames_of(row):
        try:
            native = one.decode(frame)
        except ValueError:
            with pytest.raises(ValueError):
                read_loosely(frame)
            return
        expected = list(one.translate(native, typed, one.io))
        native = native if native is chat_wire.END else read_loosely(frame)
        assert list(one.translate(native, loose, one.io)) == expected
    assert list(one.finish(loose, one.io)) == list(one.finish(typed, one.io))


@streams
def test_E3_a_recording_cut_before_its_end_is_never_done(row: Row) -> None:
    """Cut before what ends it there is no terminal event, and the partial can be sent again."""
    dialect, frames = DIALECTS[row.protocol], frames_of(row)
    ends = (at for at, frame in enumerate(frames) if re.search(dialect.end, frame.decode("utf-8", "replace")))
    for count in range(next(ends, len(frames)) + 1):
        one = dialect.provider(row)
        result = replay_frames(one, frames[:count])
        assert not one.ending(result.state)
        assert result.terminal is None
        check_events(result.events, result.content, cut=True)
        dialect.body([user_message("u"), assistant_message(result.content), user_message("v")])


@pytest.mark.parametrize("row", ANSWERS, ids=lambda row: row.file)
def test_http_answer_gives_what_the_manifest_says(row: Row) -> None:
    check_http(DIALECTS[row.protocol], row)
