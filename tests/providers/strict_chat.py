"""A judge of Chat Completions requests: refuses what the strictest servers refuse."""

from __future__ import annotations

import json
from typing import Any


def check_chat_body(body: dict[str, Any]) -> None:
    """Assert that *body* is one that a strict server takes."""
    json.dumps(body, allow_nan=False)
    waiting: list[str] = []
    assert body["messages"]
    for message in body["messages"]:
        role = message["role"]
        if role == "tool":
            assert message["tool_call_id"] in waiting, "a result without its call right before"
            waiting.remove(message["tool_call_id"])
            assert isinstance(message["content"], str)
            assert message["content"].strip()
            continue
        assert not waiting, f"calls without a result: {waiting}"
        calls = message.get("tool_calls", [])
        if role == "assistant":
            assert message.get("content") or calls or message.get("refusal") or message.get("audio")
        else:
            assert role in ("system", "developer", "user")
            assert not calls
        _check_content(message.get("content"))
        waiting = [call["id"] for call in calls]
        assert len(set(waiting)) == len(waiting)
        for call in calls:
            assert call["function"]["name"]
            json.loads(call["function"]["arguments"])
    assert not waiting, f"calls without a result: {waiting}"
    if "tools" in body:
        assert body["tools"]


def _check_content(content: Any) -> None:
    if isinstance(content, list):
        assert content
        for part in content:
            assert part["type"] != "text" or part["text"].strip()
    elif content:
        assert content.strip()
