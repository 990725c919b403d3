"""Seeing what happens: log set-up with masking, and reading the trace."""

from __future__ import annotations

from .configure import LEVELS, Logging, configure
from .encode import encode_line, plain
from .trace import read_trace

__all__ = ["LEVELS", "Logging", "configure", "encode_line", "plain", "read_trace"]
