"""A sample of the matrix that holds every pair of values, always the same one.

`scripts/faults` runs all cells.
"""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from .cells import Cell, sample
from .running import Lab, run_cell


@pytest.mark.parametrize("cell", sample(), ids=str)
async def test_a_cell_ends_once_and_right_and_leaves_nothing_open(
    cell: Cell, lab: Lab, patient_clock: MockClock
) -> None:
    assert await run_cell(cell, lab) == []
