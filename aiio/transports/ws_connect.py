"""The byte stream under a WebSocket: TCP, through a proxy's tunnel where one is named, and TLS."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

import h11
import trio

from aiio.env.errors import ErrorKind, ProviderError

from .http_errors import Phase, cut_off, fault, peer_name, scrubbed_url
from .target import Target

if TYPE_CHECKING:
    import httpx

MAX_HEAD = 64 << 10
"""Bytes of a response head."""
READ_SIZE = 16 << 10
"""Bytes a read asks for."""


async def open_stream(
    target: Target, proxy: str | None, ssl_context: Callable[[], ssl.SSLContext]
) -> trio.abc.Stream:
    """Return a stream to *target*.

    Args:
      proxy: the URL of an HTTP proxy that makes a tunnel; None: direct.
      ssl_context: called when TLS is spoken.

    Raises:
      ProviderError: with `detail["phase"]` resolve, connect, proxy or tls.

    Cancellation: the socket is closed.
    """
    if proxy is None:
        stream = await _tcp(target.host, target.port, target.peer, "connect")
    else:
        stream = await _tunnel(target, proxy, ssl_context)
    return await _tls(stream, ssl_context(), target.host, target.peer) if target.tls else stream


async def _tcp(host: str, port: int, peer: str, phase: Phase) -> trio.abc.Stream:
    try:
        return await trio.open_tcp_stream(host, port)
    except (OSError, UnicodeError) as exc:
        raise fault(exc, phase=phase, peer=peer) from exc


async def _tls(stream: trio.abc.Stream, context: ssl.SSLContext, host: str, peer: str) -> trio.abc.Stream:
    context.set_alpn_protocols(["http/1.1"])
    secure = trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)
    done = False
    try:
        await secure.do_handshake()
        done = True
    except trio.BrokenResourceError as exc:
        raise fault(exc, phase="tls", peer=peer) from exc
    finally:
        if not done:
            await trio.aclose_forcefully(stream)
    return secure


async def _tunnel(target: Target, proxy: str, ssl_context: Callable[[], ssl.SSLContext]) -> trio.abc.Stream:
    """Return a stream through *proxy*, asked for with CONNECT. ProviderError: also for an unusable URL."""
    import httpx

    try:
        parsed = httpx.Proxy(proxy)
    except (ValueError, httpx.InvalidURL) as exc:
        raise _unusable(proxy) from exc
    if parsed.url.scheme not in ("http", "https"):
        raise _unusable(proxy)
    host, port = parsed.url.host, parsed.url.port or (443 if parsed.url.scheme == "https" else 80)
    name = f"the proxy {peer_name(parsed.url)}"
    stream = await _tcp(host, port, name, "proxy")
    if parsed.url.scheme == "https":
        stream = await _tls(stream, ssl_context(), host, name)
    try:
        await _ask_for_tunnel(stream, target, parsed, name)
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return stream


def _unusable(proxy: str) -> ProviderError:
    return ProviderError(
        ErrorKind.MALFORMED, f"not a usable proxy for WebSocket: {scrubbed_url(proxy)}", phase="proxy"
    )


async def _ask_for_tunnel(stream: trio.abc.Stream, target: Target, proxy: httpx.Proxy, name: str) -> None:
    where = target.peer.encode("ascii")
    headers = [(b"Host", where), (b"User-Agent", b"aiio")]
    if proxy.raw_auth is not None:
        credential = base64.b64encode(b":".join(proxy.raw_auth))
        headers.append((b"Proxy-Authorization", b"Basic " + credential))
    parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
    request = h11.Request(method=b"CONNECT", target=where, headers=headers)
    try:
        await stream.send_all((parser.send(request) or b"") + (parser.send(h11.EndOfMessage()) or b""))
        while not isinstance(event := parser.next_event(), h11.Response):
            if event is h11.NEED_DATA:
                data = await stream.receive_some(READ_SIZE)
                if not data:
                    raise cut_off(f"{name} closed the connection without answering", phase="proxy")
                parser.receive_data(bytes(data))
    except (trio.BrokenResourceError, h11.RemoteProtocolError) as exc:
        raise fault(exc, phase="proxy", peer=name) from exc
    if not 200 <= event.status_code <= 299:
        words = bytes(event.reason).decode("latin-1")
        text = f"the proxy refused to connect to {target.peer}: {event.status_code} {words}".rstrip()
        raise ProviderError(ErrorKind.NETWORK, text, phase="proxy", retryable=False, bytes_received=0)
