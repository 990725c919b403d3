"""Tool descriptions derived from Python functions: signature and docstring to JSON Schema."""

from __future__ import annotations

import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union

_SCALARS: dict[object, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_ARGUMENT = re.compile(r"\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")
_SECTION = re.compile(r"(?:Args|Arguments|Parameters):\s*")
_OTHER_SECTION = re.compile(r"[A-Z][a-z]+:\s*")


def derive_schema(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return `{"description", "input_schema"}` of a plain function with simple, annotated parameters.

    Understood: str, int, float, bool, lists, dicts with string keys, Literal, string enums, unions,
    Any. Descriptions come from the docstring: its first paragraph, and its `Args:` section.

    TypeError: something else; the text names the parameter and says to give a schema.
    """
    name = getattr(fn, "__name__", repr(fn))
    try:
        hints = typing.get_type_hints(fn)
        parameters = inspect.signature(fn).parameters
    except (NameError, TypeError, ValueError) as exc:
        raise TypeError(
            f"can't derive a schema for tool {name!r} ({exc}): give register_tool(schema=...)"
        ) from exc
    summary, described = _read_docstring(inspect.getdoc(fn) or "")
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            reason = f"parameter {parameter.name!r} can't be given by name"
            raise TypeError(f"tool {name!r}: {reason}; give register_tool(schema=...)")
        try:
            schema = _schema_of(hints.get(parameter.name, Any))
        except TypeError as exc:
            reason = f"no schema for parameter {parameter.name!r}, {exc}"
            raise TypeError(f"tool {name!r}: {reason}; give register_tool(schema=...)") from None
        if parameter.name in described:
            schema["description"] = described[parameter.name]
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        elif isinstance(parameter.default, str | int | float | bool):
            schema["default"] = parameter.default
        properties[parameter.name] = schema
    input_schema = {"type": "object", "properties": properties, "required": required}
    return {"description": summary, "input_schema": input_schema}


def _schema_of(hint: Any) -> dict[str, Any]:
    if hint is Any:
        return {}
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if hint is None or hint is type(None):
        return {"type": "null"}
    if isinstance(hint, type) and issubclass(hint, enum.StrEnum):
        return {"type": "string", "enum": [member.value for member in hint]}
    origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is Union or origin is types.UnionType:
        return {"anyOf": [_schema_of(argument) for argument in arguments]}
    if origin in (list, Sequence):
        return {"type": "array", "items": _schema_of(arguments[0]) if arguments else {}}
    if origin in (dict, Mapping):
        if arguments and arguments[0] is not str:
            raise TypeError(f"keys of {hint} are not strings")
        return {"type": "object", "additionalProperties": _schema_of(arguments[1]) if arguments else True}
    raise TypeError(f"annotated {hint}")


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the first paragraph on one line, and the arguments' descriptions."""
    summary = " ".join(text.partition("\n\n")[0].split())
    described: dict[str, str] = {}
    inside, indent, current = False, 0, ""
    for line in text.splitlines():
        if not inside:
            inside = bool(_SECTION.fullmatch(line))
            continue
        if _OTHER_SECTION.fullmatch(line):
            break
        depth = len(line) - len(line.lstrip())
        found = _ARGUMENT.fullmatch(line)
        if found is not None and (not current or depth <= indent):
            indent, current = depth, found[1]
            described[current] = found[2].strip()
        elif current and line.strip():
            described[current] = f"{described[current]} {line.strip()}".strip()
    return summary, described
