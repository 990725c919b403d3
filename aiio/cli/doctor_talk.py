"""The steps of `aiio doctor` that talk to the server: HTTP, the list of models, a tiny request."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from aiio.context.events import Done
from aiio.context.types import user_message
from aiio.env.env import Env
from aiio.env.errors import HttpStatusError, ProviderError, classify_error
from aiio.io import IO
from aiio.providers.faults import status_fault

from .doctor_trouble import Trouble

Listing = Mapping[str, Any]
"""The models a server lists, by id."""
_NO_LIST = (404, 405, 501)  # statuses of a server that works and has no list of models
REQUEST_LIMIT = "60s"
QUESTION = "Reply with the word OK."


async def speak_http(env: Env, endpoint: str) -> tuple[Listing | Trouble | None, str]:
    """Have the dialect try the connection; return what came of the list of models, and how it was answered.

    `Trouble`: it did not answer as a model server does.
    """
    try:
        listing = await env.test_connection(endpoint)
    except (ProviderError, ValueError) as exc:
        fault = classify_error(exc)
        if fault.code == "bad_listing":
            wrong = ProviderError(
                fault.kind, f"what the server answers is no list of models: {fault.__cause__}"
            )
            return Trouble.of(wrong, endpoint), "the server answers (status 200)"
        if isinstance(fault.__cause__, HttpStatusError) and fault.status in _NO_LIST:
            return None, f"the server answers (status {fault.status})"
        raise Trouble.of(_in_its_words(fault, endpoint), endpoint) from exc
    return listing, "the server answers" if listing is None else "the server answers (status 200)"


async def ask_model(env: Env, selector: str) -> str:
    """Ask for a word; return how the answer ended. `Trouble`: there was none."""
    endpoint, _, _ = selector.partition("/")
    try:
        io = IO(env=env, model=selector)
        terminal = await io.write([user_message(QUESTION)], timeout=REQUEST_LIMIT)
    except (TypeError, ValueError, ProviderError) as exc:
        raise Trouble.of(classify_error(exc), endpoint) from exc
    if isinstance(terminal, Done):
        tokens = (terminal.usage or {}).get("output_tokens", "an unknown number of")
        return f"{selector} answered, {tokens} tokens"
    fault = ProviderError(
        terminal.kind,
        terminal.error,
        status=terminal.status,
        code=terminal.code,
        retry_after_ms=terminal.retry_after_ms,
    )
    raise Trouble.of(fault, endpoint)


def _in_its_words(error: ProviderError, endpoint: str) -> ProviderError:
    """Return *error* with what the server itself said, if it was an answer."""
    cause = error.__cause__
    if not isinstance(cause, HttpStatusError):
        return error
    fault = status_fault(cause, endpoint=endpoint, now=time.time())
    fault.__cause__ = cause
    return fault
