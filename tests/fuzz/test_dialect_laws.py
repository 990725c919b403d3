"""Every dialect, on frames that nobody sent: no crash, blocks in order, one terminal, a message to go on."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiio.context.events import Done, Error, TextDelta, TextEnd
from aiio.context.types import assistant_message

from . import corpus
from .answering import (
    NAMES,
    End,
    Outcome,
    alike,
    answered,
    check_bytes,
    check_message,
    check_outcome,
    check_replay,
    reads_of,
)
from .framing_laws import is_json
from .mutations import RAW, VALUES, mutated

each = pytest.mark.parametrize("dialect", NAMES)
JSON = st.recursive(
    st.sampled_from(VALUES) | st.text(max_size=4) | st.integers() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@each
@given(choice=st.integers(0, 63), other=st.integers(0, 7), at=st.integers(0), seed=st.integers(0))
def test_changed_answers_keep_the_laws(dialect: str, choice: int, other: int, at: int, seed: int) -> None:
    answers = corpus.frames_of(dialect)
    others = [frame for frames in answers for frame in frames]
    frames = mutated(answers[at % len(answers)], others, Random(seed))
    check_bytes(dialect, bytes([choice, other]) + b"\n".join(frames))


@each
@given(
    frames=st.lists(
        JSON.map(json.dumps).map(str.encode) | st.binary(max_size=20) | st.sampled_from(RAW), max_size=4
    ),
    choice=st.integers(0, 63),
    other=st.integers(0, 7),
)
def test_any_frames_keep_the_laws(dialect: str, frames: list[bytes], choice: int, other: int) -> None:
    check_bytes(dialect, bytes([choice, other]) + b"\n".join(frames))


@each
def test_what_fuzzing_begins_with_keeps_the_laws(dialect: str) -> None:
    for seed in corpus.dialect_seeds(dialect):
        check_bytes(dialect, seed)


@each
def test_what_fuzzing_begins_with_says_something(dialect: str) -> None:
    """Else the laws would be tried on refusals only."""
    outcomes = [answered(dialect, reads_of(seed)[0], End.STREAM) for seed in corpus.dialect_seeds(dialect)]
    done = [one for one in outcomes if isinstance(one.terminal, Done) and one.events]
    assert done
    assert any(isinstance(event, TextDelta) for one in done for event in one.events)


def test_changes_are_changes_and_mostly_still_json() -> None:
    frames = [b'{"a":{"b":[1,"x"]}}', b'{"c":null}']
    results = [mutated(frames, [b'{"d":1}'], Random(seed)) for seed in range(300)]
    assert mutated(frames, [b'{"d":1}'], Random(7)) == results[7]
    assert sum(one != frames for one in results) > 200
    assert sum(all(map(is_json, one)) for one in results) > 200
    assert mutated([], [], Random(1)) == []
    assert mutated([], [b"1"], Random(1))
    assert mutated([b"no json"], [], Random(0)) is not None


# -- the laws can be broken


def outcome(*events: Any, terminal: Any = None, **fields: Any) -> Outcome:
    usage = {"input_tokens": 1}
    return Outcome(
        "anthropic", list(events), terminal or Error("no", usage=usage, emitted=bool(events)), **fields
    )


@pytest.mark.parametrize(
    "broken",
    [
        outcome(crash=KeyError("x")),
        outcome(sent=1000),
        outcome(TextDelta(0, "a")),
        outcome(TextEnd(0)),
        outcome(object()),
        outcome(terminal=Error("", usage={})),
        outcome(terminal=Error("no", usage={}, emitted=True)),
        outcome(terminal=Error("no", usage={}, message=assistant_message([]))),
        outcome(terminal=object()),
    ],
)
def test_a_broken_law_is_found(broken: Outcome) -> None:
    with pytest.raises(AssertionError):
        check_outcome(broken)
    check_outcome(outcome())


def test_a_message_that_cannot_be_stored_or_sent_again_is_found() -> None:
    with pytest.raises(ValueError):
        check_message(
            assistant_message([{"type": "tool_call", "call_id": "a", "name": "b", "n": float("nan")}])
        )
    with pytest.raises(TypeError):
        check_replay(assistant_message([{"type": "text", "text": {1}}]), "anthropic")


def test_readings_that_differ_are_found() -> None:
    whole = answered("ollama", [[b'{"message":{"content":"ab"},"done":false}']], End.FAULT)
    other = answered("ollama", [[b'{"message":{"content":"ac"},"done":false}']], End.FAULT)
    assert alike(whole) != alike(other)
    assert alike(whole) == alike(
        answered("ollama", [[b'{"message":{"content":"ab"},"done":false}']], End.KILL)
    )
