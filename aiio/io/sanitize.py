"""What leaves a provider for the wire: headers made strings, the body made bytes, both made a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aiio.context.text import sent_json
from aiio.env.errors import ErrorKind, ProviderError
from aiio.transports.base import TransportRequest

if TYPE_CHECKING:
    from aiio.env.env import Env

TRANSPORT_SETTINGS = (
    "max_frame_bytes",
    "max_response_bytes",
    "max_error_bytes",
    "http_keep_idle",
    "ws_keep_idle",
    "ws_ping_interval",
    "ws_ping_timeout",
)
"""Settings of an endpoint that are a transport's business."""


def sanitize_request(request: Any) -> tuple[dict[str, str], Any]:
    """Return (headers, body) of what a provider's `request` returned.

    A list or tuple gives its first two items, anything else is the body alone. Header values that are
    None or callable are dropped, others are made strings; a body of None stays None.

    Raises:
      ProviderError: malformed: headers that are no mapping, or a body that is not JSON data.
    """
    headers, body = split_request(request)
    encode_body(body)
    return headers, body


def split_request(request: Any) -> tuple[dict[str, str], Any]:
    """Do what `sanitize_request` does, for a caller that encodes the body next anyway."""
    if isinstance(request, list | tuple):
        headers, body = (*request[:2], None, None)[:2] if request else (None, None)
    else:
        headers, body = None, request
    if headers is None:
        headers = {}
    if not isinstance(headers, Mapping):
        raise ProviderError(
            ErrorKind.MALFORMED, f"request headers must be a mapping, not {type(headers).__name__}"
        )
    kept = {
        str(name): str(value) for name, value in headers.items() if value is not None and not callable(value)
    }
    return kept, body


def encode_body(body: Any) -> bytes | None:
    """Return *body* as compact UTF-8 JSON; None stays None.

    Lone surrogates become U+FFFD and pairs are joined, in what is sent only: *body* is not changed.

    Raises:
      ProviderError: malformed: not JSON data.
    """
    if body is None:
        return None
    try:
        return sent_json(body)
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise ProviderError(ErrorKind.MALFORMED, f"request body is not JSON data: {exc}") from exc


def body_bytes(body: Any) -> int:
    """Return the bytes that *body* takes as compact UTF-8 JSON, before any compression; None takes 0."""
    encoded = encode_body(body)
    return 0 if encoded is None else len(encoded)


def transport_request(env: Env, settings: Mapping[str, Any], *, url: str, **fields: Any) -> TransportRequest:
    """Return the request to *url*, with the proxy and the transport's settings that hold for an endpoint.

    Args:
      settings: the endpoint's.
      fields: others of `TransportRequest`.
    """
    chosen = {key: settings[key] for key in TRANSPORT_SETTINGS if key in settings}
    return TransportRequest(url=url, proxy=env.proxy_for(url, settings), **fields, **chosen)
