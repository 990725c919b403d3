"""Strict JSON and well-formed text."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiio.context.text import clean_text, compact_json, parse_json, sent_json

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON_VALUES)
def test_json_survives(value: Any) -> None:
    assert parse_json(compact_json(value)) == value
    assert parse_json(json.dumps(value)) == value


@pytest.mark.parametrize(
    "text",
    ["", "{", "NaN", '{"a": Infinity}', "-Infinity", "1e999", '{"a": -1e999, "b": "\\ud83d"}', "[" * 200_000],
)
def test_what_is_not_strict_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_json(text)


def test_H3_lone_surrogates_are_read_and_written() -> None:
    assert parse_json('"\\ud83d"') == "\ud83d"
    assert parse_json('["\ud83d", 1.5]') == ["\ud83d", 1.5]
    assert compact_json({"a": "\ud83d"}) == '{"a":"\ud83d"}'


def test_H3_clean_text_joins_pairs_and_replaces_lone_halves() -> None:
    assert clean_text("a\ud83d\ude00b\ude00\ud83d") == "a\U0001f600b\ufffd\ufffd"


def test_H3_what_is_sent_holds_no_half_of_a_pair() -> None:
    value = {"a\ud83d": ["\ud83d\ude00", ("\ude00", 1, None)]}
    assert json.loads(sent_json(value)) == {"a\ufffd": ["\U0001f600", ["\ufffd", 1, None]]}
    assert sent_json({"a": "é"}) == '{"a":"é"}'.encode()
    with pytest.raises(TypeError):
        sent_json(object())


def test_nan_is_never_written() -> None:
    assert compact_json([math.nan, math.inf]) == "[null,null]"
    with pytest.raises(ValueError):
        compact_json([math.nan, "\ud83d"])


def test_what_is_no_json_is_not_written() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    for value in (cycle, {"a": object()}):
        with pytest.raises((TypeError, ValueError)):
            compact_json(value)
    deep: Any = "\ud83d"
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="deep"):
        compact_json(deep)


def test_what_only_the_slow_reader_takes_may_not_be_too_deep_either() -> None:
    # A lone surrogate in front sends the text there before its depth is met.
    with pytest.raises(ValueError, match="too deep"):
        parse_json('["\\ud83d",' + "[" * 200_000)
