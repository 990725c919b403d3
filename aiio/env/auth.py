"""Credentials: a holder that cannot be printed by accident, and how one is read.

A key is trimmed and checked once, when it is read. A bad one is an `auth` error that names the
setting it came from, before any connection is made; the value itself appears in no text.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any, NoReturn

from aiio.context.events import ErrorKind

from .errors import ProviderError

MASK = "***"

CREDENTIAL_KEYS = frozenset({"type", "token", "access", "refresh", "expires"})
"""Keys of an auth record."""

SECRET_KEYS = frozenset({"token", "access", "refresh"})
"""Those of them whose value must not be seen."""


class Secret:
    """A credential. Every way of printing it shows `***`; `reveal` is the one way to the value."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value. It goes into a header, and nowhere else."""
        return self._value

    def __repr__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(
            self._value.encode(errors="replace"), other._value.encode(errors="replace")
        )

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is never pickled")


def read_credential(value: object, setting_name: str) -> Secret:
    """Return *value* as a `Secret`, without the whitespace around it.

    Args:
      value: text or a `Secret`, as somebody wrote it.
      setting_name: where it was written; the error names it.

    Raises:
      ProviderError: kind auth; not text, empty, or text that no header can carry (a line break, another
        control character, anything but ASCII). The text never holds the value.
    """
    fault = None
    text = ""
    if not isinstance(value, str | Secret):
        fault = f"is not text but {type(value).__name__}"
    else:
        text = (value.reveal() if isinstance(value, Secret) else value).strip()
        if not text:
            fault = "is empty"
        elif "\r" in text or "\n" in text:
            fault = "has a line break inside"
        elif not text.isascii():
            fault = "has a character inside that is not ASCII"
        elif not text.isprintable():
            fault = "has a control character inside"
    if fault is not None:
        raise ProviderError(
            ErrorKind.AUTH, f"the credential in {setting_name} {fault}", code="bad_credential"
        )
    return Secret(text)


def masked_record(record: Mapping[str, Any], setting_name: str) -> dict[str, Any]:
    """Return an auth record with its secret parts in checked `Secret`s. Raises as `read_credential`."""
    return {
        key: read_credential(value, f"{setting_name}[{key!r}]")
        if key in SECRET_KEYS and value is not None
        else value
        for key, value in record.items()
    }


def record_token(auth: object) -> object:
    """Return what *auth* (a record, bare text, or a `Secret`) offers as a credential; None: nothing."""
    if isinstance(auth, Mapping):
        return auth.get("token") if auth.get("token") is not None else auth.get("access")
    return auth
