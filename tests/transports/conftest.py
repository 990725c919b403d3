"""Transports to test with: the direct way, and both libraries' clients lent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import httpx2
import pytest

from aiio.transports.http import HTTPTransport
from tests.serving import Authority

from .asking import FakeEnv, usual_context

CLIENTS: dict[str, Any] = {
    "direct": lambda: None,
    "httpx": lambda: httpx.AsyncClient(trust_env=False, verify=usual_context()),
    "httpx2": lambda: httpx2.AsyncClient(trust_env=False, verify=usual_context()),
}


@pytest.fixture
async def transport() -> AsyncIterator[HTTPTransport]:
    """The direct way."""
    made = HTTPTransport(FakeEnv())
    yield made
    await made.aclose()


@pytest.fixture(params=list(CLIENTS))
async def any_transport(request: pytest.FixtureRequest) -> AsyncIterator[HTTPTransport]:
    """Each way in turn."""
    client = CLIENTS[request.param]()
    made = HTTPTransport(FakeEnv(http_client=client))
    yield made
    await made.aclose()
    if client is not None:
        await client.aclose()


@pytest.fixture(scope="session")
def authority() -> Authority:
    """A certificate authority of this test session."""
    return Authority()
