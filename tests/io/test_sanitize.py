"""What goes to the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aiio.env.errors import ErrorKind, ProviderError
from aiio.io.sanitize import body_bytes, encode_body, sanitize_request


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (({"A": 1, "B": None, "C": print}, {"x": 1}), ({"A": "1"}, {"x": 1})),
        ([{}, None], ({}, None)),
        ([{"a": "b"}], ({"a": "b"}, None)),
        ([], ({}, None)),
        ([None, {"x": 1}, "more"], ({}, {"x": 1})),
        ({"x": 1}, ({}, {"x": 1})),
        (None, ({}, None)),
    ],
)
def test_sanitize_request(given: Any, expected: Any) -> None:
    assert sanitize_request(given) == expected


@pytest.mark.parametrize(
    "given",
    [("no mapping", {}), ([("a", "b")], {}), ({}, {"f": print}), ({}, object())],
)
def test_what_is_no_json_data_is_malformed(given: Any) -> None:
    with pytest.raises(ProviderError) as caught:
        sanitize_request(given)
    assert caught.value.kind is ErrorKind.MALFORMED


def test_a_body_that_contains_itself_is_malformed() -> None:
    body: list[Any] = []
    body.append(body)
    with pytest.raises(ProviderError, match="not JSON"):
        encode_body(body)


def test_body_bytes_counts_utf8() -> None:
    assert body_bytes(None) == 0
    assert body_bytes({"a": "é"}) == len('{"a":"é"}'.encode())


def test_H3_lone_surrogates_are_replaced_in_what_is_sent_only() -> None:
    body = {"k\ud800": ["\ud83d\ude00 \udc00", ("x\ud8ff", 1)]}
    sent = encode_body(body)
    assert sent is not None
    assert json.loads(sent) == {"k�": ["😀 �", ["x�", 1]]}
    assert body == {"k\ud800": ["\ud83d\ude00 \udc00", ("x\ud8ff", 1)]}
    assert body_bytes(body) == len(sent)
