"""The table: every public exception of the libraries has its place in it."""

from __future__ import annotations

import errno
import socket
import ssl
import types

import h11
import httpcore
import httpx
import httpx2
import pytest
import trio

from aiio.env.errors import ErrorKind, ProviderError
from aiio.transports.http_errors import LIBRARY_FAULTS, cut_off, fault, scrubbed_url


def public_exceptions(*modules: types.ModuleType) -> list[type[BaseException]]:
    found = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Exception) and not issubclass(value, Warning)
    }
    return sorted(found, key=lambda cls: f"{cls.__module__}.{cls.__name__}")


LIBRARY = public_exceptions(httpx, httpx2, httpcore, h11)


def instance(cls: type[BaseException]) -> BaseException:
    made = cls.__new__(cls)
    made.args = ("SECRET value b'Bearer SECRET'",)
    return made


def test_there_are_as_many_as_we_think() -> None:
    assert {httpx.InvalidURL, httpx.ReadError, httpx2.ProxyError, h11.RemoteProtocolError} < set(LIBRARY)
    assert len(LIBRARY) > 60


@pytest.mark.parametrize("cls", LIBRARY, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_E5_every_public_exception_has_a_row(cls: type[BaseException]) -> None:
    assert cls.__name__ in LIBRARY_FAULTS or cls.__bases__[0].__name__ in LIBRARY_FAULTS
    found = fault(instance(cls), phase="body", peer="h:1", bytes_received=7)
    assert type(found) is ProviderError
    assert found.kind in ErrorKind
    assert (found.detail["bytes_received"], found.detail["phase"] in PHASES) == (7, True)
    assert "h:1" in found.message
    assert found.__cause__ is not None
    if not any(word in cls.__name__ for word in ("Remote", "Proxy", "ProtocolError")):
        assert "SECRET" not in found.message  # a library's own words are not passed on


PHASES = ("resolve", "connect", "tls", "proxy", "send", "head", "body", "close")


def test_E5_local_protocol_errors_quote_nothing() -> None:
    for cls in (httpx.LocalProtocolError, h11.LocalProtocolError, httpcore.LocalProtocolError):
        found = fault(cls("Illegal header value b'SECRET'"), phase="send", peer="h:1")
        assert (found.kind, "SECRET" in found.message) == (ErrorKind.MALFORMED, False)


@pytest.mark.parametrize(
    ("error", "kind", "phase", "text", "retryable"),
    [
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "x"),
            "network",
            "connect",
            "connection refused by h:1",
            True,
        ),
        (
            ConnectionResetError(errno.ECONNRESET, "x"),
            "network",
            "connect",
            "the connection to h:1 was reset",
            True,
        ),
        (TimeoutError(errno.ETIMEDOUT, "x"), "network", "connect", "the connection to h:1 timed out", True),
        (OSError(errno.EHOSTUNREACH, "x"), "network", "connect", "no route to h:1", True),
        (
            OSError(errno.ENOBUFS, "No buffer"),
            "network",
            "connect",
            "the connection to h:1 failed: No buffer",
            True,
        ),
        (OSError("no number"), "provider", "connect", "the HTTP client failed at h:1: OSError", False),
        (socket.gaierror(socket.EAI_NONAME, "x"), "network", "resolve", "no such host: h", True),
        (socket.gaierror(socket.EAI_AGAIN, "x"), "network", "resolve", "can't resolve the name h", True),
        (ssl.SSLEOFError(8, "EOF"), "network", "tls", "TLS with h:1 failed: connection closed", True),
        (trio.BrokenResourceError(), "network", "connect", "the connection to h:1 broke", True),
        (KeyError("bug"), "provider", "connect", "the HTTP client failed at h:1: KeyError", False),
        (
            httpx.ProxyError("407 No"),
            "network",
            "proxy",
            "the proxy refused to connect to h:1: 407 No",
            False,
        ),
        (httpx.InvalidURL("x"), "malformed", "connect", "not a usable URL: h:1", False),
    ],
)
def test_E5_a_fault_in_words(error: Exception, kind: str, phase: str, text: str, retryable: bool) -> None:
    found = fault(error, phase="connect", peer="h:1")
    assert (found.kind, found.detail["phase"], found.message, found.retryable) == (
        kind,
        phase,
        text,
        retryable,
    )


def test_E5_the_innermost_cause_speaks() -> None:
    group = ExceptionGroup(
        "all", [ConnectionRefusedError(errno.ECONNREFUSED, "x"), OSError(errno.EPIPE, "y")]
    )
    outer = OSError("all attempts failed")
    outer.__cause__ = group
    wrapped = httpx.ConnectError("All connection attempts failed")
    wrapped.__context__ = outer
    wrapped.__suppress_context__ = True  # as httpcore does
    assert fault(wrapped, phase="connect", peer="h:1").message == "connection refused by h:1"


def test_a_provider_error_is_itself() -> None:
    made = cut_off("gone", phase="head")
    assert fault(made, phase="body", peer="h") is made
    assert (made.kind, made.retryable, made.detail["bytes_received"]) == (ErrorKind.NETWORK, True, 0)


def test_foreign_words_are_short_and_printable() -> None:
    found = fault(httpx.RemoteProtocolError("\ud800\x1b[31m" + "x" * 500), phase="head", peer="h:1")
    assert len(found.message) < 200
    found.message.encode("ascii")
    assert "\x1b" not in found.message


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://u:p@h:1/x?key=s#f", "https://h:1/x"),
        ("/x?key=s", "/x"),
        ("//u:p@h/x", "//h/x"),
        ("http://u:p@[::bad", "http://[::bad"),
        ("http://h/\ud800\n", "http://h/\\ud800"),
        ("x" * 500, "x" * 200),
    ],
)
def test_a_url_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    assert scrubbed_url(url).startswith(shown)
    assert "p@" not in scrubbed_url(url)
