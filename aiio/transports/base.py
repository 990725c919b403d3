"""What a transport is: it takes one request to a peer and brings frames back, knowing no dialect.

A transport is registered on an `Env` for a URL scheme. It maps every exception of its library to
`ProviderError` or `HttpStatusError`; nothing else leaves it but `trio.Cancelled` and bugs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import trio

Framing: TypeAlias = Literal["sse", "ndjson"]


class Frame(bytes):
    """A frame that came under a name of its own (`event: error` in SSE); all others are plain `bytes`."""

    name: str

    def __new__(cls, data: bytes, name: str) -> Frame:
        frame = super().__new__(cls, data)
        frame.name = name
        return frame


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportRequest:
    """One request, ready for the wire."""

    url: str
    """Absolute. Never holds a credential."""
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = None
    """HTTP: the request body. WebSocket: the first message sent."""
    framing: Framing = "sse"
    """How the answer's body is cut into frames when the response does not say otherwise."""
    proxy: str | None = None
    """Proxy URL for this request; None: direct."""
    head_came: Callable[[], None] | None = field(default=None, repr=False)
    """Called when the response head is there, before the body of a refusal is read."""
    max_frame_bytes: int = 64 << 20
    max_response_bytes: int = 1 << 30
    """Decoded bytes of one answer."""
    max_error_bytes: int = 1 << 18
    """Decoded bytes of an error body that are kept; the rest is not read."""


class Connection(Protocol):
    """One request's open answer. Belongs to the task that runs the write."""

    status: int
    """HTTP status (2xx), or 101."""
    headers: Mapping[str, str]
    """Response headers, names lower-cased."""
    bytes_received: int
    """Body bytes as they came over the wire, before decompression."""
    keepalives: int
    """Comments, pings and pongs so far: signs of life that carry nothing."""

    async def receive(self) -> list[bytes] | None:
        """Return all frames that one read of the socket completed; None at the clean end of the answer.

        The list is empty when a read completed no frame. A frame is `bytes`, or `Frame` if it came
        under a name that changes its meaning.

        Raises:
          ProviderError: the peer or the network failed; frames that were whole before were returned before.

        Cancellation: safe. A cancelled call has consumed nothing; call again and no byte is lost.
        """
        ...

    async def aclose(self) -> None:
        """Close the socket. Idempotent; never raises for what the peer does."""
        ...


class Transport(Protocol):
    """Opens connections for the URL schemes it is registered for."""

    async def open(self, request: TransportRequest, nursery: trio.Nursery) -> Connection:
        """Send *request* and return when the response head (or the handshake and first frame) is there.

        Tasks that must run beside the reading go into *nursery*, which belongs to the write; they
        report faults through `receive`, never by raising.

        Raises:
          HttpStatusError: the status is not 2xx; its body was read, bounded in size and time.
          ProviderError: the peer or the network failed; `detail["phase"]` says where
            (`resolve | connect | tls | proxy | send | head | body | close`).

        Cancellation: the socket is closed before `Cancelled` goes on.
        """
        ...

    async def aclose(self) -> None:
        """Release what is shared between requests."""
        ...
