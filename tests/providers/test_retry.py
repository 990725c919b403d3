"""How long to wait, in every form that providers write it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiio.providers.plan_usage import quotas_of
from aiio.providers.retry import MAX_DELAY_MS, parse_reset, retry_delay_ms

NOW = 1_795_000_000.0  # 2026-11-18T11:06:40Z

G3: list[tuple[Any, float | None]] = [
    ("6m0s", 360),
    ("1m26.4s", 86.4),
    ("1s", 1),
    ("12ms", 0.012),
    ("17ms", 0.017),
    ("0s", 0),
    ("1h2m3s", 3723),
    ("2m59.56s", 179.56),
    ("38.2s", 38.2),
    ("1d2h", 93600),
    ("985µs", 0.000985),
    ("20", 20),
    ("20.5", 20.5),
    (20, 20),
    ("2026-11-18T11:07:40Z", 60),
    ("2026-11-18T12:07:40.5+01:00", 60.5),
    ("2026-11-18T11:07:40", 60),
    ("2026-11-18T11:06:00Z", 0),
    (str(int(NOW) + 90), 90),
    (str(int(NOW) * 1000 + 1500), 1.5),
    (int(NOW) - 5, 0),
    ("Wed, 18 Nov 2026 11:07:10 GMT", 30),
    ("-1", None),
    (-1, None),
    ("", None),
    ("soon", None),
    ("s", None),
    ("5 parsecs", None),
    ("1s2", None),
    ("1s 2m", None),
    ("2026-11-18", None),
    ("Thu, 99 Foo 2026 99:99:99 GMT", None),
    ("not a date at all", None),
    ("nan", None),
    (float("nan"), None),
    (float("inf"), None),
    ("9" * 400, None),
    ("9" * 400 + "s", None),
    (10**400, None),
    (True, None),
    (None, None),
    ([], None),
]


@pytest.mark.parametrize(("value", "seconds"), G3, ids=lambda value: str(value)[:30])
def test_G3_reset_times(value: Any, seconds: float | None) -> None:
    found = parse_reset(value, NOW)
    assert found == (None if seconds is None else pytest.approx(seconds, abs=1e-9))


@given(st.text(max_size=40))
def test_G3_any_text_is_a_time_or_nothing(value: str) -> None:
    found = parse_reset(value, NOW)
    assert found is None or found >= 0
    limits = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": value}
    headers = {"retry-after-ms": value, "retry-after": value, **limits}
    delay = retry_delay_ms(headers, {"error": {"resets_at": value}}, f"try again in {value}", NOW)
    assert delay is None or 0 <= delay <= MAX_DELAY_MS


DELAYS: dict[str, tuple[dict[str, str], Any, str, float | None]] = {
    "nothing": ({}, None, "", None),
    "ms before seconds": ({"retry-after-ms": "11054", "retry-after": "12"}, None, "try again in 1s", 11054),
    "fraction rounded up": ({"retry-after-ms": "0.4"}, None, "", 1),
    "bad ms": ({"retry-after-ms": "soon", "retry-after": "1.5"}, None, "", 1500),
    "date": ({"retry-after": "Wed, 18 Nov 2026 11:07:10 GMT"}, None, "", 30000),
    "far date": ({"retry-after": "Wed, 21 Oct 2037 07:28:00 GMT"}, None, "", MAX_DELAY_MS),
    "endless": ({"retry-after-ms": "9" * 400}, None, "", MAX_DELAY_MS),
    "retry info": ({}, {"error": {"details": ["x", {"a": 1}, {"retryDelay": "38.2s"}]}}, "", 38200),
    "resets in": ({}, {"error": {"resets_in_seconds": 7}}, "", 7000),
    "resets at": ({}, {"resets_at": NOW + 9}, "", 9000),
    "header in the body": (
        {},
        {"error": {"metadata": {"headers": {"X-RateLimit-Reset": str(int(NOW) * 1000 + 2500)}}}},
        "",
        2500,
    ),
    "body of text": ({}, {"error": "x"}, "", None),
    "prose s": ({}, None, "Please try again in 11.054s.", 11054),
    "prose ms": ({}, None, "Please try again in 120ms. Visit", 120),
    "prose compound": ({}, None, "try again in 6m0s.", 360_000),
    "prose words": ({}, None, "Retry after 2 minutes 5 seconds", 125_000),
    "prose hours": ({}, None, "please wait 1 hour", 3_600_000),
    "prose of Gemini": ({}, None, "Please retry in 38.243s.", 38243),
    "prose without a time": ({}, None, "try again in 5 messages, or 3x", None),
    "exhausted quota": (
        {
            "x-ratelimit-remaining-requests": "499",
            "x-ratelimit-reset-requests": "9m",
            "x-ratelimit-remaining-tokens": "0",
            "x-ratelimit-reset-tokens": "12ms",
            "x-ratelimit-remaining-images": "0",
            "x-ratelimit-reset-images": "2s",
            "x-ratelimit-remaining-days": "0",
            "anthropic-ratelimit-tokens-remaining": "0",
            "anthropic-ratelimit-tokens-reset": "2026-11-18T11:06:41Z",
        },
        None,
        "",
        2000,
    ),
}


@pytest.mark.parametrize(("headers", "body", "message", "expected"), DELAYS.values(), ids=DELAYS.keys())
def test_G3_retry_delay(headers: dict[str, str], body: Any, message: str, expected: float | None) -> None:
    assert retry_delay_ms(headers, body, message, NOW) == expected


QUOTAS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "none": ({"x-request-id": "1"}, {}),
    "separate": (
        {
            "x-ratelimit-limit-requests": "500",
            "x-ratelimit-remaining-requests": "499",
            "x-ratelimit-reset-requests": "120ms",
            "x-ratelimit-limit-project-tokens": "10",
        },
        {
            "requests": {"total": 500, "remaining": 499, "used": 1, "reset": NOW + 0.12},
            "project_tokens": {"total": 10},
        },
    ),
    "unknown is absent": (
        {
            "x-ratelimit-limit-tokens": "-1",
            "x-ratelimit-remaining-tokens": "-5",
            "x-ratelimit-reset-tokens": "x",
        },
        {},
    ),
    "bare": (
        {"x-ratelimit-limit": "3", "x-ratelimit-remaining": "1"},
        {"requests": {"total": 3, "remaining": 1, "used": 2}},
    ),
    "bare yields": (
        {"x-ratelimit-limit": "3", "x-ratelimit-limit-requests": "4"},
        {"requests": {"total": 4}},
    ),
    "windows": (
        {
            "anthropic-ratelimit-unified-5h-utilization": "0.25",
            "anthropic-ratelimit-unified-5h-reset": str(int(NOW) + 60),
            "anthropic-ratelimit-unified-7d-utilization": "much",
        },
        {"5h": {"total": 100, "used": 25, "remaining": 75, "reset": NOW + 60, "window_seconds": 18000}},
    ),
    "windows of models": (
        {
            "anthropic-ratelimit-unified-7d_opus-utilization": "0.5",
            "anthropic-ratelimit-unified-overage-utilization": "0",
        },
        {
            "7d_opus": {"total": 100, "used": 50, "remaining": 50, "window_seconds": 604_800},
            "overage": {"total": 100, "used": 0, "remaining": 100},
        },
    ),
    "Anthropic, tiers beside the rate limits": (
        {
            "anthropic-ratelimit-requests-limit": "50",
            "anthropic-priority-input-tokens-limit": "9",
            "anthropic-priority-input-tokens-remaining": "4",
            "anthropic-fast-output-tokens-remaining": "3",
            "anthropic-organization-id": "7",
        },
        {
            "requests": {"total": 50},
            "priority_input_tokens": {"total": 9, "remaining": 4, "used": 5},
            "fast_output_tokens": {"remaining": 3},
        },
    ),
    "Azure": (
        {
            "x-ratelimit-limit-tokens": "1000",
            "x-ratelimit-remaining-tokens": "-7",
            "x-ratelimit-reset-tokens": "42",
            "x-ratelimit-limit-requests": "-1",
        },
        {"tokens": {"total": 1000, "reset": NOW + 42}},
    ),
    "Groq": (
        {
            "x-ratelimit-limit-requests": "14400",
            "x-ratelimit-remaining-requests": "14370",
            "x-ratelimit-reset-requests": "2m59.56s",
            "x-ratelimit-remaining-tokens": "17997",
        },
        {
            "requests": {"total": 14400, "remaining": 14370, "used": 30, "reset": NOW + 179.56},
            "tokens": {"remaining": 17997},
        },
    ),
    "OpenRouter": (
        {
            "x-ratelimit-limit": "20",
            "x-ratelimit-remaining": "0",
            "x-ratelimit-reset": str(int(NOW) * 1000 + 2500),
        },
        {"requests": {"total": 20, "remaining": 0, "used": 20, "reset": NOW + 2.5}},
    ),
    "Mistral": (
        {"x-ratelimit-limit-req-minute": "60", "x-ratelimit-remaining-tokens-month": "5"},
        {"req_minute": {"total": 60}, "tokens_month": {"remaining": 5}},
    ),
    "images": ({"x-ratelimit-remaining-input-images": "9"}, {"input_images": {"remaining": 9}}),
}


@pytest.mark.parametrize(("headers", "expected"), QUOTAS.values(), ids=QUOTAS.keys())
def test_quotas(headers: dict[str, str], expected: dict[str, Any]) -> None:
    assert quotas_of(headers, NOW) == expected
