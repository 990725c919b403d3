"""What can be wrong with an endpoint, in words: the likely cause, and what to do."""

from __future__ import annotations

from aiio.context.events import ErrorKind
from aiio.env.errors import HttpStatusError, ProviderError, classify_error


class Trouble(Exception):
    """A diagnosis.

    Args:
      name: what it is, for programs.
      kind: decides the exit code.
      verdict: what is wrong; no full sentence, no full stop.
      advice: what to do about it.
    """

    def __init__(self, name: str, kind: ErrorKind, verdict: str, advice: str) -> None:
        super().__init__(verdict)
        self.name = name
        self.kind = kind
        self.verdict: str = " ".join(verdict.split())
        self.advice = advice

    @classmethod
    def of(cls, error: Exception, endpoint: str) -> Trouble:
        """Return the diagnosis for what was raised by a request or on its way."""
        fault = classify_error(error)
        said = fault.message.removesuffix(f" [{endpoint}]").rstrip(".")
        return (
            _by_place(fault, said)
            or _by_status(fault, said, endpoint)
            or cls(fault.code or fault.kind.value, fault.kind, said, _ADVICE[fault.kind])
        )


_ADVICE = {
    ErrorKind.AUTH: "check the credential",
    ErrorKind.NETWORK: "check the address and the network, then try again",
    ErrorKind.PROVIDER: "check the settings of the endpoint",
    ErrorKind.MALFORMED: "check that the address is one of a model server, and its dialect",
    ErrorKind.CANCELLED: "try again",
}


def _by_place(fault: ProviderError, said: str) -> Trouble | None:
    """Return the diagnosis that follows from where it happened."""
    if fault.detail.get("phase") == "proxy" or fault.status == 407:
        verdict = f"the proxy refuses: {said}"
        advice = (
            "check the proxy's address and password (HTTPS_PROXY, HTTP_PROXY, setting proxy), or NO_PROXY"
        )
        return Trouble("proxy_refuses", ErrorKind.NETWORK, verdict, advice)
    cause = fault.__cause__
    status = fault.status if fault.status is not None else 0
    page = (
        fault.kind is ErrorKind.PROVIDER and 200 <= status <= 299 and not isinstance(cause, HttpStatusError)
    )
    sent_away = 300 <= status <= 399
    if page or sent_away or (isinstance(cause, HttpStatusError) and status == 511):
        what = f"redirects (status {status})" if sent_away else "answers with an HTML page"
        return Trouble(
            "captive_page",
            ErrorKind.PROVIDER,
            f"something that is no model server {what}: {said}",
            "log in to the network you are on with a browser, or correct the URL of the endpoint",
        )
    return None


def _by_status(fault: ProviderError, said: str, endpoint: str) -> Trouble | None:
    """Return the diagnosis that follows from the status of an answer."""
    if fault.status in (401, 403):
        verdict = f"the server refuses the credential (status {fault.status}): {said}"
        advice = f"make a new key at the provider, then run `aiio auth set {endpoint}`"
        return Trouble("unauthorized", ErrorKind.AUTH, verdict, advice)
    if fault.status in (402, 429):
        wait = "" if fault.retry_after_ms is None else f" in {fault.retry_after_ms / 1000:g} s"
        verdict = f"the server limits us (status {fault.status}): {said}"
        advice = f"try again{wait or ' later'}, or look at the limits and credits of the account"
        return Trouble("rate_limited", ErrorKind.PROVIDER, verdict, advice)
    if fault.status is not None and fault.status >= 500:
        verdict = f"the server is in trouble (status {fault.status}): {said}"
        return Trouble(
            "server_error", ErrorKind.PROVIDER, verdict, "look at the provider's status page, try later"
        )
    return None
