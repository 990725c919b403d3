"""Budgets: what a run may use, what it has used, and when that is enough.

Tokens and cost are known when a request has ended, so they stop a run between two requests: the last one is
whole, and may have gone over. The time stops it anywhere; a request that is cut keeps its partial message.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio

from aiio.context.events import Error, Terminal
from aiio.context.log import get_logger
from aiio.context.types import Usage
from aiio.context.usage_data import usage_add
from aiio.env.durations import Duration
from aiio.env.endpoints import split_selector
from aiio.env.prices import price
from aiio.io.limits import as_words, check_duration

from .result import Stopped

if TYPE_CHECKING:
    from .agent import Agent


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one run of an agent may use; None: as much as it likes.

    Raises:
      TypeError, ValueError: not numbers above 0, not a duration.
    """

    tokens: int | None = None
    """Input and output of all its requests together, summaries included; no further request after that."""
    cost: float | None = None
    """USD, likewise. `math.inf` sets no limit and has the cost counted all the same (`AgentResult.cost`)."""
    time: Duration | None = None
    """From the start of the run, queueing included; a bare number is milliseconds."""
    prices: Callable[[str, str, Mapping[str, Any]], float | None] | None = None
    """(endpoint, model, usage) -> USD, None: not known. By default the list `genai-prices`, if installed."""

    def __post_init__(self) -> None:
        for name, value in (("tokens", self.tokens), ("cost", self.cost)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise TypeError(f"{name} is a number, not {value!r}")
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, not {value!r}")
        check_duration("time", self.time)
        if self.prices is not None and not callable(self.prices):
            raise TypeError(f"prices is a function, not {self.prices!r}")

    @property
    def seconds(self) -> float:
        """The time in seconds; `math.inf`: no limit."""
        seconds = check_duration("time", self.time)
        return math.inf if seconds is None else seconds


class Spending:
    """What one run has used of its budget. Made when it begins."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._budget = agent._budget or Budget()
        self._to_price: list[Usage] = []
        self.deadline: float = trio.current_time() + self._budget.seconds
        """On trio's clock."""
        self.usage: Usage | None = None
        self.cost: float | None = None
        self.unpriced: int = 0

    def book(self, terminal: Terminal) -> None:
        """Count a request that has ended. Its price comes with `price_all`."""
        self.usage = usage_add(self.usage, terminal.usage)
        if was_served(terminal):
            self._to_price.append(terminal.usage or {})

    async def price_all(self) -> None:
        """Find out what the requests booked since the last time have cost.

        Not always a checkpoint. Cancellation: they stay to be priced.
        """
        while self._to_price:
            cost = await self._price(self._to_price[0])
            del self._to_price[0]
            if cost is not None:
                self.cost = (self.cost or 0.0) + cost
            elif self._budget.cost is not None:
                if not self.unpriced:
                    get_logger().warning(
                        "agent.price_unknown", agent=self._agent.name, model=self._agent.model
                    )
                self.unpriced += 1

    async def _price(self, usage: Usage) -> float | None:
        if self._budget.cost is None and "cost" not in usage:
            return None
        return await price(self._budget.prices, *split_selector(self._agent.model), usage)

    def used_up(self) -> Stopped | None:
        """Return which budget is used up; None: a further request may be made."""
        if trio.current_time() >= self.deadline:
            return Stopped.TIME_BUDGET
        usage, budget = self.usage or {}, self._budget
        tokens = sum(usage.get(side) or 0 for side in ("input_tokens", "output_tokens"))
        if budget.tokens is not None and tokens >= budget.tokens:
            return Stopped.TOKEN_BUDGET
        if budget.cost is not None and self.cost is not None and self.cost >= budget.cost:
            return Stopped.COST_BUDGET
        return None

    def words(self, stopped: Stopped) -> str:
        """Return the budget that *stopped* names, for people."""
        match stopped:
            case Stopped.TOKEN_BUDGET:
                return f"its budget of {self._budget.tokens} tokens"
            case Stopped.COST_BUDGET:
                return f"its budget of ${self._budget.cost:g}"
            case Stopped.TIME_BUDGET:
                return f"its time of {as_words(self._budget.seconds)}"
            case _:
                return "its rounds"


def was_served(terminal: Terminal) -> bool:
    """Tell whether a request used anything: one that was refused, or never arrived, has an estimate only."""
    estimated = (terminal.usage or {}).get("source") != "provider"
    return not (isinstance(terminal, Error) and not terminal.emitted and estimated)
