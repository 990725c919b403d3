"""One request through a transport, as these tests make it."""

from __future__ import annotations

import functools
import ssl
from dataclasses import dataclass, field
from typing import Any

import trio

from aiio.env.errors import HttpStatusError, ProviderError
from aiio.transports.base import TransportRequest
from aiio.transports.http import HTTPTransport
from aiio.transports.http_connection import HTTPConnection


@functools.cache
def usual_context() -> ssl.SSLContext:
    """Return a context as an Env has it; to read the machine's certificates takes 40 ms, so there is one."""
    return ssl.create_default_context()


@dataclass
class FakeEnv:
    """What the transports need of an Env."""

    ssl_context: ssl.SSLContext = field(default_factory=usual_context)
    http_client: Any = None
    nursery: Any = None


@dataclass
class Outcome:
    """What came of a request."""

    frames: list[bytes]
    error: Any = None
    """The `ProviderError` or `HttpStatusError` that ended it."""
    connection: HTTPConnection | None = None
    """Closed; None when there was no answer to read."""

    @property
    def kind(self) -> str:
        return str(self.error.kind)

    @property
    def phase(self) -> str:
        return str(self.error.detail["phase"])

    @property
    def text(self) -> str:
        return str(self.error)


async def ask(transport: HTTPTransport, url: str, **options: Any) -> Outcome:
    """Send one request, read all there is, close; what went wrong is in the outcome."""
    outcome = Outcome([])
    async with trio.open_nursery() as nursery:
        try:
            outcome.connection = await transport.open(TransportRequest(url=url, **options), nursery)
            while (frames := await outcome.connection.receive()) is not None:
                outcome.frames += frames
        except (ProviderError, HttpStatusError) as exc:
            outcome.error = exc
        finally:
            if outcome.connection is not None:
                await outcome.connection.aclose()
    return outcome
