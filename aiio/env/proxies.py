"""Which proxy a URL goes through, by the environment variables people already have."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from urllib.parse import SplitResult, urlsplit

_SCHEMES = {"http": "http", "ws": "http", "https": "https", "wss": "https"}
_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}


def choose_proxy(url: str, settings: Iterable[object], environ: Mapping[str, str]) -> str | None:
    """Return the proxy URL for *url*: the first of *settings* that is not None, else the environment's.

    A setting is a URL, or False, `""` or `"direct"` for none.
    """
    for setting in settings:
        if setting is not None:
            return None if setting in (False, "", "direct") else with_scheme(str(setting))
    return proxy_from_environment(url, environ)


def proxy_from_environment(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy URL for *url*, or None for a direct connection.

    `HTTPS_PROXY`, `HTTP_PROXY` and, failing those, `ALL_PROXY`, lower case first; `NO_PROXY` lists
    exceptions: `*`, a host, a domain with all below it, `host:port`, an address, a CIDR block. Loopback
    never goes through a proxy that stands in the environment.
    """
    kind = _SCHEMES.get(url.partition(":")[0].lower())
    if kind is None:
        return None
    for name in (f"{kind}_proxy", f"{kind.upper()}_PROXY", "all_proxy", "ALL_PROXY"):
        proxy = environ.get(name, "").strip()
        # In a CGI process HTTP_PROXY comes from a request header `Proxy:`, so only the lower-case one counts.
        if proxy and not (name == "HTTP_PROXY" and "REQUEST_METHOD" in environ):
            break
    else:  # as mostly: before the URL is looked at
        return None
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    if not host or _is_loopback(host) or _is_exempt(parts, host, environ):
        return None
    return with_scheme(proxy)


def with_scheme(proxy: str) -> str:
    """Return *proxy* as a URL; bare `host:port` means http."""
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_exempt(parts: SplitResult, host: str, environ: Mapping[str, str]) -> bool:
    listed = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    port = parts.port or _PORTS[parts.scheme]
    return any(_covers(rule, host, port) for rule in listed.lower().replace(",", " ").split())


def _covers(rule: str, host: str, port: int) -> bool:
    """Tell whether one entry of NO_PROXY covers *host*."""
    if rule == "*":
        return True
    address = _address(host)
    if address is not None:
        try:
            if address in ipaddress.ip_network(rule.strip("[]"), strict=False):
                return True
        except ValueError:
            pass  # not a network: a name, perhaps with a port
    name, colon, wanted = rule.rpartition(":")
    if colon and wanted.isdigit():
        if int(wanted) != port:
            return False
        rule = name
    rule = rule.strip("[]").removeprefix("*").lstrip(".")
    return bool(rule) and (host == rule or host.endswith(f".{rule}"))
