from __future__ import annotations

import math
from typing import Any

import pytest

from aiio.context.types import user_message
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


G5: dict[str, int | None] = {
    "gpt-6": 1_050_000,
    "GPT-6": 1_050_000,
    "gpt-6-2026-11-30": 1_050_000,
    "openai/gpt-6": 1_050_000,
    "OpenAI/GPT-6": 1_050_000,
    "vendor/sub/gpt-6": 1_050_000,
    "gpt-6x": None,
    "gpt-60": None,
    "gpt-6.1": None,
    "my-gpt-6": None,
    "gpt": None,
    "o1": 200_000,
    "o1x": None,
    "o3": 200_000,
    "o3-mini-2025": 200_000,
    "o30": None,
    "o4-mini": 200_000,
    "o4-mini-high": 200_000,
    "o4": None,
    "a-model-nobody-knows": None,
}


@pytest.mark.parametrize(("model", "window"), G5.items())
def test_G5_the_table_comes_last_and_unknown_stays_unknown(model: str, window: int | None) -> None:
    env = Env(environ={})
    assert env.context_window(f"openrouter/{model}") == window
    env.model_lists.put("openrouter", {model: {"context_window": 5}})
    assert env.context_window(f"openrouter/{model}") == 5
    env.windows.report("openrouter", model, 7)
    assert env.context_window(f"openrouter/{model}") == 7
    env.settings["providers"] = {"openrouter": {"context_window": 9}}
    assert env.context_window(f"openrouter/{model}") == 9


def test_G5_there_are_20_ids() -> None:
    assert len(G5) == 20


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


def test_A15_consumption_is_what_was_counted_last_else_an_estimate() -> None:
    env = Env(environ={})
    context = [user_message("one two three four five six")]
    estimate = env.context_consumption(context)
    assert estimate == 8
    counted = {"input_tokens": 77, "output_tokens": 5, "source": "provider"}
    assert env.context_consumption(context, counted) == 77
    guesses: list[dict[str, Any]] = [
        {"input_tokens": 77, "source": "estimate"},
        {"source": "provider"},
        {"input_tokens": True, "source": "provider"},
        {},
    ]
    for usage in guesses:
        assert env.context_consumption(context, usage) == estimate
    assert env.context_consumption([], None) == 0


def test_G5_what_ollama_is_told_to_serve_comes_first_and_what_a_model_was_trained_with_last() -> None:
    windows = Windows()
    models = {"m": {"trained_window": 900, "context_window": 300}, "bare": {"trained_window": 900}}
    assert windows.lookup("e", "m", {"models": models}) == 300
    assert windows.lookup("e", "bare", {"models": models}) == 900
    assert windows.lookup("e", "bare", {"models": models, "num_ctx": 200}) == 200
    assert windows.lookup("e", "bare", {"models": models, "num_ctx": 200, "context_window": 100}) == 100
