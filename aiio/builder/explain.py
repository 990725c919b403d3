"""The table for people: what takes how much, and what was cut off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .results import BuiltContext, FragmentChange, FragmentUsage

_HEAD = ("fragment", "source", "trust", "chars", "of", "share", "tokens", "note")
_RIGHT = frozenset({"chars", "of", "share", "tokens"})


def usage_table(built: BuiltContext) -> str:
    """Return the table of *built*: every fragment, what belongs to none, and the whole."""
    changes: dict[str, list[FragmentChange]] = {}
    for change in built.changes:
        changes.setdefault(change.id, []).append(change)
    budget = built.max_input_chars
    rows = [_fragment_row(usage, changes.pop(usage.id, []), budget) for usage in built.fragment_usage]
    rows += [_row(id, 0, budget, note=_cuts(gone)) for id, gone in changes.items()]
    others = {"(blank lines)": built.separator_chars, "(additional)": built.additional_chars}
    rows += [_row(name, chars, budget) for name, chars in others.items() if chars]
    note = ""
    if built.token_source is not None:
        note = f"tokens are of {_number(built.max_input_tokens)}, by {built.token_source.value}"
    total = _number(budget)
    rows.append(_row("total", built.input_chars, budget, limit=total, tokens=built.input_tokens, note=note))
    return _table([_HEAD, *rows], without="tokens" if built.token_source is None else None)


def _fragment_row(usage: FragmentUsage, changes: Sequence[FragmentChange], budget: float) -> tuple[str, ...]:
    return _row(
        usage.id,
        usage.chars,
        budget,
        source=usage.source_id,
        trust=usage.trust.value,
        limit=_number(usage.max_chars),
        tokens=usage.tokens,
        note="; ".join(filter(None, (usage.omitted, _cuts(changes)))),
    )


def _row(
    name: str,
    chars: int,
    budget: float,
    *,
    source: str = "",
    trust: str = "",
    limit: str = "",
    tokens: int | None = None,
    note: str = "",
) -> tuple[str, ...]:
    share = "-" if budget in (0, math.inf) else f"{chars / budget:.1%}"
    return (name, source, trust, f"{chars:,}", limit, share, "" if tokens is None else f"{tokens:,}", note)


def _cuts(changes: Sequence[FragmentChange]) -> str:
    """Say what transforms did to a fragment's size."""
    said = []
    for change in changes:
        if change.after is None:
            said.append(f"taken away by {change.transform} ({change.before:,} characters)")
        elif change.after < change.before:
            cut = change.before - change.after
            said.append(f"{cut:,} of {change.before:,} characters cut off by {change.transform}")
        else:
            said.append(f"{change.after - change.before:,} characters added by {change.transform}")
    return "; ".join(said)


def _number(value: float) -> str:
    return "unbounded" if value == math.inf else f"{value:,}"


def _table(rows: Sequence[Sequence[str]], *, without: str | None) -> str:
    columns = [column for column in zip(*rows, strict=True) if column[0] != without]
    padded = []
    for column in columns:
        width = max(map(len, column))
        align = str.rjust if column[0] in _RIGHT else str.ljust
        padded.append([align(cell, width) for cell in column])
    return "\n".join("  ".join(line).rstrip() for line in zip(*padded, strict=True))
