"""The library below aiio's WebSocket transport, used as its documentation shows: a typed decode, append."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import trio_websocket

from .reading import Read, run_reader


class Event(msgspec.Struct, gc=False):
    """One message."""

    type: str
    delta: str | None = None


decode = msgspec.json.Decoder(Event).decode


@asynccontextmanager
async def open_client(url: str) -> AsyncIterator[Read]:
    """Yield a function that reads one stream from *url*."""
    address = f"{url.replace('http', 'ws', 1)}/responses"

    async def read(pieces: list[str], started: Callable[[], None]) -> None:
        async with trio_websocket.open_websocket_url(address, max_message_size=64 << 20) as socket:
            await socket.send_message('{"type":"response.create","model":"bench"}')
            while True:
                event = decode(await socket.get_message())
                if event.delta is not None:
                    if not pieces:
                        started()
                    pieces.append(event.delta)
                elif event.type == "response.completed":
                    return

    yield read


if __name__ == "__main__":
    run_reader(open_client)
