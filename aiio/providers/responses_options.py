"""Settings of a request, checked and written as the Responses endpoint takes them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .base import ProviderIO
from .checks import BOOL, COUNT, MAPPING, NUMBER, TEXT, TEXTS, Check, checked, is_mapping, is_texts
from .levels import LEVELS, ON, nearest_level, thinking_level
from .options import json_format, tool_choice_of
from .quirks import Quirks

ENCRYPTED = "reasoning.encrypted_content"


_MAPPINGS: Check = (
    lambda value: isinstance(value, list | tuple) and all(map(is_mapping, value)),
    "a list of mappings",
)

_OPTIONS: dict[str, Check] = {
    "temperature": NUMBER,
    "top_p": NUMBER,
    "service_tier": TEXT,
    "truncation": TEXT,
    "max_tool_calls": COUNT,
    "prompt_cache_key": TEXT,
    "prompt_cache_options": MAPPING,
    "context_management": _MAPPINGS,
    "safety_identifier": TEXT,
    "metadata": MAPPING,
}
"""Options that go into the body under their own name: a check, and what it asks for."""

_READ: dict[str, Check] = {
    "max_tokens": COUNT,
    "verbosity": TEXT,
    "response_format": MAPPING,
    "reasoning_summary": TEXT,
    "efforts": (
        lambda value: is_texts(value) and set(value) <= set(LEVELS),  # type: ignore[call-overload]  # checked
        f"a list out of {', '.join(LEVELS)}",
    ),
    "include": TEXTS,
    "encrypted_reasoning": BOOL,
    "server_tools": _MAPPINGS,
    "parallel_tool_calls": BOOL,
}
"""Options that are written in another form."""

UNKNOWN_HERE = ("stop", "seed", "frequency_penalty", "presence_penalty", "top_k", "modalities", "audio")
"""Options of other dialects that this wire refuses; they are left out and reported."""

EFFORTS = LEVELS[:-1]
"""The levels of thinking that the wire has."""

_WITHOUT_REASONING = re.compile(r"(?:.*/)?(?:gpt-3|gpt-4|chatgpt-4)")


def responses_options(
    settings: Mapping[str, Any], tools: Sequence[Mapping[str, Any]], quirks: Quirks, io: ProviderIO
) -> dict[str, Any]:
    """Return the body fields for *settings* and *tools*; what is None is left to the server.

    Raises:
      ValueError: a setting has a value that can't be sent; the text names it.
    """
    read = {key: checked(settings, key, check) for key, check in _READ.items()}
    body: dict[str, Any] = {"store": bool(settings.get("store"))}
    for key, check in _OPTIONS.items():
        if (value := checked(settings, key, check)) is not None:
            body[key] = value
    if read["max_tokens"] is not None:
        body["max_output_tokens"] = read["max_tokens"]
    if reasoning := _reasoning(settings, read):
        body["reasoning"] = reasoning
    text = {
        "verbosity": read["verbosity"],
        "format": read["response_format"] and json_format(read["response_format"]),
    }
    if text := {key: value for key, value in text.items() if value is not None}:
        body["text"] = text
    if include := _include(read, io.current_model, stored=body["store"]):
        body["include"] = include
    if quirks.stream_options == "obfuscation":
        body["stream_options"] = {"include_obfuscation": False}
    body.update(_tools(settings, read, tools))
    for key in UNKNOWN_HERE:
        if settings.get(key) is not None:
            io.repaired("setting_dropped", setting=key, why="the Responses wire has no such option")
    return body


def _include(read: Mapping[str, Any], model: str, *, stored: bool) -> list[str]:
    """Return what the answer is to hold beside its text.

    When nothing is stored, reasoning can only go back as its ciphertext; models from before reasoning refuse
    to be asked for it.
    """
    asked = list(read["include"] or ())
    wanted = read["encrypted_reasoning"]
    if wanted is None:
        wanted = not stored and _WITHOUT_REASONING.match(model) is None
    return [*asked, ENCRYPTED] if wanted and ENCRYPTED not in asked else asked


# -- thinking


def _reasoning(settings: Mapping[str, Any], read: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    level = thinking_level(settings)
    if level is not None and level != ON:
        found["effort"] = nearest_level(level, read["efforts"] or EFFORTS)
    if read["reasoning_summary"]:
        found["summary"] = read["reasoning_summary"]
    return found


# -- tools


def _tools(
    settings: Mapping[str, Any], read: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    written = [_tool(tool) for tool in tools] + [dict(tool) for tool in read["server_tools"] or ()]
    if not written:
        return {}
    found: dict[str, Any] = {"tools": written}
    if (choice := _tool_choice(settings.get("tool_choice"), written)) is not None:
        found["tool_choice"] = choice
    if read["parallel_tool_calls"] is not None:
        found["parallel_tool_calls"] = read["parallel_tool_calls"]
    return found


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a function tool; one with a `format` is a custom tool, whose input is free text."""
    named: dict[str, Any] = {"name": tool["name"]}
    if tool.get("description"):
        named["description"] = tool["description"]
    if isinstance(tool.get("format"), Mapping):
        return {"type": "custom", **named, "format": dict(tool["format"])}
    schema = tool.get("input_schema") or {"type": "object", "properties": {}}
    # Without the key the service would take the schema as strict and refuse optional parameters.
    return {"type": "function", **named, "parameters": schema, "strict": tool.get("strict") is True}


def _tool_choice(choice: object, tools: Sequence[Mapping[str, Any]]) -> Any:
    if isinstance(choice, Mapping) and not isinstance(choice.get("function"), Mapping):
        return dict(choice)  # as this wire has it
    kinds = {tool.get("name", tool["type"]): tool["type"] for tool in tools}
    wanted = tool_choice_of(choice, [{"name": name} for name in kinds])
    if wanted is None or wanted.name is None:
        return wanted and wanted.mode
    kind = kinds[wanted.name]
    return {"type": kind, "name": wanted.name} if kind in ("function", "custom") else {"type": kind}
