"""Arguments in pieces: the value, and the JSON text that grows with it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aiio.providers.gemini_args import MAX_GAP, PartialArguments, read_path


def fold(*pieces: dict[str, Any]) -> tuple[Any, str]:
    arguments = PartialArguments()
    text = "".join(arguments.add(piece) for piece in pieces) + arguments.close()
    return arguments.value, text


def string(path: str, text: str) -> dict[str, Any]:
    return {"jsonPath": path, "stringValue": text}


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("$.a", ("a",)),
        ("$.a.b[0][12].c", ("a", "b", 0, 12, "c")),
        ("$['x y'].z", ("x y", "z")),
        ('$["it\\"s"]', ('it"s',)),
        ("$['']", ("",)),
        ("$.日本", ("日本",)),
    ],
)
def test_paths_are_read(path: str, steps: tuple[str | int, ...]) -> None:
    assert read_path(path) == steps


@pytest.mark.parametrize(
    "path", [None, 3, "", "$", "a", "a.b", "$a", "$.", "$.a[", "$.a[x]", "$[0]", "$.a b["]
)
def test_what_is_no_path_is_refused(path: object) -> None:
    with pytest.raises(ValueError, match="is no path"):
        read_path(path)


def test_values_in_order_grow_as_the_text_of_the_value() -> None:
    value, text = fold(
        string("$.a", "x"),
        string("$.a", 'y"\n'),
        {"jsonPath": "$.n", "numberValue": 0},
        {"jsonPath": "$.l[0].b", "boolValue": False},
        {"jsonPath": "$.l[0].z", "nullValue": None},
        {"jsonPath": "$.l[1].b", "boolValue": True},
        {"jsonPath": "$.m[0][0]", "numberValue": 1.5},
        {"jsonPath": "$.m[0][1]", "numberValue": 2},
        string("$.s.t.u", "deep"),
        string("$.s.v", ""),
    )
    assert value == {
        "a": 'xy"\n',
        "n": 0,
        "l": [{"b": False, "z": None}, {"b": True}],
        "m": [[1.5, 2]],
        "s": {"t": {"u": "deep"}, "v": ""},
    }
    assert json.loads(text) == value


def test_nothing_is_an_empty_object() -> None:
    assert fold() == ({}, "{}")
    assert fold({"jsonPath": "$.a", "willContinue": True}) == ({}, "{}")


@pytest.mark.parametrize(
    "pieces",
    [
        (string("$.a", "1"), string("$.b", "2"), string("$.a", "3")),
        (string("$.a.x", "1"), string("$.b", "2"), string("$.a.y", "3")),
        (string("$.l[1]", "1"), string("$.l[0]", "2")),
        ({"jsonPath": "$.a", "numberValue": 1}, {"jsonPath": "$.a", "numberValue": 2}),
    ],
)
def test_values_out_of_order_make_the_value_but_no_more_text(pieces: tuple[dict[str, Any], ...]) -> None:
    value, text = fold(*pieces)
    with pytest.raises(ValueError):
        json.loads(text)
    expected: dict[str, Any] = {}
    for piece in pieces:
        name = piece["jsonPath"][2]
        if name == "a" and piece["jsonPath"] == "$.a" and "stringValue" in piece:
            expected["a"] = expected.get("a", "") + piece["stringValue"]
        elif name == "l":
            expected["l"] = ["2", "1"]
        elif "." in piece["jsonPath"][3:]:
            expected.setdefault("a", {})[piece["jsonPath"][4]] = piece["stringValue"]
        else:
            expected[name] = piece.get("stringValue", piece.get("numberValue"))
    assert value == expected


def test_a_number_may_take_the_place_of_a_text() -> None:
    value, _ = fold(string("$.a", "1"), {"jsonPath": "$.a", "numberValue": 2})
    assert value == {"a": 2}


def test_text_is_written_no_more_once_it_is_out_of_order() -> None:
    arguments = PartialArguments()
    assert arguments.add(string("$.a", "1")) == '{"a":"1'
    assert arguments.add(string("$.b", "2")) == '","b":"2'
    assert arguments.add(string("$.a", "3")) == ""
    assert arguments.add(string("$.b", "4")) == ""
    assert arguments.add({"jsonPath": "$.c", "numberValue": 1}) == ""
    assert arguments.close() == ""
    assert arguments.value == {"a": "13", "b": "24", "c": 1}


@pytest.mark.parametrize(
    "pieces",
    [
        (string("$.a", "1"), string("$.a.b", "2")),
        ({"jsonPath": "$.a", "numberValue": 1}, string("$.a[0]", "2")),
        (string("$.a.b", "1"), string("$.a[0]", "2")),
        (string("$.a[0]", "1"), string("$.a.b", "2")),
        (string(f"$.a[{MAX_GAP + 1}]", "1"),),
    ],
)
def test_what_does_not_fit_is_refused(pieces: tuple[dict[str, Any], ...]) -> None:
    arguments = PartialArguments()
    with pytest.raises(ValueError, match="does not fit"):
        for piece in pieces:
            arguments.add(piece)


def test_H3_halves_of_a_surrogate_pair_are_joined() -> None:
    value, text = fold(string("$.a", "x\ud83d"), string("$.a", "\ude00y"))
    assert value == {"a": "x😀y"}
    assert json.loads(text) == value
