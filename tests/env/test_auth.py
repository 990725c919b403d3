from __future__ import annotations

import copy
import json
import pickle
import traceback
from typing import Any

import pytest

from aiio.env.auth import Secret, masked_record, read_credential, record_token
from aiio.env.errors import ErrorKind, ProviderError

KEY = "sk-canary-0123456789"


def test_a_secret_prints_as_a_mask() -> None:
    secret = Secret(KEY)
    shown = [
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret:>8}",
        f"{secret!r}",
        repr([secret]),
    ]
    assert all(KEY not in text and "***" in text for text in shown)
    assert f"{secret:>8}" == "     ***"
    assert secret.reveal() == KEY


def test_a_secret_leaves_in_no_file() -> None:
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(Secret(KEY))
    with pytest.raises(TypeError, match="Secret"):
        json.dumps({"key": Secret(KEY)})
    with pytest.raises(TypeError, match="vars"):
        vars(Secret(KEY))


def test_secrets_compare_by_value() -> None:
    assert Secret(KEY) == Secret(KEY)
    assert Secret(KEY) != Secret("other")
    assert Secret(KEY) != KEY
    assert Secret("\ud800") != Secret(KEY)  # even one that no wire can carry
    assert len({Secret(KEY), Secret(KEY)}) == 1
    secret = Secret(KEY)
    assert copy.copy(secret) is secret
    assert copy.deepcopy({"a": secret})["a"] is secret


H1_TRIMMED = [KEY, KEY + "\n", KEY + "\r\n", " " + KEY, f"\t{KEY} \n", Secret(KEY + "\n")]
H1_REFUSED: list[tuple[Any, str]] = [
    ("", "empty"),
    (" \n", "empty"),
    (f"{KEY}\nx-evil: 1", "line break"),
    (f"{KEY}\rx", "line break"),
    (f"{KEY}\0x", "control character"),
    (f"{KEY}\x7f", "control character"),
    (f"{KEY}é", "not ASCII"),
    (f"{KEY}\ud800", "not ASCII"),
    (None, "NoneType"),
    (12345, "int"),
    (KEY.encode(), "bytes"),
]


@pytest.mark.parametrize("value", H1_TRIMMED)
def test_H1_a_credential_is_trimmed(value: Any) -> None:
    assert read_credential(value, "OPENAI_API_KEY").reveal() == KEY


@pytest.mark.parametrize(("value", "reason"), H1_REFUSED)
def test_H1_a_credential_no_header_can_carry_is_an_auth_error(value: Any, reason: str) -> None:
    with pytest.raises(ProviderError, match=f"OPENAI_API_KEY.*{reason}") as caught:
        read_credential(value, "OPENAI_API_KEY")
    assert caught.value.kind is ErrorKind.AUTH
    assert not caught.value.retryable
    shown = "".join(traceback.format_exception(caught.value)) + str(caught.value) + repr(caught.value)
    assert KEY not in shown
    assert str(12345) not in shown


def test_an_auth_record_is_masked_where_it_is_secret() -> None:
    record = masked_record({"type": "oauth", "access": KEY + "\n", "refresh": None, "expires": 5}, "settings")
    assert record == {"type": "oauth", "access": Secret(KEY), "refresh": None, "expires": 5}
    with pytest.raises(ProviderError, match=r"settings\['token'\] is empty"):
        masked_record({"token": " "}, "settings")


def test_a_record_offers_its_token_first() -> None:
    assert record_token({"token": "a", "access": "b"}) == "a"
    assert record_token({"access": "b"}) == "b"
    assert record_token({}) is None
    assert record_token("bare") == "bare"
    assert record_token(None) is None
