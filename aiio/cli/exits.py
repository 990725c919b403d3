"""Exit codes, and the one sentence that goes with each failure.

0    everything was answered          4    the provider said no
1    a bug of ours                    5    an answer that can't be read, bad input, no room for output
2    credentials missing or refused   130  Ctrl-C (143: SIGTERM)
3    the network, or a time limit     141  whoever read our output went away
6    a budget of the run is used up
"""

from __future__ import annotations

import signal
from collections.abc import Iterable

from aiio.context.events import Error, ErrorKind
from aiio.env.endpoints import Endpoint
from aiio.env.errors import ProviderError

DONE = 0
CRASHED = 1
BAD_INPUT = 5
OUT_OF_BUDGET = 6
INTERRUPTED = 128 + signal.SIGINT
READER_GONE = 128 + signal.SIGPIPE

BY_KIND: dict[ErrorKind, int] = {
    ErrorKind.AUTH: 2,
    ErrorKind.NETWORK: 3,
    ErrorKind.PROVIDER: 4,
    ErrorKind.MALFORMED: 5,
    ErrorKind.CANCELLED: INTERRUPTED,
}

NOT_INSTALLED = (
    "the embedded model is not installed: run `pip install 'aiio-runtime[cli,local]' && aiio local setup`, "
    "or name another model with --model"
)
_NOT_INSTALLED = frozenset({"no_weights", "no_runtime"})
"""Codes of the embedded model's errors that mean: it was never set up."""


class CliFault(Exception):
    """The command can't go on. Its text is one sentence that says what to do; *code* is the exit code."""

    def __init__(self, sentence: str, code: int = BAD_INPUT) -> None:
        super().__init__(sentence)
        self.code = code


def exit_code_of(kinds: Iterable[ErrorKind]) -> int:
    """Return the exit code for requests that failed in these ways; the lowest is what to mend first."""
    return min((BY_KIND[kind] for kind in kinds), default=DONE)


def fault_sentence(error: ProviderError) -> str:
    """Return what to tell about a `ProviderError` raised outside a request."""
    return NOT_INSTALLED if error.code in _NOT_INSTALLED else error.message


def explain(error: Error, endpoint: Endpoint | None = None) -> str:
    """Return *error* as one sentence that ends with what to do about it."""
    if error.code in _NOT_INSTALLED:
        return NOT_INSTALLED
    return "; ".join(filter(None, [error.error.rstrip(". \n"), _advice(error, endpoint)]))


def _advice(error: Error, endpoint: Endpoint | None) -> str:
    if error.limit is not None:
        option = "--timeout" if error.limit == "overall" else f"--{error.limit}-timeout"
        return f"try again, or allow more with {option}"
    match error.kind:
        case ErrorKind.AUTH if error.status is not None:
            variables = " or ".join(endpoint.env_keys) if endpoint is not None else ""
            return f"check the key in {variables}" if variables else "check the key"
        case ErrorKind.NETWORK:
            return "check the address and the network, then try again"
        case ErrorKind.PROVIDER if error.status == 404:
            return "check the model's name and the address"
        case ErrorKind.PROVIDER if error.retryable:
            delay = error.retry_after_ms
            return "try again later" if delay is None else f"try again in {delay / 1000:g} s"
        case ErrorKind.MALFORMED:
            return "check that the address is one of a model server"
        case _:  # the sentence says it all
            return ""
