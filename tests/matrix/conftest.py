"""The lab in which all cells are tried."""

from __future__ import annotations

import pytest

from .running import Lab, virtual_lab


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The lab; its certificates take a moment to make."""
    return virtual_lab()
