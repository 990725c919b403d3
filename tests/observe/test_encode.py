"""One value, one line, whatever it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiio.context.events import Error, ErrorKind, TextDelta
from aiio.context.types import MessageType
from aiio.observe import encode_line, plain


class Odd:
    """Something JSON has no place for."""

    def __repr__(self) -> str:
        return "<odd>"


class Broken:
    """Something that can't even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": [1, 2.5, None, True, "x"]}, {"a": [1, 2.5, None, True, "x"]}),
        ({"nan": float("nan"), "inf": float("inf")}, {"nan": None, "inf": None}),
        ("\ud83d alone", "\ud83d alone"),
        ({"\udc00": ("\ud800", {1.5: Odd()})}, {"\udc00": ["\ud800", {"1.5": "<odd>"}]}),
        (2**80, 2**80),
        ({"x": b"\xff\x00", "\ud800": bytearray(b"y")}, {"x": "\ufffd\x00", "\ud800": "y"}),
        ([MessageType.USER, ErrorKind.AUTH, Odd()], [2, "auth", "<odd>"]),
        ([Broken()], ["<Broken: repr raised RuntimeError>"]),
        ({Odd(): 1}, {"<odd>": 1}),
        ([float("nan"), Odd()], [None, "<odd>"]),
    ],
)
def test_any_value_becomes_a_line(value: Any, expected: Any) -> None:
    line = encode_line(value)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == expected


def test_sets_become_lists() -> None:
    assert json.loads(encode_line({"s": {1}, "f": frozenset("x"), "odd": Odd()}))["s"] == [1]


def test_an_event_is_the_same_by_both_ways() -> None:
    error = Error(error="cut", kind=ErrorKind.NETWORK, limit="stuck", emitted=True)
    assert plain(error) == json.loads(encode_line(error))
    assert json.loads(encode_line(TextDelta(0, text="\ud800"))) == {
        "type": "text_delta",
        "content_index": 0,
        "text": "\ud800",
    }


def test_a_circle_is_cut_off() -> None:
    circle: list[Any] = []
    circle.append(circle)
    line = encode_line(circle)
    assert line.count(b"[") == 64
    assert b"\\u2026" in line


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.builds(Odd)
    | st.builds(Broken),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers() | st.builds(Odd), inner),
    max_leaves=20,
)


@given(VALUES)
def test_it_never_raises_and_is_always_json(value: Any) -> None:
    json.loads(encode_line(value))
    json.dumps(plain(value))
