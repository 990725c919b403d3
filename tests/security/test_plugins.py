"""A plug-in that quotes what it was given: the error of its hook shows no credential, nor does its cause."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

import aiio
from aiio.env.errors import ErrorKind, HttpStatusError, ProviderError
from aiio.env.fetch import without_secrets
from aiio.env.scrub import Scrubber
from aiio.providers import define_provider

KEY = "sk-canary-0123456789abcdef"


@define_provider(name="quoting", dialect="openai_chat")
class Quoting:
    """Fails in every hook, and says with which key."""

    @classmethod
    async def test_connection(cls, access: Any) -> Any:
        raise ProviderError(ErrorKind.PROVIDER, f"no good: {access.token}", code=KEY) from ValueError(KEY)

    @classmethod
    async def login(cls, given: Any, access: Any) -> Any:
        raise RuntimeError(f"can't log in with {given} and {KEY}")

    @classmethod
    def models_request(cls, url: str, settings: Any, token: Any, after: Any = None) -> Any:
        raise RuntimeError(f"can't ask with {token}")


@pytest.mark.parametrize("hook", ["test_connection", "login", "models"])
async def test_K1_what_a_plug_in_quotes_is_in_no_error(hook: str) -> None:
    async with aiio.Env({}, environ={}) as env:
        env.register_provider(Quoting)
        env.register_endpoint("mine", provider="quoting", url="http://127.0.0.1:9", auth=KEY)
        assert env.credential("mine") is not None
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "test_connection": partial(env.test_connection, "mine"),
            "login": partial(env.login, "mine", "given"),
            "models": partial(env.model_lists.fetch, "mine"),
        }
        with pytest.raises(ProviderError) as caught:
            await calls[hook]()
    error = caught.value
    shown = "".join(traceback.format_exception(error)) + repr(vars(error)) + repr(error)
    assert KEY not in shown
    assert KEY not in str(error.__cause__) + str(error.__context__)


def test_a_cause_stays_unless_it_shows_a_credential() -> None:
    scrubber = Scrubber()
    scrubber.add(KEY)
    clean, telling = ConnectionResetError("gone"), ConnectionResetError(f"gone with {KEY}")
    deep = ValueError("clean itself")
    deep.__context__ = telling
    for cause, kept in ((clean, True), (telling, False), (deep, False), (None, False)):
        error = ProviderError(ErrorKind.NETWORK, "x", status=5)
        error.__cause__ = cause
        found = without_secrets(error, scrubber)
        assert (found.__cause__ is not None) is kept
        assert (found.message, found.status) == ("x", 5)
    status = without_secrets(HttpStatusError(400, "no", f"body {KEY}", {"x": KEY}), scrubber, "mine")
    assert isinstance(status.__cause__, HttpStatusError)
    assert (status.__cause__.body, status.__cause__.headers) == ("body ***", {"x": "***"})
    assert status.message == "HTTP 400 no: body *** [mine]"
