"""The one table that turns what sockets, TLS, h11, httpx, httpx2 and httpcore raise into `ProviderError`.

A fault is described by where it happened (`Phase`), to whom, and by the innermost cause that says
something: `httpx.ConnectError("All connection attempts failed")` hides a refused connection three
exceptions below. No text of a library goes out unseen: only its TLS and protocol complaints are quoted,
which hold no header and no URL.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import urlsplit

from aiio.env.errors import ErrorKind, ProviderError

if TYPE_CHECKING:
    import httpx

Phase: TypeAlias = Literal["resolve", "connect", "tls", "proxy", "send", "head", "body", "close"]

_NETWORK, _MALFORMED = ErrorKind.NETWORK, ErrorKind.MALFORMED

# By class name, because httpx, httpx2 and httpcore give the same names to the same things and only the first
# is sure to be installed. The first name along the MRO counts. Value: kind, sentence, phase (None: the one
# that was running). `{peer}` is whom we talked to, `{why}` the library's words.
LIBRARY_FAULTS: dict[str, tuple[ErrorKind, str, Phase | None]] = {
    "ConnectTimeout": (_NETWORK, "connecting to {peer} took too long", "connect"),
    "ReadTimeout": (_NETWORK, "{peer} sent nothing for too long", None),
    "WriteTimeout": (_NETWORK, "{peer} took the request too slowly", "send"),
    "PoolTimeout": (_NETWORK, "the HTTP client had no free connection for {peer}", "connect"),
    "TimeoutException": (_NETWORK, "{peer} was too slow", None),
    "ConnectError": (_NETWORK, "can't connect to {peer}", "connect"),
    "ReadError": (_NETWORK, "the connection to {peer} broke while reading", None),
    "WriteError": (_NETWORK, "the connection to {peer} broke while sending", "send"),
    "CloseError": (_NETWORK, "the connection to {peer} broke while closing", "close"),
    "NetworkError": (_NETWORK, "the connection to {peer} broke", None),
    "ConnectionNotAvailable": (_NETWORK, "the HTTP client lost its connection to {peer}", "connect"),
    "ProxyError": (_NETWORK, "the proxy refused to connect to {peer}: {why}", "proxy"),
    "RemoteProtocolError": (_NETWORK, "{peer} does not speak proper HTTP: {why}", None),
    "LocalProtocolError": (_MALFORMED, "the request to {peer} can't be written as HTTP", "send"),
    "ProtocolError": (_NETWORK, "{peer} does not speak proper HTTP: {why}", None),
    "UnsupportedProtocol": (_MALFORMED, "the URL scheme of {peer} is not http or https", "connect"),
    "InvalidURL": (_MALFORMED, "not a usable URL: {peer}", "connect"),
    "DecodingError": (_MALFORMED, "the body from {peer} does not decompress", "body"),
    "TooManyRedirects": (ErrorKind.PROVIDER, "{peer} redirects in a circle", "head"),
    "HTTPStatusError": (ErrorKind.PROVIDER, "{peer} answered with an error status", "head"),
    "TransportError": (_NETWORK, "the connection to {peer} failed", None),
    "RequestError": (_NETWORK, "the request to {peer} failed", None),
    "HTTPError": (_NETWORK, "the request to {peer} failed", None),
    "CookieConflict": (_MALFORMED, "{peer} set the same cookie twice", "head"),
    "StreamError": (_NETWORK, "the answer of {peer} can't be read any more", None),
    "BrokenResourceError": (_NETWORK, "the connection to {peer} broke", None),
    "ClosedResourceError": (_NETWORK, "the connection to {peer} was closed on our side", None),
    "UnicodeError": (_MALFORMED, "not a usable host name or URL: {peer}", "resolve"),
    "ValueError": (_MALFORMED, "not a usable URL: {peer}", "connect"),
    "RuntimeError": (_NETWORK, "the HTTP client can't send to {peer}: it is closed", "connect"),
}

_ERRNO: dict[int, str] = {
    errno.ECONNREFUSED: "connection refused by {peer}",
    errno.ECONNRESET: "the connection to {peer} was reset",
    errno.EPIPE: "{peer} closed the connection while the request was being sent",
    errno.ECONNABORTED: "the connection to {peer} was aborted",
    errno.ETIMEDOUT: "the connection to {peer} timed out",
    errno.EHOSTUNREACH: "no route to {peer}",
    errno.ENETUNREACH: "no network that reaches {peer}",
    errno.EMFILE: "too many open files: can't connect to {peer}",
    errno.ENFILE: "too many open files on this machine: can't connect to {peer}",
}
_NO_SUCH_HOST = frozenset(
    getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA") if hasattr(socket, name)
)


def fault(error: BaseException, *, phase: Phase, peer: str, bytes_received: int = 0) -> ProviderError:
    """Return *error* as a `ProviderError` with `detail` keys `phase` and `bytes_received`.

    Args:
      error: whatever a socket or an HTTP library raised; a `ProviderError` is returned itself.
      phase: what was being done.
      peer: `host:port`, or a scrubbed URL where there is no host yet.
      bytes_received: body bytes so far.
    """
    if isinstance(error, ProviderError):
        return error
    for cause in _causes(error):
        if (found := _socket_fault(cause, phase, peer)) is not None:
            kind, text, where, retryable = found
            break
    else:
        kind, text, where = _library_fault(error, phase, peer)
        retryable = kind is ErrorKind.NETWORK and where != "proxy"
    made = ProviderError(kind, text, phase=where, bytes_received=bytes_received, retryable=retryable)
    made.__cause__ = error
    return made


def cut_off(text: str, *, phase: Phase, bytes_received: int = 0) -> ProviderError:
    """Return the network fault of a peer that stopped in the middle of something, as *text* says."""
    return ProviderError(ErrorKind.NETWORK, text, phase=phase, bytes_received=bytes_received)


def peer_name(url: httpx.URL) -> str:
    """Return `host:port`."""
    host = url.raw_host.decode("ascii")
    port = url.port or (443 if url.scheme == "https" else 80)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def scrubbed_url(url: str) -> str:
    """Return *url* without userinfo, query and fragment, fit for a message; at most 200 characters."""
    bare = url.split("?", 1)[0].split("#", 1)[0]
    try:
        parts = urlsplit(bare)
        bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    except ValueError:  # not even that much of a URL
        scheme, found, rest = bare.partition("//")
        bare = f"{scheme}{found}{rest.rpartition('@')[2]}"
    return bare[:200].encode("ascii", "backslashreplace").decode("ascii")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield what is below *error*, innermost first, then itself; of a group, its first member."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        if isinstance(current, BaseExceptionGroup):
            current = current.exceptions[0]
        else:
            current = current.__cause__ or current.__context__  # also one that httpcore suppressed
    yield from reversed(chain)


def _socket_fault(error: BaseException, phase: Phase, peer: str) -> tuple[ErrorKind, str, Phase, bool] | None:
    host = peer.rpartition(":")[0] or peer
    if isinstance(error, socket.gaierror):
        if error.errno in _NO_SUCH_HOST:
            return _NETWORK, f"no such host: {host}", "resolve", True
        return _NETWORK, f"can't resolve the name {host}", "resolve", True
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message.rstrip(".")
        return _NETWORK, f"the TLS certificate of {peer} can't be trusted: {why}", "tls", False
    if isinstance(error, ssl.SSLEOFError) and phase in ("send", "head", "body"):
        return _NETWORK, f"{peer} broke off the TLS connection without a closing message", phase, True
    if isinstance(error, ssl.SSLError):
        reason = (getattr(error, "reason", None) or "connection closed").replace("_", " ").lower()
        return _NETWORK, f"TLS with {peer} failed: {reason}", "tls", True
    if isinstance(error, OSError) and error.errno is not None:
        text = _ERRNO.get(error.errno, "the connection to {peer} failed: {why}")
        return _NETWORK, text.format(peer=peer, why=error.strerror), phase, True
    return None


def _library_fault(error: BaseException, phase: Phase, peer: str) -> tuple[ErrorKind, str, Phase]:
    for cls in type(error).__mro__:
        if (row := LIBRARY_FAULTS.get(cls.__name__)) is not None:
            kind, text, where = row
            why = re.sub(r"[^ -~]", "?", str(error)[:120])
            return kind, text.format(peer=peer, why=why or cls.__name__), where or phase
    return ErrorKind.PROVIDER, f"the HTTP client failed at {peer}: {type(error).__name__}", phase
