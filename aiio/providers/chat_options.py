"""Settings of a request, checked and written as Chat Completions takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .checks import BOOL, COUNT, INTEGER, MAPPING, NUMBER, TEXT, TEXT_OR_TEXTS, TEXTS, Check, checked
from .options import json_format
from .quirks import Quirks

AUDIO_MIMETYPES = {"mp3": "audio/mpeg", "wav": "audio/wav"}


_OPTIONS: dict[str, Check] = {
    "temperature": NUMBER,
    "top_p": NUMBER,
    "frequency_penalty": NUMBER,
    "presence_penalty": NUMBER,
    "seed": INTEGER,
    "stop": TEXT_OR_TEXTS,
    "verbosity": TEXT,
    "response_format": MAPPING,
    "service_tier": TEXT,
    "modalities": TEXTS,
    "audio": MAPPING,
    "prompt_cache_key": TEXT,
}
"""Options that go into the body under their own name."""

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
    if (limit := checked(settings, "max_tokens", COUNT)) is not None:
        body[quirks.max_tokens_field] = limit
    for key, check in _OPTIONS.items():
        if key in settings and (value := checked(settings, key, check)) is not None:
            body[key] = value
    if format_ := body.get("response_format"):
        body["response_format"] = _format(format_)
    if effort := _effort(settings):
        body["reasoning_effort"] = effort
    if quirks.stream_options:
        body["stream_options"] = {"include_usage": True}
        if quirks.stream_options == "obfuscation":
            body["stream_options"]["include_obfuscation"] = False
    if tools:
        body["tools"] = [function_tool(tool) for tool in tools]
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


def _format(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the output format, whose schema and name are one level deeper here."""
    flat = json_format(given)
    if flat["type"] != "json_schema":
        return flat
    return {
        "type": "json_schema",
        "json_schema": {key: value for key, value in flat.items() if key != "type"},
    }


def function_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool as Chat Completions, and what took its form over, describe it."""
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
    if (parallel := checked(settings, "parallel_tool_calls", BOOL)) is not None:
        found["parallel_tool_calls"] = parallel
    return found


def extra_of(settings: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping under *key* (`extra_body`, `extra_headers`). ValueError: it is none."""
    value: Mapping[str, Any] | None = checked(settings, key, MAPPING)
    return {} if value is None else value


def audio_mimetype(settings: Mapping[str, Any]) -> str:
    """Return the media type of the spoken output that *settings* ask for."""
    audio = settings.get("audio")
    spoken = audio.get("format") if isinstance(audio, Mapping) else None
    if not isinstance(spoken, str) or not spoken:
        return "audio/wav"
    return AUDIO_MIMETYPES.get(spoken, f"audio/{spoken}")
