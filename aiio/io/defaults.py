"""The HTTP defaults of the provider contract: one exchange of JSON, for a provider author's own use.

A login, a probe, a list of models: what an author does beside the requests that an IO runs.

    connection = default_connect("https://host/v1/login", io)
    try:
        await default_send(connection, [{"X-Client": "me"}, {"user": "ada"}])
        while (message := await default_read(connection)) is not None:
            ...
    finally:
        await default_close(connection)

The exchange goes over the transports, the proxy and the TLS context of the IO's Env, like any request;
what a transport runs beside it lives in the Env's background nursery. It holds no slot of the ledger and
has no limits of its own: put a `trio.move_on_after` around it. Known credentials are masked in whatever
is raised.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping
from typing import Any, cast

import trio

from aiio.env.env import Env
from aiio.env.errors import ErrorKind, HttpStatusError, ProviderError
from aiio.providers.base import Provider, ProviderIO, decode_json
from aiio.transports.base import Connection, Framing

from .request import CLEANUP
from .sanitize import encode_body, split_request, transport_request

_DONE = b"[DONE]"
_SKIPPED = (b"event:", b"id:", b"retry:", b":")


class DefaultConnection:
    """One exchange: what `default_connect` returns and the other functions take. For one task at a time."""

    def __init__(self, url: str, aiio: ProviderIO, env: Env, method: str, framing: Framing) -> None:
        self.url = url
        self.aiio = aiio
        self.headers: dict[str, str] = {}
        """What will be sent; `default_send_headers` sets them."""
        self.response: Connection | None = None
        """The answer: `response.status`, `response.headers`. None: nothing was sent yet."""
        self.closed = False
        self._env = env
        self._method, self._framing = method, framing
        self._pending: deque[bytes] = deque()
        self._found = False
        self._ended = False

    def __repr__(self) -> str:
        state = "closed" if self.closed else "new" if self.response is None else "open"
        return f"<DefaultConnection {self._env.scrub(self.url)} {state}>"

    async def aclose(self) -> None:
        """Do what `default_close` does, also when it is cancelled."""
        await default_close(self)

    def check_open(self) -> None:
        """Raise trio.ClosedResourceError after `default_close`."""
        if self.closed:
            raise trio.ClosedResourceError("this connection was closed; make a new one")

    async def open(self, body: bytes | None) -> None:
        """Send the request, and wait for the response head.

        Errors and cancellation: as `default_send_body`.
        """
        env = self._env
        headers = dict(self.headers)
        if body is not None and "content-type" not in map(str.lower, headers):
            headers["Content-Type"] = "application/json"
        env.scrubber.learn(headers)
        env.scrubber.add_url(self.url)
        request = transport_request(
            env,
            self.aiio.settings,
            url=self.url,
            method=self._method,
            headers=headers,
            body=body,
            framing=self._framing,
        )
        nursery = cast(trio.Nursery, env.nursery)  # has what a transport uses of one: start and start_soon
        try:
            self.response = await env.transport(self.url).open(request, nursery)
        except (HttpStatusError, ProviderError) as exc:
            raise self._scrubbed(exc) from None  # the original may quote a credential

    async def receive(self) -> None:
        """Take what one read of the socket brings, or note that the answer has ended.

        Cancellation: nothing is lost; call again.
        """
        assert self.response is not None  # `default_read` looked
        try:
            frames = await self.response.receive()
        except ProviderError as exc:
            self.check_open()  # closed by another task while this one waited
            raise self._scrubbed(exc) from None
        if frames is not None:
            self._pending += frames
            self._found = self._found or bool(frames)
            return
        self._ended = True
        if not self._found and self.response.bytes_received and not self.response.keepalives:
            raise self._malformed("holds no message")

    def take(self) -> Any:
        """Return the next message of what was received; None: there is none.

        Raises:
          ProviderError: malformed: not JSON.
        """
        while self._pending:
            frame = self._pending.popleft()
            try:
                message = decode_json(frame)
            except ValueError:
                self._take_apart(frame)
                continue
            if message is not None:  # None means the end to whoever reads
                return message
        return None

    @property
    def ended(self) -> bool:
        """Whether nothing more is to be received."""
        return self._ended

    def _take_apart(self, frame: bytes) -> None:
        """Put back what may be JSON in a *frame* that is none itself: its lines, or what follows `data:`."""
        lines = [line for line in map(bytes.strip, frame.splitlines()) if line]
        if len(lines) > 1:
            self._pending.extendleft(reversed(lines))
            return
        line = lines[0] if lines else b""
        if not line or line.startswith(_SKIPPED):
            return
        payload = line.removeprefix(b"data:").strip()
        if payload == _DONE:
            self._ended = True
            self._pending.clear()
        elif payload == line:
            raise self._malformed("is no JSON")
        elif payload:
            self._pending.appendleft(payload)

    def _malformed(self, why: str) -> ProviderError:
        return ProviderError(ErrorKind.MALFORMED, f"the answer of {self.aiio.endpoint_name} {why}")

    def _scrubbed(self, error: HttpStatusError | ProviderError) -> HttpStatusError | ProviderError:
        scrubber = self._env.scrubber
        if isinstance(error, HttpStatusError):
            headers: Mapping[str, str] = scrubber.data(error.headers)
            return HttpStatusError(error.status, error.status_text, scrubber.text(error.body), headers)
        return ProviderError(error.kind, scrubber.text(error.message), scrubber.data(error.detail))


def default_connect(
    url: str,
    aiio: ProviderIO,
    *,
    method: str = "POST",
    framing: Framing | None = None,
) -> DefaultConnection:
    """Return a connection for one exchange with *url*. Nothing is opened before something is sent.

    Args:
      url: absolute.
      aiio: the IO, for its Env, its endpoint's settings and its dialect.
      method: of the request.
      framing: how an answer is cut whose content type does not say it; None: as the IO's dialect has it.

    Raises:
      TypeError: *aiio* has no Env.
    """
    env = getattr(aiio, "env", None)
    if not isinstance(env, Env):
        raise TypeError(f"default_connect needs an aiio.IO, which has an env; not {aiio!r}")
    dialect: type[Provider] = getattr(aiio, "provider_class", Provider)
    return DefaultConnection(url, aiio, env, method, framing or dialect.framing)


async def default_send(connection: DefaultConnection, msg: Any) -> None:
    """Send *msg*: a list or tuple is `[headers, body]`, anything else the body alone.

    Raises what `default_send_body` does; malformed, too, for headers that are no mapping.
    Cancellation: as there.
    """
    headers, body = split_request(msg)
    await default_send_headers(connection, headers)
    await default_send_body(connection, body)


async def default_send_headers(connection: DefaultConnection, headers: Mapping[str, Any]) -> None:
    """Set the headers to send; values that are None or callable are dropped, others made strings.

    Nothing is sent before the body. Always a checkpoint.

    Raises:
      ProviderError: malformed: no mapping.
      trio.ClosedResourceError: the connection was closed.
    """
    connection.check_open()
    connection.headers, _ = split_request((headers, None))
    await trio.lowlevel.checkpoint()


async def default_send_body(connection: DefaultConnection, body: Any) -> None:
    """Send the request with *body* as JSON (None: no body), and return when the response head is there.

    Raises:
      HttpStatusError: a status that is not 2xx, with what of the body was read.
      ProviderError: malformed, *body* is not JSON data; or what the transport says of the network.
      trio.BusyResourceError: a request was sent on this connection before.
      trio.ClosedResourceError: the connection was closed.
      RuntimeError: the Env is not entered.

    Cancellation: the socket is closed. The peer may have received the request; the connection is as it was
    before, and may be used again. Always a checkpoint.
    """
    connection.check_open()
    if connection.response is not None:
        raise trio.BusyResourceError("a connection is for one exchange, and a request was sent on this one")
    await connection.open(encode_body(body))


async def default_read(connection: DefaultConnection) -> Any:
    """Return the next whole JSON message of the answer; None at its end, and from then on.

    One message a line, or a server-sent event, or the whole body, as its content type says. A leading `data:`
    is dropped; blank lines, comments and `event:`, `id:`, `retry:` lines are skipped; `[DONE]` is the end;
    a last line without a line end counts.

    Raises:
      RuntimeError: nothing was sent.
      ProviderError: malformed, something that is no JSON; or the peer or the network failed.
      trio.ClosedResourceError: the connection was closed, maybe while this waited.

    Cancellation: nothing is consumed; call again and no message is lost. Always a checkpoint.
    """
    connection.check_open()
    if connection.response is None:
        raise RuntimeError("nothing was sent on this connection: default_send comes before default_read")
    await trio.lowlevel.checkpoint()
    while (message := connection.take()) is None and not connection.ended:
        await connection.receive()
    return message


async def default_close(connection: DefaultConnection) -> None:
    """Close the connection, whatever the peer does. Idempotent; takes at most 5 s, shielded.

    Cancellation: the connection is closed all the same. Always a checkpoint.
    """
    connection.closed = True
    if connection.response is not None:
        with trio.move_on_after(CLEANUP, shield=True), contextlib.suppress(Exception):
            await connection.response.aclose()  # a plug-in's may raise, and there is nothing left to save
    await trio.lowlevel.checkpoint()
