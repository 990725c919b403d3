"""One request through the WebSocket transport, as these tests make it."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any

import trio

from aiio.env.errors import HttpStatusError, ProviderError
from aiio.transports.base import TransportRequest
from aiio.transports.websocket import WebSocketTransport

from .asking import FakeEnv, Outcome


async def ask_ws(
    url: str, *messages: bytes, context: ssl.SSLContext | None = None, **options: Any
) -> Outcome:
    """Send *messages*, read all there is, close; what went wrong is in the outcome."""
    outcome = Outcome([])
    transport = WebSocketTransport(FakeEnv(**({} if context is None else {"ssl_context": context})))
    first, rest = (messages[0], messages[1:]) if messages else (None, ())
    async with trio.open_nursery() as nursery:
        try:
            request = TransportRequest(url=url, body=first, **options)
            connection = await transport.open(request, nursery)
            outcome.connection = connection  # type: ignore[assignment]  # a connection is a connection
            await _say(connection, rest)
            while (frames := await connection.receive()) is not None:
                outcome.frames += frames
        except (ProviderError, HttpStatusError) as exc:
            outcome.error = exc
        finally:
            if outcome.connection is not None:
                await outcome.connection.aclose()
    await transport.aclose()
    return outcome


async def _say(connection: Any, messages: Sequence[bytes]) -> None:
    for message in messages:
        await connection.send(message)
