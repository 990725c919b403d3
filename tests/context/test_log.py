"""Where log lines go."""

from __future__ import annotations

import pytest
import structlog
from structlog.testing import CapturingLogger

from aiio.context.log import get_logger


def test_an_unconfigured_program_hears_warnings_through_standard_logging(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    structlog.reset_defaults()
    get_logger().info("quiet")
    get_logger().warning("loud", type=2)
    assert [record.message for record in caplog.records] == ["loud"]
    assert capsys.readouterr().out == ""


def test_a_configured_program_gets_the_lines() -> None:
    lines = CapturingLogger()
    structlog.configure(processors=[lambda _, __, event: event], logger_factory=lambda *_: lines)
    try:
        get_logger().info("heard", key=1)
    finally:
        structlog.reset_defaults()
    assert lines.calls[0].kwargs == {"event": "heard", "key": 1}
