"""Where people put credentials: a canary in each place, and an endpoint that uses it.

The server behind all of them tells back whatever it was sent. A new place is one entry of `WAYS_IN`, and an
endpoint in `provide`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import trio

from tests.serving import Exchange, Server

WAYS_IN = {
    "settings": "sk-canary-settings-0a1b2c3d",
    "override": "sk-canary-override-1b2c3d4e",
    "environment": "sk-canary-environ-2c3d4e5f",
    "credential file": "sk-canary-file-3d4e5f60",
    "keyring": "sk-canary-keyring-4e5f6071",
    "oauth access": "canary.oauth.access-5f607182",
    "oauth refresh": "canary/oauth/refresh+60718293==",
    "header": "canary/header+718293a4==",
    "header of a gateway": "canary-gateway-8293a4b5",
    "cookie": "canary-cookie-93a4b5c6",
    "query": "canary-query-a4b5c6d7",
    "user part": "canary&user-b5c6d7e8",
    "token as user": "canary-user-only-c6d7e8f9",
    "proxy": "canary-proxy-d7e8f90a",
    "proxy of the environment": "canary@proxy/env-e8f90a1b",
}
"""Each place, and the credential that stands there."""

IN_FILES = frozenset(WAYS_IN) - {"settings", "override", "keyring"}
"""Those that a command line can be given too; the others are a program's."""

_QUOTED = {
    "canary&user-b5c6d7e8": "canary%26user-b5c6d7e8",
    "canary@proxy/env-e8f90a1b": "canary%40proxy%2Fenv-e8f90a1b",
}


class Keyring:
    """Stands in for the module `keyring`."""

    @staticmethod
    def get_password(service: str, name: str) -> str | None:
        return json.dumps({"token": WAYS_IN["keyring"]}) if name == "keyringed" else None


def config_of(server: Server) -> dict[str, Any]:
    """Return the user's settings: endpoints by the name of what holds their canary."""
    host = server.url.partition("://")[2]
    url = f"{server.url}/v1"
    proxy = f"http://user:{WAYS_IN['proxy']}@{host}"
    return {
        "filed": {"url": url},
        "headed": {
            "url": url,
            "extra_headers": {
                "X-Auth-Token": WAYS_IN["header"],
                "CF-Access-Client-Secret": WAYS_IN["header of a gateway"],
                "Cookie": f"lang=en; session={WAYS_IN['cookie']}",
            },
        },
        "queried": {"url": f"{url}?key={WAYS_IN['query']}"},
        "used": {"url": f"http://user:{_QUOTED[WAYS_IN['user part']]}@{host}/v1"},
        "token": {"url": f"http://{WAYS_IN['token as user']}@{host}/v1"},
        "proxied": {"url": "http://model.example/v1", "proxy": proxy},
        "around": {"url": "http://model.example/v1"},
        "authorized": {"url": url, "oauth": {"token_url": f"{server.url}/token", "client_id": "me"}},
    }


def credentials() -> dict[str, Any]:
    """Return what stands in the user's credentials.toml."""
    oauth = {"type": "oauth", "access": WAYS_IN["oauth access"], "refresh": WAYS_IN["oauth refresh"]}
    return {
        "filed": {"auth": {"token": WAYS_IN["credential file"]}},
        "authorized": {"auth": {**oauth, "expires": 5}},  # long over: it is renewed before every request
    }


def environment(server: Server, folder: Path) -> dict[str, str]:
    """Return the variables that a process is given."""
    host = server.url.partition("://")[2]
    return {
        "AIIO_CONFIG_DIR": str(folder / "user"),
        "AIIO_CACHE_DIR": str(folder / "cache"),
        "OPENAI_API_KEY": WAYS_IN["environment"],
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "HTTP_PROXY": f"http://user:{_QUOTED[WAYS_IN['proxy of the environment']]}@{host}",
    }


SELECTORS = (
    "openai/m",
    "given/m",
    "overridden/m",
    "keyringed/m",
    *(
        f"{name}/m"
        for name in (
            "filed",
            "headed",
            "queried",
            "used",
            "token",
            "proxied",
            "around",
            "authorized",
        )
    ),
)
"""A model of each endpoint."""


def overrides(selector: str) -> dict[str, Any]:
    """Return the settings that one IO is given."""
    return {"auth": WAYS_IN["override"]} if selector.startswith("overridden/") else {}


def program_settings(server: Server) -> dict[str, Any]:
    """Return what a program gives its Env beside the files."""
    url = f"{server.url}/v1"
    return {
        "providers": {name: {"url": url} for name in ("given", "overridden", "keyringed")},
        "given": {"auth": {"token": WAYS_IN["settings"]}},
        "keyringed": {"auth": {"type": "api_key", "store": "keyring"}},
        "stuck_timeout": "1s",
    }


# --- the server ---


def said(exchange: Exchange) -> str:
    """Return all that the peer was sent, as it may tell it."""
    request = exchange.request
    assert request is not None
    return json.dumps(
        {"target": request.target, "headers": dict(request.headers), "body": request.body.decode()}
    )


async def refuse(exchange: Exchange) -> None:
    """Refuse the request, and quote it."""
    body = json.dumps({"error": {"message": said(exchange), "code": said(exchange)}}).encode()
    await exchange.send(_head(400, len(body), "application/json", said(exchange)) + body)


async def quote_as_php(exchange: Exchange) -> None:
    """Refuse with a page that quotes the request as some servers write text."""
    body = ("<pre>" + said(exchange).replace("/", "\\/") + "</pre>").encode()
    await exchange.send(_head(500, len(body), "text/html", "") + body)


async def break_off(exchange: Exchange) -> None:
    """Begin an answer, and end it with an error that quotes the request."""
    frames = [{"choices": [{"index": 0, "delta": {"content": "Hm"}}]}, {"error": {"message": said(exchange)}}]
    body = b"".join(b"data: %b\n\n" % json.dumps(frame).encode() for frame in frames)
    await exchange.send(_head(200, len(body), "text/event-stream", said(exchange)) + body)


async def cut(exchange: Exchange) -> None:
    """Begin an answer, and go in the middle of a frame that quotes the request."""
    body = b'data: {"choices":[{"index":0,"delta":{"content":"Hm"}}]}\n\ndata: {' + said(exchange).encode()
    await exchange.send(_head(200, len(body) + 99, "text/event-stream", "") + body)


async def stay(exchange: Exchange) -> None:
    """Begin an answer, and say nothing more."""
    await exchange.send(_head(200, 99, "text/event-stream", ""))
    await exchange.wait_client_gone()


async def answer(exchange: Exchange) -> None:
    """Answer."""
    frames = [
        {"choices": [{"index": 0, "delta": {"content": "Well."}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    body = b"".join(b"data: %b\n\n" % json.dumps(frame).encode() for frame in frames) + b"data: [DONE]\n\n"
    await exchange.send(_head(200, len(body), "text/event-stream", said(exchange)) + body)


MANNERS = (refuse, quote_as_php, break_off, cut, answer)
"""How the server behaves, one after the other."""


def _head(status: int, length: int, kind: str, echo: str) -> bytes:
    told = f"x-request-id: {echo}\r\n" if echo else ""
    head = f"HTTP/1.1 {status} So\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n{told}\r\n"
    return head.encode("latin-1", "replace")


def everything_sent(server: Server) -> str:
    """Return all that the server was ever sent."""
    return "\n".join(
        f"{request.target} {dict(request.headers)} {request.body.decode()}" for request in server.requests
    )


async def settled(server: Server) -> None:
    """Wait until no connection is open."""
    with trio.fail_after(10):
        await server.wait_idle()
