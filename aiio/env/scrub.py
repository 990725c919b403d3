"""Scrubbing: no credential leaves in a log line, an error text or a file.

Two nets, because either alone has holes. *By value*: a `Scrubber` is told every credential that is
read, and replaces it wherever it shows up, in the encodings it shows up in. *By name*: what stands in
a place that holds credentials (an `authorization` header, a `key=` in a query, the user part of a
URL) is masked whether or not anybody knew it.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

from .auth import MASK, Secret

SECRET_FIELDS = frozenset(
    {
        "authorization",
        "proxy_authorization",
        "x_api_key",
        "api_key",
        "apikey",
        "x_goog_api_key",
        "x_auth_token",
        "ocp_apim_subscription_key",
        "cookie",
        "set_cookie",
        "access_token",
        "refresh_token",
        "id_token",
        "token",
        "client_secret",
        "secret",
        "password",
        "passwd",
        "private_key",
        "access",
        "refresh",
    }
)
"""Names whose value is a credential, in headers and in data; `-` and `_` are one, case does not count."""

_KEYS = "api|access|auth|private|secret|signing|subscription|functions|virtual"
"""What a key is called that is a credential; a `cache_key` or `primary_key` is none."""
_SECRET_ENDING = re.compile(
    rf".*?(?:(?:^|_)(?:authorization|cookie|password|passwd|passphrase|(?:{_KEYS})_?key)"
    r"|_(?:auth|secret|token))"
)
"""How names of headers and variables end that hold a credential: `X-Vault-Token`, `OPENAI_API_KEY`."""
_NO_SECRETS = frozenset(
    {"continuation_token", "next_page_token", "page_token", "max_token", "include_secret"}
)
"""Names that end like one, and hold none."""
_LONGEST_NAME = 100
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# The names above as they stand in text. A word before them is part of it (`OPENAI_API_KEY`).
_IN_TEXT = (
    rf"(?:{_KEYS})[-_]?key|access[-_]token|refresh[-_]token|id[-_]token|client[-_]secret|password|passwd"
    r"|passphrase"
)
_ENDINGS = r"(?<=[-_])(?:auth|secret|token)"
_QUERY = (
    rf"key|(?:{_KEYS})[-_]?key|(?:[\w-]+[-_])?token|auth|sig|(?:[\w-]+-)?signature|code"
    r"|secret|client[-_]secret|password"
)
_SCHEMES = r"(?:(?:bearer|basic|token|digest|negotiate|api-?key|aws4-hmac-sha256)\s+)"
_VALUE = r"[^\s\"'\\,;&<>)}\]]+"
_IS = r"\\?[\"']?\s*[:=,]\s*(?:\[\s*)?(?:b(?=[\"']))?\\?[\"']?"
"""What stands between a name and its value: in text, in JSON, in a Python repr (of bytes too)."""
_BY_NAME = re.compile(
    # A header that may hold several words: all of them.
    rf"(?P<header>(?<![a-z0-9])(?:authorization|(?:set-|set_)?cookie)\b{_IS}{_SCHEMES}?)"
    rf"{_VALUE}(?:\s+(?=\S*\d)[\w.~+/=-]{{8,}}|[,;]?\s+[\w.-]+=\"?{_VALUE}\"?)*"
    rf"|(?P<field>(?<![a-z0-9])(?:{_IN_TEXT})\b{_IS}{_SCHEMES}?){_VALUE}"
    rf"|(?P<ending>{_ENDINGS}\b{_IS}{_SCHEMES}?)(?={_VALUE[:-1]}{{6}}){_VALUE}"
    rf"|(?P<query>[?&](?:{_QUERY})=)[^&\s\"'<>#\\]+"
    r"|(?P<scheme>\b(?:bearer|basic)\s+)(?=\S*[\d=])[A-Za-z0-9._~+/=-]{8,}"
    r"|(?P<user>://)[^/?#\s\"'<>]+(?=@)",
    re.IGNORECASE,
)
_HINTS = ("auth", "key", "token", "secret", "pass", "cookie", "bearer", "basic", "sig", "code=", "://")
"""One of these is in whatever `_BY_NAME` finds; looking for them first is a hundred times cheaper."""
_SECRET_QUERY = re.compile(_QUERY, re.IGNORECASE)
_HALF_MASKED = re.compile(r"([A-Za-z0-9_-]*)(?:\*{3,}|\u2026|\.{3,})([A-Za-z0-9_-]*)")
_KEY_LIKE = re.compile(r"(?:sk|pk|rk|gsk|xai|key|hf|nvapi|AIza)(?:[-_]|(?<=AIza))", re.IGNORECASE)

_PERCENT = re.compile("%[0-9A-F]{2}")
_SHORTEST = 6
"""A shorter value is masked by name only: replacing it everywhere would eat ordinary words."""
_TOKEN_AS_USER = 16
"""The name of a user that has no password is a token from so many characters on."""
_PLACEHOLDERS = frozenset(
    {"ollama", "lm-studio", "api-key", "apikey", "secret", "no-key", "not-needed", "dummy-key"}
)
"""What people write where a server wants some key: words, not secrets."""
_DEEPEST = 64


class Scrubber:
    """Replaces credentials in strings and in JSON-like data by `***`."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._forms: set[str] = set()
        self._heads: re.Pattern[str] | None = None

    def add(self, secret: Secret | str) -> None:
        """Remember *secret*. Values under 6 characters and well-known placeholders are left to the names."""
        value = secret.reveal() if isinstance(secret, Secret) else secret
        if value in self._known or len(value) < _SHORTEST or value.lower() in _PLACEHOLDERS:
            return
        self._know({value})

    @classmethod
    def joining(cls, scrubbers: Iterable[Scrubber]) -> Scrubber:
        """Return one that knows what all of *scrubbers* know now.

        One after the other would not do: the first takes what its secret has in common with another's for a
        secret that was cut off, and the second finds half of its own only.
        """
        joint = cls()
        joint._know(set().union(*(scrubber._known for scrubber in scrubbers)))
        return joint

    def _know(self, values: set[str]) -> None:
        self._known |= values
        self._forms = {form for known in self._known for form in _forms(known)}
        if not self._forms:
            return
        heads = sorted(map(_head, self._forms), key=len, reverse=True)
        self._heads = re.compile("|".join(map(re.escape, heads)))

    def add_url(self, url: str) -> None:
        """Remember the credentials inside *url*: its user part, and query values named like a key."""
        if "@" not in url and "?" not in url:  # it has neither, as nearly all
            return
        try:
            parts = urlsplit(url)
            user, password = parts.username or "", parts.password
        except ValueError:
            return
        if password:
            self.add(password)
            self.add(unquote(password))
            pair = f"{unquote(user)}:{unquote(password)}"
            self.add(base64.b64encode(pair.encode()).decode())  # as Basic authentication sends it
        elif len(user) >= _TOKEN_AS_USER:
            self.add(unquote(user))
        for name, value in parse_qsl(parts.query):
            if _SECRET_QUERY.fullmatch(name):
                self.add(value)

    def learn(self, tree: Mapping[str, Any]) -> None:
        """Remember the credentials in a settings tree: `Secret`s, values named like one, and inside URLs."""
        for key, value in tree.items():
            if isinstance(value, str):
                if is_secret_name(key) or key == "auth":
                    self.add(value)
                    if key.lower().endswith("cookie"):
                        for pair in value.split(";"):
                            self.add(pair.partition("=")[2].strip())
                elif "://" in value:
                    self.add_url(value)
            elif isinstance(value, Secret):
                self.add(value)
            elif isinstance(value, Mapping):
                self.learn(value)

    def text(self, text: str) -> str:
        """Return *text* with every credential masked; the same object when there was none."""
        if self._heads is not None:
            text = self._without_values(text, self._heads)
        if "***" in text or "..." in text or "\u2026" in text:
            text = _HALF_MASKED.sub(self._mask_echo, text)
        lower = text.lower()
        for hint in _HINTS:
            if hint in lower:
                return _BY_NAME.sub(_mask_named, text)
        return text

    def data(self, value: Any) -> Any:
        """Return a copy of JSON-like *value* without credentials: strings scrubbed, secret fields masked.

        What is neither a container nor text is kept; what is nested deeper than 64 is cut off.
        """
        return self._data(value, _DEEPEST)

    def _data(self, value: Any, levels: int) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Secret):
            return MASK
        if isinstance(value, bytes | bytearray):
            return self.text(value.decode("utf-8", "replace"))
        if not isinstance(value, Mapping | list | tuple | set | frozenset):
            return value
        if levels == 0:
            return "\u2026"
        if isinstance(value, Mapping):
            return {
                self._data(key, levels - 1): MASK
                if is_secret_name(key) and item is not None
                else self._data(item, levels - 1)
                for key, item in value.items()
            }
        return [self._data(item, levels - 1) for item in value]

    def _without_values(self, text: str, heads: re.Pattern[str]) -> str:
        """Mask the known credentials, whole ones and such as are cut off in their second half."""
        pieces: list[str] = []
        done = 0
        while (found := heads.search(text, done)) is not None:
            start, end = found.span()
            shown = (_shown(form, text, start) for form in self._forms if form.startswith(found[0]))
            pieces += (text[done:start], MASK)
            done = max(end, start + max(shown))
        return "".join((*pieces, text[done:])) if pieces else text

    def _mask_echo(self, found: re.Match[str]) -> str:
        """Mask what a provider echoes of a key (`sk-abc***wxyz`); other text keeps its stars and dots."""
        head, tail = found[1], found[2]
        ours = any(
            (len(head) >= 5 and key.startswith(head)) or (len(tail) >= 4 and key.endswith(tail))
            for key in self._known
        )
        if ours or ("*" in found[0] and _KEY_LIKE.match(head)):
            return MASK
        return found[0]


@lru_cache(maxsize=4096)
def _is_secret(name: str) -> bool:
    words = name.replace("-", "_").lower()
    if words in SECRET_FIELDS:
        return True
    words = _HUMP.sub("_", name.replace("-", "_")).lower()
    return words not in _NO_SECRETS and _SECRET_ENDING.fullmatch(words) is not None


def is_secret_name(name: object) -> bool:
    """Tell whether a header, field or variable of this name holds a credential."""
    return isinstance(name, str) and _is_secret(str(name)[-_LONGEST_NAME:])


def _mask_named(found: re.Match[str]) -> str:
    return f"{found[str(found.lastgroup)]}{MASK}"


def _shown(form: str, text: str, start: int) -> int:
    """Return how many characters of *form* stand in *text* from *start* on."""
    pairs = zip(form, text[start : start + len(form)], strict=False)
    return next(
        (at for at, (ours, theirs) in enumerate(pairs) if ours != theirs), min(len(form), len(text) - start)
    )


def _head(form: str) -> str:
    """Return the half of *form* that gives it away: texts are cut off before they get here."""
    return form[: max(_SHORTEST, (len(form) + 1) // 2)]


def _forms(value: str) -> set[str]:
    """The value as it may appear: plain, quoted for a URL, escaped in JSON, HTML or a repr, in base64."""
    encoded = base64.b64encode(value.encode(errors="replace")).decode()
    quoted = quote(value, safe="", errors="replace")
    return {
        value,
        quoted,
        _PERCENT.sub(lambda found: found[0].lower(), quoted),
        quote_plus(value, errors="replace"),
        html.escape(value),
        json.dumps(value)[1:-1],
        json.dumps(value)[1:-1].replace("/", "\\/"),  # as PHP writes it
        repr(value)[1:-1],
        encoded,
    }
