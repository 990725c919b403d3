"""What is new of a context that continues an answer: for requests with `previous_response_id`.

A response is continued only by a context that is exactly what was sent for it, the answer as it came, and
something more. Reasoning is left out of the comparison: the server has it, and clients may not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from .base import decode_json
from .narrow import list_of, text_of
from .responses_input import wire_call_id

Digest: TypeAlias = tuple[Any, ...] | None
"""What an item says, told apart by value; None: reasoning."""

_SAID = {"output_text": "text", "refusal": "refusal"}


class Chain:
    """One request's place in a chain of responses.

    Args:
      whole: the request with its whole input.
    """

    def __init__(self, whole: Mapping[str, Any] | None = None) -> None:
        self._whole = dict(whole or {})
        self._shortened = False
        self.received: list[Digest] = []
        """The items of the answer so far."""

    def continued(self, kept: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request as what is new since *kept* was noted; whole, where it continues nothing."""
        items = list_of(self._whole, "input")
        sent, received = list_of(kept, "input"), list_of(kept, "received")
        start = len(sent)
        if (
            not kept
            or kept["model"] != self._whole.get("model")
            or "previous_response_id" in self._whole
            or items[:start] != sent
        ):
            return self._whole
        end = start
        while end < len(items) and _is_answer(items[end]):
            end += 1
        digests = [found for item in items[start:end] if (found := digest_of(item)) is not None]
        if digests != received or end == len(items):
            return self._whole
        self._shortened = True
        return {**self._whole, "previous_response_id": kept["id"], "input": items[end:]}

    def fall_back(self) -> dict[str, Any] | None:
        """Return the whole request, once, if it was shortened before."""
        shortened, self._shortened = self._shortened, False
        return self._whole if shortened else None

    def memory(self, response_id: str) -> dict[str, Any]:
        """Return what a request that continues this one must know; {} when nothing can."""
        if not response_id:
            return {}
        return {
            "id": response_id,
            "model": self._whole.get("model"),
            "input": list_of(self._whole, "input"),
            "received": [found for found in self.received if found is not None],
        }


def _is_answer(item: Mapping[str, Any]) -> bool:
    kind = text_of(item, "type")
    if kind == "message":
        return item.get("role") == "assistant"
    return not kind.endswith(("_output", "_response"))


def digest_of(item: Mapping[str, Any]) -> Digest:
    """Return what *item*, sent or received, says; None for reasoning."""
    match kind := text_of(item, "type"):
        case "reasoning":
            return None
        case "message":
            return (kind, _text(list_of(item, "content")))
        case "function_call":
            return (kind, wire_call_id(text_of(item, "call_id")), text_of(item, "name"), _arguments(item))
        case "custom_tool_call":
            return (kind, wire_call_id(text_of(item, "call_id")), text_of(item, "name"), item.get("input"))
        case _:
            return (kind, item.get("id"))


def _text(parts: Sequence[Any]) -> str:
    return "".join(text_of(part, _SAID.get(text_of(part, "type"), "")) for part in parts)


def _arguments(item: Mapping[str, Any]) -> Any:
    """Return arguments by value: they are written anew on their way back."""
    text = text_of(item, "arguments")
    try:
        return decode_json(text.encode("utf-8", "surrogatepass"))
    except ValueError:
        return text
