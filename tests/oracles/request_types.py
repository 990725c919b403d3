"""The official SDKs' own request types as judges: made strict, so that what they don't know is refused.

OpenAI and Anthropic describe requests as TypedDicts, which say nothing about unknown keys and hold iterables
that pydantic looks at only when somebody walks over them. `strict_type` rebuilds such a type with lists in
place of iterables and no unknown keys. Google and Ollama have pydantic models.
"""

from __future__ import annotations

import collections.abc
import functools
import importlib
import io
import os
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

SDKS = {
    "chat": "openai",
    "responses": "openai",
    "anthropic": "anthropic",
    "gemini": "google.genai",
    "ollama": "ollama",
}
"""The package of each protocol's service."""


def sdk(protocol: str, module: str = "") -> Any:
    """Return the SDK of *protocol*, or a module below it. Skips the test where it isn't installed."""
    name = SDKS[protocol]
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        pytest.skip(f"the SDK {name} is not installed (dependency group `oracles`)")
    return importlib.import_module(f"{name}.{module}" if module else name)


def strict_type(kind: Any, known: dict[Any, Any]) -> Any:
    """Return *kind* with lists in place of iterables, and TypedDicts without unknown keys.

    Args:
      known: the TypedDicts rebuilt so far.
    """
    if typing.is_typeddict(kind) or hasattr(kind, "__required_keys__"):
        return _strict_dict(kind, known)
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is os.PathLike or origin in (os.PathLike, typing.IO, io.IOBase):
        return Literal["a file that the SDK would read and encode before it sends it"]
    if origin is None or origin is Literal:
        return kind
    if origin is Annotated or str(origin) in ("typing.Required", "typing.NotRequired"):
        return strict_type(arguments[0], known)
    inner = tuple(strict_type(one, known) for one in arguments)
    if origin in (Union, types.UnionType):
        return Union[inner]  # noqa: UP007  # made of a tuple
    if origin in (collections.abc.Iterable, collections.abc.Sequence, list):
        return list[inner[0]]  # type: ignore[valid-type]
    return origin[inner]


def _strict_dict(kind: Any, known: dict[Any, Any]) -> Any:
    if kind in known:
        return known[kind]
    known[kind] = dict[str, Any]  # where it holds itself
    extensions: Any = importlib.import_module("typing_extensions")
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        required = name in kind.__required_keys__
        form = extensions.Required if required else extensions.NotRequired
        fields[name] = form[strict_type(hint, known)]
    rebuilt = extensions.TypedDict(kind.__name__, fields)
    rebuilt.__pydantic_config__ = {"extra": "forbid"}
    known[kind] = rebuilt
    return rebuilt


def _typed_dict_judge(kind: Any) -> Callable[[dict[str, Any]], None]:
    pydantic: Any = importlib.import_module("pydantic")
    adapter = pydantic.TypeAdapter(strict_type(kind, {}))

    def judge(body: dict[str, Any]) -> None:
        adapter.validate_python(body)

    return judge


def _chat() -> Callable[[dict[str, Any]], None]:
    module = sdk("chat", "types.chat.completion_create_params")
    return _typed_dict_judge(module.CompletionCreateParamsStreaming)


def _responses() -> Callable[[dict[str, Any]], None]:
    module = sdk("responses", "types.responses.response_create_params")
    return _typed_dict_judge(module.ResponseCreateParamsStreaming)


def _anthropic() -> Callable[[dict[str, Any]], None]:
    module = sdk("anthropic", "types.beta.message_create_params")
    return _typed_dict_judge(module.MessageCreateParamsStreaming)


def _gemini() -> Callable[[dict[str, Any]], None]:
    kinds = sdk("gemini", "types")

    def judge(body: dict[str, Any]) -> None:
        for content in [
            *body["contents"],
            *([body["systemInstruction"]] if "systemInstruction" in body else ()),
        ]:
            kinds.Content.model_validate(content)
        for tool in body.get("tools", ()):
            kinds.Tool.model_validate(tool)
        if "toolConfig" in body:
            kinds.ToolConfig.model_validate(body["toolConfig"])
        kinds.GenerationConfig.model_validate(body.get("generationConfig", {}))

    return judge


def _ollama() -> Callable[[dict[str, Any]], None]:
    request = sdk("ollama", "_types").ChatRequest

    def judge(body: dict[str, Any]) -> None:
        request.model_validate(body)

    return judge


_JUDGES = {
    "chat": _chat,
    "responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "ollama": _ollama,
}


@functools.cache
def sdk_judge(protocol: str) -> Callable[[dict[str, Any]], None]:
    """Return what raises ValueError for a request body of *protocol* that its SDK's types don't allow.

    Made once a process: to build one takes a second. Skips the test where the SDK isn't installed.
    """
    return _JUDGES[protocol]()
