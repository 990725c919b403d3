"""Responses and Anthropic Messages: dialects that open and close what they send. See `Renderer`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

from .flat_dialects import SIGNATURE, SSE, openai_error, sse, to_json
from .steps import Call, Fail, Finish

Kind = Literal["text", "thinking", "call"]


class Blocks(SSE, ABC):
    """One block is open at a time; another kind of content closes it."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.at: int = -1
        """Index of the block that was opened last."""
        self._open: Kind | None = None
        self._text: list[str] = []

    def say(self, text: str) -> list[bytes]:
        """Return a piece of text, in a block of text."""
        return self._piece("text", text)

    def think(self, text: str) -> list[bytes]:
        """Return a piece of reasoning, in a block of reasoning."""
        return self._piece("thinking", text)

    def call(self, call: Call) -> list[bytes]:
        """Return a call in a block of its own, which stays open if the call is cut."""
        self.called = True
        frames = [*self._close(), *self._begin("call", call)]
        frames += [self._delta("call", piece) for piece in call.pieces()]
        self._text.append(call.arguments)
        return frames if call.cut else frames + self._close()

    def _piece(self, kind: Kind, text: str) -> list[bytes]:
        opening = [] if self._open == kind else [*self._close(), *self._begin(kind)]
        self._text.append(text)
        return [*opening, self._delta(kind, text)]

    def _begin(self, kind: Kind, call: Call | None = None) -> list[bytes]:
        self.at, self._open, self._text = self.at + 1, kind, []
        return self.starts(kind, call)

    def _close(self) -> list[bytes]:
        kind, self._open = self._open, None
        return [] if kind is None else self.ends(kind, "".join(self._text))

    @abstractmethod
    def _delta(self, kind: Kind, piece: str) -> bytes: ...

    @abstractmethod
    def starts(self, kind: Kind, call: Call | None) -> list[bytes]:
        """Return what opens block `at`."""
        ...

    @abstractmethod
    def ends(self, kind: Kind, text: str) -> list[bytes]:
        """Return what closes it; *text* is all that was in it."""
        ...


class AnthropicRenderer(Blocks):
    """Anthropic Messages."""

    keep_alive: bytes = sse({"type": "ping"}, "ping")

    _REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_use": "tool_use", "refusal": "refusal"}
    _ERRORS = {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        529: "overloaded_error",
    }
    _DELTAS = {
        "text": ("text_delta", "text"),
        "thinking": ("thinking_delta", "thinking"),
        "call": ("input_json_delta", "partial_json"),
    }

    def open(self) -> list[bytes]:
        """Return the frame that opens the message."""
        message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": self.model}
        message |= {"content": [], "stop_reason": None, "stop_sequence": None}
        return [self._event("message_start", message={**message, "usage": {"output_tokens": 1}})]

    def starts(self, kind: Kind, call: Call | None) -> list[bytes]:
        """Return the frame that opens a block."""
        block: dict[str, Any] = {"type": "text", "text": ""}
        if kind == "thinking":
            block = {"type": "thinking", "thinking": ""}
        if call is not None:
            block = {"type": "tool_use", "id": call.call_id, "name": call.name, "input": {}}
        return [self._event("content_block_start", index=self.at, content_block=block)]

    def ends(self, kind: Kind, text: str) -> list[bytes]:
        """Return the frame that closes a block, reasoning with its signature before it."""
        stop = self._event("content_block_stop", index=self.at)
        if kind != "thinking":
            return [stop]
        signed = {"type": "signature_delta", "signature": SIGNATURE}
        return [self._event("content_block_delta", index=self.at, delta=signed), stop]

    def finish(self, finish: Finish) -> list[bytes]:
        """Return the last delta, with the usage, and the end of the message."""
        ended = {"stop_reason": self._REASONS[self.reason(finish)], "stop_sequence": None}
        counts = {"input_tokens": finish.input_tokens, "output_tokens": finish.output_tokens}
        last = self._event("message_delta", delta=ended, usage=counts)
        return [*self._close(), last, self._event("message_stop")]

    def error(self, fail: Fail) -> list[bytes]:
        """Return an error as an event."""
        return [sse(self._error(fail), "error")]

    def refusal(self, fail: Fail) -> bytes:
        """Return Anthropic's error body."""
        return to_json(self._error(fail))

    def _delta(self, kind: Kind, piece: str) -> bytes:
        word, key = self._DELTAS[kind]
        return self._event("content_block_delta", index=self.at, delta={"type": word, key: piece})

    def _event(self, kind: str, **fields: Any) -> bytes:
        return sse({"type": kind, **fields}, kind)

    def _error(self, fail: Fail) -> dict[str, Any]:
        word = fail.code or self._ERRORS.get(fail.status or 500, "api_error")
        return {"type": "error", "error": {"type": word, "message": fail.message}}


class ResponsesRenderer(Blocks):
    """OpenAI Responses."""

    _STATUS = {
        "stop": ("completed", None),
        "tool_use": ("completed", None),
        "length": ("incomplete", "max_output_tokens"),
        "refusal": ("incomplete", "content_filter"),
    }
    _DELTAS = {
        "text": "response.output_text.delta",
        "thinking": "response.reasoning_summary_text.delta",
        "call": "response.function_call_arguments.delta",
    }

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._sent = 0
        self._call: Call | None = None
        self._output: list[dict[str, Any]] = []

    def open(self) -> list[bytes]:
        """Return the frame that says the response was made."""
        return [self._event("response.created", response=self._response("in_progress"))]

    def starts(self, kind: Kind, call: Call | None) -> list[bytes]:
        """Return the frames that open an item, and the part in it."""
        self._call = call
        added = self._event("response.output_item.added", output_index=self.at, item=self._item(kind, None))
        if kind == "text":
            part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}
            return [added, self._event("response.content_part.added", **self._place(kind), part=part)]
        if kind == "thinking":
            part = {"type": "summary_text", "text": ""}
            return [
                added,
                self._event("response.reasoning_summary_part.added", **self._place(kind), part=part),
            ]
        return [added]

    def ends(self, kind: Kind, text: str) -> list[bytes]:
        """Return the frames that say an item is whole."""
        key = "arguments" if kind == "call" else "text"
        word = self._DELTAS[kind].replace(".delta", ".done")
        item = self._item(kind, text)
        self._output.append(item)
        whole = self._event(word, **self._place(kind), **{key: text})
        return [whole, self._event("response.output_item.done", output_index=self.at, item=item)]

    def finish(self, finish: Finish) -> list[bytes]:
        """Return the frame that holds the whole response, with the usage."""
        closing = self._close()
        status, why = self._STATUS[self.reason(finish)]
        response = self._response(status)
        response["usage"] = {
            "input_tokens": finish.input_tokens,
            "output_tokens": finish.output_tokens,
            "total_tokens": finish.input_tokens + finish.output_tokens,
        }
        if why is not None:
            response["incomplete_details"] = {"reason": why}
        return [*closing, self._event(f"response.{status}", response=response)]

    def error(self, fail: Fail) -> list[bytes]:
        """Return the response that failed."""
        error = openai_error(fail)["error"]
        told = {"code": error["code"] or error["type"], "message": fail.message}
        return [self._event("response.failed", response={**self._response("failed"), "error": told})]

    def refusal(self, fail: Fail) -> bytes:
        """Return the error body of OpenAI."""
        return to_json(openai_error(fail))

    def _delta(self, kind: Kind, piece: str) -> bytes:
        return self._event(self._DELTAS[kind], **self._place(kind), delta=piece)

    def _place(self, kind: Kind) -> dict[str, Any]:
        place: dict[str, Any] = {"output_index": self.at, "item_id": f"item_{self.at}"}
        part = {"text": "content_index", "thinking": "summary_index"}.get(kind)
        return {**place, part: 0} if part else place

    def _item(self, kind: Kind, text: str | None) -> dict[str, Any]:
        """Return the open item: as it is opened with `text=None`, else as it is when whole."""
        item: dict[str, Any] = {"id": f"item_{self.at}"}
        status = "in_progress" if text is None else "completed"
        if kind == "thinking":
            if text is None:
                return {**item, "type": "reasoning", "summary": []}
            summary = [{"type": "summary_text", "text": text}]
            return {**item, "type": "reasoning", "summary": summary, "encrypted_content": SIGNATURE}
        if self._call is not None:
            called = {"call_id": self._call.call_id, "name": self._call.name, "arguments": text or ""}
            return {**item, "type": "function_call", "status": status, **called}
        content = [] if text is None else [{"type": "output_text", "text": text, "annotations": []}]
        return {**item, "type": "message", "role": "assistant", "status": status, "content": content}

    def _response(self, status: str) -> dict[str, Any]:
        about = {"id": "resp_1", "object": "response", "model": self.model, "status": status}
        return {**about, "output": list(self._output)}

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self._sent = self._sent, self._sent + 1
        return sse({"type": kind, "sequence_number": number, **fields}, kind)
