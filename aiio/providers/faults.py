"""What went wrong, in the provider's words: error objects of every known shape, classified.

One reader serves HTTP bodies and errors inside a stream, for all dialects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiio.context.events import Error, ErrorKind
from aiio.context.types import Usage
from aiio.env.errors import HttpStatusError, ProviderError, retryable_status

from .base import decode_json
from .retry import retry_delay_ms

REQUEST_ID_HEADERS = ("x-request-id", "request-id", "apim-request-id", "x-generation-id")

_AUTH = re.compile(
    r"invalid_?api_?key|api_key_invalid|authentication|unauthori[sz]ed|unauthenticated|permission",
    re.IGNORECASE,
)
_USED_UP = re.compile(
    r"insufficient_?(?:quota|balance|credits)|billing|credit|usage_limit|usage_not_included|spend|payment_required",
    re.IGNORECASE,
)
_USED_UP_WORDS = re.compile(
    r"exceeded your current quota|insufficient (?:quota|balance|credits)|credit balance|PerDay", re.IGNORECASE
)
_PASSING = re.compile(
    r"rate_?limit|too_?many_?requests|overload|server_?error|internal|unavailable|time_?out|slow_down|capacity|api_error"
    r"|resource_exhausted|deadline_exceeded|bad_?gateway|insufficient_system_resource|network_error|connection",
    re.IGNORECASE,
)
_PASSING_WORDS = re.compile(r"overloaded|rate limit|too many requests|temporarily|try again", re.IGNORECASE)
_ANSWER = ("choices", "usage")  # what may stand beside a flat error and is no part of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An error object, read: what it says, and what that means for the caller."""

    message: str
    """The provider's own sentence; "" when it gave none."""
    code: str | None
    """Its code, else its type."""
    kind: ErrorKind
    retryable: bool
    status: int | None
    native: dict[str, Any] | None
    """The error object as it came."""


def read_fault(value: object, status: int | None = None) -> Fault:
    """Return *value* (a parsed body, or the object that a stream brought) as a `Fault`.

    Understood: `{"error": {...}}`, `{"error": "text", "code"}`, the flat `{"message", "type", "code"}`,
    `{"detail": "text" | [...]}`, a list around one of them, and a bare string.

    Args:
      value: JSON data.
      status: the HTTP status of the response, when it was not a 2xx one.
    """
    if isinstance(value, list) and value:
        value = value[0]
    outer: dict[str, Any] = value if isinstance(value, dict) else {"error": value}
    inner = outer.get("error")
    error: dict[str, Any] = inner if isinstance(inner, dict) else outer
    message = _sentence(error, inner)
    code, kind_of = _word(error.get("code")), _word(error.get("type"))
    if kind_of == "error":  # the tag of the object, not the type of the fault
        kind_of = None
    status = (
        status
        or _status(error.get("status_code"))
        or _status(error.get("code"))
        or _status(error.get("status"))
        or _status(outer.get("status"))
    )
    named = _word(error.get("status"))
    if named is not None and code is not None and code.isdigit() and not named.isdigit():
        code = named  # Google's: the number is the HTTP status once more
    words = " ".join(filter(None, (code, kind_of, named, *_reasons(error))))
    return Fault(
        message=message,
        code=code or kind_of or named,
        kind=ErrorKind.AUTH if status in (401, 403) or _AUTH.search(words) else ErrorKind.PROVIDER,
        retryable=_retryable(words, message, status, quota_violations(error)),
        status=status,
        native={key: error[key] for key in error if key not in _ANSWER} if isinstance(value, dict) else None,
    )


def _sentence(error: Mapping[str, Any], inner: object) -> str:
    for value in (inner, error.get("message"), error.get("detail"), error.get("error_description")):
        if isinstance(value, str) and value.strip():
            return value.strip()
        if isinstance(value, list):  # validation errors: [{"loc": [...], "msg": "..."}]
            said = [str(item["msg"]) for item in value if isinstance(item, dict) and item.get("msg")]
            if said:
                return "; ".join(said)
    return ""


def _word(value: object) -> str | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return str(value)
    return value if isinstance(value, str) and value else None


def _status(value: object) -> int | None:
    text = _word(value)
    return int(text) if text is not None and re.fullmatch(r"[45]\d\d", text) else None


def _reasons(error: Mapping[str, Any]) -> list[str]:
    details = error.get("details")
    if isinstance(details, dict):  # Anthropic's
        details = [{"reason": details.get("error_code")}]
    if not isinstance(details, list):
        return []
    return [found for item in details if isinstance(item, dict) and (found := _word(item.get("reason")))]


def quota_violations(error: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of Google's `QuotaFailure`: `{"quotaId": "...PerDay...", "quotaValue": "20"}`."""
    found: list[dict[str, Any]] = []
    details = error.get("details")
    for item in details if isinstance(details, list) else ():
        violations = item.get("violations") if isinstance(item, dict) else None
        for one in violations if isinstance(violations, list) else ():
            if isinstance(one, dict) and isinstance(one.get("quotaId"), str):
                found.append(one)
    return found


def _retryable(words: str, message: str, status: int | None, quotas: Sequence[Mapping[str, Any]]) -> bool:
    if quotas:  # the message is the same for a minute's and a day's
        return not any("PerDay" in quota["quotaId"] for quota in quotas)
    if status == 402 or _USED_UP.search(words) or _USED_UP_WORDS.search(message):
        return False
    if status is not None:
        return retryable_status(status)
    return bool(_PASSING.search(words) if words else _PASSING_WORDS.search(message))


def error_event(value: object, *, now: float, usage: Usage | None = None, fallback: str = "") -> Error:
    """Return the terminal event for an error that came inside a stream.

    Args:
      value: the data object that carried it.
      now: epoch seconds.
      usage: what is known of the usage, raw.
      fallback: the sentence to use when the provider gave none.
    """
    fault = read_fault(value)
    message = fault.message or fallback or "the provider reported an error without saying which"
    sent = value.get("headers") if isinstance(value, dict) else None  # on a WebSocket they ride in the frame
    headers = {str(key).lower(): str(sent[key]) for key in sent} if isinstance(sent, dict) else {}
    delay = retry_delay_ms(headers, value, message, now)
    return Error(
        error=message,
        kind=fault.kind,
        usage=usage,
        retryable=fault.retryable,
        retry_after_ms=delay if fault.retryable else None,
        status=fault.status,
        code=fault.code,
        native=fault.native,
    )


def status_fault(error: HttpStatusError, *, endpoint: str | None, now: float) -> ProviderError:
    """Return the `ProviderError` for an answer whose status is not 2xx.

    The message is the provider's own sentence where it gave one, else the status with a short text from the
    body, followed by ` [endpoint]`. The kind is `auth` or `provider`; the header `x-should-retry` outranks
    what status and code say.
    """
    body = _parse(error.body)
    fault = read_fault(body if body is not None else {}, error.status)
    said = fault.message or _status_line(error)
    retryable = fault.retryable
    if (ordered := error.headers.get("x-should-retry", "").strip().lower()) in ("true", "false"):
        retryable = ordered == "true"
    found = ProviderError(
        fault.kind,
        f"{said} [{endpoint}]" if endpoint else said,
        status=error.status,
        code=fault.code,
        request_id=next(
            (error.headers[name] for name in REQUEST_ID_HEADERS if error.headers.get(name)),
            _word(body.get("request_id")) if isinstance(body, dict) else None,
        ),
        retryable=retryable,
        retry_after_ms=retry_delay_ms(error.headers, body, fault.message, now),
        native=fault.native if body is not None else None,
    )
    found.__cause__ = error
    return found


def _parse(body: str) -> Any:
    try:
        value = decode_json(body.encode("utf-8", "surrogatepass"))
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None


def _status_line(error: HttpStatusError) -> str:
    head = f"HTTP {error.status} {error.status_text}".rstrip()
    text = error.body[:4000]
    if "<" in text:
        text = re.sub(r"<(script|style|head)\b.*?(</\1\s*>|$)", " ", text, flags=re.IGNORECASE | re.DOTALL)
        text = re.sub(r"<[^>]*>?", " ", text)
    text = " ".join(text.split())[:200]
    return f"{head}: {text}" if text else head
