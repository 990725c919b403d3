"""The least that a write costs by its design: the bare reader in a nursery, three limits, h11 for the head.

Nothing of aiio is in it: no settings, no request made of a context, no events, no message, no callbacks. What
lies between the bare reader and this one can't be taken out of aiio.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import h11
import trio

from .read_bare import READ_BYTES, read_body, request_to
from .reading import Read, run_reader

LIMITS = {"overall": 1048.0, "connect": 60.0, "stuck": 300.0}
"""Seconds; long enough."""

ASKED = h11.Request(method="POST", target="/", headers=[("Host", "")])
"""What h11 has to know of the request; made once."""


async def read_head(sock: trio.socket.SocketType) -> bytes:
    """Read the head of the answer, and return what of the body came with it."""
    parser = h11.Connection(h11.CLIENT)
    parser.send(ASKED)
    event: object = h11.NEED_DATA
    while event is h11.NEED_DATA:
        parser.receive_data(await sock.recv(READ_BYTES))
        event = parser.next_event()
    if not isinstance(event, h11.Response) or event.status_code != 200:
        raise RuntimeError(f"unexpected answer: {event!r:.100}")
    return parser.trailing_data[0]


@asynccontextmanager
async def open_client(url: str) -> AsyncIterator[Read]:
    """Yield a function that reads one stream from *url*."""
    parts = urlsplit(url)
    request = request_to(parts)

    async def read(pieces: list[str], started: Callable[[], None]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.cancel_scope.deadline = trio.current_time() + LIMITS["overall"]
            with trio.socket.socket() as sock:
                with trio.CancelScope(deadline=trio.current_time() + LIMITS["connect"]):
                    await sock.connect((parts.hostname, parts.port))
                    await sock.send(request)
                    came = await read_head(sock)
                with trio.CancelScope(deadline=trio.current_time() + LIMITS["stuck"]):
                    await read_body(sock.recv, came, pieces, started)

    yield read


if __name__ == "__main__":
    run_reader(open_client)
