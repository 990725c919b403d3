"""Where a request goes: its URL, taken apart and checked once.

httpx parses URLs, but for plain ones, which nearly all are: those read the same to everybody, and who sends
to no others never waits for httpx to be imported, which can take longer than the request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from aiio.env.errors import ErrorKind, ProviderError

from .http_errors import fault, peer_name, scrubbed_url

_BYTE = r"(?: 25[0-5] | 2[0-4]\d | 1\d\d | [1-9]?\d )"
# A name whose last label begins with a letter, or an address; nothing that httpx would rewrite: no capitals,
# no escapes, no punycode, no segment that begins with a dot.
_PLAIN = re.compile(
    rf"""
    (?P<scheme> https? | wss? ) ://
    (?P<host> (?!xn--) (?: [a-z0-9-]+ \. (?!xn--) )* [a-z] [a-z0-9-]* | (?: {_BYTE} \. ){{3}} {_BYTE} )
    (?: : (?P<port> [1-9]\d{{0,4}} ) )?
    (?P<resource> (?: / (?!\.) [\w.~:-]* )+ (?: \? [\w.~=&-]+ )? )
    """,
    re.VERBOSE | re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A peer, and what is asked of it."""

    host: str
    port: int
    tls: bool
    resource: str = field(repr=False)
    """Path and query, as they are written in the request."""
    peer: str
    """`host:port`, for messages."""

    @property
    def host_header(self) -> str:
        """The host as the request names it: with its port only where that is not the scheme's own."""
        standard = self.port == (443 if self.tls else 80)
        return self.peer.rpartition(":")[0] if standard else self.peer


def target_of(url: str, kind: Literal["http", "ws"]) -> Target:
    """Return the target of *url*, whose scheme is *kind* or that over TLS.

    ProviderError (malformed): nothing can be sent there; it quotes *url* without what may be secret.
    """
    may_be_secret = "?" in url or "@" in url
    return _parsed(url, kind) if may_be_secret else _remembered(url, kind)


def _parsed(url: str, kind: Literal["http", "ws"]) -> Target:
    return _plain(url, kind) or _parsed_by_httpx(url, kind)


def _plain(url: str, kind: Literal["http", "ws"]) -> Target | None:
    """Return the target of a URL that has nothing special; None: it may have."""
    found = _PLAIN.fullmatch(url)
    if found is None or found["scheme"] not in (kind, f"{kind}s"):
        return None
    tls = found["scheme"] != kind
    host, port = found["host"], int(found["port"] or (443 if tls else 80))
    if port > 65535:
        return None
    return Target(host=host, port=port, tls=tls, resource=found["resource"], peer=f"{host}:{port}")


def _parsed_by_httpx(url: str, kind: Literal["http", "ws"]) -> Target:
    import httpx

    try:
        parsed = httpx.URL(url)
        if parsed.scheme not in (kind, f"{kind}s"):
            raise httpx.UnsupportedProtocol(f"not {kind} or {kind}s: {parsed.scheme}")
        if not parsed.host or (parsed.port or 0) > 65535:
            raise httpx.InvalidURL("no host, or a port out of range")
    except (httpx.UnsupportedProtocol, httpx.InvalidURL, ValueError) as exc:
        if kind == "http":
            raise fault(exc, phase="connect", peer=scrubbed_url(url)) from exc
        text = f"not a usable WebSocket URL: {scrubbed_url(url)}"
        raise ProviderError(ErrorKind.MALFORMED, text, phase="connect") from exc
    tls = parsed.scheme != kind
    parsed = parsed.copy_with(scheme="https" if tls else "http")  # whose ports httpx knows
    return Target(
        host=parsed.raw_host.decode("ascii"),
        port=parsed.port or (443 if tls else 80),
        tls=tls,
        resource=parsed.raw_path.decode("ascii"),
        peer=peer_name(parsed),
    )


# Most are asked for again, and parsing one is a twentieth of a request's start.
_remembered = lru_cache(maxsize=64)(_parsed)
