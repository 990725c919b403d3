"""Windows and costs from the price list, with a list of the test's own in its place."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import structlog
import trio

from aiio.env import Env
from aiio.env.prices import PriceList, price


def install(monkeypatch: pytest.MonkeyPatch, providers: Any) -> None:
    package, module = ModuleType("genai_prices"), ModuleType("genai_prices.data_snapshot")
    package.__spec__ = importlib.util.spec_from_loader("genai_prices", loader=None)
    module.get_snapshot = lambda: SimpleNamespace(providers=providers)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "genai_prices", package)
    monkeypatch.setitem(sys.modules, "genai_prices.data_snapshot", module)


def provider(name: str, **windows: int | None) -> SimpleNamespace:
    models = [SimpleNamespace(id=id_.replace("_", "-"), context_window=size) for id_, size in windows.items()]
    return SimpleNamespace(id=name, models=models)


PROVIDERS = [provider("openai", new_model=400, new_model_mini=None), provider("google", Gemini_9=900)]


def at_once(work: Callable[[], None]) -> bool:
    work()
    return True


def test_G5_an_id_counts_only_if_it_is_the_lists_own(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, PROVIDERS)
    prices = PriceList(at_once)
    assert prices("openai", "new-model") is None  # begins to load
    assert prices("openai", "new-model") == 400
    assert prices("openai", "New-Model-2026-11-30") == 400
    assert prices("openai", "new-model-20261130") == 400
    assert prices("gemini", "gemini-9") == 900
    for other in ("new-modelx", "new-model-mini", "new", "new-model-2026", "new-model-pro"):
        assert prices("openai", other) is None
    assert prices("groq", "new-model") is None


async def test_G5_the_list_is_loaded_beside_and_ranks_before_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, [provider("openai", gpt_6=12345)])
    before = Env(environ={}).context_window("openai/gpt-6")
    assert before not in (None, 12345)
    env = Env(environ={})
    assert env.context_window("openai/gpt-6") == before  # not entered: nowhere to load it
    async with env:
        assert env.context_window("openai/gpt-6") == before
        with trio.fail_after(10):
            while env.context_window("openai/gpt-6") == before:
                await trio.sleep(0.001)
        assert env.context_window("openai/gpt-6") == 12345
        env.windows.report("openai", "gpt-6", 1)
        assert env.context_window("openai/gpt-6") == 1


def test_without_the_package_nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    prices = PriceList(lambda work: pytest.fail("started"))
    assert prices("openai", "gpt-5") is None
    assert prices("openai", "gpt-5") is None


def test_a_list_of_another_shape_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [SimpleNamespace(id="x", models=5)])
    prices = PriceList(at_once)
    with structlog.testing.capture_logs() as logs:
        assert prices("x", "y") is None
    assert prices("x", "y") is None
    assert [log["event"] for log in logs] == ["prices.unreadable"]


def flat(endpoint: str, model: str, usage: Mapping[str, Any]) -> float:
    return 0.01 * float(usage["input_tokens"]) + 0.02 * float(usage["output_tokens"])


async def test_B8_a_price_is_the_providers_own_else_the_lists_else_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = {"input_tokens": 10, "output_tokens": 5}
    assert await price(flat, "p", "m", {**counts, "cost": 3}) == 3
    assert await price(flat, "p", "m", {**counts, "cost": True}) == pytest.approx(0.2)
    assert await price(flat, "p", "m", {}) is None
    assert await price(lambda *_: float("nan"), "p", "m", counts) is None
    assert await price(lambda *_: -1.0, "p", "m", counts) is None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert await price(None, "p", "m", counts) is None

    class Package:
        Usage = staticmethod(lambda **counted: counted)

        @staticmethod
        def calc_price(usage: Any, *, model_ref: str, provider_id: str) -> Any:
            if model_ref == "unknown":
                raise LookupError(model_ref)
            if model_ref == "odd":
                raise RuntimeError
            return SimpleNamespace(total_price=usage["input_tokens"] + len(provider_id))

    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "genai_prices", Package)
    assert await price(None, "gemini", "m", counts) == 10 + len("google")
    assert await price(None, "p", "unknown", counts) is None
    assert await price(None, "p", "odd", counts) is None
