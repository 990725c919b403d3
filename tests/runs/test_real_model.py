"""On the real model: the server itself says that a kept prefix is served from its cache."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from aiio.env.env import open_env
from aiio.runs import CachePolicy, ContextLayer, Harness, HookCall, Hooks, RunContext, call_model, run_code
from tests.model import RealModel, real_model  # noqa: F401  # a fixture


async def usages(model: RealModel, cache: CachePolicy, turns: int) -> tuple[list[tuple[int, int]], int]:
    """Return (prompt, cached) tokens of every turn, as the server counted, and the number of epochs."""
    turn = [0]

    def churn(call: HookCall) -> str:
        turn[0] += 1
        return f"Note {turn[0]}: the clock says {turn[0] * 7 % 60} past."

    layers = [
        ContextLayer(id="clock", slot=1, hooks=Hooks(recall=churn)),
        ContextLayer(id="facts", slot=2, hooks=Hooks(recall=lambda call: "Birds fly. Fish swim. " * 8)),
    ]
    seen: list[dict[str, Any]] = []
    epochs: set[str] = set()

    async def flow(input: Any, context: RunContext) -> None:
        for number in range(turns):
            ask = call_model(
                "ask", instructions="One word.", tools=[], settings={"max_tokens": 3}, recoveries=0
            )
            await context.execute(ask, f"Word {number}?")
            assert context.last_step_meta is not None
            seen.append(context.last_step_meta.usage or {})
            epoch = context.last_layer_usage.epoch
            epochs.add("" if epoch is None else epoch.id)

    async with open_env() as env:
        env.register_endpoint("llamacpp", url=model.url, auth=model.key)
        harness = Harness(env=env, model=f"llamacpp/{model.model}", layers=layers, cache=cache)
        await harness.run(run_code("flow", flow))
    return [(usage["input_tokens"], usage["cached_tokens"]) for usage in seen], len(epochs)


@pytest.mark.model
@pytest.mark.timeout(400)  # tens of answers of a real model, on whatever machine
async def test_a_pinned_prefix_is_served_from_the_servers_cache_and_a_churning_one_is_not(
    real_model: RealModel,  # noqa: F811
) -> None:
    pinned, epochs = await usages(real_model, CachePolicy(), turns=30)
    control, _ = await usages(real_model, CachePolicy(enabled=False), turns=3)
    assert epochs == 1
    cached = [tokens for _, tokens in pinned[1:]]
    assert all(later > before for before, later in pairwise(cached))  # all that was said before, every time
    # What is not cached is the last turn and the note on what changed: it does not grow.
    assert max(prompt - tokens for prompt, tokens in pinned[2:]) < 150
    assert max(tokens for _, tokens in control[1:]) < 50
