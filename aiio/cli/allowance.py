"""What all prompts of one `aiio run` may use together: money, tokens, time."""

from __future__ import annotations

import math

import trio

from aiio.agents import AgentResult, Budget
from aiio.agents.spending import was_served
from aiio.env.durations import Duration, parse_duration
from aiio.env.endpoints import split_selector
from aiio.env.prices import price

from .exits import CliFault
from .output import say

_ONE_OF_EACH = {"input_tokens": 1, "output_tokens": 1}


class Allowance:
    """Counts what has been used, and says when that is enough. What is in flight then is over it.

    Args:
      cost: USD.
      tokens: input and output.
      time: begins with `start`.

    Raises:
      CliFault: the time is no duration.
    """

    def __init__(
        self, *, cost: float | None = None, tokens: int | None = None, time: Duration | None = None
    ) -> None:
        try:
            self._seconds = parse_duration(time)
        except ValueError as exc:
            raise CliFault(f"--max-time: {exc}") from exc
        self._max_cost, self._max_tokens, self._max_time = cost, tokens, time
        self._tokens = 0
        self.cost: float | None = None
        """USD so far, as far as it is known; None: nothing is."""
        self.unpriced: int = 0
        """Requests whose price nobody knows."""
        self.deadline: float = math.inf
        """When the time is up, on trio's clock."""
        self._time_is_up = False

    def start(self) -> None:
        """Let the time begin."""
        if self._seconds is not None:
            self.deadline = trio.current_time() + self._seconds

    def stop(self) -> None:
        """Take note that the time is up."""
        self._time_is_up, self.deadline = True, math.inf

    def count(self, result: AgentResult) -> None:
        """Count what one prompt has used."""
        if result.rounds > 1 or was_served(result.terminal):
            usage = result.usage or {}
            self._tokens += int(usage.get("input_tokens") or 0) + int(usage.get("output_tokens") or 0)
        if result.cost is not None:
            self.cost = (self.cost or 0.0) + result.cost
        self.unpriced += result.unpriced

    @property
    def budget(self) -> Budget | None:
        """What each agent is given, so that its cost is counted where that matters."""
        return None if self._max_cost is None else Budget(cost=math.inf)

    @property
    def used_up(self) -> str | None:
        """Which option says that it is enough; None: none does."""
        if self._time_is_up or trio.current_time() >= self.deadline:
            return f"--max-time {self._max_time}"
        if self._max_tokens is not None and self._tokens >= self._max_tokens:
            return f"--max-tokens {self._max_tokens}"
        if self._max_cost is not None and (self.cost or 0.0) >= self._max_cost:
            return f"--max-cost {self._max_cost:g}"
        return None

    def words(self) -> str:
        """Return `$0.25`, and how much of it is not known; empty when there is nothing to say."""
        known = "" if self.cost is None else f"${self.cost:.4g}"
        if not self.unpriced:
            return known
        return f"{known or 'cost unknown'} ({self.unpriced} requests have no known price)"

    async def say_what_it_cannot_see(self, selectors: set[str]) -> None:
        """Tell the user which models have no known price, when that matters."""
        if self._max_cost is None:
            return
        for selector in sorted(selectors):
            if await price(None, *split_selector(selector), _ONE_OF_EACH) is None:
                say(
                    f"the price of {selector} is not known: --max-cost counts its requests only if the "
                    "provider says what they cost"
                )
