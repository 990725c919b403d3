"""Answers with what recordings hold seldom or never: without them fuzzing would hardly get there."""

from __future__ import annotations

import json
from typing import Any

Answer = tuple[bytes, ...]


def _answer(*frames: Any) -> Answer:
    return tuple(json.dumps(frame, ensure_ascii=False).encode() for frame in frames)


def _chat(*deltas: dict[str, Any], finish: str = "stop") -> Answer:
    return (
        *_answer(*({"id": "c", "choices": [{"index": 0, "delta": delta}]} for delta in deltas)),
        *_answer({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}),
        b"[DONE]",
    )


def _gemini(*parts: dict[str, Any], finish: str = "STOP") -> Answer:
    contents = ({"candidates": [{"content": {"parts": [part], "role": "model"}}]} for part in parts)
    return _answer(
        *contents, {"candidates": [{"finishReason": finish}], "usageMetadata": {"totalTokenCount": 3}}
    )


def _live(*messages: dict[str, Any]) -> Answer:
    return _answer({"setupComplete": {}}, *messages, {"serverContent": {"turnComplete": True}})


def _piece(path: str, more: bool = True, **value: Any) -> dict[str, Any]:
    return {"functionCall": {"partialArgs": [{"jsonPath": path, **value}], "willContinue": more}}


_CALL_IN_PIECES: tuple[dict[str, Any], ...] = (
    {"functionCall": {"name": "look", "id": "c1", "willContinue": True}},
    _piece("$.at[0].name", stringValue="s", willContinue=True),
    _piece("$.at[0].name", stringValue="ky"),
    _piece("$.at[1]['n']", numberValue=2),
    _piece('$["far"]', boolValue=False),
    _piece("$.none", nullValue="NULL_VALUE"),
    {"functionCall": {}},
)
_SIGNED = (
    {"text": "hm", "thought": True, "thoughtSignature": "s1"},
    {"text": "a", "thoughtSignature": "s2"},
    {"text": "b", "thoughtSignature": "s3"},
    {"text": "", "thoughtSignature": "s4"},
)
_MEDIA = (
    {"inlineData": {"mimeType": "audio/L16;rate=24000", "data": "AAA="}},
    {"inlineData": {"mimeType": "audio/L16;rate=24000", "data": "AAAA"}, "thoughtSignature": "s"},
    {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}, "thought": True},
    {"executableCode": {"language": "PYTHON", "code": "1"}},
    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
)

_MESSAGE = {"type": "message", "id": "m", "role": "assistant"}
_CALL = {
    "type": "custom_tool_call",
    "id": "t",
    "call_id": "c1",
    "name": "write",
    "namespace": "n",
    "input": "ab",
}
_THOUGHT = {"type": "reasoning", "id": "r", "encrypted_content": "e", "summary": []}


def _responses(*events: dict[str, Any], status: str = "completed") -> Answer:
    response = {"id": "resp_1", "status": status, "usage": {"input_tokens": 1, "output_tokens": 2}}
    return _answer(
        {"type": "response.created", "response": {"id": "resp_1"}},
        *({**event, "type": f"response.{event['type']}"} for event in events),
        {"type": f"response.{status}", "response": response},
    )


_RESPONSES = (
    _responses(
        {"type": "output_item.added", "output_index": 0, "item": _THOUGHT},
        {"type": "reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "h"},
        {"type": "reasoning_summary_text.done", "output_index": 0, "summary_index": 0, "text": "hm"},
        {
            "type": "reasoning_summary_part.done",
            "output_index": 0,
            "summary_index": 1,
            "part": {"text": "so"},
        },
        {"type": "reasoning_text.delta", "output_index": 0, "content_index": 0, "delta": "t"},
        {"type": "reasoning_text.done", "output_index": 0, "content_index": 0, "text": "tt"},
        {"type": "output_item.done", "output_index": 0, "item": _THOUGHT},
    ),
    _responses(
        {"type": "output_item.added", "output_index": 0, "item": _MESSAGE},
        {"type": "output_text.delta", "output_index": 0, "content_index": 0, "delta": "Hi"},
        {
            "type": "output_text.annotation.added",
            "output_index": 0,
            "content_index": 0,
            "annotation": {"type": "url_citation", "url": "u"},
        },
        {"type": "output_text.done", "output_index": 0, "content_index": 0, "text": "Hi!"},
        {"type": "refusal.delta", "output_index": 0, "content_index": 1, "delta": "No"},
        {"type": "refusal.done", "output_index": 0, "content_index": 1, "refusal": "No"},
    ),
    _responses(
        {"type": "output_item.added", "output_index": 0, "item": {**_CALL, "input": ""}},
        {"type": "custom_tool_call_input.delta", "output_index": 0, "delta": "a"},
        {"type": "custom_tool_call_input.done", "output_index": 0, "input": "ab"},
        {"type": "output_item.done", "output_index": 0, "item": _CALL},
        {"type": "audio.delta", "delta": "AAA="},
        {"type": "audio.delta", "delta": "AAAA"},
        {"type": "audio.transcript.delta", "delta": "oh"},
        status="incomplete",
    ),
    _answer(
        {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "m"}}}
    ),
)
_WINDOW = {"used_percent": 5, "window_minutes": 300, "resets_at": 1_800_000_100}
_SOCKET = (
    _answer({"type": "error", "status": 400, "error": {"code": "previous_response_not_found"}}),
    _answer(
        {
            "type": "codex.rate_limits",
            "plan_type": "plus",
            "rate_limits": {"primary": _WINDOW, "secondary": None},
        },
        {"type": "response.created", "response": {"id": "resp_1"}},
        {
            "type": "error",
            "error": {"code": "websocket_connection_limit_reached", "message": "m"},
            "headers": {"x-ratelimit-remaining-tokens": "7", "x-codex-primary-used-percent": "5"},
        },
        {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "m"}}},
    ),
)


def _spoken(*events: dict[str, Any], status: str = "completed") -> Answer:
    sound = {"audio": {"output": {"format": {"type": "audio/pcm", "rate": 24000}}}}
    return _answer(
        {"type": "session.updated", "session": sound},
        {"type": "response.created", "response": {"id": "resp_1"}},
        *events,
        {"type": "response.done", "response": {"id": "resp_1", "status": status}},
    )


_REALTIME = (
    _spoken(
        {"type": "response.output_item.added", "output_index": 0, "item": _MESSAGE},
        {
            "type": "response.output_audio_transcript.delta",
            "output_index": 0,
            "content_index": 0,
            "delta": "O",
        },
        {"type": "response.output_audio.delta", "output_index": 0, "content_index": 0, "delta": "AAA="},
        {"type": "response.output_audio.delta", "output_index": 0, "content_index": 0, "delta": "AAAA"},
        {
            "type": "response.output_audio_transcript.done",
            "output_index": 0,
            "content_index": 0,
            "transcript": "Oh",
        },
        {"type": "response.output_audio.done", "output_index": 0, "content_index": 0},
        {
            "type": "rate_limits.updated",
            "rate_limits": [{"name": "tokens", "limit": 9, "reset_seconds": 1.5}],
        },
    ),
    _spoken({"type": "error", "error": {"code": "c", "message": "m"}}, status="cancelled"),
    _answer({"type": "error", "error": {"type": "invalid_request_error", "code": "c", "message": "m"}}),
)


def _block(index: int, block: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _begin(message_id: str) -> dict[str, Any]:
    return {
        "type": "message_start",
        "message": {"id": message_id, "content": [], "usage": {"input_tokens": 1}},
    }


_STOP = (
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
)
_CITED = {"type": "citations_delta", "citation": {"type": "page_location", "cited_text": "c"}}
_ANTHROPIC = (
    _answer(
        _begin("m1"),
        *_block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "old"})[:2],
        _begin("m2"),  # the server begins anew
        *_block(0, {"type": "text", "text": ""}, _CITED, {"type": "text_delta", "text": "new"}),
        *_block(1, {"type": "redacted_thinking", "data": "d"}),
        *_block(2, {"type": "compaction"}, *[{"type": "compaction_delta", "content": "c"}] * 2),
        *_STOP,
    ),
    _answer(
        _begin("m1"),
        *_block(0, {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": "x"}}),
        *_block(1, {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"title": "t"}]}),
        *_block(2, {"type": "tool_use", "id": "t", "name": "look", "input": {"at": "sky"}}),
        *_block(
            3,
            {"type": "tool_use", "id": "u", "name": "see"},
            {"type": "input_json_delta", "partial_json": '{"a'},
        ),
        *_STOP,
    ),
    _answer(
        {
            "type": "message",
            "id": "m",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "Hi"},
            ],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 1, "output_tokens": 2},
        }
    ),
)
_CHAT = (
    _chat(
        {"audio": {"id": "a", "transcript": "O", "data": "AAA="}},
        {"audio": {"transcript": "h", "data": "AAAA", "expires_at": 1}},
        {"images": [{"image_url": {"url": "data:image/png;base64,AAAA"}}, {"image_url": "https://x/y"}]},
        {"annotations": [{"type": "url_citation"}]},
    ),
    _chat(
        {"content": "<thi"},
        {"content": "nk>hm</think>"},
        {"content": "Hi"},
        {"content": "Ho"},
        {"content": "Ha"},
    ),
    _chat(
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                {"type": "text", "text": "a"},
            ]
        },
        {"content": [{"type": "text", "text": "b"}, {"type": "refusal", "refusal": "no"}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "r", "signature": "s", "index": 0}]},
        {"refusal": "No"},
    ),
    _chat({"function_call": {"name": "look", "arguments": '{"a"'}}, {"function_call": {"arguments": ":1}"}}),
)
_OLLAMA = (
    _answer(
        {"message": {"thinking": "h"}, "done": False},
        {"message": {"content": "a"}, "done": False},
        {"message": {"content": "b"}, "done": False},
        {
            "message": {"images": ["AAAA"], "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
            "done": False,
        },
        {"done": True, "done_reason": "length", "eval_count": 2, "prompt_eval_count": 1},
    ),
    _answer({"message": {"content": "a"}, "done": False}, {"error": "gone"}),
)

RARE: dict[str, tuple[Answer, ...]] = {
    "openai_chat": _CHAT,
    "openai_responses": _RESPONSES,
    "openai_responses_ws": _RESPONSES + _SOCKET,
    "openai_realtime": _REALTIME,
    "anthropic": _ANTHROPIC,
    "gemini": (_gemini(*_CALL_IN_PIECES), _gemini(*_SIGNED), _gemini(*_MEDIA, finish="MAX_TOKENS")),
    "gemini_live": (
        _live(
            {"serverContent": {"modelTurn": {"parts": [{"text": "hm", "thought": True}]}}},
            {"serverContent": {"modelTurn": {"parts": [{"text": "Hi"}]}}},
            {"toolCall": {"functionCalls": [{"id": "c1", "name": "look", "args": {"at": "sky"}}]}},
            {"usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 3}},
        ),
        _live(
            {"serverContent": {"modelTurn": {"parts": [*_SIGNED, *_MEDIA]}}}, {"goAway": {"timeLeft": "1s"}}
        ),
        _live(
            {"serverContent": {"outputTranscription": {"text": "Oh"}, "interrupted": True}},
            {"toolCallCancellation": {"ids": ["c1"]}},
        ),
    ),
    "ollama": _OLLAMA,
}
"""Answers by dialect. Their shapes are those that the dialects read; no server sent them."""
