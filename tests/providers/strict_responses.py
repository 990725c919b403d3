"""A judge of Responses requests: refuses what the strictest servers refuse."""

from __future__ import annotations

import json
from typing import Any

_OUTPUT_OF = {"function_call_output": "function_call", "custom_tool_call_output": "custom_tool_call"}
_PARTS = {
    "user": {"input_text", "input_image", "input_file"},
    "system": {"input_text"},
    "developer": {"input_text"},
    "assistant": {"output_text", "refusal"},
}


def check_responses_body(body: dict[str, Any]) -> None:
    """Assert that *body* is one that a strict server takes."""
    json.dumps(body, allow_nan=False)
    assert body["model"]
    assert body.get("instructions", "x").strip()
    waiting: dict[str, str] = {}
    before: dict[str, Any] = {"type": "nothing"}
    for item in body["input"]:
        kind = item["type"]
        if before["type"] == "reasoning":
            assert kind not in _OUTPUT_OF, "reasoning without the item it led to"
            assert kind != "message" or item["role"] == "assistant", "reasoning without the item it led to"
        before = item
        if kind in _OUTPUT_OF:
            assert waiting.pop(item["call_id"], None) == _OUTPUT_OF[kind], "an output without its call"
            _check_output(item["output"])
        elif kind in _OUTPUT_OF.values():
            assert item["call_id"] not in waiting
            assert 0 < len(item["call_id"]) <= 64
            assert item["name"]
            assert "id" not in item
            assert isinstance(
                item["input"] if kind == "custom_tool_call" else json.loads(item["arguments"]), object
            )
            waiting[item["call_id"]] = kind
        elif kind == "reasoning":
            assert isinstance(item["summary"], list)
            assert "status" not in item
            assert item.get("encrypted_content") or item.get("content"), "an id alone is not found"
        elif kind == "message":
            assert item["role"] == "assistant" or not waiting, f"calls without an output: {waiting}"
            _check_message(item)
    assert before["type"] != "reasoning", "reasoning without the item it led to"
    assert not waiting, f"calls without an output: {waiting}"
    assert body.get("tools", "x"), "an empty list of tools"
    assert "tools" in body or not body.keys() & {"tool_choice", "parallel_tool_calls"}


def _check_message(item: dict[str, Any]) -> None:
    assert item["content"], "an empty message"
    assert "id" not in item
    for part in item["content"]:
        assert part["type"] in _PARTS[item["role"]]
        assert part.get("text", part.get("refusal", "x")).strip(), "an empty part"


def _check_output(output: Any) -> None:
    if isinstance(output, str):
        assert output.strip()
        return
    assert output
    for part in output:
        assert part["type"] in _PARTS["user"]
