"""What the tests of agents share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def structlog_as_it_was() -> Iterator[None]:
    """Capturing log lines configures structlog, and later tests would see a program that did."""
    yield
    structlog.reset_defaults()
