"""Token usage as data: every dialect's report in one shape, sums, and bounded copies of what else was said.

The shape is a flat dict: `input_tokens`, `output_tokens` and their sum `total_tokens`, which include the
subsets `cached_tokens`, `cache_write_tokens` (of the input) and `reasoning_tokens` (of the output); then
`cost`, `source`, `service_tier`, `inference_geo`, `details`. A key that is missing is unknown, not 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import Any, TypeAlias

from .text import clean_text
from .types import Usage

COUNTERS = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens")

_Places: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Fields: the object that they are in (`""`: the root), and their names."""


def _at_root(*names: str) -> _Places:
    return (("", names),)


def _inside(objects: Iterable[str], *names: str) -> _Places:
    return tuple((outer, names) for outer in objects)


# Where each dialect puts a counter, the best source first: objects of details before fields of the root,
# `reasoning` before `thinking`.
_INPUT = _at_root("input_tokens", "inputTokens", "prompt_tokens", "promptTokens", "prompt_eval_count")
_OUTPUT = _at_root("output_tokens", "outputTokens", "completion_tokens", "completionTokens", "eval_count")
_TOTAL = _at_root("total_tokens", "totalTokens", "total_token_count", "totalTokenCount")
_INPUT_DETAILS = (
    "input_tokens_details",
    "inputTokensDetails",
    "prompt_tokens_details",
    "promptTokensDetails",
    "input_token_details",
)
_OUTPUT_DETAILS = (
    "output_tokens_details",
    "outputTokensDetails",
    "completion_tokens_details",
    "completionTokensDetails",
    "output_token_details",
)
_CACHED = _inside(_INPUT_DETAILS, "cached_tokens", "cachedTokens") + _at_root(
    "cached_tokens",
    "cachedTokens",
    "cache_read_input_tokens",
    "prompt_cache_hit_tokens",
    "num_cached_tokens",
    "cached_content_token_count",
    "cachedContentTokenCount",
)
_CACHE_WRITE = _inside(_INPUT_DETAILS, "cache_write_tokens", "cacheWriteTokens") + _at_root(
    "cache_write_tokens", "cacheWriteTokens", "cache_creation_input_tokens"
)
_REASONING = (
    *_inside(_OUTPUT_DETAILS, "reasoning_tokens", "reasoningTokens"),
    *_at_root("reasoning_tokens", "reasoningTokens"),
    *_inside(_OUTPUT_DETAILS, "thinking_tokens", "thinkingTokens"),
    *_at_root("thinking_tokens", "thinkingTokens", "thoughts_token_count", "thoughtsTokenCount"),
)
_GEMINI_ANSWER = _at_root(
    "candidates_token_count", "candidatesTokenCount", "response_token_count", "responseTokenCount"
)
_COUNTED: dict[str, _Places] = {
    "input": _INPUT,
    "output": _OUTPUT,
    "total": _TOTAL,
    "cached": _CACHED,
    "cache_write": _CACHE_WRITE,
    "reasoning": _REASONING,
    "gemini_prompt": _at_root("prompt_token_count", "promptTokenCount"),
    "gemini_tool_use": _at_root("tool_use_prompt_token_count", "toolUsePromptTokenCount"),
    "gemini_answer": _GEMINI_ANSWER,
}
_OBJECTS = frozenset(_INPUT_DETAILS + _OUTPUT_DETAILS)


def _fields_of(wanted: str) -> dict[str, tuple[str, int]]:
    """Return the fields to read in the object *wanted*: what each counts, and how good a source it is."""
    return {
        name: (counted, rank)
        for counted, places in _COUNTED.items()
        for rank, (outer, name) in enumerate((outer, name) for outer, names in places for name in names)
        if outer == wanted
    }


_READ = {outer: _fields_of(outer) for outer in ("", *_OBJECTS)}
"""By object and field: what is counted there, and how good a source it is, 0 the best."""
_SERVICE_TIER = ("service_tier", "serviceTier", "traffic_type", "trafficType")
_INFERENCE_GEO = ("inference_geo", "inferenceGeo")
_SOURCES = ("provider", "estimate")
_LARGEST = 1 << 53
"""Beyond this a count is nonsense, and JSON readers round it."""


def usage_normalize(reported: object) -> Usage:
    """Return a provider's usage report in the shape of this module; nothing is estimated.

    Takes the shape of any dialect, or its own: normalizing twice changes nothing. Booleans, strings,
    negative and non-finite numbers are no counts. `total_tokens` is computed, when both sides are known;
    a reported total that says otherwise is kept as `details["reported_total_tokens"]`. Fields nobody knows
    become bounded `details`. *reported* is neither changed nor kept; no usage at all gives an empty dict.
    """
    if not isinstance(reported, dict):
        return {}
    report = _Report(reported)
    total = report.counts.get("total")
    usage: Usage = {
        key: count for key, count in _counts(reported, report.counts).items() if count is not None
    }
    if "input_tokens" in usage and "output_tokens" in usage:
        usage["total_tokens"] = usage["input_tokens"] + usage["output_tokens"]
    details = report.describe(usage) if report.rest else {}
    if total is not None and total != usage.get("total_tokens"):
        details["reported_total_tokens"] = total
    bounded = usage_details(details) if details else None
    if bounded is not None:
        usage["details"] = bounded
    return usage


def usage_add(total: Usage | None, reported: object) -> Usage:
    """Return the sum of *total* and one more report, normalized or as a provider sent it.

    Counts and cost add up. What describes a request (source, service tier, region, details) is the latest
    report's, gone when that has none. A report without usage gives a copy of *total*. Not idempotent: call
    it once for each billed request.
    """
    before, latest = usage_normalize(total), usage_normalize(reported)
    if not latest:
        return before
    summed = {key: before[key] + latest.get(key, 0) for key in (*COUNTERS, "cost") if key in before}
    return usage_normalize({key: value for key, value in (latest | summed).items() if key != "total_tokens"})


class _Report:
    """A provider's report, read: what it `counts`, the best source of each, and the `rest` of it."""

    def __init__(self, reported: dict[str, Any]) -> None:
        self.counts: dict[str, int | float] = {}
        self._ranks: dict[str, int] = {}
        self.rest: dict[str, Any] = self._read(reported, "")
        for name in self.rest.keys() & _OBJECTS:
            if isinstance(self.rest[name], dict):
                self.rest[name] = self._read(self.rest[name], name)

    def _read(self, fields: dict[str, Any], outer: str) -> dict[str, Any]:
        """Take the counters in one object of the report; return its other fields."""
        rest: dict[str, Any] = {}
        place_of, ranks = _READ[outer].get, self._ranks
        for name, value in fields.items():
            place = place_of(name)
            if place is None:
                rest[name] = value
            elif (count := _count(value)) is not None:
                counted, rank = place
                if rank <= ranks.get(counted, rank):  # no better one was there before
                    self.counts[counted], ranks[counted] = count, rank
        return rest

    def describe(self, usage: Usage) -> dict[str, Any]:
        """Lay what describes the request onto *usage*; return what nobody knows, for the details."""
        source = self.rest.pop("source", None)
        if source in _SOURCES:
            usage["source"] = source
        cost = self._take_cost()
        if cost is not None:
            usage["cost"] = cost
        for key, names in (("service_tier", _SERVICE_TIER), ("inference_geo", _INFERENCE_GEO)):
            text = self._take_text(names)
            if text is not None:
                usage[key] = text
        return self._details()

    def _take_cost(self) -> int | float | None:
        """Remove and return the cost; one given in parts, `total_cost` among them, stays for the details."""
        cost = self.rest.pop("cost", None)
        if isinstance(cost, dict):
            self.rest["cost"] = cost
            cost = cost.get("total_cost")
        return _number(cost)

    def _take_text(self, names: Iterable[str]) -> str | None:
        """Remove the fields *names* and return the first that is a text, within the limits of details."""
        texts = [self.rest.pop(name) for name in names if name in self.rest]
        found = next((text for text in texts if isinstance(text, str) and text), None)
        return None if found is None else clean_text(found[:_MAX_STRING])

    def _details(self) -> dict[str, Any]:
        """Return the unknown fields, on top of details that were normalized before."""
        known = self.rest.pop("details", None)
        unknown = {key: _without_nulls(value) for key, value in self.rest.items()}
        return {
            **(known if isinstance(known, dict) else {}),
            **{key: value for key, value in unknown.items() if value is not None and value != {}},
        }


def _counts(fields: dict[str, Any], found: dict[str, int | float]) -> dict[str, int | float | None]:
    """Return all counters, each including its subsets, whatever the dialect of the report means by them.

    Args:
      fields: the report.
      found: what it counts.
    """
    count = found.get
    total, used, produced, reasoning = count("total"), count("input"), count("output"), count("reasoning")
    prompt, answer = count("gemini_prompt"), count("gemini_answer")

    if used is None and prompt is not None:
        used = prompt + (count("gemini_tool_use") or 0)
        if produced is None and answer is not None:
            produced = answer + (reasoning or 0)
        elif produced is None and total is not None and total >= used:
            produced = total - used  # an empty answer comes without a count of its own
    elif used is not None and (produced is None or total != used + produced) and _excludes_cache(fields):
        used += sum(_count(fields.get(f"cache_{what}_input_tokens")) or 0 for what in ("read", "creation"))
    if (
        reasoning
        and used is not None
        and produced is not None
        and total == used + produced + reasoning
        and _count(fields.get("completion_tokens")) is not None
    ):
        produced += reasoning  # xAI counts reasoning beside the completion
    return {
        "input_tokens": _count(used),
        "output_tokens": _count(produced),
        "cached_tokens": count("cached"),
        "cache_write_tokens": count("cache_write"),
        "reasoning_tokens": reasoning,
    }


def _excludes_cache(fields: dict[str, Any]) -> bool:
    """Tell whether the input that a report counts leaves out what was read from a cache or written to one."""
    return _count(fields.get("input_tokens")) is not None and not any(
        name in fields for name in ("input_tokens_details", "input_token_details", "cached_tokens")
    )


def _number(value: object) -> int | float | None:
    """Return *value* if it is a finite number of a sane size and no bool; whole floats become ints."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LARGEST <= value <= _LARGEST:
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _count(value: object) -> int | float | None:
    number = _number(value)
    return None if number is None or number < 0 else number


def _without_nulls(value: object) -> object:
    if not isinstance(value, dict):
        return value
    return {key: item for key, item in value.items() if item is not None}


_MAX_NODES = 256
_MAX_DEPTH = 6
_MAX_ENTRIES = 16
_MAX_STRING = 1024
_MAX_KEY = 128
_MAX_TEXT = 16_384
_PROTOTYPE_KEYS = {"__proto__", "constructor", "prototype"}
# Who was billed is nobody's business who reads a usage record.
_PERSONAL = re.compile(
    r"(?:account|org|project|api_?key|ip).*|user(?:_?id|_?name|_?email)?|e_?mail", re.DOTALL
)


class _Omitted(Enum):
    OMITTED = "omitted"


_OMITTED = _Omitted.OMITTED


def usage_details(value: object) -> Any:
    """Return a bounded JSON copy of *value*, or None when nothing in it is valid.

    At most 256 values, 6 levels, 16 entries a list, 1,024 characters a string, 128 a key, 16,384 in all.
    Long strings are cut, surplus entries left out; so are NaN and other things that are no JSON, cycles,
    and keys that name a person, an account or a prototype. Work is bounded by the same limits.
    """
    copied = _Copier().copy(value, 0)
    return None if copied is _OMITTED else copied


class _Copier:
    """One bounded copy: what is left of its budgets."""

    def __init__(self) -> None:
        self._nodes = _MAX_NODES
        self._text = _MAX_TEXT
        self._inside: set[int] = set()
        """Identities of the containers being copied: meeting one again is a cycle."""

    def copy(self, value: object, depth: int) -> Any:
        """Return the copy of *value*, or `_OMITTED`. Containers in which nothing is left are omitted."""
        if self._nodes <= 0 or depth > _MAX_DEPTH:
            return _OMITTED
        self._nodes -= 1
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._string(value)
        if isinstance(value, int | float):
            sane = math.isfinite(value) if isinstance(value, float) else -(1 << 63) <= value < 1 << 64
            return value if sane else _OMITTED
        if not isinstance(value, list | tuple | dict) or id(value) in self._inside:
            return _OMITTED
        self._inside.add(id(value))
        copied = self._object(value, depth) if isinstance(value, dict) else self._list(value, depth)
        self._inside.remove(id(value))
        return copied or _OMITTED

    def _string(self, value: str) -> Any:
        text = clean_text(value[: min(_MAX_STRING, self._text)])
        self._text -= len(text)
        return text if text or not value else _OMITTED

    def _list(self, value: Sequence[Any], depth: int) -> list[Any]:
        entries = (self.copy(entry, depth + 1) for entry in islice(value, _MAX_ENTRIES))
        return [entry for entry in entries if entry is not _OMITTED]

    def _object(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        copied: dict[str, Any] = {}
        for key, item in islice(value.items(), self._nodes):
            if not _welcome(key) or len(key) > self._text:
                continue
            self._text -= len(key)
            entry = self.copy(item, depth + 1)
            if entry is not _OMITTED:
                copied[key] = entry
        return copied


def _welcome(key: object) -> bool:
    if not isinstance(key, str) or len(key) > _MAX_KEY or key in _PROTOTYPE_KEYS:
        return False
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|-", "_", key).lower()
    return not _PERSONAL.fullmatch(snake) and clean_text(key) == key
