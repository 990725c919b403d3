"""Settings of a request, checked and written as Ollama takes them (FORMATS 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .base import ProviderIO
from .chat_options import function_tool
from .checks import (
    BOOL,
    COUNT,
    INTEGER,
    MAPPING,
    NUMBER,
    TEXT_OR_TEXTS,
    TEXTS,
    Check,
    checked,
    is_number,
    is_text,
)
from .levels import ON, nearest_level, thinking_level
from .options import schema_of, tool_choice_of

_OPTIONS: dict[str, tuple[str, Check]] = {
    "max_tokens": ("num_predict", COUNT),
    "temperature": ("temperature", NUMBER),
    "top_p": ("top_p", NUMBER),
    "top_k": ("top_k", COUNT),
    "min_p": ("min_p", NUMBER),
    "seed": ("seed", INTEGER),
    "stop": ("stop", TEXT_OR_TEXTS),
    "presence_penalty": ("presence_penalty", NUMBER),
    "frequency_penalty": ("frequency_penalty", NUMBER),
    "repeat_penalty": ("repeat_penalty", NUMBER),
}
"""Options of the generation: the wire's name, and a check."""

UNKNOWN_HERE = (
    "parallel_tool_calls",
    "verbosity",
    "service_tier",
    "modalities",
    "audio",
    "prompt_cache_key",
    "server_tools",
)
"""Options of other dialects that this wire has no form for; they are left out and reported."""

LEVELS = ("none", "low", "medium", "high", "max")
"""Levels of thinking on the wire (`none` is `false` there), unless the setting `efforts` has others."""


def ollama_options(
    settings: Mapping[str, Any], tools: Sequence[Mapping[str, Any]], io: ProviderIO
) -> dict[str, Any]:
    """Return the body fields for *settings* and *tools*; what is None is left to the server.

    The window (`num_ctx`) is that of the setting `num_ctx`, else `context_window`. A prompt that is longer is
    an error, not cut in silence, unless the setting `truncate` is true.

    Raises:
      ValueError: a setting has a value that can't be sent; the text names it.
    """
    options: dict[str, Any] = {}
    for key, (name, check) in _OPTIONS.items():
        if (value := checked(settings, key, check)) is not None:
            options[name] = [value] if key == "stop" and isinstance(value, str) else value
    window = checked(settings, "num_ctx", COUNT) or checked(settings, "context_window", COUNT)
    if window is not None:
        options["num_ctx"] = window
    options.update(checked(settings, "options", MAPPING) or {})
    body: dict[str, Any] = {"truncate": checked(settings, "truncate", BOOL) is True}
    if (shift := checked(settings, "shift", BOOL)) is not None:
        body["shift"] = shift
    if options:
        body["options"] = options
    if (keep := checked(settings, "keep_alive", _KEEP)) is not None:
        body["keep_alive"] = keep
    if (given := checked(settings, "response_format", MAPPING)) is not None and (
        schema := schema_of(given)
    ) != {}:
        body["format"] = "json" if schema is None else dict(schema)
    if (think := _think(settings)) is not None:
        body["think"] = think
    if tools and _published(settings.get("tool_choice"), tools, io):
        body["tools"] = [function_tool(tool) for tool in tools]
    for key in UNKNOWN_HERE:
        if settings.get(key) is not None:
            io.repaired("setting_dropped", setting=key, why="Ollama has no such option")
    return body


_KEEP: Check = (lambda value: is_number(value) or is_text(value), "seconds, or a text such as '5m'")


def _think(settings: Mapping[str, Any]) -> bool | str | None:
    level = thinking_level(settings)
    if level is None or level == ON:
        return None if level is None else True
    level = nearest_level(level, checked(settings, "efforts", TEXTS) or LEVELS)
    return False if level == "none" else level


def _published(choice: object, tools: Sequence[Mapping[str, Any]], io: ProviderIO) -> bool:
    """Tell whether tools go along: all of them, or none. A choice beyond that has no form here."""
    found = tool_choice_of(choice, tools)
    if found is not None and found.mode == "required":
        io.repaired("setting_dropped", setting="tool_choice", why="Ollama can't be made to call a tool")
    return found is None or found.mode != "none"
