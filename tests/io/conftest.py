"""Fixtures: a clock that waits for loopback."""

from __future__ import annotations

import pytest
from trio.testing import MockClock


@pytest.fixture
def patient_clock() -> MockClock:
    """An autojump clock that jumps only after 5 ms of real idleness, so bytes on loopback arrive first."""
    return MockClock(autojump_threshold=0.005)
