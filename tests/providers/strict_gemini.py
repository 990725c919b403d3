"""A judge of Gemini requests: refuses what the service refuses."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

FIELDS = {
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
}
MEDIA = re.compile(r"(?:image|audio|video|text)/[a-z0-9.+-]+|application/pdf")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
BODY = {
    "contents",
    "systemInstruction",
    "tools",
    "toolConfig",
    "generationConfig",
    "safetySettings",
    "cachedContent",
    "serviceTier",
}


def check_gemini_body(body: dict[str, Any], *, signatures: bool = False) -> None:
    """Assert that *body* is one that the service takes.

    Args:
      signatures: ask for one on the first call of every step, as Gemini 3 does.
    """
    json.dumps(body, allow_nan=False)
    assert body.keys() <= BODY
    contents = body["contents"]
    assert contents
    assert contents[0]["role"] == "user"
    waiting: list[tuple[str, str]] = []
    for content in contents:
        parts = content["parts"]
        assert parts, "empty parts"
        assert content["role"] in ("user", "model")
        for part in parts:
            _check_part(part, content["role"])
        answers = [_identity(part["functionResponse"]) for part in parts if "functionResponse" in part]
        assert answers == waiting, "the turn after calls has their results, all, in order"
        assert not answers or len(answers) == len(parts)
        calls = [part for part in parts if "functionCall" in part]
        assert not (calls and signatures) or calls[0].get("thoughtSignature")
        waiting = [_identity(part["functionCall"]) for part in calls]
    assert not waiting, f"calls without a result: {waiting}"
    if "systemInstruction" in body:
        assert all(part["text"].strip() for part in body["systemInstruction"]["parts"])
    for tool in body.get("tools", []):
        assert tool
        for declaration in tool.get("functionDeclarations", []):
            assert NAME.fullmatch(declaration["name"])
            assert declaration["description"]


def _identity(call: dict[str, Any]) -> tuple[str, str]:
    return call["id"], call["name"]


def _check_part(part: dict[str, Any], role: str) -> None:
    [kind] = part.keys() & FIELDS
    assert part.keys() <= {kind, "thoughtSignature", "thought"}
    if kind == "text":
        assert part["text"].strip() or part.get("thoughtSignature")
    elif kind == "inlineData":
        _check_media(part["inlineData"])
    elif kind == "functionCall":
        assert role == "model"
        assert NAME.fullmatch(part["functionCall"]["name"])
        assert isinstance(part["functionCall"]["args"], dict)
    elif kind == "functionResponse":
        assert role == "user"
        assert isinstance(part["functionResponse"]["response"], dict)
        for media in part["functionResponse"].get("parts", []):
            _check_media(media["inlineData"])


def _check_media(media: dict[str, str]) -> None:
    assert media.keys() == {"mimeType", "data"}
    assert MEDIA.fullmatch(media["mimeType"])
    base64.b64decode(media["data"], validate=True)
