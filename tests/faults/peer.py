"""What the tests here talk to: Chat Completions frames, an Env that knows the server, a witnessed write."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio
import trio.testing

import aiio
from aiio.context.events import BlockEvent
from aiio.context.types import Message
from tests.serving import Exchange, Server, Step, chunk, head, pause

KEY = "sk-peer-0123456789abcdef"
MODEL = "peer/m"
CONTEXT: list[Message] = [aiio.user_message("Hello")]
FIXTURES = Path(__file__).parents[1] / "fixtures"


# --- frames ---------------------------------------------------------------------------------------


def chunk_json(delta: Mapping[str, Any] | None = None, finish: str | None = None, **fields: Any) -> bytes:
    """One `chat.completion.chunk`, compact; *fields* are laid over its top level."""
    chunk = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [{"index": 0, "delta": dict(delta or {}), "finish_reason": finish}],
        **fields,
    }
    return json.dumps(chunk, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def text(piece: str) -> bytes:
    return chunk_json({"content": piece})


def thinking(piece: str) -> bytes:
    return chunk_json({"reasoning_content": piece})


def call(
    arguments: str | None = None, *, index: int | None = 0, id: str | None = None, name: str | None = None
) -> bytes:
    """A piece of a tool call; what is None is left out."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    entry: dict[str, Any] = {"function": function}
    if index is not None:
        entry["index"] = index
    if id is not None:
        entry |= {"id": id, "type": "function"}
    return chunk_json({"tool_calls": [entry]})


def stop(reason: str = "stop") -> bytes:
    return chunk_json(finish=reason)


def usage(prompt: int = 11, completion: int = 7) -> bytes:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return chunk_json(choices=[], usage=counts)


DONE = b"[DONE]"


def event(payload: bytes) -> bytes:
    """A payload as a server-sent event."""
    return b"data: " + payload + b"\n\n"


# --- scripts --------------------------------------------------------------------------------------


def events(*payloads: bytes) -> Step:
    """Send each payload as an event in a chunk of its own."""
    data = b"".join(b"%x\r\n%b\r\n" % (len(event(one)), event(one)) for one in payloads)

    async def step(exchange: Exchange) -> None:
        await exchange.send(data)

    return step


def paced(payloads: Iterable[bytes], gap: float) -> list[Step]:
    """Send each payload as an event, *gap* seconds after the one before."""
    steps: list[Step] = []
    for payload in payloads:
        steps += [pause(gap), chunk(event(payload))]
    return steps


def drip(*pieces: bytes) -> Step:
    """Send each piece as a chunk, and the next one only when the client has read it."""

    async def step(exchange: Exchange) -> None:
        for piece in pieces:
            await chunk(piece)(exchange)
            await trio.testing.wait_all_tasks_blocked(0.0005)

    return step


def one_byte_each(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def read_by_client() -> Step:
    """Wait until the client has read all that was sent: a reset throws away what it has not."""

    async def step(exchange: Exchange) -> None:
        await trio.testing.wait_all_tasks_blocked(0.001)

    return step


def answer(*payloads: bytes) -> list[Step]:
    """A whole chunked answer."""
    return [head(), events(*payloads), chunk_end()]


def chunk_end() -> Step:
    async def step(exchange: Exchange) -> None:
        await exchange.send(b"0\r\n\r\n")

    return step


GOOD = (text("Hi"), stop(), usage(), DONE)
"""The frames of an answer that ends well, saying `Hi`."""


# --- the client's side ----------------------------------------------------------------------------


@asynccontextmanager
async def peer(
    server: Server | str,
    *,
    auth: Any = KEY,
    settings: Mapping[str, Any] | None = None,
    max_active: int | None = None,
    http_client: Any = None,
    **policy: Any,
) -> AsyncIterator[aiio.Env]:
    """An Env whose endpoint `peer` is *server*, and that knows nothing of this machine."""
    url = server if isinstance(server, str) else server.url
    env = aiio.Env(settings, max_active=max_active, http_client=http_client, environ={})
    async with env:
        env.register_endpoint("peer", url=url, auth=auth, **policy)
        yield env


@dataclass
class Seen:
    """A write and everything that came out of it."""

    events: list[Any] = field(default_factory=list)
    """All that was dispatched, in order."""
    returned: aiio.Done | aiio.Error | None = None
    """None: the write raised."""
    began_at: float = 0.0
    ended_at: float = 0.0

    @property
    def terminal(self) -> aiio.Done | aiio.Error:
        """The terminal event as dispatched."""
        found = [one for one in self.events if isinstance(one, aiio.Done | aiio.Error)]
        assert len(found) == 1, f"{len(found)} terminal events"
        return found[0]

    @property
    def error(self) -> aiio.Error:
        terminal = self.terminal
        assert isinstance(terminal, aiio.Error), terminal
        return terminal

    @property
    def done(self) -> aiio.Done:
        terminal = self.terminal
        assert isinstance(terminal, aiio.Done), terminal
        return terminal

    @property
    def text(self) -> str:
        return text_of(self.terminal.message)

    @property
    def took(self) -> float:
        """Seconds on trio's clock."""
        return self.ended_at - self.began_at

    def calls(self) -> list[dict[str, Any]]:
        return blocks_of(self.terminal.message, "tool_call")


def blocks_of(message: Any, kind: str) -> list[dict[str, Any]]:
    return [block for block in (message or {"content": []})["content"] if block["type"] == kind]


def text_of(message: Any) -> str:
    return "".join(block["text"] for block in blocks_of(message, "text"))


async def write(
    io: aiio.IO,
    context: Sequence[Any] = CONTEXT,
    callbacks: Mapping[str, Callable[[Any], object]] | None = None,
    *,
    seen: Seen | None = None,
    **options: Any,
) -> Seen:
    """Write, and check what holds for every write: the laws that have no row of their own."""
    seen = Seen() if seen is None else seen
    seen.began_at = trio.current_time()
    before = json.dumps(context)

    def witness(name: str) -> Callable[[Any], object]:
        inner = (callbacks or {}).get(name)

        def called(one: Any) -> None:
            seen.events.append(one)
            if inner is not None:
                inner(one)

        return called

    names = [aiio.callback_name(kind) for kind in aiio.EventType]
    try:
        seen.returned = await io.write(list(context), {name: witness(name) for name in names}, **options)
    finally:
        seen.ended_at = trio.current_time()
        assert io not in io.env.active_io
        assert io.state in ("idle", "closed")
        assert json.dumps(context) == before
    assert seen.returned is seen.terminal
    check_events(seen.events)
    return seen


def check_events(seen: Sequence[Any]) -> None:
    """Assert the shape of one answer: start first, one terminal last, dense indexes, a valid message.

    A write that was stopped while it waited for its slot has a terminal event and nothing else.
    """
    assert isinstance(seen[0], aiio.Start) or (len(seen) == 1 and seen[0].cancelled)
    terminals = [one for one in seen if isinstance(one, aiio.Done | aiio.Error)]
    assert terminals == [seen[-1]]
    indexes = list(dict.fromkeys(one.content_index for one in seen if isinstance(one, BlockEvent)))
    silent = blocks_of(seen[-1].message, "binary")  # no event tells of these, but they take an index
    assert indexes == sorted(indexes)
    assert len(indexes) == max([-1, *indexes]) + 1 or silent
    assert seen[-1].usage is not None
    if seen[-1].message is not None:
        aiio.validate_message(seen[-1].message)


def open_files() -> int:
    """How many file descriptors this process holds."""
    return len(os.listdir("/proc/self/fd"))
