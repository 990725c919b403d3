"""Request headers: what may go on the wire, checked before any connection and never quoted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from aiio.env.errors import ErrorKind, ProviderError

_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")  # what is a header value in HTTP, and nothing else
_SCHEME_ALONE = re.compile(r"(bearer|basic|token)?", re.IGNORECASE)
_CREDENTIAL = re.compile(r"authorization|cookie|(^|[-_])(api)?(key|token|secret|password)$", re.IGNORECASE)

# Ours to decide: how the message is framed, what codings we can bound, whether the connection ends with it.
_OURS = frozenset(
    {"content-length", "transfer-encoding", "connection", "keep-alive", "accept-encoding", "te", "upgrade"}
)


def wire_headers(headers: Mapping[str, str], *, keep: bool = False) -> list[tuple[bytes, bytes]]:
    """Return *headers* as bytes, with ours added; *keep*: the connection need not end with the answer.

    Raises:
      ProviderError: a value that can't be sent (CR, LF, NUL, other control characters, or a character
        outside Latin-1), or a credential that is empty: `auth` for a credential header, else `malformed`.
        The value is in neither the text nor the traceback.
    """
    checked: list[tuple[bytes, bytes]] = []
    for name, value in headers.items():
        if _NAME.fullmatch(name) is None:
            raise ProviderError(ErrorKind.MALFORMED, f"not a header name: {ascii(name)[:60]}", phase="send")
        if name.lower() in _OURS:
            continue
        checked.append((name.encode("ascii"), _value(name, value)))
    names = {name.lower() for name, _ in checked}
    if b"user-agent" not in names:
        checked.append((b"User-Agent", b"aiio"))
    lasting = b"keep-alive" if keep else b"close"
    return [*checked, (b"Accept-Encoding", b"identity"), (b"Connection", lasting)]


def credential_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return those of *headers* that hold a credential, by their lower-cased names, sorted."""
    return sorted((name.lower(), value) for name, value in headers.items() if _CREDENTIAL.search(name))


def lower_cased(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return response headers with lower-cased names; a name that came twice has its values joined."""
    headers: dict[str, str] = {}
    for name, value in raw:
        key, text = _lower_cased_name(name), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


@lru_cache(maxsize=256)  # servers send the same few names again and again; held answers share them
def _lower_cased_name(name: bytes) -> str:
    return name.decode("ascii").lower()


def _value(name: str, value: object) -> bytes:
    credential = _CREDENTIAL.search(name) is not None
    kind = ErrorKind.AUTH if credential else ErrorKind.MALFORMED
    text = value.strip(" \t") if isinstance(value, str) else "\0"
    if _VALUE.fullmatch(text) is None:
        why = "holds a character that no header may hold (a line end, NUL, or one outside Latin-1)"
        raise ProviderError(kind, f"the value of header {name} {why}", phase="send")
    if credential and _SCHEME_ALONE.fullmatch(text) is not None:
        raise ProviderError(kind, f"header {name} holds no credential", phase="send")
    return text.encode("latin-1")
