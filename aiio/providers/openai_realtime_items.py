"""Items and tools of a Responses request as a Realtime conversation has them (FORMATS 5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .base import ProviderIO
from .history import join_texts
from .narrow import dict_of, list_of, text_of
from .responses_input import Wire


def realtime_items(items: Iterable[Wire], io: ProviderIO) -> Iterator[Wire]:
    """Yield *items* as conversation items; what has no form there is left out and reported.

    ValueError: a user message holds a file other than an image or sound.
    """
    for item in items:
        kind = text_of(item, "type")
        if kind == "message":
            parts = [_part(part) for part in list_of(item, "content")]
            yield {"type": kind, "role": item["role"], "content": parts}
        elif kind == "function_call":
            yield {key: item[key] for key in ("type", "call_id", "name", "arguments")}
        elif kind == "function_call_output":
            yield {"type": kind, "call_id": item["call_id"], "output": _output(item["output"], io)}
        else:
            io.repaired("block_dropped", why=f"an item {kind!r} has no form in a Realtime conversation")


def _part(part: Wire) -> Wire:
    match part["type"]:
        case "output_text" | "input_text":
            return {"type": part["type"], "text": part["text"]}
        case "refusal":
            return {"type": "output_text", "text": part["refusal"]}
        case "input_image":
            return {"type": "input_image", "image_url": part["image_url"]}
        case "input_audio":
            return {"type": "input_audio", "audio": dict_of(part, "input_audio")["data"]}
        case kind:
            raise ValueError(f"the Realtime wire has no form for {kind!r} ({text_of(part, 'filename')!r})")


def _output(output: object, io: ProviderIO) -> str:
    """Return a tool's result as text; what else is in it is left out and reported."""
    if isinstance(output, str):
        return output
    io.repaired("block_dropped", why="results hold nothing but text in a Realtime conversation")
    assert isinstance(output, list)  # the other form there is
    return join_texts(part["text"] for part in output if part["type"] == "input_text")


def realtime_tools(tools: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the function tools among *tools*, without what the wire does not know."""
    wanted = ("type", "name", "description", "parameters")
    return [{key: tool[key] for key in wanted if key in tool} for tool in tools if tool["type"] != "custom"]
