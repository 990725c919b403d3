"""One scripted answer as each of the five protocols sends it.

answer = [Thinking("hm"), Text("Hi."), Call("c1", "look", {"at": 1})]
wire("anthropic", answer) -> the frames, ready to be replayed or cut
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Thinking:
    text: str


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Call:
    call_id: str
    name: str
    arguments: dict[str, Any]


Part: TypeAlias = Thinking | Text | Call
Answer: TypeAlias = Sequence[Part]

SIGNATURE = "c2lnbmF0dXJl"
INPUT, OUTPUT = 11, 7
"""The usage that every answer reports."""


def wire(protocol: str, answer: Answer, *, length: bool = False) -> list[bytes]:
    """Return *answer* as the frames of *protocol*, each with its separator.

    Args:
      length: the answer ends because the limit on tokens was reached.
    """
    return _WIRES[protocol](answer, length)


def pieces(text: str) -> Iterator[str]:
    """Yield *text* in pieces, as a model would send it."""
    for start in range(0, len(text), 3):
        yield text[start : start + 3]


def _called(answer: Answer) -> bool:
    return any(isinstance(part, Call) for part in answer)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _sse(value: dict[str, Any], name: str | None = None) -> bytes:
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + _json(value) + b"\n\n"


def _chat(answer: Answer, length: bool) -> list[bytes]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    calls = 0
    for part in answer:
        match part:
            case Thinking(text):
                deltas += ({"reasoning_content": piece} for piece in pieces(text))
            case Text(text):
                deltas += ({"content": piece} for piece in pieces(text))
            case Call(call_id, name, arguments):
                head = {"index": calls, "id": call_id, "type": "function"}
                deltas.append({"tool_calls": [{**head, "function": {"name": name, "arguments": ""}}]})
                for piece in pieces(json.dumps(arguments)):
                    deltas.append({"tool_calls": [{"index": calls, "function": {"arguments": piece}}]})
                calls += 1
    finish = "length" if length else "tool_calls" if calls else "stop"
    usage = {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    chunk = {"id": "c", "object": "chat.completion.chunk", "model": "m"}
    return [
        *(_sse({**chunk, "choices": [choice]}) for choice in choices),
        _sse({**chunk, "choices": [], "usage": usage}),
        b"data: [DONE]\n\n",
    ]


def _responses(answer: Answer, length: bool) -> list[bytes]:
    frames: list[bytes] = []
    output: list[dict[str, Any]] = []

    def send(kind: str, **fields: Any) -> None:
        frames.append(_sse({"type": kind, "sequence_number": len(frames), **fields}, kind))

    send(
        "response.created", response={"id": "r", "object": "response", "status": "in_progress", "output": []}
    )
    for at, part in enumerate(answer):
        place: dict[str, Any] = {"output_index": at, "item_id": f"i{at}"}
        item: dict[str, Any] = {"id": f"i{at}"}
        match part:
            case Thinking(text):
                item |= {"type": "reasoning", "summary": []}
                send("response.output_item.added", output_index=at, item={**item})
                summed = {"type": "summary_text", "text": ""}
                send("response.reasoning_summary_part.added", **place, summary_index=0, part=summed)
                for piece in pieces(text):
                    send("response.reasoning_summary_text.delta", **place, summary_index=0, delta=piece)
                send("response.reasoning_summary_text.done", **place, summary_index=0, text=text)
                item |= {"summary": [{"type": "summary_text", "text": text}], "encrypted_content": SIGNATURE}
            case Text(text):
                item |= {"type": "message", "role": "assistant", "status": "in_progress", "content": []}
                send("response.output_item.added", output_index=at, item={**item})
                written: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}
                send("response.content_part.added", **place, content_index=0, part=written)
                for piece in pieces(text):
                    send("response.output_text.delta", **place, content_index=0, delta=piece)
                send("response.output_text.done", **place, content_index=0, text=text)
                item |= {"status": "completed", "content": [{**written, "text": text}]}
            case Call(call_id, name, arguments):
                whole = json.dumps(arguments)
                item |= {"type": "function_call", "call_id": call_id, "name": name, "arguments": ""}
                send("response.output_item.added", output_index=at, item={**item})
                for piece in pieces(whole):
                    send("response.function_call_arguments.delta", **place, delta=piece)
                send("response.function_call_arguments.done", **place, arguments=whole)
                item |= {"arguments": whole, "status": "completed"}
        output.append(item)
        send("response.output_item.done", output_index=at, item=item)
    usage = {"input_tokens": INPUT, "output_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}
    status = "incomplete" if length else "completed"
    response: dict[str, Any] = {"id": "r", "object": "response", "status": status, "output": output}
    if length:
        response["incomplete_details"] = {"reason": "max_output_tokens"}
    send(f"response.{status}", response={**response, "usage": usage})
    return frames


def _anthropic(answer: Answer, length: bool) -> list[bytes]:
    frames: list[bytes] = []

    def send(kind: str, **fields: Any) -> None:
        frames.append(_sse({"type": kind, **fields}, kind))

    opening = {"id": "msg", "type": "message", "role": "assistant", "model": "m", "content": []}
    usage = {"input_tokens": INPUT, "output_tokens": 1}
    send("message_start", message={**opening, "stop_reason": None, "stop_sequence": None, "usage": usage})
    for at, part in enumerate(answer):

        def delta(at: int = at, **fields: Any) -> None:
            send("content_block_delta", index=at, delta=fields)

        match part:
            case Thinking(text):
                send("content_block_start", index=at, content_block={"type": "thinking", "thinking": ""})
                for piece in pieces(text):
                    delta(type="thinking_delta", thinking=piece)
                delta(type="signature_delta", signature=SIGNATURE)
            case Text(text):
                send("content_block_start", index=at, content_block={"type": "text", "text": ""})
                for piece in pieces(text):
                    delta(type="text_delta", text=piece)
            case Call(call_id, name, arguments):
                block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
                send("content_block_start", index=at, content_block=block)
                for piece in pieces(json.dumps(arguments)):
                    delta(type="input_json_delta", partial_json=piece)
        send("content_block_stop", index=at)
    reason = "max_tokens" if length else "tool_use" if _called(answer) else "end_turn"
    ended = {"stop_reason": reason, "stop_sequence": None}
    send("message_delta", delta=ended, usage={"output_tokens": OUTPUT})
    send("message_stop")
    return frames


def _gemini(answer: Answer, length: bool) -> list[bytes]:
    parts: list[dict[str, Any]] = []
    for part in answer:
        match part:
            case Thinking(text):
                parts += ({"text": piece, "thought": True} for piece in pieces(text))
            case Text(text):
                parts += ({"text": piece} for piece in pieces(text))
            case Call(call_id, name, arguments):
                call = {"id": call_id, "name": name, "args": arguments}
                parts.append({"functionCall": call, "thoughtSignature": SIGNATURE})
    usage = {"promptTokenCount": INPUT, "candidatesTokenCount": OUTPUT, "totalTokenCount": INPUT + OUTPUT}
    candidates = [{"index": 0, "content": {"role": "model", "parts": [part]}} for part in parts]
    candidates.append({"index": 0, "finishReason": "MAX_TOKENS" if length else "STOP"})
    return [_sse({"candidates": [one], "usageMetadata": usage, "modelVersion": "m"}) for one in candidates]


def _ollama(answer: Answer, length: bool) -> list[bytes]:
    messages: list[dict[str, Any]] = []
    for part in answer:
        match part:
            case Thinking(text):
                messages += ({"content": "", "thinking": piece} for piece in pieces(text))
            case Text(text):
                messages += ({"content": piece} for piece in pieces(text))
            case Call(call_id, name, arguments):
                call = {"id": call_id, "function": {"name": name, "arguments": arguments}}
                messages.append({"content": "", "tool_calls": [call]})
    head = {"model": "m", "created_at": "2026-01-01T00:00:00Z"}
    lines = [{**head, "message": {"role": "assistant", **one}, "done": False} for one in messages]
    counts = {"prompt_eval_count": INPUT, "eval_count": OUTPUT}
    end = {"done": True, "done_reason": "length" if length else "stop", **counts}
    lines.append({**head, "message": {"role": "assistant", "content": ""}, **end})
    return [_json(line) + b"\n" for line in lines]


_WIRES: dict[str, Callable[[Answer, bool], list[bytes]]] = {
    "chat": _chat,
    "responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "ollama": _ollama,
}
