"""Seeing what happens: log set-up with masking, and reading the trace."""

from __future__ import annotations

from .configure import LEVELS, Logging, configure
from .encode import encode_line, plain
from .otel import Instrumentation, instrument
from .trace import read_trace

__all__ = [
    "LEVELS",
    "Instrumentation",
    "Logging",
    "configure",
    "encode_line",
    "instrument",
    "plain",
    "read_trace",
]
