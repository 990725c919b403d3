from __future__ import annotations

import json
import ssl

import msgspec
import pytest
import trio

from aiio.env.errors import (
    ErrorKind,
    HttpStatusError,
    ProviderError,
    classify_error,
    depletion_error,
    retryable_status,
)


def test_detail_keys_become_attributes() -> None:
    error = ProviderError(
        "provider", "no", {"status": 429, "code": "rate_limit"}, retry_after_ms=5, retryable=True, extra=1
    )
    assert (error.status, error.code, error.retry_after_ms, error.retryable) == (429, "rate_limit", 5, True)
    assert error.request_id is None
    assert error.native is None
    assert error.detail["extra"] == 1
    assert str(error) == error.message == "no"


def test_only_network_faults_are_retryable_by_default() -> None:
    assert {kind for kind in ErrorKind if ProviderError(kind, "x").retryable} == {ErrorKind.NETWORK}


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="weather"):
        ProviderError("weather", "rain")


def test_a_status_error_quotes_200_characters() -> None:
    error = HttpStatusError(500, "Server Error", "x" * 300, {"retry-after": "1"})
    assert str(error) == "HTTP 500 Server Error: " + "x" * 200
    assert error.headers == {"retry-after": "1"}
    assert str(HttpStatusError(502)) == "HTTP 502"
    assert HttpStatusError(502).headers == {}


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (HttpStatusError(401), ErrorKind.AUTH),
        (HttpStatusError(403), ErrorKind.AUTH),
        (HttpStatusError(404), ErrorKind.PROVIDER),
        (HttpStatusError(500), ErrorKind.PROVIDER),
        (trio.BrokenResourceError(), ErrorKind.NETWORK),
        (trio.ClosedResourceError("gone"), ErrorKind.NETWORK),
        (ssl.SSLError("handshake"), ErrorKind.NETWORK),
        (ConnectionResetError("reset"), ErrorKind.NETWORK),
        (json.JSONDecodeError("bad", "x", 0), ErrorKind.MALFORMED),
        (msgspec.DecodeError("bad"), ErrorKind.MALFORMED),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), ErrorKind.MALFORMED),
        (TypeError("a bug"), ErrorKind.PROVIDER),
    ],
)
def test_a_raw_exception_is_classified(raised: Exception, kind: ErrorKind) -> None:
    error = classify_error(raised, "local")
    assert error.kind is kind
    assert error.__cause__ is raised
    assert error.message.endswith(" [local]")
    assert error.message != " [local]"
    assert "[" not in classify_error(raised).message.replace("[Errno", "").replace("[SSL", "")


def test_a_classified_error_stays_itself() -> None:
    error = ProviderError("malformed", "x")
    assert classify_error(error, "local") is error


def test_statuses_of_the_passing_kind_are_retryable() -> None:
    assert classify_error(HttpStatusError(503)).retryable
    assert not classify_error(HttpStatusError(400)).retryable
    passing = {408, 409, 425, 429, 498, 500, 502, 503, 504, 529}
    assert {
        status for status in [*passing, 200, 400, 401, 404, 501, 505, 600] if retryable_status(status)
    } == passing


@pytest.mark.parametrize(
    ("error", "depleted"),
    [
        (ProviderError("provider", "x", status=429), True),
        (ProviderError("auth", "x", status=402), True),
        (ProviderError("provider", "You exceeded your current quota"), True),
        (ProviderError("provider", "Insufficient Balance"), True),
        (ProviderError("network", "rate limit"), False),
        (ProviderError("provider", "not found", status=404), False),
        (ProviderError("auth", "bad key", status=401), False),
        (ProviderError("provider", "oops", status=500), False),
    ],
)
def test_depletion_is_told_from_other_refusals(error: ProviderError, depleted: bool) -> None:
    assert depletion_error(error) is depleted
