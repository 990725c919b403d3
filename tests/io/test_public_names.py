"""Every name the design of this room asked for is importable, spelled as Python spells it."""

from __future__ import annotations

import inspect

import pytest

import aiio.io

NAMES = [
    "IO",
    "Context",
    "Env",
    "HttpStatusError",
    "ProviderError",
    "body_bytes",
    "classify_error",
    "connect_budget",
    "default_close",
    "default_connect",
    "default_read",
    "default_send",
    "default_send_body",
    "default_send_headers",
    "define_provider",
    "resolve_timeout",
    "sanitize_request",
]
MEMBERS = [
    "auth_set",
    "context_usage",
    "current_model",
    "kill",
    "kill_nowait",
    "plan_usage",
    "request_scope",
    "set_context_usage",
    "set_option",
    "set_plan_usage",
    "settings",
    "state",
    "stream",
    "tools",
    "write",
]
ARGUMENTS = [
    "env",
    "model",
    "url",
    "timeout",
    "connect_timeout",
    "stuck_timeout",
    "settings",
    "tools",
    "on_data",
    "on_log",
]


@pytest.mark.parametrize("name", NAMES)
def test_the_name_is_public(name: str) -> None:
    assert hasattr(aiio.io, name)
    assert name in aiio.io.__all__


@pytest.mark.parametrize("name", MEMBERS)
def test_an_io_has_the_member_and_says_what_it_does(name: str) -> None:
    assert getattr(aiio.io.IO, name).__doc__


def test_an_io_is_made_of_what_it_should_be() -> None:
    parameters = inspect.signature(aiio.io.IO).parameters
    assert list(parameters) == ARGUMENTS
    assert all(one.kind is inspect.Parameter.KEYWORD_ONLY for one in parameters.values())


def test_what_is_public_exists() -> None:
    assert all(hasattr(aiio.io, name) for name in aiio.io.__all__)
    assert list(aiio.io.__all__) == sorted(aiio.io.__all__, key=_order)


def _order(name: str) -> tuple[int, str]:
    return 0 if name.isupper() else 1 if name[0].isupper() else 2, name
