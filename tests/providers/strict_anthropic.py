"""A judge of Anthropic Messages requests: refuses what the service refuses."""

from __future__ import annotations

import json
import re
from typing import Any

ID = re.compile(r"[a-zA-Z0-9_-]+")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
FIELDS = {
    "text": {"type", "text", "cache_control", "citations"},
    "image": {"type", "source", "cache_control"},
    "document": {"type", "source", "title", "cache_control"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
    "tool_use": {"type", "id", "name", "input", "caller", "toolset_name", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "toolset_name", "cache_control"},
}
IN_RESULTS = {"text", "image", "document"}
BY_ROLE = {
    "user": {"text", "image", "document", "tool_result"},
    "assistant": {"text", "thinking", "redacted_thinking", "tool_use"},
    "system": {"text"},
}
THINKING = ("thinking", "redacted_thinking")


def check_anthropic_body(body: dict[str, Any]) -> None:
    """Assert that *body* is one that the service takes."""
    json.dumps(body)
    assert body["max_tokens"] > 0
    assert body["messages"][0]["role"] == "user"
    thinking = body.get("thinking", {})
    if budget := thinking.get("budget_tokens"):
        assert 1024 <= budget < body["max_tokens"]
    if thinking.get("type") in ("enabled", "adaptive"):
        assert "temperature" not in body
        assert body.get("tool_choice", {}).get("type") not in ("any", "tool")
    waiting: list[str] = []
    role = "assistant"
    for message in body["messages"]:
        assert message["role"] != role, "turns of one role in a row"
        role = message["role"]
        content = message["content"]
        assert content
        results = [part["tool_use_id"] for part in content if part["type"] == "tool_result"]
        assert results == waiting, "each call has its result in the turn after it, in order"
        assert all(part["type"] == "tool_result" for part in content[: len(results)]), "results come first"
        waiting = [part["id"] for part in content if part["type"] == "tool_use"]
        assert len(set(waiting)) == len(waiting)
        for part in content:
            _check_part(part, BY_ROLE[role])
        assert role != "assistant" or content[-1]["type"] not in THINKING
    assert not waiting
    _check_marks(body)
    if isinstance(system := body.get("system"), list):
        for part in system:
            _check_part(part, {"text"})
    else:
        assert system is None or system.strip()


def _check_part(part: dict[str, Any], allowed: set[str]) -> None:
    kind = part["type"]
    if kind not in FIELDS:  # an item of the server's own
        assert "text" in allowed
        return
    assert kind in allowed, kind
    assert part.keys() <= FIELDS[kind], part.keys()
    match kind:
        case "text":
            assert part["text"].strip()
        case "image":
            source = part["source"]
            assert source["type"] == "url" or source["media_type"].partition("/")[0] == "image"
        case "document":
            media = part["source"]["media_type"]
            assert media == {"base64": "application/pdf", "text": "text/plain"}[part["source"]["type"]]
            assert part["source"]["data"].strip()
        case "thinking":
            assert part["signature"]
        case "tool_use":
            assert ID.fullmatch(part["id"])
            assert NAME.fullmatch(part["name"])
            assert isinstance(part["input"], dict)
        case "tool_result":
            assert ID.fullmatch(part["tool_use_id"])
            inner = part["content"]
            assert inner
            for one in inner if isinstance(inner, list) else [{"type": "text", "text": inner}]:
                _check_part(one, IN_RESULTS)


def _check_marks(body: dict[str, Any]) -> None:
    text = json.dumps({**body, "cache_control": None})
    assert text.count('"cache_control": {') + ("cache_control" in body) <= 4
