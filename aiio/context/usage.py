"""How many tokens: estimates from text, the final usage of a request, rate-limit headers, known windows.

An estimate is the larger of words x 4/3 and characters / 4, per string: prose is counted by words, and a
long unbroken string (JSON, Chinese) is not one token. Estimates are added unrounded and rounded up once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from .text import compact_json
from .types import Message, Usage
from .usage_data import usage_details, usage_normalize
from .validate import is_record

TOKENS_PER_WORD = 4 / 3
"""The likely number of tokens for a word of prose."""

FALLBACK_CONTEXT_WINDOWS: Mapping[str, int] = MappingProxyType(
    {"gpt-6": 1_050_000, "o1": 200_000, "o3": 200_000, "o4-mini": 200_000}
)
"""Context windows of models whose provider publishes none. Anything published or looked up outranks them."""

# All the space there is in ECMAScript: unlike `str.split` with U+FEFF, without U+001C to U+001F and U+0085.
_WORD = re.compile("[^\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]+")

# Estimates are added in twelfths of a token, in which both rules are whole numbers and sums exact.
_TWELFTHS_PER_WORD = round(TOKENS_PER_WORD * 12)
_TWELFTHS_PER_CHARACTER = 3


def word_count(text: object) -> int:
    """Return the number of runs of non-space characters; 0 for anything but a string."""
    return sum(map(bool, _WORD.finditer(text))) if isinstance(text, str) else 0


class _Memo:
    """Remembers results by the hash of what they were computed from.

    By hash, not by the text itself: an edit in place is seen at once, no text is kept alive, and a collision
    (one in 2**64) costs a wrong estimate. Two generations bound the memory: when the young one is
    full, the old one is forgotten.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: int) -> int | None:
        """Return what was put under *key*, unless it is forgotten."""
        found = self._young.get(key)
        if found is None and (found := self._old.get(key)) is not None:
            self.put(key, found)
        return found

    def put(self, key: int, result: int) -> None:
        """Remember *result*."""
        if len(self._young) >= self.limit:
            self._old, self._young = self._young, {}
        self._young[key] = result


_by_text = _Memo(1 << 16)
_by_context = _Memo(1 << 10)


def estimate_tokens(text: object) -> int:
    """Return the estimated number of tokens of *text*, rounded up; 0 for anything but a string."""
    return _whole(_text_twelfths(text)) if isinstance(text, str) else 0


def estimate_context_tokens(context: Iterable[Any] = ()) -> int:
    """Return the estimated number of tokens of *context*: the text and tool arguments of its messages.

    Parsed arguments count as their compact JSON. Records and whatever is no message count nothing. Texts
    that were seen before are not read again, changes in place are noticed.

    TypeError: *context* is not iterable.
    """
    return _whole(_twelfths(list(context)))


def estimate_usage(context: Iterable[Any] = (), message: Message | None = None) -> Usage:
    """Return estimated usage: *context* is the input, *message* the output. TypeError: see above."""
    return {
        "input_tokens": estimate_context_tokens(context),
        "output_tokens": _whole(_twelfths([message])),
        "source": "estimate",
    }


def finalize_usage(reported: object, context: Iterable[Any] = (), message: Message | None = None) -> Usage:
    """Return the usage of a finished request: the provider's counts, or estimates.

    Counts are the provider's only when both input and output are known; else both are estimated, never
    one of them, and the report's other counters, its cost and details are kept. Neither argument is changed
    or kept.

    Returns:
      A usage with `input_tokens`, `output_tokens`, `total_tokens` and `source` in it.

    Raises:
      TypeError: an estimate is needed and *context* is not iterable.
    """
    usage = usage_normalize(reported)
    if "total_tokens" in usage:
        counts: Usage = {key: usage[key] for key in ("input_tokens", "output_tokens")}
        counts["source"] = usage.get("source", "provider")
    else:
        counts = estimate_usage(context, message)
    counts["total_tokens"] = counts["input_tokens"] + counts["output_tokens"]
    for key, value in usage.items():
        counts.setdefault(key, value)
    return counts


def usage_headers(headers: Mapping[str, str] | None, *, exclude: Collection[str] = ()) -> dict[str, str]:
    """Return the rate-limit headers in *headers*, names in lower case, within the limits of `usage_details`.

    Args:
      headers: response headers, or None.
      exclude: names that are represented elsewhere, in any case.

    Raises:
      TypeError: *exclude* is not a list of strings.
    """
    if isinstance(exclude, str) or not all(map(_is_string, exclude)):
        raise TypeError(f"exclude must be a list of header names, not {exclude!r}")
    excluded = {name.lower() for name in exclude}
    lowered = {name.lower(): value for name, value in (headers or {}).items()}
    wanted = {name: lowered[name] for name in lowered.keys() - excluded if _about_limits(name)}
    return usage_details(dict(sorted(wanted.items()))) or {}


def fallback_context_window(model: object) -> int | None:
    """Return the curated context window for a bare model id, or None.

    The id is a key of `FALLBACK_CONTEXT_WINDOWS`, or begins with one and a dash: the longest such key counts.
    """
    if not isinstance(model, str):
        return None
    if model in FALLBACK_CONTEXT_WINDOWS:
        return FALLBACK_CONTEXT_WINDOWS[model]
    keys = (key for key in FALLBACK_CONTEXT_WINDOWS if model.startswith(f"{key}-"))
    return FALLBACK_CONTEXT_WINDOWS.get(max(keys, key=len, default=""))


def _twelfths(context: list[Any]) -> int:
    try:
        texts = _texts_of_messages(context)
        key = hash(tuple(texts))
    except (AttributeError, KeyError, TypeError):  # something that is no message, or a text that is none
        texts = _texts_of_anything(context)
        key = hash(tuple(texts))
    total = _by_context.get(key)
    if total is None:
        total = sum(_text_twelfths(text) for text in texts if isinstance(text, str))
        _by_context.put(key, total)
    return total


def _texts_of_messages(context: list[Any]) -> list[Any]:
    """Return the texts that count. Written for speed: a gauge asks after every answer, mostly in vain."""
    texts: list[Any] = []
    keep = texts.append
    for entry in context:
        if not isinstance(entry["type"], str):
            for block in entry["content"]:
                keep(block.get("text"))
                if "arguments" in block:
                    keep(_arguments_text(block["arguments"]))
    return texts


def _texts_of_anything(context: list[Any]) -> list[str]:
    contents = (entry.get("content") for entry in context if isinstance(entry, dict) and not is_record(entry))
    texts: list[Any] = []
    for content in contents:
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict):
                texts.append(block.get("text"))
                if "arguments" in block:
                    texts.append(_arguments_text(block["arguments"]))
    return [text for text in texts if isinstance(text, str)]


def _arguments_text(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    try:
        return compact_json(arguments)
    except (TypeError, ValueError):  # no JSON: nothing that could be sent
        return ""


def _text_twelfths(text: str) -> int:
    key = hash(text)
    found = _by_text.get(key)
    if found is None:
        found = max(word_count(text) * _TWELFTHS_PER_WORD, len(text) * _TWELFTHS_PER_CHARACTER)
        _by_text.put(key, found)
    return found


def _whole(twelfths: int) -> int:
    return -(-twelfths // 12)


def _is_string(value: object) -> bool:
    return isinstance(value, str)


def _about_limits(name: str) -> bool:
    return "ratelimit" in name or "rate-limit" in name or name == "retry-after"
