"""When a loop ends: predicates over what an iteration left."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from aiio.context.text import compact_json
from aiio.env.durations import Duration, parse_duration

from .calling import call

if TYPE_CHECKING:
    from .context import RunContext
    from .totals import StepMeta


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSnapshot:
    """What a predicate sees."""

    context: RunContext
    iteration: int
    """From 0."""
    output: Any
    history: tuple[Any, ...]
    """Outputs of the last iterations, this one's last."""
    elapsed_ms: float
    """Since the loop began."""
    cost: float
    """USD since the loop began."""

    @property
    def last_step_meta(self) -> StepMeta | None:
        """Of the last model or decide step."""
        return self.context.last_step_meta


Until: TypeAlias = Callable[[LoopSnapshot], "bool | Awaitable[bool]"]
"""Returns whether the loop ends; plain or async."""


def no_tool_calls() -> Until:
    """Return a predicate: the last model step wanted no tools. Never on the first iteration."""

    def stop(snapshot: LoopSnapshot) -> bool:
        meta = snapshot.last_step_meta
        return snapshot.iteration > 0 and not (meta is not None and meta.tool_calls)

    return stop


def max_steps(count: int) -> Until:
    """Return a predicate: *count* iterations are done."""
    return lambda snapshot: snapshot.iteration + 1 >= count


def max_cost(usd: float, *, held: bool = False) -> Until:
    """Return a predicate: the loop has cost *usd*; with *held*, counting what the run holds."""

    def stop(snapshot: LoopSnapshot) -> bool:
        holds = snapshot.context._execution.paid.held_cost if held else 0.0
        return snapshot.cost + holds >= usd

    return stop


def max_duration(duration: Duration) -> Until:
    """Return a predicate: the loop has taken *duration*."""
    seconds = parse_duration(duration)
    assert seconds is not None  # only None comes back as None
    return lambda snapshot: snapshot.elapsed_ms >= seconds * 1000


def verified(check: Callable[[Any], bool | Awaitable[bool]]) -> Until:
    """Return a predicate: `check(output)`, plain or async, says so."""

    async def stop(snapshot: LoopSnapshot) -> bool:
        return bool(await call(check, snapshot.output))

    return stop


def converged(
    *, embed: Callable[[str], Any] | None = None, similarity: float = 0.98, rounds: int = 2
) -> Until:
    """Return a predicate: the last *rounds* outputs are the same.

    Args:
      embed: `(text) -> vector`, plain or async; None: the same means equal.
      similarity: with *embed*: the cosine from which two are the same.
      rounds: how many outputs.
    """

    async def stop(snapshot: LoopSnapshot) -> bool:
        last = snapshot.history[-rounds:]
        if len(last) < rounds:
            return False
        if embed is None:
            return all(output == last[-1] for output in last)
        vectors = [await call(embed, _text(output)) for output in last]
        return all(_cosine(vector, vectors[-1]) >= similarity for vector in vectors)

    return stop


def output_contains(text: str) -> Until:
    """Return a predicate: *text* is in the output, as text or as JSON."""
    return lambda snapshot: text in _text(snapshot.output)


def output_equals(value: Any) -> Until:
    """Return a predicate: the output is *value*."""
    return lambda snapshot: bool(snapshot.output == value)


def never() -> Until:
    """Return a predicate: only the loop's own limit ends it."""
    return lambda snapshot: False


def any_of(*predicates: Until) -> Until:
    """Return a predicate: one of *predicates* says so; asked in order."""

    async def stop(snapshot: LoopSnapshot) -> bool:
        for predicate in predicates:
            if await call(predicate, snapshot):
                return True
        return False

    return stop


def all_of(*predicates: Until) -> Until:
    """Return a predicate: all of *predicates* say so; asked in order. ValueError: there are none."""
    if not predicates:
        raise ValueError("all_of() of nothing would end every loop at once")

    async def stop(snapshot: LoopSnapshot) -> bool:
        for predicate in predicates:
            if not await call(predicate, snapshot):
                return False
        return True

    return stop


def _text(output: Any) -> str:
    if isinstance(output, str):
        return output
    try:
        return compact_json(output)
    except (TypeError, ValueError):
        return str(output)


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of two vectors; 0 when one has no length."""
    lengths = math.hypot(*one) * math.hypot(*other)
    return sum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else 0.0
