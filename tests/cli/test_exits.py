"""Exit codes, and what each failure says to do."""

from __future__ import annotations

from typing import Any

import pytest

from aiio.cli.exits import BY_KIND, exit_code_of, explain, fault_sentence
from aiio.context.events import Error, ErrorKind
from aiio.env.endpoints import Endpoint
from aiio.env.errors import ProviderError

OPENAI = Endpoint(name="openai", env_keys=("OPENAI_API_KEY", "OTHER_KEY"))


def test_A16_exit_codes() -> None:
    assert {kind.value: code for kind, code in BY_KIND.items()} == {
        "auth": 2,
        "network": 3,
        "provider": 4,
        "malformed": 5,
        "cancelled": 130,
    }
    assert set(BY_KIND) == set(ErrorKind)


def test_of_many_failures_the_first_to_mend_decides() -> None:
    assert exit_code_of([]) == 0
    assert exit_code_of([ErrorKind.PROVIDER, ErrorKind.NETWORK, ErrorKind.CANCELLED]) == 3


@pytest.mark.parametrize(
    ("fields", "advice"),
    [
        ({"kind": ErrorKind.NETWORK, "limit": "overall"}, "; try again, or allow more with --timeout"),
        (
            {"kind": ErrorKind.NETWORK, "limit": "connect"},
            "; try again, or allow more with --connect-timeout",
        ),
        ({"kind": ErrorKind.NETWORK, "limit": "stuck"}, "; try again, or allow more with --stuck-timeout"),
        ({"kind": ErrorKind.AUTH, "status": 401}, "; check the key in OPENAI_API_KEY or OTHER_KEY"),
        ({"kind": ErrorKind.AUTH}, ""),
        ({"kind": ErrorKind.NETWORK}, "; check the address and the network, then try again"),
        ({"kind": ErrorKind.PROVIDER, "status": 404}, "; check the model's name and the address"),
        ({"kind": ErrorKind.PROVIDER, "retryable": True}, "; try again later"),
        (
            {"kind": ErrorKind.PROVIDER, "retryable": True, "retry_after_ms": 1500.0},
            "; try again in 1.5 s",
        ),
        ({"kind": ErrorKind.PROVIDER, "status": 400}, ""),
        ({"kind": ErrorKind.MALFORMED}, "; check that the address is one of a model server"),
        ({"kind": ErrorKind.CANCELLED, "cancelled": True}, ""),
    ],
)
def test_every_failure_says_what_to_do(fields: dict[str, Any], advice: str) -> None:
    assert explain(Error(error="It went wrong.", **fields), OPENAI) == f"It went wrong{advice}"


def test_a_refused_key_of_an_endpoint_without_a_variable() -> None:
    refused = Error(error="no", kind=ErrorKind.AUTH, status=401)
    assert explain(refused) == explain(refused, Endpoint(name="mine")) == "no; check the key"


@pytest.mark.parametrize("code", ["no_weights", "no_runtime"])
def test_an_embedded_model_that_is_missing_says_how_to_get_it(code: str) -> None:
    for sentence in (
        explain(Error(error="x", code=code)),
        fault_sentence(ProviderError(ErrorKind.PROVIDER, "x", code=code)),
    ):
        assert "pip install 'aiio-runtime[cli,local]' && aiio local setup" in sentence
        assert "--model" in sentence
    assert fault_sentence(ProviderError(ErrorKind.AUTH, "no key")) == "no key"
