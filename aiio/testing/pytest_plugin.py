"""The pytest plug-in: fixtures for tests of programs that use aiio. Needs pytest-trio.

    aiio_env      an Env that reads no files and no environment, for one test
    aiio_server   a `MockServer`, with an endpoint for each dialect on that Env
    aiio_faults   a `FaultProxy` in front of that server, with endpoints of its own
    aiio_clock    the clock of a test that takes it: waiting costs no time, also over loopback

pytest loads this in every run on a machine that has aiio, so nothing is imported before a fixture is used.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from trio.testing import MockClock

    from aiio.env.env import Env

    from .proxy import FaultProxy
    from .server import MockServer

IDLE = 0.01
"""Seconds of real idleness after which the clock jumps: bytes on loopback arrive well before."""


@pytest.fixture
async def aiio_env() -> AsyncIterator[Env]:
    """Give an Env that knows nothing of this machine: no settings files, no variables, no proxies."""
    from aiio.env.env import Env

    async with Env(config=False, environ={}) as env:
        yield env


@pytest.fixture
async def aiio_server(aiio_env: Env) -> AsyncIterator[MockServer]:
    """Give a loopback server; `aiio_server.model("chat")` is the selector for it on `aiio_env`."""
    from .server import mock_server

    async with mock_server(env=aiio_env) as server:
        yield server


@pytest.fixture
async def aiio_faults(aiio_env: Env, aiio_server: MockServer) -> AsyncIterator[FaultProxy]:
    """Give a proxy in front of `aiio_server`; `aiio_faults.model("chat")` goes through it."""
    from .proxy import fault_proxy

    async with fault_proxy(aiio_server, env=aiio_env) as proxy:
        yield proxy


@pytest.fixture
def aiio_clock() -> MockClock:
    """Give the test's clock: it jumps over waiting, but not over bytes that are on their way."""
    from trio.testing import MockClock

    return MockClock(autojump_threshold=IDLE)
