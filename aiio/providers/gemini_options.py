"""Settings of a request, checked and written as Gemini takes them (FORMATS 7.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .base import ProviderIO
from .checks import COUNT, INTEGER, MAPPING, NUMBER, TEXT, TEXT_OR_TEXTS, TEXTS, Check, checked, is_mapping
from .gemini_contents import generation, wire_name
from .levels import ON, nearest_level, thinking_level
from .options import schema_of, tool_choice_of

MAPPINGS: Check = (
    lambda value: isinstance(value, list | tuple) and all(map(is_mapping, value)),
    "a list of mappings",
)

_CONFIG: dict[str, tuple[str, Check, Callable[[Any], Any]]] = {
    "max_tokens": ("maxOutputTokens", COUNT, int),
    "temperature": ("temperature", NUMBER, float),
    "top_p": ("topP", NUMBER, float),
    "top_k": ("topK", COUNT, int),
    "seed": ("seed", INTEGER, int),
    "presence_penalty": ("presencePenalty", NUMBER, float),
    "frequency_penalty": ("frequencyPenalty", NUMBER, float),
    "stop": ("stopSequences", TEXT_OR_TEXTS, lambda value: [value] if isinstance(value, str) else [*value]),
    "modalities": ("responseModalities", TEXTS, lambda value: [word.upper() for word in value]),
    "media_resolution": ("mediaResolution", TEXT, str),
    "speech_config": ("speechConfig", MAPPING, dict),
    "image_config": ("imageConfig", MAPPING, dict),
}
"""Options of the generation: the wire's name, a check, and how the value is written."""

_BODY: dict[str, tuple[str, Check]] = {
    "safety_settings": ("safetySettings", MAPPINGS),
    "service_tier": ("serviceTier", TEXT),
    "cached_content": ("cachedContent", TEXT),
}
"""Options that stand in the body itself."""

UNKNOWN_HERE = ("parallel_tool_calls", "verbosity", "prompt_cache_key")
"""Options of other dialects that this wire has no form for; they are left out and reported."""

CACHED = ("systemInstruction", "tools", "toolConfig")
"""What cached content already holds and refuses to be told again."""

BUDGETS = {"minimal": 1024, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576}
"""Tokens of thinking by level, for the generation that counts them (2.5), as in Google's own OpenAI layer."""
_PRO_FLOOR = 128  # the least that 2.5 Pro takes: its thinking can't be turned off

_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def gemini_options(
    settings: Mapping[str, Any], tools: Sequence[Mapping[str, Any]], io: ProviderIO
) -> dict[str, Any]:
    """Return the body fields for *settings* and *tools*; what is None is left to the server.

    Raises:
      ValueError: a setting has a value that can't be sent; the text names it.
    """
    body: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for key, (name, check, written) in _CONFIG.items():
        if (value := checked(settings, key, check)) is not None:
            config[name] = written(value)
    if isinstance(voice := (checked(settings, "audio", MAPPING) or {}).get("voice"), str):
        config["speechConfig"] = {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": voice}}}
    config.update(_response_format(checked(settings, "response_format", MAPPING)))
    if thinking := _thinking(settings, io):
        config["thinkingConfig"] = thinking
    if config:
        body["generationConfig"] = config
    for key, (name, check) in _BODY.items():
        if (value := checked(settings, key, check)) is not None:
            body[name] = list(value) if check is MAPPINGS else value
    body.update(_tools(settings, tools))
    for key in UNKNOWN_HERE:
        if settings.get(key) is not None:
            io.repaired("setting_dropped", setting=key, why="Gemini has no such option")
    return body


def without_cached(body: dict[str, Any], io: ProviderIO) -> dict[str, Any]:
    """Return *body*, less what its cached content holds."""
    if "cachedContent" not in body:
        return body
    for key in CACHED:
        if key in body:
            io.repaired("field_dropped", field=key, why="the cached content holds it")
    return {key: value for key, value in body.items() if key not in CACHED}


def _response_format(given: Mapping[str, Any] | None) -> dict[str, Any]:
    if given is None or (schema := schema_of(given)) == {}:
        return {}
    json_answer = {"responseMimeType": "application/json"}
    return json_answer if schema is None else {**json_answer, "responseJsonSchema": dict(schema)}


# -- thinking


def _thinking(settings: Mapping[str, Any], io: ProviderIO) -> dict[str, Any]:
    """Return the thinking to ask for: by level (3), by tokens (2.5), or none, where a model can't think."""
    level = thinking_level(settings)
    budget = checked(settings, "thinking_budget", INTEGER)
    if level is None and budget is None:
        return {}
    model = io.current_model
    known = generation(model)
    if known < (2, 5):
        if level != "none":
            io.repaired("setting_dropped", setting="think", why=f"{model} does not think")
        return {}
    found: dict[str, Any] = {"includeThoughts": level != "none" and budget != 0}
    if budget is not None:
        found["thinkingBudget"] = budget
    elif level is None or level == ON:
        pass
    elif known >= (3, 0):
        supported = checked(settings, "efforts", TEXTS) or _levels(model, known)
        found["thinkingLevel"] = nearest_level(level, supported).upper()
    else:
        floor = _PRO_FLOOR if "pro" in model else 0
        found["thinkingBudget"] = floor if level == "none" else BUDGETS.get(level, BUDGETS["xhigh"])
    return found


def _levels(model: str, known: tuple[int, int]) -> tuple[str, ...]:
    """Return the levels that a model of generation 3 or later takes."""
    if "pro" not in model:
        return ("minimal", "low", "medium", "high")
    return ("low", "high") if known == (3, 0) else ("low", "medium", "high")


# -- tools


def _tools(settings: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    written: list[dict[str, Any]] = []
    if tools:
        written.append({"functionDeclarations": [_declaration(tool) for tool in tools]})
    written += [dict(tool) for tool in checked(settings, "server_tools", MAPPINGS) or ()]
    if not written:
        return {}
    found: dict[str, Any] = {"tools": written}
    if tools and (choice := _tool_choice(settings.get("tool_choice"), tools)):
        found["toolConfig"] = {"functionCallingConfig": choice}
    return found


def _declaration(tool: Mapping[str, Any]) -> dict[str, Any]:
    name = tool["name"]
    if wire_name(name) != name:
        raise ValueError(
            f"Gemini takes no tool of the name {name!r}: a letter or _ first, then letters, digits, _ . : -"
        )
    found = {"name": name, "description": tool.get("description") or name}
    if schema := tool.get("input_schema"):
        found["parametersJsonSchema"] = schema
    return found


def _tool_choice(choice: object, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if isinstance(choice, Mapping) and "mode" in choice and "type" not in choice:
        return dict(choice)  # as this wire has it
    found = tool_choice_of(choice, tools)
    if found is None:
        return {}
    only = {} if found.name is None else {"allowedFunctionNames": [found.name]}
    return {"mode": _MODES[found.mode], **only}
