"""Wires besides Chat Completions: what a stream of text is there, as opening, one frame a piece, and closing.

Standard library only, as loads.py, which renders them into TCP writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeAlias

Parts: TypeAlias = tuple[bytes, list[bytes], list[bytes]]
"""What comes before the first piece of text, a frame for each piece, and what comes after the last."""


def _event(kind: str, **fields: Any) -> bytes:
    data = json.dumps({"type": kind, **fields}, separators=(",", ":"), ensure_ascii=False)
    return f"event: {kind}\ndata: {data}\n\n".encode()


def anthropic_parts(pieces: Iterable[str]) -> Parts:
    """Return an answer of Anthropic Messages."""
    usage = {
        "input_tokens": 3,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 1,
        "service_tier": "standard",
    }
    message: dict[str, Any] = {
        "id": "msg_bench",
        "type": "message",
        "role": "assistant",
        "model": "bench",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    opening = _event("message_start", message=message)
    opening += _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    content = [
        _event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
        for piece in pieces
    ]
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    return (
        opening,
        content,
        [
            _event("content_block_stop", index=0),
            _event("message_delta", delta=ended, usage={"output_tokens": len(content)}),
            _event("message_stop"),
        ],
    )


def _line(**fields: Any) -> bytes:
    head = {"model": "bench", "created_at": "2026-11-30T12:00:00.000000000Z"}
    return json.dumps({**head, **fields}, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def ndjson_parts(pieces: Iterable[str]) -> Parts:
    """Return an answer of Ollama: one JSON object a line."""

    def message(text: str) -> dict[str, Any]:
        return {"role": "assistant", "content": text}

    content = [_line(message=message(piece), done=False) for piece in pieces]
    counts = {"prompt_eval_count": 3, "eval_count": len(content), "total_duration": 1, "eval_duration": 1}
    end = _line(message=message(""), done=True, done_reason="stop", **counts)
    return _line(message=message(""), done=False), content, [end]


def _text_frame(**fields: Any) -> bytes:
    """Return one WebSocket message as servers send it."""
    data = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    if len(data) < 126:
        return bytes([0x81, len(data)]) + data
    if len(data) < 1 << 16:
        return b"\x81\x7e" + len(data).to_bytes(2, "big") + data
    return b"\x81\x7f" + len(data).to_bytes(8, "big") + data


def ws_parts(pieces: Iterable[str]) -> Parts:
    """Return an answer of OpenAI's Responses over a WebSocket, the handshake left out."""
    response = {"id": "resp_bench", "object": "response", "model": "bench"}
    where = {"item_id": "msg_bench", "output_index": 0, "content_index": 0}
    content = [
        _text_frame(type="response.output_text.delta", **where, delta=piece, sequence_number=number)
        for number, piece in enumerate(pieces)
    ]
    usage = {"input_tokens": 3, "output_tokens": len(content), "total_tokens": len(content) + 3}
    ended = {**response, "status": "completed", "usage": usage}
    return (
        _text_frame(type="response.created", response={**response, "status": "in_progress"}),
        content,
        [_text_frame(type="response.completed", response=ended)],
    )
