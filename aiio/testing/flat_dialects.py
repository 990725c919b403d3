"""Chat Completions, Gemini and Ollama: dialects in which a frame stands for itself. See `Renderer`."""

from __future__ import annotations

import json
from typing import Any

from .steps import Call, Fail, Finish

SIGNATURE = "c2lnbmF0dXJl"
"""Stands for what a provider signs and wants to see again."""


def to_json(value: Any) -> bytes:
    """Return *value* as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def sse(value: Any, name: str | None = None) -> bytes:
    """Return *value* as a server-sent event."""
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + to_json(value) + b"\n\n"


def half(frame: bytes) -> bytes:
    """Return the first half of *frame*: a call cut in a dialect that sends calls whole."""
    return frame[: len(frame) // 2]


def arguments_of(call: Call) -> Any:
    """Return the arguments as a JSON value, or as the text they are."""
    try:
        return json.loads(call.arguments)
    except ValueError:
        return call.arguments


class SSE:
    """What all dialects over server-sent events share."""

    content_type = "text/event-stream"
    keep_alive = b": keep-alive\n\n"

    def __init__(self, model: str) -> None:
        self.model = model
        self.called = False

    def reason(self, finish: Finish) -> str:
        """Return why the answer ends, in aiio's words."""
        return finish.reason or ("tool_use" if self.called else "stop")


class ChatRenderer(SSE):
    """Chat Completions."""

    _REASONS = {"stop": "stop", "length": "length", "tool_use": "tool_calls", "refusal": "content_filter"}

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._calls = 0

    def open(self) -> list[bytes]:
        """Return the delta that names the role."""
        return [self._delta({"role": "assistant", "content": ""})]

    def say(self, text: str) -> list[bytes]:
        """Return a delta of the content."""
        return [self._delta({"content": text})]

    def think(self, text: str) -> list[bytes]:
        """Return a delta of the reasoning, as DeepSeek and its like send it."""
        return [self._delta({"reasoning_content": text})]

    def call(self, call: Call) -> list[bytes]:
        """Return a call's head and its arguments. This dialect does not say where a call ends."""
        self.called = True
        at, self._calls = self._calls, self._calls + 1
        function = {"name": call.name, "arguments": ""}
        opening = {"index": at, "id": call.call_id, "type": "function", "function": function}
        pieces = [{"index": at, "function": {"arguments": piece}} for piece in call.pieces()]
        return [self._delta({"tool_calls": [one]}) for one in [opening, *pieces]]

    def finish(self, finish: Finish) -> list[bytes]:
        """Return the last delta, the usage and the mark of the end."""
        counts = {
            "prompt_tokens": finish.input_tokens,
            "completion_tokens": finish.output_tokens,
            "total_tokens": finish.input_tokens + finish.output_tokens,
        }
        usage = sse({**self._chunk, "choices": [], "usage": counts})
        return [self._delta({}, self._REASONS[self.reason(finish)]), usage, b"data: [DONE]\n\n"]

    def error(self, fail: Fail) -> list[bytes]:
        """Return an error as OpenAI sends it within a stream."""
        return [sse(openai_error(fail))]

    def refusal(self, fail: Fail) -> bytes:
        """Return the error body of OpenAI."""
        return to_json(openai_error(fail))

    @property
    def _chunk(self) -> dict[str, Any]:
        return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": self.model}

    def _delta(self, delta: dict[str, Any], reason: str | None = None) -> bytes:
        return sse({**self._chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


class GeminiRenderer(SSE):
    """Google's generateContent, streamed."""

    _REASONS = {"stop": "STOP", "length": "MAX_TOKENS", "tool_use": "STOP", "refusal": "SAFETY"}
    _STATUS = {
        400: "INVALID_ARGUMENT",
        401: "UNAUTHENTICATED",
        403: "PERMISSION_DENIED",
        404: "NOT_FOUND",
        429: "RESOURCE_EXHAUSTED",
        500: "INTERNAL",
        503: "UNAVAILABLE",
        504: "DEADLINE_EXCEEDED",
    }

    def open(self) -> list[bytes]:
        """Return nothing: this dialect begins with content."""
        return []

    def say(self, text: str) -> list[bytes]:
        """Return a part of text."""
        return [self._part({"text": text})]

    def think(self, text: str) -> list[bytes]:
        """Return a part marked as a thought."""
        return [self._part({"text": text, "thought": True})]

    def call(self, call: Call) -> list[bytes]:
        """Return a call, whole; one that is cut is half a frame."""
        self.called = True
        made = {"id": call.call_id, "name": call.name, "args": arguments_of(call)}
        frame = self._part({"functionCall": made, "thoughtSignature": SIGNATURE})
        return [half(frame) if call.cut else frame]

    def finish(self, finish: Finish) -> list[bytes]:
        """Return the candidate that ends, with the usage."""
        counts = {
            "promptTokenCount": finish.input_tokens,
            "candidatesTokenCount": finish.output_tokens,
            "totalTokenCount": finish.input_tokens + finish.output_tokens,
        }
        ended = {"index": 0, "finishReason": self._REASONS[self.reason(finish)]}
        return [sse({"candidates": [ended], "usageMetadata": counts, "modelVersion": self.model})]

    def error(self, fail: Fail) -> list[bytes]:
        """Return an error as a frame."""
        return [sse(self._error(fail))]

    def refusal(self, fail: Fail) -> bytes:
        """Return Google's error body; what to wait is said in it, too."""
        return to_json(self._error(fail))

    def _part(self, part: dict[str, Any]) -> bytes:
        content = {"role": "model", "parts": [part]}
        return sse({"candidates": [{"index": 0, "content": content}], "modelVersion": self.model})

    def _error(self, fail: Fail) -> dict[str, Any]:
        word = fail.code or self._STATUS.get(fail.status or 500, "UNKNOWN")
        error: dict[str, Any] = {"code": fail.status, "message": fail.message, "status": word}
        if fail.retry_after is not None:
            kind = "type.googleapis.com/google.rpc.RetryInfo"
            error["details"] = [{"@type": kind, "retryDelay": f"{fail.retry_after:g}s"}]
        return {"error": error}


class OllamaRenderer:
    """Ollama's /api/chat: a JSON object a line."""

    content_type = "application/x-ndjson"
    keep_alive = b"\n"

    _REASONS = {"stop": "stop", "length": "length", "tool_use": "stop", "refusal": "stop"}

    def __init__(self, model: str) -> None:
        self.model = model

    def open(self) -> list[bytes]:
        """Return nothing: this dialect begins with content."""
        return []

    def say(self, text: str) -> list[bytes]:
        """Return a line of text."""
        return [self._line({"content": text})]

    def think(self, text: str) -> list[bytes]:
        """Return a line of reasoning."""
        return [self._line({"content": "", "thinking": text})]

    def call(self, call: Call) -> list[bytes]:
        """Return a call, whole; one that is cut is half a line."""
        function = {"name": call.name, "arguments": arguments_of(call)}
        line = self._line({"content": "", "tool_calls": [{"id": call.call_id, "function": function}]})
        return [half(line) if call.cut else line]

    def finish(self, finish: Finish) -> list[bytes]:
        """Return the last line, with the counts."""
        return [
            self._line(
                {"content": ""},
                done=True,
                done_reason=self._REASONS[finish.reason or "stop"],
                prompt_eval_count=finish.input_tokens,
                eval_count=finish.output_tokens,
            )
        ]

    def error(self, fail: Fail) -> list[bytes]:
        """Return an error as a line."""
        return [self.refusal(fail) + b"\n"]

    def refusal(self, fail: Fail) -> bytes:
        """Return Ollama's error body: a sentence and no more."""
        return to_json({"error": fail.message})

    def _line(self, message: dict[str, Any], **end: Any) -> bytes:
        stamp = {"model": self.model, "created_at": "2026-01-01T00:00:00Z"}
        value = {**stamp, "message": {"role": "assistant", **message}, "done": False, **end}
        return to_json(value) + b"\n"


_OPENAI_WORDS = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("tokens", "rate_limit_exceeded"),
}


def openai_error(fail: Fail) -> dict[str, Any]:
    """Return an error as OpenAI words it."""
    kind, code = _OPENAI_WORDS.get(fail.status or 500, ("server_error", None))
    return {"error": {"message": fail.message, "type": kind, "param": None, "code": fail.code or code}}
