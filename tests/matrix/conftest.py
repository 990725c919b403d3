"""Fixtures: one lab for all cells, and a clock that waits for loopback."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from .running import Lab, virtual_lab


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The lab; its certificates take a moment to make."""
    return virtual_lab()


@pytest.fixture
def patient_clock() -> MockClock:
    """An autojump clock that jumps only after 5 ms of real idleness, so bytes on loopback arrive first."""
    return MockClock(autojump_threshold=0.005)
