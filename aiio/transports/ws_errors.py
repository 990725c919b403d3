"""How a WebSocket ends: close codes, and what trio-websocket and wsproto raise, as `ProviderError`.

Any close before the dialect's own terminal message is an error, whatever its code: a polite close is
not a finished answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from aiio.env.errors import ErrorKind, ProviderError, retryable_status

from .http_errors import Phase

NO_STATUS, ABNORMAL = 1005, 1006


@dataclass(frozen=True, slots=True)
class Close:
    """What a close code says."""

    words: str
    kind: ErrorKind
    retryable: bool


CLOSES: dict[int, Close] = {
    1000: Close("normal closure", ErrorKind.NETWORK, True),
    1001: Close("going away", ErrorKind.NETWORK, True),
    1002: Close("protocol error", ErrorKind.NETWORK, False),
    1003: Close("unsupported data", ErrorKind.PROVIDER, False),
    NO_STATUS: Close("no code given", ErrorKind.NETWORK, True),
    ABNORMAL: Close("connection lost", ErrorKind.NETWORK, True),
    1007: Close("invalid data", ErrorKind.PROVIDER, False),
    1009: Close("message too big", ErrorKind.PROVIDER, False),
    1010: Close("extension required", ErrorKind.PROVIDER, False),
    1011: Close("internal error", ErrorKind.PROVIDER, True),
    1012: Close("service restart", ErrorKind.NETWORK, True),
    1013: Close("try again later", ErrorKind.PROVIDER, True),
    1014: Close("bad gateway", ErrorKind.NETWORK, True),
    1015: Close("TLS failed", ErrorKind.NETWORK, True),
}
"""Codes that mean the same whatever reason comes with them. Others are read by their reason."""

_AUTH = re.compile(
    r"api.?key|unauthori[sz]ed|unauthenticated|authenticat|permission|forbidden|credential|token.?expired",
    re.IGNORECASE,
)
_USED_UP = re.compile(r"quota|billing|credit|balance|usage.?limit|spend", re.IGNORECASE)
_PASSING = re.compile(
    r"rate.?limit|too many|overload|capacity|unavailable|temporar|try again|time.?out|restart|deadline"
    r"|internal (?:server )?error",
    re.IGNORECASE,
)


def close_fault(
    code: int, reason: str | None, *, peer: str, phase: Phase, bytes_received: int
) -> ProviderError:
    """Return what a close of the socket with *code* and *reason* means before the end of an answer.

    1008 and the private codes are judged by their reason, 44xx and 45xx also by the HTTP status they mean.
    """
    code = int(code)  # not wsproto's enum: it goes into an event
    said = re.sub(r"[^ -~\u00a0-\uffff]", "?", reason or "")
    found = CLOSES.get(code) or _by_reason(code, said)
    text = f"{peer} closed the WebSocket before the end of the answer: {code} ({found.words})"
    return ProviderError(
        found.kind,
        f"{text}: {said}" if said else text,
        phase=phase,
        bytes_received=bytes_received,
        status=code,
        retryable=found.retryable,
        native={"close_code": code, "close_reason": said},
    )


def _by_reason(code: int, reason: str) -> Close:
    words = "policy violation" if code == 1008 else "a code of the provider's own"
    status = code - 4000 if 4400 <= code <= 4599 else None
    if status in (401, 403) or _AUTH.search(reason):
        return Close(words, ErrorKind.AUTH, False)
    passing = bool(_PASSING.search(reason)) or (status is not None and retryable_status(status))
    return Close(words, ErrorKind.PROVIDER, passing and not _USED_UP.search(reason))


LIBRARY_FAULTS: dict[str, str] = {
    "LocalProtocolError": "the WebSocket library could not answer {peer} any more",
    "RemoteProtocolError": "{peer} does not speak proper WebSocket",
    "ConnectionClosed": "the WebSocket to {peer} was closed",
    "ConnectionRejected": "{peer} refused the WebSocket handshake",
    "ConnectionTimeout": "connecting to {peer} took too long",
    "DisconnectionTimeout": "{peer} was too slow to close the WebSocket",
    "HandshakeError": "the WebSocket handshake with {peer} failed",
    "TrioWebsocketInternalError": "the WebSocket library failed at {peer}",
}
"""By class name; the first name along the MRO counts. All are network faults."""


def library_fault(error: BaseException, *, peer: str, phase: Phase, bytes_received: int) -> ProviderError:
    """Return what a task of the library raised as a fault; what the table does not know is `provider`."""
    names = (cls.__name__ for cls in type(error).__mro__)
    text = next((LIBRARY_FAULTS[name] for name in names if name in LIBRARY_FAULTS), None)
    kind = ErrorKind.PROVIDER if text is None else ErrorKind.NETWORK
    text = text or f"the WebSocket library failed at {{peer}}: {type(error).__name__}"
    made = ProviderError(kind, text.format(peer=peer), phase=phase, bytes_received=bytes_received)
    made.__cause__ = error
    return made
