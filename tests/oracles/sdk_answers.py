"""What the official SDKs make of recorded answers: same bytes in, through the HTTP client they bring."""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiio.context.usage_data import usage_normalize
from tests.providers.manifest import Row

from .request_types import sdk

EVENT_STREAM = {"content-type": "text/event-stream"}


@dataclass
class Said:
    """What somebody read from an answer."""

    text: str = ""
    calls: list[tuple[str | None, str, Any]] = field(default_factory=list)
    """Id, name and arguments; the id is None where the server gave none."""
    finish: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    """Counters, as `usage_normalize` has them."""
    failed: bool = False
    """The reader said that this is no whole answer: it raised, or it ended with an error."""


def sdk_said(row: Row) -> Said:
    """Return what the SDK of the protocol of *row* reads from it. Skips where it isn't installed."""
    sdk(row.protocol)
    said = Said()
    try:
        _READERS[row.protocol](row, said)
    except Exception:  # noqa: BLE001  # what an SDK raises for a bad answer is of many kinds, ValueError to its own
        said.failed = True
    return said


@contextmanager
def _client(row: Row) -> Iterator[Any]:
    """Yield an HTTP client whose every request is answered by the recording."""
    httpx2: Any = importlib.import_module("httpx2")

    def answer(request: Any) -> Any:
        return httpx2.Response(200, headers=EVENT_STREAM, content=row.data)

    with httpx2.Client(transport=httpx2.MockTransport(answer), base_url="http://x") as client:
        yield client


def counters(usage: Any) -> dict[str, Any]:
    """Return the token counts in *usage*, in normal form and without what is no counter."""
    normal = usage_normalize(usage)
    return {key: count for key, count in normal.items() if key.endswith("_tokens")}


def _dump(usage: Any) -> dict[str, Any]:
    """Return the counters of an SDK's usage object; what it has no value for is absent."""
    return counters(usage.model_dump(exclude_none=True)) if usage is not None else {}


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments) if arguments else {}
    except ValueError:
        return arguments


def _chat(row: Row, said: Said) -> None:
    """The loop of the SDK's README; pieces of calls are joined by their index, as its helper does."""
    openai = sdk("chat")
    calls: dict[int, list[Any]] = {}
    with _client(row) as http:
        client = openai.OpenAI(api_key="k", base_url="http://x", http_client=http, max_retries=0)
        try:
            for chunk in client.chat.completions.create(model="m", messages=[], stream=True):
                if chunk.usage is not None:
                    said.usage = _dump(chunk.usage)
                for choice in chunk.choices:
                    if choice.index != 0:
                        continue
                    said.text += choice.delta.content or ""
                    said.finish = choice.finish_reason or said.finish
                    for piece in choice.delta.tool_calls or ():
                        call = calls.setdefault(piece.index, [None, "", ""])
                        call[0] = call[0] or piece.id
                        if piece.function is not None:
                            call[1] = call[1] or piece.function.name or ""
                            call[2] += piece.function.arguments or ""
        finally:
            said.calls = [(one, name, _parsed(arguments)) for one, name, arguments in calls.values()]


def _responses(row: Row, said: Said) -> None:
    openai = sdk("responses")
    with _client(row) as http:
        client = openai.OpenAI(api_key="k", base_url="http://x", http_client=http, max_retries=0)
        said.failed = True  # until a terminal event
        for event in client.responses.create(model="m", input="Hi.", stream=True):
            if event.type == "response.output_text.delta":
                said.text += event.delta
            elif event.type == "response.output_item.done" and event.item.type == "function_call":
                said.calls.append((event.item.call_id, event.item.name, _parsed(event.item.arguments)))
            elif event.type == "response.output_item.done" and event.item.type == "custom_tool_call":
                said.calls.append((event.item.call_id, event.item.name, event.item.input))
            elif event.type in ("response.completed", "response.incomplete", "response.failed"):
                details = event.response.incomplete_details
                reason = f":{details.reason}" if details is not None else ""
                said.finish = f"{event.response.status}{reason}"
                said.usage = _dump(event.response.usage)
                said.failed = event.type == "response.failed"


def _anthropic(row: Row, said: Said) -> None:
    anthropic = sdk("anthropic")
    with _client(row) as http:
        client = anthropic.Anthropic(api_key="k", base_url="http://x", http_client=http, max_retries=0)
        with client.beta.messages.stream(model="m", max_tokens=9, messages=[]) as stream:
            try:
                stream.until_done()
            finally:
                message = stream.current_message_snapshot
                said.text = "".join(block.text for block in message.content if block.type == "text")
                said.calls = [
                    (block.id, block.name, block.input)
                    for block in message.content
                    if block.type == "tool_use"
                ]
                said.finish = message.stop_reason
                said.usage = _dump(message.usage)


@functools.cache
def _gemini_client() -> tuple[Any, list[bytes]]:
    """Return a client and the list that its next answer is taken from: one made reads certificates twice."""
    httpx: Any = importlib.import_module("httpx")
    answers: list[bytes] = []

    def answer(request: Any) -> Any:
        return httpx.Response(200, headers=EVENT_STREAM, content=answers.pop())

    http = httpx.Client(transport=httpx.MockTransport(answer), base_url="http://x")
    options = {"httpx_client": http, "base_url": "http://x"}
    return sdk("gemini").Client(api_key="k", http_options=options), answers


def _gemini(row: Row, said: Said) -> None:
    client, answers = _gemini_client()
    answers.append(row.data)
    for chunk in client.models.generate_content_stream(model="gemini-3-pro", contents="Hi."):
        if chunk.usage_metadata is not None:
            reported = chunk.usage_metadata.model_dump(exclude_none=True, by_alias=True, mode="json")
            said.usage = counters(reported)
        for candidate in chunk.candidates or ():
            for part in (candidate.content and candidate.content.parts) or ():
                if part.function_call is not None:
                    call = part.function_call
                    said.calls.append((call.id, call.name, call.args or {}))
                elif not part.thought:
                    said.text += part.text or ""
            if candidate.finish_reason is not None:
                said.finish = str(candidate.finish_reason.value)


def _ollama(row: Row, said: Said) -> None:
    ollama = sdk("ollama")
    httpx: Any = importlib.import_module("httpx")
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=row.data))
    client = ollama.Client(host="http://x", transport=transport)
    for chunk in client.chat(model="m", messages=[], stream=True):
        said.text += chunk.message.content or ""
        for call in chunk.message.tool_calls or ():
            given = getattr(call, "id", None)
            said.calls.append((given, call.function.name, dict(call.function.arguments)))
        if chunk.done:
            said.finish = chunk.done_reason
            said.usage = _dump(chunk)


_READERS: dict[str, Callable[[Row, Said], None]] = {
    "chat": _chat,
    "responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "ollama": _ollama,
}
