"""Small JSON answers over the transports of an Env: model lists, tokens, whether somebody listens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

import trio

from aiio.context.events import ErrorKind

from .errors import HttpStatusError, ProviderError, classify_error
from .registry import load_object
from .scrub import Scrubber

_REQUEST = "aiio.transports.base:TransportRequest"  # by name: this room depends on no transport
_CLOSE_LIMIT = 2.0  # seconds
_LARGEST = 32 << 20  # bytes of an answer; OpenRouter's list of models is under one


class Network(Protocol):
    """What is needed of an Env."""

    @property
    def scrubber(self) -> Scrubber:
        """Knows the credentials that were read."""
        ...

    def transport(self, url: str) -> Any:
        """Return the transport for *url*."""
        ...

    def proxy_for(self, url: str, settings: Mapping[str, Any] | None = None) -> str | None:
        """Return the proxy for *url*."""
        ...


async def fetch_json(
    network: Network,
    url: str,
    headers: Mapping[str, str],
    *,
    endpoint: str,
    limit: float,
    body: bytes | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Any:
    """GET *url*, or POST *body* to it, and return the JSON value of the answer.

    Args:
      endpoint: whose server it is; errors name it.
      limit: seconds for all of it.
      settings: the endpoint's, for its proxy.

    Raises:
      ProviderError: what the transport raised, a status that is not 2xx, no JSON (`malformed`), too slow.
    """
    request = load_object(_REQUEST)(
        url=url,
        method="GET" if body is None else "POST",
        headers=headers,
        body=body,
        proxy=network.proxy_for(url, settings),
        max_frame_bytes=_LARGEST,
        max_response_bytes=_LARGEST,
    )
    fault = ProviderError(
        ErrorKind.NETWORK, f"the server of {endpoint!r} did not answer in {limit:g} s", code="too_slow"
    )
    with trio.move_on_after(limit):
        try:
            return _decoded(await _body(network, request), endpoint)
        except Exception as exc:  # noqa: BLE001  # raised below: behind it the one that may quote a credential
            fault = without_secrets(exc, network.scrubber, endpoint)
    raise fault


def without_secrets(error: Exception, scrubber: Scrubber, endpoint: str | None = None) -> ProviderError:
    """Return *error* classified, its texts scrubbed; servers and plug-ins quote what they were given.

    What it came from stays its cause if that shows no credential. Raise it where *error* is not handled any
    more, or Python puts *error* behind it.
    """
    status = isinstance(error, HttpStatusError)
    if isinstance(error, HttpStatusError):
        headers: Mapping[str, str] = scrubber.data(error.headers)
        body = scrubber.text(error.body)
        error = HttpStatusError(error.status, scrubber.text(error.status_text), body, headers)
    fault = classify_error(error, endpoint)
    scrubbed = ProviderError(fault.kind, scrubber.text(fault.message), scrubber.data(fault.detail))
    scrubbed.__cause__ = fault.__cause__ if status or _is_clean(fault.__cause__, scrubber) else None
    return scrubbed


def _is_clean(error: BaseException | None, scrubber: Scrubber) -> bool:
    """Tell whether *error*, and what it came from, shows no credential."""
    while error is not None:
        shown = f"{error} {error!r} {vars(error)}"
        if scrubber.text(shown) != shown:
            return False
        error = error.__cause__ or error.__context__
    return True


async def _body(network: Network, request: Any) -> bytes:
    """Return the whole body of the answer. What is raised is no group."""
    frames: list[bytes] = []
    fault: Exception | None = None
    async with trio.open_nursery() as nursery:  # a transport may want to run something beside the reading
        connection: Any = None
        try:
            connection = await network.transport(request.url).open(request, nursery)
            while (batch := await connection.receive()) is not None:
                frames += batch
        except Exception as exc:  # noqa: BLE001  # raised below, outside the nursery
            fault = exc
        finally:
            if connection is not None:
                with trio.move_on_after(_CLOSE_LIMIT, shield=True):
                    await connection.aclose()
        nursery.cancel_scope.cancel()
    if fault is not None:
        raise fault
    return b"".join(frames)


def _decoded(data: bytes, endpoint: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise ProviderError(
            ErrorKind.MALFORMED, f"the server of {endpoint!r} answered with something that is no JSON"
        ) from exc
