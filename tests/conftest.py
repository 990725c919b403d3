"""What holds for every test: nobody's configuration is read or written, logging is as new; and a clock."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings
from trio.testing import MockClock

for name in [name for name in os.environ if name.startswith("AIIO_") and name != "AIIO_RECORDINGS"]:
    del os.environ[name]
os.environ["AIIO_NO_CONFIG"] = (
    "1"  # here and in every child process; tests of the files name folders of their own
)

# A suite that was started in the background ignores Ctrl-C, and so would every child that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Many tests on a busy machine: fewer examples each than by default, and no time limit on one.
settings.register_profile("suite", parent=settings(), max_examples=50, deadline=None)
settings.load_profile("suite")


@pytest.fixture(autouse=True)
def _structlog_as_new() -> Iterator[None]:
    """Leave structlog unconfigured, which `capture_logs` does not: lines of other tests would be printed."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def patient_clock() -> MockClock:
    """An autojump clock that jumps only after 5 ms of real idleness, so bytes on loopback arrive first."""
    return MockClock(autojump_threshold=0.005)
