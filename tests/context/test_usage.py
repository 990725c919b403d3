"""Estimates, final usage, rate-limit headers, windows."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiio.context import usage as usage_module
from aiio.context.types import assistant_message, text_content, user_message
from aiio.context.usage import (
    FALLBACK_CONTEXT_WINDOWS,
    TOKENS_PER_WORD,
    estimate_context_tokens,
    estimate_tokens,
    estimate_usage,
    fallback_context_window,
    finalize_usage,
    usage_headers,
    word_count,
)

from .strategies import contexts

T = text_content
SPACES = [
    *range(0x09, 0x0E),
    0x20,
    0xA0,
    0x1680,
    *range(0x2000, 0x200B),
    0x2028,
    0x2029,
    0x202F,
    0x205F,
    0x3000,
    0xFEFF,
]


def test_words_are_parted_by_the_spaces_of_the_spec() -> None:
    assert [code for code in range(0x11000) if word_count(f"a{chr(code)}b") == 2] == SPACES


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 0), ("  ", 0), (" a  b\n", 2), ("\ufeffa", 1), ("\ud83d \ude00", 2), (None, 0), (5, 0)],
)
def test_words_are_runs_of_what_is_no_space(text: Any, count: int) -> None:
    assert word_count(text) == count


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 2),
        ("a b c", 4),
        ("one two three four", 6),
        ("x" * 400, 100),
        ("日" * 9, 3),
        (None, 0),
        (b"a", 0),
    ],
)
def test_an_estimate_is_the_larger_of_words_and_characters(text: Any, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


@given(st.text(max_size=40))
def test_the_estimate_follows_its_rule(text: str) -> None:
    assert estimate_tokens(text) == math.ceil(max(word_count(text) * TOKENS_PER_WORD, len(text) / 4) - 1e-9)


def test_a_context_is_summed_before_rounding() -> None:
    assert estimate_context_tokens() == 0
    assert estimate_context_tokens([user_message("a"), user_message("b"), user_message("c")]) == 4
    assert estimate_context_tokens(iter([user_message("a b c")])) == 4


def test_arguments_count_the_same_before_and_after_they_are_parsed() -> None:
    raw = '{"path":"' + "x" * 100 + '"}'
    call = {"type": "tool_call", "call_id": "c", "name": "n", "arguments": raw}
    before = estimate_context_tokens([assistant_message([call])])
    assert before == math.ceil(len(raw) / 4)
    call["arguments"] = {"path": "x" * 100}  # type: ignore[assignment]
    assert estimate_context_tokens([assistant_message([call])]) == before


@pytest.mark.parametrize(
    "entry",
    [
        None,
        "text",
        {},
        {"type": 2},
        {"type": 2, "content": "a b c"},
        {"type": 2, "content": [None, "a b c", {"type": "text", "text": 5}, {"type": "text", "text": ["a"]}]},
        {"type": "note", "content": [T("a b c")]},
        {"type": 3, "content": [{"type": "tool_call", "arguments": object()}]},
    ],
)
def test_what_is_no_text_of_a_message_counts_nothing(entry: Any) -> None:
    assert estimate_context_tokens([entry]) == 0
    assert estimate_context_tokens([entry, user_message("a b c"), {"content": [T("d e f")]}]) == 8


def test_a_context_is_iterable() -> None:
    with pytest.raises(TypeError):
        estimate_context_tokens(5)  # type: ignore[arg-type]


def test_edits_in_place_are_seen() -> None:
    context: list[Any] = [user_message("a b c"), assistant_message([T("d e f")])]
    assert estimate_context_tokens(context) == 8
    context[0]["content"][0]["text"] = "a b c d e f"
    assert estimate_context_tokens(context) == 12
    context[1]["content"].append({"type": "tool_call", "arguments": {"a": []}})
    more = estimate_context_tokens(context)
    context[1]["content"][1]["arguments"]["a"].append("long " * 30)
    assert estimate_context_tokens(context) > more > 12
    del context[1]["content"][:]
    assert estimate_context_tokens(context) == 8


def test_M1_an_unchanged_context_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scanned: list[Any] = []

    def counting(text: object) -> int:
        scanned.append(text)
        return word_count(text)

    monkeypatch.setattr(usage_module, "word_count", counting)
    context = [user_message(f"message {number} of this test") for number in range(1000)]
    first = estimate_context_tokens(context)
    assert len(scanned) == 1000
    scanned.clear()
    assert estimate_context_tokens(copy.deepcopy(context)) == first
    assert scanned == []
    context[500]["content"][0]["text"] = "another message of this test"
    estimate_context_tokens(context)
    assert scanned == ["another message of this test"]


def test_M1_what_is_remembered_is_bounded_and_recent() -> None:
    memo = usage_module._Memo(limit=10)
    for key in range(1000):
        memo.put(key, key)
        assert memo.get(0) in (0, None)
        assert len(memo) <= 20
    assert memo.get(999) == 999
    assert memo.get(1) is None
    for key in range(1000, 1011):
        memo.put(key, key)
    assert memo.get(1001) == 1001  # of the old generation, and young again
    for key in range(2000, 2009):
        memo.put(key, key)
    assert memo.get(1001) == 1001


@given(contexts())
def test_the_fast_reader_agrees_with_the_careful_one(context: list[Any]) -> None:
    fast = usage_module._texts_of_messages(context)
    careful = usage_module._texts_of_anything(context)
    assert [text for text in fast if isinstance(text, str)] == careful


def test_usage_is_estimated_for_both_sides() -> None:
    context, message = [user_message("a b c")], assistant_message([T("d e f"), T("g h i")])
    assert estimate_usage(context, message) == {"input_tokens": 4, "output_tokens": 8, "source": "estimate"}
    assert estimate_usage() == {"input_tokens": 0, "output_tokens": 0, "source": "estimate"}


def test_complete_provider_counts_win() -> None:
    reported = {"prompt_tokens": 10, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 4}}
    before = copy.deepcopy(reported)
    final = finalize_usage(reported, [user_message("a b c")], assistant_message([T("d")]))
    assert final == {
        "input_tokens": 10,
        "output_tokens": 0,
        "source": "provider",
        "total_tokens": 10,
        "cached_tokens": 4,
    }
    assert reported == before
    assert finalize_usage(final, 5) == final  # type: ignore[arg-type]  # nothing to estimate, nothing to read


@pytest.mark.parametrize(
    "reported",
    [
        None,
        {},
        {"prompt_tokens": 10},
        {"completion_tokens": 10},
        {"prompt_tokens": 10, "completion_tokens": None},
        {"prompt_tokens": True, "completion_tokens": 5},
        {"prompt_tokens": "10", "completion_tokens": 5},
        {"prompt_tokens": -1, "completion_tokens": 5},
        {"prompt_tokens": math.nan, "completion_tokens": 5},
        {"prompt_tokens": math.inf, "completion_tokens": 5},
        {"prompt_tokens": 1 << 60, "completion_tokens": 5},
        "ten",
        [10, 5],
    ],
)
def test_G1_half_a_pair_or_nonsense_is_estimated_on_both_sides_and_says_so(reported: Any) -> None:
    final = finalize_usage(reported, [user_message("a b c")], assistant_message([T("d e f g h i")]))
    assert final == {"input_tokens": 4, "output_tokens": 8, "total_tokens": 12, "source": "estimate"}


def test_a_partial_report_keeps_what_else_it_says() -> None:
    reported = {
        "prompt_tokens": 10,
        "cost": 0.5,
        "completion_tokens_details": {"reasoning_tokens": 3},
        "x": 1,
    }
    assert finalize_usage(reported, [], None) == {
        "input_tokens": 0,
        "output_tokens": 0,
        "total_tokens": 0,
        "source": "estimate",
        "reasoning_tokens": 3,
        "cost": 0.5,
        "details": {"x": 1},
    }


def test_an_estimate_does_not_become_a_providers_count() -> None:
    estimate = finalize_usage(None, [user_message("a b c")], None)
    assert finalize_usage(estimate, [], None) == estimate


def test_an_estimate_needs_an_iterable_context() -> None:
    with pytest.raises(TypeError):
        finalize_usage(None, 5)  # type: ignore[arg-type]


HEADERS = {
    "X-RateLimit-Limit-Requests": "100",
    "anthropic-ratelimit-tokens-reset": "2026-11-30T12:00:00Z",
    "Retry-After": "3",
    "rate-limit-policy": "x" * 2000,
    "content-type": "text/event-stream",
    "set-cookie": "secret",
}


def test_rate_limit_headers_are_kept_and_bounded() -> None:
    assert usage_headers(HEADERS, exclude=["RETRY-AFTER"]) == {
        "anthropic-ratelimit-tokens-reset": "2026-11-30T12:00:00Z",
        "rate-limit-policy": "x" * 1024,
        "x-ratelimit-limit-requests": "100",
    }
    assert usage_headers(HEADERS)["retry-after"] == "3"
    assert usage_headers(None) == usage_headers({}) == {}
    assert len(usage_headers({f"x-ratelimit-{number}": "1" for number in range(1000)})) < 256


@pytest.mark.parametrize("exclude", ["retry-after", [5], None])
def test_excluded_names_are_a_list_of_strings(exclude: Any) -> None:
    with pytest.raises(TypeError):
        usage_headers({}, exclude=exclude)


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("gpt-6", 1_050_000),
        ("gpt-6-sol", 1_050_000),
        ("o3-2025-04-16", 200_000),
        ("o4-mini-high", 200_000),
        ("gpt-6.5", None),
        ("o3x", None),
        ("o4", None),
        ("o4-mini", 200_000),
        ("o3-mini-2025", 200_000),
        ("o1-preview", 200_000),
        ("gpt-6-mini-2026-09-01", 1_050_000),
        ("gpt-6x", None),
        ("gpt-6_sol", None),
        ("gpt-60", None),
        ("GPT-6", None),
        ("O3", None),
        ("openai/gpt-6", None),
        ("-o3", None),
        (" o3", None),
        ("", None),
        (None, None),
        (6, None),
    ],
)
def test_G5_a_window_is_known_by_the_id_or_its_beginning_up_to_a_dash(model: Any, window: int | None) -> None:
    assert fallback_context_window(model) == window


def test_the_window_table_is_frozen() -> None:
    with pytest.raises(TypeError):
        FALLBACK_CONTEXT_WINDOWS["x"] = 1  # type: ignore[index]
