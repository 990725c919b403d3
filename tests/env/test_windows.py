from __future__ import annotations

import math

import pytest

from aiio.context.usage import fallback_context_window
from aiio.env import Env
from aiio.env.windows import Windows, positive_tokens


def test_G5_sources_are_ranked() -> None:
    windows = Windows()
    windows.sources.append(lambda endpoint, model: None)
    windows.sources.append(lambda endpoint, model: 400 if model == "m" else None)
    models = {"m": {"context_length": 300}, "odd": {"context_window": "many"}, "none": None}
    assert windows.lookup("e", "m", {}) == 400
    assert windows.lookup("e", "m", {"models": models}) == 300
    windows.report("e", "m", 200)
    assert windows.lookup("e", "m", {"models": models}) == 200
    assert windows.lookup("other", "m", {"models": models}) == 300
    assert windows.lookup("e", "m", {"models": models, "context_window": 100}) == 100
    assert windows.lookup("e", "odd-model-nobody-knows", {"models": models, "context_window": "big"}) is None
    for model in ("odd", "none", "absent"):
        assert windows.lookup("e", model, {"models": models}) is None
    assert windows.lookup("e", "absent", {"models": 5}) is None


def test_G5_the_table_comes_last_and_unknown_stays_unknown() -> None:
    env = Env(environ={})
    ids = [
        "gpt-5",
        "gpt-5-mini",
        "gpt-6",
        "gpt-6x",
        "gpt-4o",
        "gpt-4.1-mini",
        "o3",
        "o3-mini-2025",
        "o30",
        "openai/gpt-5",
        "GPT-5",
        "claude-sonnet-4-5",
        "anthropic/claude-opus-4",
        "gemini-2.5-pro",
        "google/gemini-2.5-flash",
        "grok-4",
        "deepseek-chat",
        "mistral-large-latest",
        "llama",
        "unknown",
    ]
    assert len(ids) == 20
    for model in ids:
        bare = model.lower().rpartition("/")[2]
        assert env.context_window(f"openrouter/{model}") == fallback_context_window(bare)
    assert env.context_window("openrouter/openai/GPT-5") == fallback_context_window("gpt-5")
    assert env.context_window("openrouter/gpt-6x") is None  # no prefix of another name counts
    assert env.context_window("openrouter/a-model-nobody-knows") is None


@pytest.mark.parametrize("value", [None, True, "128000", math.nan, math.inf, 0, -5, 0.5, [1]])
def test_G5_what_is_no_count_is_ignored(value: object) -> None:
    assert positive_tokens(value) is None
    windows = Windows()
    windows.report("e", "a-model-nobody-knows", value)
    assert windows.lookup("e", "a-model-nobody-knows", {"context_window": value}) is None


def test_a_count_is_cut_to_an_int() -> None:
    assert positive_tokens(128000.7) == 128000


def test_the_embedded_model_has_the_window_of_a_slot() -> None:
    assert Env(environ={}).context_window("local/smollm2") == 2048
