"""What `scripts/faults --sdk` adds: the cells that can be tried on the official SDKs, side by side."""

from __future__ import annotations

import importlib
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from tests.matrix import sdks
from tests.matrix.cells import Cell
from tests.matrix.sdks import AGAIN, FIRST, PACKAGES, Failure, Pace

Result = tuple[Cell, Failure | None, str]

CRITERION = f"""\
A call of an SDK passes when it ends in time (its timeout is {FIRST.timeout:g} s, given up after
{FIRST.patience:g} s): normally where the answer is whole, with an error of its own where it is not, either
way where only the connection failed after the answer's end; its text is what had come; no socket is left
open. What failed was tried once more, alone and with more time. Asked of aiio besides: the kind, every
flag, retry advice, the tool call, and that the partial message can be sent again to every dialect."""

SHOWN = 3
"""Examples of each kind of failure that are printed."""


def try_sdk(cell: Cell, pace: Pace) -> Result:
    """Run one cell on its SDK; what the SDK warns of is not held against it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sdks.try_sdk(cell, pace)


def report(
    verdicts: Mapping[Cell, list[str]],
    each: Callable[[Callable[[Cell, Pace], Result], Sequence[Cell], Pace], Iterable[Result]],
) -> Iterator[str]:
    """Yield the lines of the comparison.

    Args:
      verdicts: what came of each cell on aiio.
      each: runs a function on every cell, in other processes; with the longer pace one at a time.
    """
    missing = sorted({name for name in PACKAGES.values() if not _installed(name)})
    if missing:
        yield f"Not installed, and left out: {', '.join(missing)}"
    cells = [cell for cell in verdicts if sdks.is_for_sdks(cell) and PACKAGES[cell.dialect] not in missing]
    by_cell = {result[0]: result for result in each(try_sdk, cells, FIRST)}
    again = [cell for cell in cells if by_cell[cell][1] is not None]
    by_cell.update({result[0]: result for result in each(try_sdk, again, AGAIN)})
    yield f"The same bytes through the official SDKs ({len(cells)} cells: plain HTTP, no action or kill):"
    yield CRITERION
    yield ""
    failures: dict[str, Counter[Failure]] = defaultdict(Counter)
    passed = Counter[str]()
    examples: dict[tuple[str, Failure], list[str]] = defaultdict(list)
    for cell, failed, raised in by_cell.values():
        if failed is None:
            passed[cell.dialect] += 1
        else:
            failures[cell.dialect][failed] += 1
            examples[cell.dialect, failed].append(f"{cell}{f' ({raised})' if raised else ''}")
    yield from _side_by_side(cells, verdicts, passed, failures)
    for dialect, counts in failures.items():
        yield ""
        yield f"{_sdk(dialect)}, {dialect}:"
        for failed, count in counts.most_common():
            yield f"  {count:4}  {failed}"
            for example in sorted(examples[dialect, failed])[:SHOWN]:
                yield f"        {example}"
    yield ""


def _side_by_side(
    cells: Sequence[Cell],
    verdicts: Mapping[Cell, list[str]],
    passed: Counter[str],
    failures: Mapping[str, Counter[Failure]],
) -> Iterator[str]:
    raw = Counter({dialect: counts[Failure.RAW] for dialect, counts in failures.items()})
    totals = Counter(cell.dialect for cell in cells)
    ours = Counter(cell.dialect for cell in cells if not verdicts[cell])
    rows: list[tuple[str, ...]] = [
        ("dialect", "SDK", "cells", "aiio", "SDK", "SDK, errors of other libraries allowed")
    ]
    rows += [
        _row(dialect, _sdk(dialect), total, ours[dialect], passed[dialect], raw[dialect])
        for dialect, total in totals.items()
    ]
    rows.append(_row("all", "", len(cells), ours.total(), passed.total(), raw.total()))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        yield f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |"
        if not number:
            yield f"| {' | '.join('-' * width for width in widths)} |"


def _row(dialect: str, name: str, total: int, ours: int, passed: int, raw: int) -> tuple[str, ...]:
    return (dialect, name, str(total), str(ours), str(passed), str(passed + raw))


def _installed(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


def _sdk(dialect: str) -> str:
    name = PACKAGES[dialect].replace("google.", "google-")
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return name
