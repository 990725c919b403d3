"""Usage reports of every dialect in one shape, their sums, and bounded details."""

from __future__ import annotations

import copy
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiio.context.usage_data import usage_add, usage_details, usage_normalize

NORMAL_FORM = {
    "in": "input_tokens",
    "out": "output_tokens",
    "total": "total_tokens",
    "cache_read": "cached_tokens",
    "cache_write": "cache_write_tokens",
    "reasoning": "reasoning_tokens",
}


def _recorded() -> list[Any]:
    sibling = Path(__file__).parents[2].parent / "shared" / "wire" / "recordings"
    manifest = Path(os.environ.get("AIIO_RECORDINGS") or sibling) / "MANIFEST.tsv"
    if not manifest.exists():
        return [pytest.param("", "", marks=pytest.mark.skip(f"no recordings: {manifest} does not exist"))]
    head, *rows = (line.split("\t") for line in manifest.read_text("utf-8").splitlines())
    name, raw, normal = (head.index(column) for column in ("file", "exp_usage", "exp_usage_norm"))
    return [pytest.param(row[raw], row[normal], id=row[name]) for row in rows if row[raw] and row[normal]]


@pytest.mark.parametrize(("raw", "normal"), _recorded())
def test_recorded_reports_normalize_as_the_manifest_says(raw: str, normal: str) -> None:
    usage = usage_normalize(json.loads(raw))
    expected = {NORMAL_FORM[key]: count for key, count in json.loads(normal).items()}
    # Where the report itself has no field for a cache, the manifest's 0 comes from an earlier frame.
    absent = {key for key in expected if key not in usage and expected[key] == 0}
    assert {key: usage[key] for key in NORMAL_FORM.values() if key in usage} == {
        key: count for key, count in expected.items() if key not in absent
    }
    assert absent <= {"cached_tokens", "cache_write_tokens"}
    assert usage_normalize(usage) == usage


CHAT = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0, "image_tokens": None},
    "completion_tokens_details": {"reasoning_tokens": 8},
    "cost": 0.25,
    "service_tier": "flex",
}


def test_chat_counts_include_their_subsets_and_unknown_fields_are_details() -> None:
    before = copy.deepcopy(CHAT)
    assert usage_normalize(CHAT) == {
        "input_tokens": 100,
        "output_tokens": 20,
        "total_tokens": 120,
        "cached_tokens": 64,
        "reasoning_tokens": 8,
        "cost": 0.25,
        "service_tier": "flex",
        "details": {"prompt_tokens_details": {"audio_tokens": 0}},
    }
    assert before == CHAT


@pytest.mark.parametrize(
    ("reported", "cached"),
    [
        ({"prompt_cache_hit_tokens": 5, "prompt_cache_miss_tokens": 5}, 5),
        ({"num_cached_tokens": 6}, 6),
        ({"cached_tokens": 7}, 7),
        ({"cached_tokens": 7, "prompt_tokens_details": {"cached_tokens": 9}}, 9),
        ({"prompt_cache_hit_tokens": 5, "prompt_tokens_details": {"cached_tokens": None}}, 5),
        ({"prompt_cache_hit_tokens": 5, "prompt_tokens_details": None}, 5),
        ({"prompt_tokens_details": {"cached_tokens": "many"}}, None),
    ],
)
def test_cache_counts_of_chat_servers(reported: dict[str, Any], cached: int | None) -> None:
    usage = usage_normalize({"prompt_tokens": 10, "completion_tokens": 1, **reported})
    assert usage["input_tokens"] == 10
    assert usage.get("cached_tokens") == cached


def test_reasoning_beside_the_completion_is_added() -> None:
    details = {"completion_tokens_details": {"reasoning_tokens": 290}}
    beside = usage_normalize({"prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 303, **details})
    assert (beside["output_tokens"], beside["total_tokens"]) == (291, 303)
    assert "details" not in beside
    within = usage_normalize({"prompt_tokens": 12, "completion_tokens": 291, "total_tokens": 303, **details})
    assert within == beside


def test_an_anthropic_input_excludes_its_cache_and_ours_includes_it() -> None:
    reported = {
        "input_tokens": 6,
        "cache_read_input_tokens": 6289,
        "cache_creation_input_tokens": 3337,
        "cache_creation": {"ephemeral_5m_input_tokens": 3068},
        "output_tokens": 198,
        "output_tokens_details": {"thinking_tokens": 7},
        "inference_geo": "global",
    }
    usage = usage_normalize(reported)
    assert usage == {
        "input_tokens": 9632,
        "output_tokens": 198,
        "total_tokens": 9830,
        "cached_tokens": 6289,
        "cache_write_tokens": 3337,
        "reasoning_tokens": 7,
        "inference_geo": "global",
        "details": {"cache_creation": {"ephemeral_5m_input_tokens": 3068}},
    }
    assert usage_normalize({"input_tokens": 6, "cache_read_input_tokens": 4}) == {
        "input_tokens": 10,
        "cached_tokens": 4,
    }


@pytest.mark.parametrize(
    "reported",
    [
        {"prompt_tokens": 10, "completion_tokens": 2, "cache_read_input_tokens": 4},
        {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12, "cache_read_input_tokens": 4},
        {"input_tokens": 10, "output_tokens": 2, "input_tokens_details": {}, "cache_read_input_tokens": 4},
    ],
)
def test_a_gateway_that_counts_the_cache_in_is_believed(reported: dict[str, Any]) -> None:
    usage = usage_normalize(reported)
    assert (usage["input_tokens"], usage["total_tokens"], usage["cached_tokens"]) == (10, 12, 4)


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        (
            {
                "promptTokenCount": 10,
                "toolUsePromptTokenCount": 5,
                "candidatesTokenCount": 3,
                "thoughtsTokenCount": 4,
                "cachedContentTokenCount": 2,
                "totalTokenCount": 22,
                "trafficType": "ON_DEMAND",
            },
            {
                "input_tokens": 15,
                "output_tokens": 7,
                "total_tokens": 22,
                "cached_tokens": 2,
                "reasoning_tokens": 4,
                "service_tier": "ON_DEMAND",
            },
        ),
        (
            {"promptTokenCount": 9, "totalTokenCount": 9},
            {"input_tokens": 9, "output_tokens": 0, "total_tokens": 9},
        ),
        (
            {"promptTokenCount": 9, "totalTokenCount": 12},
            {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12},
        ),
        ({"promptTokenCount": 9}, {"input_tokens": 9}),
        (
            {"promptTokenCount": 9, "totalTokenCount": 5},
            {"input_tokens": 9, "details": {"reported_total_tokens": 5}},
        ),
        (
            {
                "prompt_token_count": 1131,
                "response_token_count": 26,
                "thoughts_token_count": 24,
                "total_token_count": 1157,
            },
            {
                "input_tokens": 1131,
                "output_tokens": 50,
                "total_tokens": 1181,
                "reasoning_tokens": 24,
                "details": {"reported_total_tokens": 1157},
            },
        ),
    ],
)
def test_gemini_counts_thoughts_and_tool_use_apart(reported: Any, expected: Any) -> None:
    assert usage_normalize(reported) == expected


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        (
            {"prompt_eval_count": 26, "eval_count": 2},
            {"input_tokens": 26, "output_tokens": 2, "total_tokens": 28},
        ),
        ({"eval_count": 2, "eval_duration": 7}, {"output_tokens": 2, "details": {"eval_duration": 7}}),
        (
            {"input_tokens": 3, "output_tokens": 1, "input_token_details": {"cached_tokens": 2}},
            {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4, "cached_tokens": 2},
        ),
        ({"inputTokens": 3, "promptTokens": 9, "outputTokens": 1.0}, {"input_tokens": 3, "output_tokens": 1}),
        ({"input_tokens": None, "prompt_tokens": 4}, {"input_tokens": 4}),
        ({"input_tokens": 3, "prompt_tokens": 4}, {"input_tokens": 3}),
        ({"reasoning_tokens": 1, "thinking_tokens": 2}, {"reasoning_tokens": 1}),
        (
            {"reasoning_tokens": 1, "output_tokens_details": {"reasoning_tokens": 2, "thinking_tokens": 3}},
            {"reasoning_tokens": 2},
        ),
        ({"total_tokens": 7}, {"details": {"reported_total_tokens": 7}}),
        (
            {"cost": {"total_cost": 0.5, "input": 0.1}},
            {"cost": 0.5, "details": {"cost": {"total_cost": 0.5, "input": 0.1}}},
        ),
        ({"cost": math.inf, "service_tier": 5, "inference_geo": ""}, {}),
        ({"cost": True, "details": "x", "source": "guess", "x": None, "y": {}}, {}),
        (
            {"source": "estimate", "details": {"a": 1}, "b": 2},
            {"source": "estimate", "details": {"a": 1, "b": 2}},
        ),
        (None, {}),
        ("usage", {}),
        ([], {}),
    ],
)
def test_other_shapes(reported: Any, expected: Any) -> None:
    usage = usage_normalize(reported)
    assert {key: value for key, value in usage.items() if key in expected} == expected
    assert usage.keys() - expected.keys() <= {"total_tokens"}
    assert usage_normalize(usage) == usage


NUMBERS = st.one_of(
    st.integers(-2, 1 << 54),
    st.floats(),
    st.booleans(),
    st.none(),
    st.sampled_from(["5", "", [1], {"cached_tokens": 1}]),
)
FIELDS = st.sampled_from(
    [
        *NORMAL_FORM.values(),
        "prompt_tokens",
        "completion_tokens",
        "prompt_eval_count",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "promptTokenCount",
        "candidatesTokenCount",
        "thoughtsTokenCount",
        "thinking_tokens",
        "cost",
        "source",
        "details",
        "other",
    ]
)
REPORTS = st.dictionaries(
    FIELDS | st.sampled_from(["prompt_tokens_details", "output_tokens_details"]),
    NUMBERS | st.dictionaries(FIELDS, NUMBERS, max_size=3),
    max_size=8,
)


@given(REPORTS)
def test_normalizing_twice_changes_nothing(reported: dict[str, Any]) -> None:
    before = repr(reported)
    usage = usage_normalize(reported)
    assert repr(reported) == before
    assert usage_normalize(usage) == usage
    json.dumps(usage, allow_nan=False)
    for key in NORMAL_FORM.values():
        count = usage.get(key, 0)
        assert not isinstance(count, bool)
        assert 0 <= count < math.inf


def test_adding_sums_counts_and_cost_and_keeps_the_latest_description() -> None:
    total = usage_add(None, {**CHAT, "source": "provider"})
    latest = {
        "input_tokens": 1,
        "output_tokens": 2,
        "cost": 0.5,
        "cache_write_tokens": 3,
        "details": {"a": 1},
    }
    before = copy.deepcopy(total)
    assert usage_add(total, latest) == {
        "input_tokens": 101,
        "output_tokens": 22,
        "total_tokens": 123,
        "cached_tokens": 64,
        "cache_write_tokens": 3,
        "reasoning_tokens": 8,
        "cost": 0.75,
        "details": {"a": 1},
    }
    assert total == before


@pytest.mark.parametrize("reported", [None, {}, "x", {"prompt_tokens": -1}])
def test_adding_nothing_gives_a_copy(reported: Any) -> None:
    total = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3, "source": "provider"}
    added = usage_add(total, reported)
    assert added == total
    assert added is not total
    assert usage_add(None, reported) == {}


def test_one_side_alone_has_no_total() -> None:
    assert usage_add({"input_tokens": 1}, {"input_tokens": 2}) == {"input_tokens": 3}
    assert usage_add({"input_tokens": 1}, {"output_tokens": 2})["total_tokens"] == 3


def test_details_are_an_independent_copy() -> None:
    value = {"a": [1, {"b": None}], "c": True, "d": 1.5, "e": ""}
    copied = usage_details(value)
    assert copied == value
    assert copied["a"] is not value["a"]
    assert usage_details((1, 2)) == [1, 2]
    assert usage_details("x") == "x"


@pytest.mark.parametrize(
    "key",
    [
        "__proto__",
        "constructor",
        "prototype",
        "user",
        "userId",
        "user_id",
        "email",
        "account",
        "accountName",
        "organization_id",
        "org",
        "org-id",
        "projectId",
        "api_key",
        "apiKeyName",
        "ip",
        "ipAddress",
        "k" * 129,
        "\ud83d",
        5,
    ],
)
def test_details_name_nobody(key: Any) -> None:
    assert usage_details({key: "x", "kept": 1}) == {"kept": 1}


@pytest.mark.parametrize(
    "key", ["input", "users_online", "reported_total_tokens", "tip", "k" * 128, "useful"]
)
def test_details_keep_other_keys(key: str) -> None:
    assert usage_details({key: 1}) == {key: 1}


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, 1 << 64, object(), b"x", {1}, {}, [], {"a": [math.nan]}, None]
)
def test_details_without_anything_valid_are_none(value: Any) -> None:
    assert usage_details(value) is None


def test_details_leave_cycles_out() -> None:
    cycle: dict[str, Any] = {"a": 1, "list": [2]}
    cycle["self"] = cycle
    cycle["list"].append(cycle)
    shared = {"x": 1}
    cycle["twice"] = [shared, shared]
    assert usage_details(cycle) == {"a": 1, "list": [2], "twice": [shared, shared]}


def test_details_are_bounded() -> None:
    deep: Any = 1
    for _ in range(6):
        deep = {"d": deep}
    assert usage_details(deep) == deep
    assert usage_details({"d": deep, "a": 1}) == {"a": 1}
    assert usage_details(list(range(100))) == list(range(16))
    assert usage_details("x" * 2000) == "x" * 1024
    assert len(usage_details({str(number): number for number in range(1000)})) == 255
    texts = {f"{number:02}": "x" * 1024 for number in range(30)}
    copied = usage_details(texts)
    assert sum(len(key) + len(text) for key, text in copied.items()) == 16_384
    assert usage_details({**texts, "y" * 100: 1}) == copied
    assert usage_details(copied) == copied


def test_H3_details_hold_no_lone_surrogates() -> None:
    assert usage_details(["a\ud83d", "\ud83d\ude00"]) == ["a\ufffd", "\U0001f600"]


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40) | st.just("x" * 3000),
    lambda inner: (
        st.lists(inner, max_size=20)
        | st.dictionaries(st.text(max_size=4) | st.just("k" * 130), inner, max_size=20)
    ),
    max_leaves=60,
)


@given(TREES)
def test_bounding_twice_changes_nothing(value: Any) -> None:
    bounded = usage_details(value)
    assert usage_details(bounded) == bounded
    json.dumps(bounded, allow_nan=False).encode()
