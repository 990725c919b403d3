"""Settings of a request, checked and written as Anthropic Messages takes them (FORMATS 6.1).

What the server would refuse beside something else (a temperature beside thinking, thinking beside a forced
tool) is left out and reported through `io.repaired`. What a model takes is read from its entry in the setting
`models`, as `read_models` makes it; for others from two patterns of names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .base import ProviderIO
from .checks import BOOL, COUNT, MAPPING, NUMBER, TEXT, TEXT_OR_TEXTS, TEXTS, Check, checked, is_count
from .levels import ON, nearest_level, thinking_level
from .options import schema_of, tool_choice_of

VERSION = "2023-06-01"
NO_SAMPLING_SINCE = "2026-10-21"
"""From this version on the sampling settings are refused."""

DEFAULT_MAX_TOKENS = 8192
"""`max_tokens` is required; this much every model of the last years can write."""

_PLAIN: dict[str, Check] = {
    "metadata": MAPPING,
    "service_tier": TEXT,
    "speed": TEXT,
    "inference_geo": TEXT,
}
"""Options that go into the body under their own name."""

_SAMPLING: dict[str, Check] = {
    "temperature": NUMBER,
    "top_p": NUMBER,
    "top_k": COUNT,
}
_NOT_HERE = ("frequency_penalty", "presence_penalty", "seed", "verbosity", "modalities", "audio")
"""Common settings that this dialect has no field for."""

EFFORTS = ("low", "medium", "high", "xhigh", "max")
_BUDGETS = {"low": 2048, "medium": 8192, "high": 16_384, "xhigh": 32_768, "max": 49_152}
"""Tokens for thinking on models that want a number."""
MIN_BUDGET = 1024

_BUDGETED = re.compile(r"claude-(?:3|(?:opus|sonnet|haiku)-4(?:-[015])?(?:-?\d{8})?$)|(?!claude)")
"""Models that want a budget: Claude up to 4.5, and everybody else's."""
_NO_XHIGH = re.compile(r"claude-(?:opus|sonnet)-4-6")


def anthropic_options(settings: Mapping[str, Any], turns: Sequence[Any], io: ProviderIO) -> dict[str, Any]:
    """Return the body fields for *settings* and the tools of *io*; what is not set is left to the server.

    Args:
      turns: the messages that are sent, in wire form.

    Raises:
      ValueError: a setting has a value that can't be sent; the text names it.
    """
    body: dict[str, Any] = {"max_tokens": DEFAULT_MAX_TOKENS}
    for key, check in _PLAIN.items():
        if (value := checked(settings, key, check)) is not None:
            body[key] = value
    if stops := _stop_sequences(settings):
        body["stop_sequences"] = stops
    if mark := cache_mark(settings.get("prompt_cache")):
        body["cache_control"] = mark
    body.update(_tools(settings, io))
    wanted = _Thinking(settings, io, why_not=_no_thinking(body.get("tool_choice"), turns))
    body["max_tokens"] = wanted.max_tokens
    if wanted.field:
        body["thinking"] = wanted.field
    output = {"effort": wanted.effort, "format": _output_format(settings, io)}
    if output := {key: value for key, value in output.items() if value is not None}:
        body["output_config"] = output
    body.update(_sampling(settings, io, thinking=wanted.on))
    for key in _NOT_HERE:
        if settings.get(key) is not None:
            io.repaired("setting_dropped", setting=key, why="this dialect has no such field")
    return body


def _stop_sequences(settings: Mapping[str, Any]) -> list[str]:
    stop = checked(settings, "stop", TEXT_OR_TEXTS) or ()
    return [text for text in ([stop] if isinstance(stop, str) else stop) if not text.isspace()]


def cache_mark(value: object) -> dict[str, Any] | None:
    """Return the prompt-cache mark for the setting `prompt_cache`. ValueError: it is none."""
    if value is None or value is False:
        return None
    if value is True:
        return {"type": "ephemeral"}
    if value in ("5m", "1h"):
        return {"type": "ephemeral", "ttl": value}
    raise ValueError(f"setting prompt_cache must be a bool, '5m' or '1h', not {value!r}")


def _sampling(settings: Mapping[str, Any], io: ProviderIO, *, thinking: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    refused = str(settings.get("anthropic_version") or VERSION) >= NO_SAMPLING_SINCE
    for key, check in _SAMPLING.items():
        value = checked(settings, key, check)
        if value is None:
            continue
        if refused or (thinking and not (key == "top_p" and value >= 0.95)):
            io.repaired("setting_dropped", setting=key, why="refused beside thinking, or by this version")
        else:
            found[key] = value
    return found


# -- thinking


class _Thinking:
    """What is asked for, as far as the model takes it.

    Args:
      why_not: why thinking with a budget, and any thinking at all, would be refused; "": it would not.
    """

    def __init__(self, settings: Mapping[str, Any], io: ProviderIO, *, why_not: tuple[str, str]) -> None:
        self.field: dict[str, Any] = {}
        """The body field `thinking`; {}: left to the server."""
        self.effort: str | None = None
        entry = _entry(settings, io.current_model)
        limit = checked(settings, "max_tokens", COUNT)
        most = entry.get("max_output") if limit is None else limit
        most = most if is_count(most) else None
        self.max_tokens = limit or min(DEFAULT_MAX_TOKENS, most or DEFAULT_MAX_TOKENS)
        level = thinking_level(settings)
        if level is None:
            return
        types, efforts = _abilities(entry, io.current_model)
        efforts = checked(settings, "efforts", TEXTS) or efforts
        if level == "none":
            self._choose({"type": "disabled"} if "disabled" in types else {}, io, "the model always thinks")
            return
        if efforts and level != ON:
            self.effort = nearest_level(level, efforts)
        budget = _BUDGETS[nearest_level("high" if level == ON else level, EFFORTS)]
        if most is not None:
            budget = min(budget, max(MIN_BUDGET, most // 2))
        shown = checked(settings, "thinking_display", TEXT)
        display = {"display": shown} if shown else {}
        if "adaptive" in types:
            field = {"type": "adaptive", **display}
            why = why_not[1]
        else:
            field = {"type": "enabled", "budget_tokens": budget, **display} if "enabled" in types else {}
            why = why_not[0] or why_not[1] or ("max_tokens" if budget >= (limit or math.inf) else "")
        self._choose({} if why else field, io, why or "the model can't")
        if limit is None and self.on:
            self.max_tokens = min(DEFAULT_MAX_TOKENS + budget, most or DEFAULT_MAX_TOKENS + budget)

    @property
    def on(self) -> bool:
        """Whether the model is told to think."""
        return self.field.get("type") in ("enabled", "adaptive")

    def _choose(self, field: dict[str, Any], io: ProviderIO, why: str) -> None:
        self.field = field
        if not field:
            io.repaired("setting_dropped", setting="think", why=why)


def _entry(settings: Mapping[str, Any], model: str) -> Mapping[str, Any]:
    """Return what is known about *model*; {}: nothing."""
    models = settings.get("models")
    entry = models.get(model) if isinstance(models, Mapping) else None
    return entry if isinstance(entry, Mapping) else {}


def _abilities(entry: Mapping[str, Any], model: str) -> tuple[Sequence[str], Sequence[str]]:
    """Return the types of thinking and the efforts that *model* takes."""
    if isinstance(types := entry.get("thinking"), list | tuple):
        efforts = entry.get("efforts")
        return types, [one for one in EFFORTS if isinstance(efforts, list | tuple) and one in efforts]
    if _BUDGETED.match(model):
        return ("enabled", "disabled"), ()
    return ("adaptive", "disabled"), [one for one in EFFORTS if one != "xhigh" or not _NO_XHIGH.match(model)]


def _no_thinking(choice: object, turns: Sequence[Any]) -> tuple[str, str]:
    """Return why thinking with a budget, and any thinking, would be refused; "": it would not."""
    forced = isinstance(choice, Mapping) and choice.get("type") in ("any", "tool")
    answered = turns[-1]["role"] == "user" and turns[-1]["content"][0]["type"] == "tool_result"
    thought = not answered or turns[-2]["content"][0]["type"] in ("thinking", "redacted_thinking")
    return (
        "" if thought else "the calls under way were made without it",
        "refused beside a tool that must be called" if forced else "",
    )


# -- tools and output


def _tools(settings: Mapping[str, Any], io: ProviderIO) -> dict[str, Any]:
    found: dict[str, Any] = {}
    own = checked(settings, "server_tools", _MAPPINGS) or ()
    tools = [*map(_tool, io.tools()), *({**tool} for tool in own)]
    if not tools:
        return {}
    found["tools"] = tools
    parallel = checked(settings, "parallel_tool_calls", BOOL)
    choice = _tool_choice(settings.get("tool_choice"), tools)
    if parallel is False and (choice is None or choice.get("type") != "none"):
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
    if choice is not None:
        found["tool_choice"] = choice
    return found


_MAPPINGS: Check = (
    lambda value: isinstance(value, list | tuple) and all(isinstance(one, Mapping) for one in value),
    "a list of mappings",
)
_TOOL_FIELDS = (
    "strict",
    "cache_control",
    "eager_input_streaming",
    "defer_loading",
    "allowed_callers",
    "input_examples",
)


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    wire: dict[str, Any] = {"name": tool["name"]}
    if tool.get("description"):
        wire["description"] = tool["description"]
    schema = tool.get("input_schema") or {"properties": {}}
    wire["input_schema"] = schema if "type" in schema else {"type": "object", **schema}
    wire.update((key, tool[key]) for key in _TOOL_FIELDS if tool.get(key) is not None)
    return wire


def _tool_choice(choice: object, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    if isinstance(choice, Mapping) and choice.get("type") in ("auto", "any", "none", "tool"):
        return {**choice}
    wanted = tool_choice_of(choice, [tool for tool in tools if "name" in tool])
    if wanted is None or wanted.name is None:
        return None if wanted is None else {"type": "any" if wanted.mode == "required" else wanted.mode}
    return {"type": "tool", "name": wanted.name}


def _output_format(settings: Mapping[str, Any], io: ProviderIO) -> dict[str, Any] | None:
    """Return the output format for the setting `response_format`; None: plain text."""
    given = checked(settings, "response_format", MAPPING)
    if given is None:
        return None
    schema = schema_of(given)
    if schema is None:
        io.repaired("setting_dropped", setting="response_format", why="this dialect wants a schema")
    return {"type": "json_schema", "schema": {**schema}} if schema else None
