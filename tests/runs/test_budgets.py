"""Budgets: shares sum to the pool, minimums scale, nonsense raises."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiio.runs.budgets import ProjectionPolicy, share
from aiio.runs.errors import RunConfigError
from aiio.runs.layers import ContextLayer, LayerBudget

POLICY = ProjectionPolicy(token_budget=2100, response_reserve=100)


def test_B11_minimums_first_then_60_to_40() -> None:
    shares = share({"a": LayerBudget(min=1000), "b": LayerBudget()}, POLICY, 0)
    assert shares.layers == {"a": 1300, "b": 300}
    assert (shares.history, shares.pool) == (400, 600)


def test_B11_finite_layers_share_by_headroom_alone_or_half_beside_unlimited_ones() -> None:
    alone = share({"a": LayerBudget(max=3000), "b": LayerBudget(max=1000)}, POLICY, 0)
    assert alone.layers == {"a": 900, "b": 300}
    beside = share({"a": LayerBudget(max=3000), "b": LayerBudget(max=1000), "c": LayerBudget()}, POLICY, 0)
    assert beside.layers == {"a": 450, "b": 150, "c": 600}
    small = share({"a": LayerBudget(max=100), "c": LayerBudget(), "d": LayerBudget(min=0, max=0)}, POLICY, 0)
    assert small.layers == {"a": 100, "c": 1100, "d": 0}


def test_B11_overcommitted_minimums_scale_down_and_the_history_gets_nothing() -> None:
    shares = share({"a": LayerBudget(min=3000), "b": LayerBudget(min=1001)}, POLICY, 0)
    assert shares.layers == {"a": 1499, "b": 500}
    assert shares.history == 0


def test_B11_nothing_left_is_zero_for_all_and_infinity_is_allowed() -> None:
    assert share({"a": LayerBudget(min=5)}, POLICY, 2000).layers == {"a": 0}
    endless = share({"a": LayerBudget()}, ProjectionPolicy(token_budget=math.inf), 0)
    assert (endless.layers["a"], endless.history) == (math.inf, math.inf)
    assert share({"a": LayerBudget(max=10)}, ProjectionPolicy(token_budget=math.inf), 0).layers == {"a": 10}
    assert share({}, POLICY, 0).history == 800


@pytest.mark.parametrize(
    ("budget", "policy", "system"),
    [
        (LayerBudget(min=math.nan), POLICY, 0),
        (LayerBudget(max=math.nan), POLICY, 0),
        (LayerBudget(min=-1), POLICY, 0),
        (LayerBudget(min=2, max=1), POLICY, 0),
        (LayerBudget(), ProjectionPolicy(token_budget=math.nan), 0),
        (LayerBudget(), ProjectionPolicy(response_reserve=math.inf), 0),
        (LayerBudget(), POLICY, math.nan),
    ],
)
def test_B11_nonsense_raises(budget: LayerBudget, policy: ProjectionPolicy, system: float) -> None:
    with pytest.raises(RunConfigError) as caught:
        share({"a": budget}, policy, system)
    assert caught.value.code == "INVALID_BUDGET_INPUT"


@given(
    st.dictionaries(
        st.text(max_size=2),
        st.builds(
            lambda low, more: LayerBudget(min=low, max=None if more is None else low + more),
            st.integers(0, 300),
            st.none() | st.integers(0, 5000),
        ),
        max_size=5,
    ),
    st.integers(0, 3000),
)
def test_B11_shares_sum_to_the_pool_and_keep_their_limits(
    budgets: dict[str, LayerBudget], system: int
) -> None:
    shares = share(budgets, POLICY, system)
    available = max(0, 2000 - system)
    assert sum(shares.layers.values()) + shares.history <= available + 1e-6
    for id, budget in budgets.items():
        assert budget.max is None or shares.layers[id] <= budget.max + 1e-6
    if shares.pool and any(budget.max is None for budget in budgets.values()):
        least = sum(budget.min for budget in budgets.values())
        assert sum(shares.layers.values()) == pytest.approx(least + shares.pool)


def test_B10_a_layer_checks_its_timeouts_and_a_number_is_a_maximum() -> None:
    layer: Any = ContextLayer(id="x", budget=10, timeouts={"recall": "1s"})
    assert layer.limits == LayerBudget(max=10)
    assert (layer.timeout("recall"), layer.timeout("store")) == (1, 30)
    assert ContextLayer(id="x", budget=LayerBudget(min=1)).limits == LayerBudget(min=1)
    with pytest.raises(ValueError, match="no hook"):
        ContextLayer(id="x", timeouts={"recal": "1s"})
    with pytest.raises(ValueError, match="not a duration"):
        ContextLayer(id="x", timeouts={"recall": "soon"})
