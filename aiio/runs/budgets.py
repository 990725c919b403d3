"""How the tokens of a request are shared: layers, history, and what is kept for the answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .errors import RunConfigError
from .layers import LayerBudget

LAYER_SHARE = 0.6
"""Of what is left after all minimums, for layers; the rest is the history's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionPolicy:
    """How much a model is shown."""

    token_budget: float = 128_000
    """Tokens of the request and its answer."""
    response_reserve: float = 4_000
    """Tokens of it that are left for the answer."""
    max_items: int | None = None
    """Newest items of the log that are shown at most; None: as many as fit."""

    @property
    def cap(self) -> float:
        """Tokens of the whole request."""
        return self.token_budget - self.response_reserve


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Who gets how many tokens; fractions are kept, so that they add up."""

    layers: Mapping[str, float]
    """By the layer's id."""
    history: float
    pool: float
    """What the layers get on top of their minimums, in all, when they have room for it."""


def share(budgets: Mapping[str, LayerBudget], policy: ProjectionPolicy, system_tokens: float) -> Shares:
    """Share the budget of *policy* among layers (by id) and the history.

    Minimums come first; too many of them are scaled down, and the history gets nothing. Of the rest 60 % go
    to the layers: those with a maximum share by their room up to it (all of it, or half when others have no
    maximum), those without share what remains.

    Raises:
      RunConfigError: INVALID_BUDGET_INPUT: NaN, a negative number, or a maximum below its minimum.
    """
    _check(budgets, policy, system_tokens)
    available = policy.token_budget - policy.response_reserve - system_tokens
    if available <= 0:
        return Shares(layers=dict.fromkeys(budgets, 0.0), history=0.0, pool=0.0)
    least = sum(budget.min for budget in budgets.values())
    if least > available:
        scale = available / least
        scaled = {id: float(math.floor(budget.min * scale)) for id, budget in budgets.items()}
        return Shares(layers=scaled, history=0.0, pool=0.0)
    rest = available - least
    pool = rest * LAYER_SHARE
    shares = {id: float(budget.min) for id, budget in budgets.items()}
    room = {id: budget.max - budget.min for id, budget in budgets.items() if budget.max is not None}
    unlimited = [id for id, budget in budgets.items() if budget.max is None]
    room = {id: space for id, space in room.items() if space > 0}
    bounded = sum(room.values())
    given = min(pool / 2 if unlimited else pool, bounded)
    for id, space in room.items():
        shares[id] += space if given == bounded else given * space / bounded
    for id in unlimited:
        shares[id] += (pool - given) / len(unlimited)
    return Shares(layers=shares, history=rest - pool if math.isfinite(rest) else rest, pool=pool)


def _check(budgets: Mapping[str, LayerBudget], policy: ProjectionPolicy, system_tokens: float) -> None:
    numbers = {
        "token_budget": policy.token_budget,
        "response_reserve": policy.response_reserve,
        "system tokens": system_tokens,
        **{f"{id}.min": budget.min for id, budget in budgets.items()},
        **{f"{id}.max": budget.max for id, budget in budgets.items() if budget.max is not None},
    }
    wrong = [f"{name}={value!r}" for name, value in numbers.items() if not value >= 0]
    wrong += [
        f"{id}.max is below {id}.min"
        for id, budget in budgets.items()
        if budget.max is not None and budget.max < budget.min
    ]
    if wrong or math.isinf(policy.response_reserve) or math.isinf(system_tokens):
        raise RunConfigError(
            "INVALID_BUDGET_INPUT",
            f"budgets can't be shared: {', '.join(wrong) or 'an infinite reserve'}",
            hint="budgets are numbers of tokens >= 0; math.inf is no limit",
        )
