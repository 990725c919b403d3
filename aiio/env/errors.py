"""Trouble in one vocabulary: `ProviderError`, and how a raw exception becomes one.

Inside `io` a fault of the provider or the network travels as `ProviderError`; the caller of a write
gets it as an `Error` event. Nothing here ever quotes a credential.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping
from typing import Any

import msgspec
import trio

from aiio.context.events import ErrorKind

__all__ = ["ErrorKind", "HttpStatusError", "ProviderError", "classify_error", "depletion_error"]


class ProviderError(Exception):
    """A fault of the provider or the network, classified once and for all.

    Args:
      kind: `auth`, `network`, `provider` or `malformed`.
      message: one sentence for a person, free of credentials.
      detail: what else is known; the keys below become attributes, others stay in `detail`.

    Raises:
      ValueError: an unknown *kind*.
    """

    def __init__(
        self, kind: ErrorKind | str, message: str, detail: Mapping[str, Any] | None = None, **more: Any
    ) -> None:
        super().__init__(message)
        self.kind: ErrorKind = ErrorKind(kind)
        self.message = message
        self.detail: dict[str, Any] = {**(detail or {}), **more}
        self.status: int | None = self.detail.get("status")
        """HTTP status or WebSocket close code."""
        self.code: str | None = self.detail.get("code")
        """The provider's own code or type."""
        self.request_id: str | None = self.detail.get("request_id")
        self.retryable: bool = self.detail.get("retryable", self.kind is ErrorKind.NETWORK)
        """Whether the same request may succeed later."""
        self.retry_after_ms: float | None = self.detail.get("retry_after_ms")
        self.native: Any = self.detail.get("native")
        """The provider's error object, as JSON data."""


class HttpStatusError(Exception):
    """An HTTP response whose status is not 2xx, with as much of its body as was read.

    The message is `HTTP <status> <reason>: <first 200 characters of the body>`.
    """

    def __init__(
        self, status: int, status_text: str = "", body: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        head = f"HTTP {status} {status_text}".rstrip()
        super().__init__(f"{head}: {body[:200]}" if body else head)
        self.status = status
        self.status_text = status_text
        self.body = body
        self.headers: Mapping[str, str] = headers or {}
        """Lower-cased names."""


def classify_error(error: BaseException, name: str | None = None) -> ProviderError:
    """Return *error* as a `ProviderError`; one that is a `ProviderError` already is returned itself.

    A status of 401 or 403 is `auth`, any other status `provider`; sockets, TLS and name resolution are
    `network`; text that does not decode is `malformed`; everything else (a bug, say) is `provider`.

    Args:
      error: any exception.
      name: the endpoint; when given, the message ends with ` [name]`.
    """
    if isinstance(error, ProviderError):
        return error
    text = str(error) or type(error).__name__
    if name:
        text = f"{text} [{name}]"
    if isinstance(error, HttpStatusError):
        kind = ErrorKind.AUTH if error.status in (401, 403) else ErrorKind.PROVIDER
        classified = ProviderError(kind, text, status=error.status, retryable=retryable_status(error.status))
    elif isinstance(error, trio.BrokenResourceError | trio.ClosedResourceError | ssl.SSLError | OSError):
        classified = ProviderError(ErrorKind.NETWORK, text)
    elif isinstance(error, json.JSONDecodeError | msgspec.DecodeError | UnicodeDecodeError):
        classified = ProviderError(ErrorKind.MALFORMED, text)
    else:
        classified = ProviderError(ErrorKind.PROVIDER, text)
    classified.__cause__ = error
    return classified


def retryable_status(status: int) -> bool:
    """Tell whether an HTTP status is of the passing kind (408, 409, 429, 498 and 5xx but 501, 505)."""
    return status in (408, 409, 425, 429, 498) or (500 <= status <= 599 and status not in (501, 505))


_DEPLETED = re.compile(
    r"rate.?limit|too many requests|insufficient.?quota|quota.?exceeded|exceeded your current quota|billing"
    r"|spend(?:ing)? (?:cap|limit)|usage (?:cap|limit)|credits? (?:exhausted|balance)|insufficient balance",
    re.IGNORECASE,
)


def depletion_error(error: ProviderError) -> bool:
    """Tell whether *error* says that an allowance is used up (429, 402, or words that say so)."""
    if error.kind not in (ErrorKind.PROVIDER, ErrorKind.AUTH):
        return False
    return error.status in (402, 429) or bool(_DEPLETED.search(error.message))
