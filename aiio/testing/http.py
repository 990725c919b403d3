"""As much of HTTP/1.1 as a server for tests needs: a request in, pieces of an answer out."""

from __future__ import annotations

import http
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import h11
import trio

from aiio.env.scrub import Scrubber

MAX_BODY = 64 << 20
"""Bytes of a request body that are accepted."""

_scrubber = Scrubber()
"""Masks by name: nobody told it a credential."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as the server saw it."""

    method: str
    target: str
    """Path and query."""
    headers: dict[str, str]
    """Lower-cased names."""
    body: bytes

    def __repr__(self) -> str:
        # A failed assertion of somebody's test prints it: a real key may stand in the headers, or the query.
        headers = _scrubber.data(self.headers)
        return f"<Request {self.method} {_scrubber.text(self.target)} {headers} {len(self.body)} bytes>"

    def json(self) -> Any:
        """Return the body's JSON value. ValueError: it is none."""
        return json.loads(self.body)


async def read_request(stream: trio.abc.Stream, *, body: bool = True) -> Request:
    """Read one request; with `body=False` only its head.

    Raises:
      h11.RemoteProtocolError: it is none, or its body is longer than 64 MB.
      trio.BrokenResourceError: the client went away.

    Cancellation: what was read is lost.
    """
    parser = h11.Connection(h11.SERVER)
    head: h11.Request | None = None
    data = bytearray()
    while True:
        event = parser.next_event()
        if event is h11.NEED_DATA:
            parser.receive_data(bytes(await stream.receive_some(65536)))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            data += event.data
            if len(data) > MAX_BODY:
                raise h11.RemoteProtocolError(f"a body of more than {MAX_BODY} bytes")
        elif isinstance(event, h11.ConnectionClosed):
            raise h11.RemoteProtocolError("no request came")
        if head is not None and (not body or isinstance(event, h11.EndOfMessage)):
            return Request(
                method=head.method.decode(),
                target=head.target.decode(),
                headers={name.decode(): value.decode("latin-1") for name, value in head.headers},
                body=bytes(data),
            )


def head_bytes(status: int, headers: Mapping[str, str]) -> bytes:
    """Return a response head, with the empty line after it."""
    try:
        reason = http.HTTPStatus(status).phrase
    except ValueError:
        reason = "Status"
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def chunk_bytes(data: bytes) -> bytes:
    """Return *data*, which is not empty, as one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
