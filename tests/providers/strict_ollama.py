"""A judge of Ollama requests: refuses what the server refuses, or would take in silence and not read."""

from __future__ import annotations

import base64
import json
from typing import Any

BODY = {
    "model",
    "messages",
    "stream",
    "tools",
    "think",
    "options",
    "format",
    "keep_alive",
    "truncate",
    "shift",
}
MESSAGE = {
    "system": {"content"},
    "user": {"content", "images"},
    "assistant": {"content", "thinking", "tool_calls"},
    "tool": {"content", "tool_name", "tool_call_id"},
}


def check_ollama_body(body: dict[str, Any]) -> None:
    """Assert that *body* is one that the server takes."""
    json.dumps(body, allow_nan=False)
    assert body.keys() <= BODY
    assert body["stream"] is True
    assert body["messages"]
    waiting: list[tuple[str, str]] = []
    for message in body["messages"]:
        role = message["role"]
        assert message.keys() - {"role"} <= MESSAGE[role]
        assert isinstance(message["content"], str)
        for image in message.get("images", []):
            base64.b64decode(image, validate=True)
        if role == "tool":
            waiting.remove((message["tool_call_id"], message["tool_name"]))
            continue
        assert not waiting, f"calls without a result: {waiting}"
        calls = message.get("tool_calls", [])
        assert message["content"].strip() or message.get("images") or calls
        for call in calls:
            assert isinstance(call["function"]["arguments"], dict)
            waiting.append((call["id"], call["function"]["name"]))
    assert not waiting, f"calls without a result: {waiting}"
    assert body.get("tools", True)
