"""Settings of a request, checked and written as Chat Completions takes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .quirks import Quirks

AUDIO_MIMETYPES = {"mp3": "audio/mpeg", "wav": "audio/wav"}


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _texts(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(map(_text, value))


def _mapping(value: object) -> bool:
    return isinstance(value, Mapping)


_OPTIONS: dict[str, tuple[Callable[[object], bool], str]] = {
    "temperature": (_number, "a number"),
    "top_p": (_number, "a number"),
    "frequency_penalty": (_number, "a number"),
    "presence_penalty": (_number, "a number"),
    "seed": (_integer, "a whole number"),
    "stop": (lambda value: _text(value) or _texts(value), "a text or a list of texts"),
    "verbosity": (_text, "a text"),
    "response_format": (_mapping, "a mapping"),
    "service_tier": (_text, "a text"),
    "modalities": (_texts, "a list of texts"),
    "audio": (_mapping, "a mapping"),
    "prompt_cache_key": (_text, "a text"),
}
"""Options that go into the body under their own name: a check, and what it asks for."""

_THINK = {"off": "none", "none": "none", "default": None, "on": None}
_CHOICES = frozenset({"auto", "none", "required", "any"})


def chat_options(
    settings: Mapping[str, Any], tools: Sequence[Mapping[str, Any]], quirks: Quirks
) -> dict[str, Any]:
    """Return the body fields for *settings* and *tools*; what is None is left to the server.

    Raises:
      ValueError: a setting has a value that can't be sent; the text names it.
    """
    body: dict[str, Any] = {}
    limit = settings.get("max_tokens")
    if limit is not None:
        if not _integer(limit) or limit < 1:
            raise ValueError(f"setting max_tokens must be a whole number above 0, not {limit!r}")
        body[quirks.max_tokens_field] = limit
    for key, (check, wanted) in _OPTIONS.items():
        value = settings.get(key)
        if value is not None:
            if not check(value):
                raise ValueError(f"setting {key} must be {wanted}, not {value!r}")
            body[key] = value
    if effort := _effort(settings):
        body["reasoning_effort"] = effort
    if quirks.stream_options:
        body["stream_options"] = {"include_usage": True}
        if quirks.stream_options == "obfuscation":
            body["stream_options"]["include_obfuscation"] = False
    if tools:
        body["tools"] = [_function_tool(tool) for tool in tools]
        body.update(_tool_options(settings, tools))
    return body


def _effort(settings: Mapping[str, Any]) -> str | None:
    value = settings.get("reasoning_effort")
    key = "reasoning_effort" if value is not None else "think"
    if value is None:
        value = settings.get("think")
    if value is None or value is True:
        return None
    if value is False:
        return "none"
    if not isinstance(value, str) or not value.strip():
        raise ValueError(
            f"setting {key} must be a level such as 'low', 'medium' or 'high', or a bool, not {value!r}"
        )
    return _THINK.get(value, value)


def _function_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool["name"]}
    if tool.get("description"):
        function["description"] = tool["description"]
    function["parameters"] = tool.get("input_schema") or {"type": "object", "properties": {}}
    if isinstance(tool.get("strict"), bool):
        function["strict"] = tool["strict"]
    return {"type": "function", "function": function}


def _tool_options(settings: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    choice = settings.get("tool_choice")
    if isinstance(choice, Mapping) or (isinstance(choice, str) and choice in _CHOICES):
        found["tool_choice"] = choice
    elif choice is not None:
        if not any(tool["name"] == choice for tool in tools):
            raise ValueError(
                f"setting tool_choice must be auto, none, required, a tool's name or a mapping: {choice!r}"
            )
        found["tool_choice"] = {"type": "function", "function": {"name": choice}}
    parallel = settings.get("parallel_tool_calls")
    if parallel is not None:
        if not isinstance(parallel, bool):
            raise ValueError(f"setting parallel_tool_calls must be a bool, not {parallel!r}")
        found["parallel_tool_calls"] = parallel
    return found


def extra_of(settings: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping under *key* (`extra_body`, `extra_headers`). ValueError: it is none."""
    value = settings.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"setting {key} must be a mapping, not {value!r}")  # noqa: TRY004  # a setting's value
    return value


def audio_mimetype(settings: Mapping[str, Any]) -> str:
    """Return the media type of the spoken output that *settings* ask for."""
    audio = settings.get("audio")
    spoken = audio.get("format") if isinstance(audio, Mapping) else None
    if not isinstance(spoken, str) or not spoken:
        return "audio/wav"
    return AUDIO_MIMETYPES.get(spoken, f"audio/{spoken}")
