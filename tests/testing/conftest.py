"""The fixtures of the plug-in, as its users have them."""

from __future__ import annotations

from aiio.testing.pytest_plugin import aiio_clock, aiio_env, aiio_faults, aiio_server

__all__ = ["aiio_clock", "aiio_env", "aiio_faults", "aiio_server"]
