"""aiio's own events as a dialect: what the scripted provider speaks. See `Renderer`."""

from __future__ import annotations

from typing import Any

from aiio.context.events import FinishReason

from .block_dialects import Blocks, Kind
from .flat_dialects import openai_error, to_json
from .steps import Call, Fail, Finish

_WORDS = {"text": "text", "thinking": "thinking", "call": "tool_call"}


class EventRenderer(Blocks):
    """A frame is a JSON list of events, or an error object."""

    content_type = "application/x-aiio-events"
    keep_alive = b""

    def open(self) -> list[bytes]:
        """Return nothing: the IO says `start`."""
        return []

    def starts(self, kind: Kind, call: Call | None) -> list[bytes]:
        """Return the event that opens a block."""
        named = {} if call is None else {"call_id": call.call_id, "name": call.name}
        return [self._event(f"{_WORDS[kind]}_start", **named)]

    def ends(self, kind: Kind, text: str) -> list[bytes]:
        """Return the event that says a block is whole."""
        return [self._event(f"{_WORDS[kind]}_end")]

    def finish(self, finish: Finish) -> list[bytes]:
        """Return `done`."""
        usage = {
            "input_tokens": finish.input_tokens,
            "output_tokens": finish.output_tokens,
            "total_tokens": finish.input_tokens + finish.output_tokens,
        }
        reason = self.reason(finish)
        done = {"type": "done", "done_reason": reason, "finish": FinishReason(reason).value, "usage": usage}
        return [*self._close(), to_json([done])]

    def error(self, fail: Fail) -> list[bytes]:
        """Return the error object."""
        return [to_json(openai_error(fail))]

    def refusal(self, fail: Fail) -> bytes:
        """Return the body that goes with the status."""
        return to_json(openai_error(fail))

    def _delta(self, kind: Kind, piece: str) -> bytes:
        key = "arguments" if kind == "call" else "text"
        return self._event(f"{_WORDS[kind]}_delta", **{key: piece})

    def _event(self, kind: str, **fields: Any) -> bytes:
        return to_json([{"type": kind, "content_index": self.at, **fields}])
