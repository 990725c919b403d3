"""What holds for every test: nobody's own configuration is read or written, and logging is as new."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

for name in [name for name in os.environ if name.startswith("AIIO_") and name != "AIIO_RECORDINGS"]:
    del os.environ[name]
os.environ["AIIO_NO_CONFIG"] = (
    "1"  # here and in every child process; tests of the files name folders of their own
)

# Many tests on a busy machine: fewer examples each than by default, and no time limit on one.
settings.register_profile("suite", parent=settings(), max_examples=50, deadline=None)
settings.load_profile("suite")


@pytest.fixture(autouse=True)
def _structlog_as_new() -> Iterator[None]:
    """Leave structlog unconfigured, which `capture_logs` does not: lines of other tests would be printed."""
    yield
    structlog.reset_defaults()
