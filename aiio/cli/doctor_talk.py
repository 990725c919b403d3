"""The steps of `aiio doctor` that talk to the server: HTTP, the list of models, a tiny request."""

from __future__ import annotations

import time
from typing import Any

from aiio.context.events import Done, ErrorKind
from aiio.context.types import user_message
from aiio.env.env import Env
from aiio.env.errors import HttpStatusError, ProviderError, classify_error
from aiio.env.fetch import fetch_json
from aiio.io import IO
from aiio.providers.faults import status_fault

from .doctor_trouble import Trouble

HTTP_LIMIT = 20.0
"""Seconds for an answer over HTTP."""
REQUEST_LIMIT = "60s"
QUESTION = "Reply with the word OK."


async def speak_http(env: Env, endpoint: str, url: str, token: str | None) -> tuple[Any, str]:
    """Ask for the list of models; return it (None: there is none) and how the server answered.

    `Trouble`: it did not answer as a model server does.
    """
    settings = env.endpoint_settings(endpoint)
    try:
        provider = env.provider(str(settings["provider"]))
        request = provider.models_request(url, settings, token)
    except (ProviderError, ValueError) as exc:
        raise Trouble.of(exc, endpoint) from exc
    target, headers = (url, {}) if request is None else request
    try:
        listing = await fetch_json(
            env, target, headers, endpoint=endpoint, limit=HTTP_LIMIT, settings=settings
        )
    except ProviderError as exc:
        if _works(exc, has_list=request is not None):
            return None, f"the server answers (status {exc.status or 200})"
        raise Trouble.of(_in_its_words(exc, endpoint), endpoint) from exc
    return (None if request is None else listing), "the server answers (status 200)"


def look_up_models(env: Env, endpoint: str, listing: Any) -> list[str]:
    """Return the ids in *listing*. `Trouble`: it is no list of models."""
    provider = env.provider(str(env.endpoint_settings(endpoint)["provider"]))
    try:
        return list(provider.read_models(listing))
    except ValueError as exc:
        fault = ProviderError("malformed", f"what the server answers is no list of models: {exc}")
        raise Trouble.of(fault, endpoint) from exc


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


def _works(error: ProviderError, *, has_list: bool) -> bool:
    """Tell whether an error is one of a server that works, but has nothing of use at that address."""
    if isinstance(error.__cause__, HttpStatusError):
        return error.status in (404, 405, 501) or (not has_list and error.status in (400, 421, 426))
    return not has_list and error.kind is ErrorKind.MALFORMED


def _in_its_words(error: ProviderError, endpoint: str) -> ProviderError:
    """Return *error* with what the server itself said, if it was an answer."""
    cause = error.__cause__
    if not isinstance(cause, HttpStatusError):
        return error
    fault = status_fault(cause, endpoint=endpoint, now=time.time())
    fault.__cause__ = cause
    return fault
