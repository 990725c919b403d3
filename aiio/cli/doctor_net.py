"""The steps of `aiio doctor` below HTTP: name, connection, TLS."""

from __future__ import annotations

import errno
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import trio

from aiio.context.events import ErrorKind
from aiio.env.detect import is_loopback

from .doctor_trouble import Trouble

STEP_LIMIT = 10.0
"""Seconds each of these steps may take."""

_NETWORK = ErrorKind.NETWORK
_EXPIRED, _NOT_YET, _OTHER_NAME, _OTHER_ADDRESS = 10, 9, 62, 64  # verify codes of OpenSSL (x509_vfy.h)
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the connection of a request goes: to the server, or to its proxy."""

    host: str = ""
    port: int = 0
    tls: bool = False
    """Whether TLS is spoken there, straight away."""
    proxied: bool = False
    is_here: bool = False
    """Whether the server itself runs on this machine."""

    @classmethod
    def of(cls, url: str, proxy: str | None) -> Place:
        """Return the place for *url*. `Trouble`: nothing can be sent there."""
        try:
            parts = urlsplit(url if proxy is None else proxy)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port, parts = None, None, urlsplit("")
        if not host or parts.scheme not in ("http", "https", "ws", "wss", "socks5"):
            what = "URL of the endpoint" if proxy is None else "proxy"
            raise Trouble(
                "bad_url", ErrorKind.PROVIDER, f"the {what} is no usable URL", "correct the setting"
            )
        tls = parts.scheme in ("https", "wss")
        return cls(
            host=host,
            port=port or (443 if tls else 80),
            tls=tls and proxy is None,
            proxied=proxy is not None,
            is_here=is_loopback(url),
        )

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'the proxy ' if self.proxied else ''}{host}:{self.port}"


async def resolve_name(place: Place) -> str:
    """Return the addresses of *place*. `Trouble`: it has none."""
    return ", ".join(dict.fromkeys(str(found[4][0]) for found in await _addresses(place)))


async def _addresses(place: Place) -> Sequence[Any]:
    with trio.move_on_after(STEP_LIMIT):
        try:
            return await trio.socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
        except socket.gaierror as exc:
            if exc.errno == socket.EAI_AGAIN:
                raise _dns_silent(place) from exc
            raise Trouble(
                "no_such_host",
                _NETWORK,
                f"no such host: {place.host}",
                "check the spelling of the URL, or whether a VPN is needed to see that name",
            ) from exc
        except (UnicodeError, OSError) as exc:
            raise Trouble(
                "no_such_host", _NETWORK, f"{place.host!r} is no usable host name", "correct the URL"
            ) from exc
    raise _dns_silent(place)


def _dns_silent(place: Place) -> Trouble:
    return Trouble(
        "dns_silent",
        _NETWORK,
        f"the name server does not answer for {place.host}",
        "check that this machine is online and its name server reachable",
    )


async def connect(place: Place) -> str:
    """Connect to *place* and hang up; return the address that answered. `Trouble`: none did."""
    sock = await _connected(place)
    with sock:
        return f"connected to {sock.getpeername()[0]}:{sock.getpeername()[1]}"


async def _connected(place: Place) -> trio.socket.SocketType:
    """Return a socket connected to the first address that takes us. `Trouble`: none did."""
    worst: OSError | None = None
    with trio.move_on_after(STEP_LIMIT):
        for family, kind, protocol, _, address in await _addresses(place):
            sock = trio.socket.socket(family, kind, protocol)
            try:
                await sock.connect(address)
            except OSError as exc:
                sock.close()
                worst = exc
            except BaseException:
                sock.close()
                raise
            else:
                return sock
        assert worst is not None
        raise _refused(place, worst) from worst
    raise Trouble(
        "firewall",
        _NETWORK,
        f"nobody answers at {place}: the attempt to connect got no reply in {STEP_LIMIT:g} s",
        "a firewall drops it, or that machine is off: check the address, a VPN, or whether a proxy is needed",
    )


def _refused(place: Place, error: OSError) -> Trouble:
    if error.errno == errno.ECONNREFUSED:
        what = "proxy" if place.proxied else "server"
        start = f"start the {what}" if _is_local(place.host) else "check the port"
        verdict = f"nothing is listening at {place} (connection refused)"
        return Trouble("nothing_listening", _NETWORK, verdict, f"{start}, or correct the address")
    verdict = f"{place} can't be reached: {error.strerror or error}"
    return Trouble("unreachable", _NETWORK, verdict, "check that this machine is online, and the address")


def _is_local(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost" or "." not in host


async def speak_tls(place: Place, context: ssl.SSLContext) -> str:
    """Shake hands with *place*; return the version and when its certificate ends. `Trouble`: that failed."""
    sock = await _connected(place)
    stream = trio.SSLStream(trio.SocketStream(sock), context, server_hostname=place.host)
    try:
        with trio.move_on_after(STEP_LIMIT):
            try:
                await stream.do_handshake()
            except (trio.BrokenResourceError, OSError) as exc:
                raise _tls_trouble(place, exc.__cause__ or exc) from exc
            ends = (stream.getpeercert() or {}).get("notAfter", "unknown")
            return f"{stream.version()}, certificate good until {ends}"
    finally:
        sock.close()
    raise Trouble(
        "tls_silent",
        _NETWORK,
        f"{place} accepts connections and then says nothing",
        "check the port; something between may hold TLS back",
    )


def _tls_trouble(place: Place, error: BaseException) -> Trouble:
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message.rstrip(".")
        if error.verify_code in (_EXPIRED, _NOT_YET):
            name = "expired" if error.verify_code == _EXPIRED else "not_yet_valid"
            verdict = f"the certificate of {place} is {name.replace('_', ' ')}"
            advice = "check this machine's clock; if it is right, the server's owner must renew it"
        elif error.verify_code in (_OTHER_NAME, _OTHER_ADDRESS):
            name, verdict = "wrong_name", f"the certificate of {place} is for another name: {why}"
            advice = "correct the host in the URL; if it is right, somebody stands between: do not go on"
        else:
            name, verdict = "untrusted", f"the certificate of {place} is signed by nobody we trust: {why}"
            advice = "if your organisation inspects TLS, name its certificate in setting ca_file"
        return Trouble(name, _NETWORK, verdict, advice)
    reason = str(getattr(error, "reason", None) or "")
    if reason in _NO_TLS:
        verdict = f"{place} does not speak TLS"
        return Trouble("no_tls", _NETWORK, verdict, "begin the URL with http://, or correct the port")
    why = reason.replace("_", " ").lower() or "the connection was closed"
    return Trouble(
        "tls_failed", _NETWORK, f"TLS with {place} failed: {why}", "check the port, and what stands between"
    )
