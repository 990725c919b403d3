"""What a transport is: it takes one request to a peer and brings frames back, knowing no dialect.

A transport is registered on an `Env` for a URL scheme. It maps every exception of its library to
`ProviderError` or `HttpStatusError`; nothing else leaves it but `trio.Cancelled` and bugs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import trio

from aiio.env.durations import Duration
from aiio.env.errors import ProviderError

Framing: TypeAlias = Literal["sse", "ndjson"]
"""How an answer's body is cut into frames over HTTP: server-sent events, or JSON lines."""

BINARY = "binary"
"""Name of a `Frame` that came as a binary WebSocket message."""


class Frame(bytes):
    """A frame that came under a name of its own (`event: error` in SSE, a binary WebSocket message).

    All others are plain `bytes`.
    """

    name: str

    def __new__(cls, data: bytes, name: str) -> Frame:
        frame = super().__new__(cls, data)
        frame.name = name
        return frame


async def checkpoint_with_data() -> None:
    """Let others run, having data in hand: a limit that passes meanwhile is no silence of the peer."""
    await trio.lowlevel.checkpoint_if_cancelled()
    await trio.lowlevel.cancel_shielded_checkpoint()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportRequest:
    """One request, ready for the wire."""

    url: str = field(repr=False)
    """Absolute. Never holds a credential."""
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)
    """HTTP: the request body. WebSocket: the first message sent."""
    framing: Framing = "sse"
    """How the answer's body is cut into frames when the response does not say otherwise."""
    proxy: str | None = field(default=None, repr=False)
    """Proxy URL for this request; None: direct."""
    head_came: Callable[[], None] | None = field(default=None, repr=False)
    """Called before the body of a refusal is read, which may take longer than its head."""
    max_frame_bytes: int = 64 << 20
    max_response_bytes: int = 1 << 30
    """Decoded bytes of one answer."""
    max_error_bytes: int = 1 << 18
    """Decoded bytes of an error body that are kept; the rest is not read."""
    slot: Slot | None = field(default=None, repr=False)
    """WebSocket: use the connection that is kept there, and keep it there; None: a connection per request."""
    reuse: Reuse | None = field(default=None, repr=False)
    """HTTP: use a connection that was kept, and let this one be kept; None: a connection for this request."""
    http_keep_idle: Duration = "30s"
    """HTTP: how long a connection is kept without a request. One that does not parse counts as not set."""
    ws_keep_idle: Duration = "5m"
    """WebSocket: how long a connection is kept without a request."""
    ws_ping_interval: Duration = "30s"
    """WebSocket: time between pings; `"never"` sends none. One that does not parse counts as not set."""
    ws_ping_timeout: Duration = "60s"
    """WebSocket: how long the peer may show no sign of life after a ping."""


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
        """Close the socket. Idempotent; never raises for what the peer does.

        Called shielded from cancellation, for at most 5 s: what takes longer is to be closed by force. A
        connection whose attribute `closes_at_once` is true waits for nothing here, and is spared the shield.
        """
        ...


@dataclass(slots=True, kw_only=True)
class Reuse:
    """What a request and its transport tell each other of a connection that is kept (setting `http_keep`)."""

    redo: Callable[[ProviderError], None]
    """Called when a kept connection failed before any byte of the answer, and the request goes out once more,
    on a new one; with how it failed."""
    taken: bool = False
    """The answer came on a connection that was kept; set by the transport."""
    whole: bool = False
    """The answer is whole: the connection may be kept. Set by who reads it, before closing it."""


class Lasting(Protocol):
    """What outlives a request: an open socket."""

    @property
    def alive(self) -> bool:
        """Whether it can serve another request."""
        ...

    def close_nowait(self) -> None:
        """Have it closed soon. Idempotent."""
        ...


class Slot:
    """Where one IO keeps its connection from request to request, and what its dialect remembers with it."""

    def __init__(self) -> None:
        self._connection: Lasting | None = None
        self._memory: Mapping[str, Any] = {}
        self._whole = False

    @property
    def memory(self) -> Mapping[str, Any] | None:
        """What was remembered for the connection that is kept; None: there is none, or it has ended."""
        return None if self._connection is None or not self._connection.alive else self._memory

    def keep(self, memory: Mapping[str, Any]) -> None:
        """Note that the answer is whole, and what to remember with its connection."""
        self._whole, self._memory = True, memory

    def take(self) -> Any:
        """Return the connection that is kept, which is then kept no more; None: there is none."""
        connection, self._connection = self._connection, None
        self._whole = False
        return connection

    def put(self, connection: Lasting) -> bool:
        """Keep *connection* if its answer was whole and it is fit for another; tell whether it is kept."""
        if self._whole and connection.alive:
            self._connection = connection
        return self._connection is not None

    def close_nowait(self) -> None:
        """Close what is kept. Idempotent."""
        if (connection := self.take()) is not None:
            connection.close_nowait()


@runtime_checkable
class Duplex(Connection, Protocol):
    """A connection that takes more messages after the first: a WebSocket."""

    async def send(self, message: bytes) -> None:
        """Send one text message, UTF-8. Raises only cancellation: what is broken, `receive` reports."""
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
        """Release what is shared between requests.

        Cancellation: the rest stays open; may be called again.
        """
        ...
