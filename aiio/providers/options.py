"""What the settings of a request have in common for all dialects, and laying one body over another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MODES = {"auto": "auto", "none": "none", "required": "required", "any": "required"}


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which tools the model may or must call."""

    mode: str
    """`"auto"`, `"none"` or `"required"`."""
    name: str | None = None
    """With `"required"`: the one tool; None: any."""


def tool_choice_of(choice: object, tools: Sequence[Mapping[str, Any]]) -> ToolChoice | None:
    """Return the setting `tool_choice`; None: it is not set.

    It is a word, a tool's name, or a mapping as Chat Completions, Responses and Anthropic have it.
    ValueError: it is none of them.
    """
    if choice is None:
        return None
    wanted = choice
    if isinstance(choice, Mapping):
        inner = choice.get("function")
        wanted = (inner if isinstance(inner, Mapping) else choice).get("name", choice.get("type"))
    if isinstance(wanted, str) and wanted in _MODES:
        return ToolChoice(_MODES[wanted])
    if not any(tool["name"] == wanted for tool in tools):
        raise ValueError(
            f"setting tool_choice must be auto, none, required, a tool's name or a mapping: {choice!r}"
        )
    return ToolChoice("required", str(wanted))


def schema_of(given: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the JSON schema in the setting `response_format`; None: any JSON will do, {}: any text.

    Understood: the forms of Chat Completions and of Responses, and a bare schema.
    """
    kind, inner = given.get("type"), given.get("json_schema")
    if kind == "text":
        return {}
    if kind == "json_object":
        return None
    if kind == "json_schema":
        schema = (inner if isinstance(inner, Mapping) else given).get("schema")
        return schema if isinstance(schema, Mapping) and schema else None
    return given


def json_format(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the setting `response_format` as the Responses wire has it, a schema beside its name.

    Understood is what `schema_of` understands.
    """
    kind, inner = given.get("type"), given.get("json_schema")
    if kind == "json_schema" and isinstance(inner, Mapping):
        return {"type": "json_schema", **inner}
    if kind in ("json_schema", "json_object", "text"):
        return dict(given)
    title = re.sub(r"[^a-zA-Z0-9_-]+", "_", str(given.get("title") or "answer"))[:64]
    return {"type": "json_schema", "name": title, "schema": dict(given)}


def merged(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return *base* with *extra* laid over it, mapping by mapping; anything else in *extra* replaces."""
    result = dict(base)
    for key, value in extra.items():
        before = result.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            result[key] = merged(before, value)
        else:
            result[key] = value
    return result
