"""A peer for agents: it answers each request by what the request holds, and remembers what was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio

from aiio.agents import Agent
from aiio.context.events import Done, Error
from aiio.context.types import Message
from aiio.env.env import Env, open_env
from aiio.providers.base import ProviderIO, define_provider
from aiio.transports.base import Connection, TransportRequest
from tests.io.scripted import (
    Frames,
    Head,
    Scripted,
    ScriptedConnection,
    Step,
    Wire,
    finish,
    frames,
    say,
)

MODEL = "peer/m"
Answer = Callable[[dict[str, Any]], Sequence[Step]]


@define_provider(name="agent-scripted")
class AgentScripted(Scripted):
    """The scripted dialect, with the tools in the body, and whether they may be called."""

    def request(self, context: Sequence[Message], io: ProviderIO) -> tuple[dict[str, Any], Any]:
        choice = io.settings.get("tool_choice")
        return {}, {"messages": list(context), "tools": list(io.tools()), "tool_choice": choice}


class Peer:
    """Answers the n-th request by the n-th script (the last one again), or by a function of the body."""

    def __init__(self, *scripts: Sequence[Step] | Answer) -> None:
        self.scripts = scripts
        self.wire = Wire()
        self.bodies: list[dict[str, Any]] = []

    async def open(self, request: TransportRequest, nursery: trio.Nursery) -> Connection:
        body = msgspec.json.decode(request.body or b"")
        self.bodies.append(body)
        script = self.scripts[min(len(self.bodies), len(self.scripts)) - 1]
        steps = list(script(body) if callable(script) else script)
        await trio.lowlevel.checkpoint()
        while steps and isinstance(steps[0], Head):
            await trio.sleep(steps.pop(0).after)  # type: ignore[union-attr]  # it is a Head
        self.wire.opened += 1
        return ScriptedConnection(self.wire, steps, 0.0)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def peer(
    *scripts: Sequence[Step] | Answer, max_active: int | None = None
) -> AsyncIterator[tuple[Env, Peer]]:
    """An Env with a peer behind the endpoint `peer`."""
    found = Peer(*scripts)
    async with open_env(max_active=max_active) as env:
        env.register_provider(AgentScripted)
        env.register_transport("peer", found)
        env.register_endpoint("peer", provider="agent-scripted", url="peer://x")
        yield env, found


def answer(text: str) -> list[Step]:
    """A whole answer."""
    return [say(text), finish(usage={"input_tokens": 10, "output_tokens": 5})]


def call(name: str, arguments: str = "{}", *, call_id: str = "c1", index: int = 0) -> Frames:
    """A whole tool call."""
    return frames(
        [
            {"type": "tool_call_start", "content_index": index, "call_id": call_id, "name": name},
            {"type": "tool_call_delta", "content_index": index, "arguments": arguments},
            {"type": "tool_call_end", "content_index": index},
        ]
    )


def half_call(name: str, arguments: str = '{"city": "Ros', *, index: int = 0) -> Frames:
    """A tool call whose end has not come."""
    return frames(
        [
            {"type": "tool_call_start", "content_index": index, "call_id": "half", "name": name},
            {"type": "tool_call_delta", "content_index": index, "arguments": arguments},
        ]
    )


def calling(*calls: Frames) -> list[Step]:
    """A whole answer that wants *calls* made."""
    return [*calls, finish("tool_calls", usage={"input_tokens": 20, "output_tokens": 7})]


def results(agent: Agent) -> list[tuple[str, str, bool]]:
    """(call id, text, failed) of the tool results in an agent's context."""
    return [
        (entry["call_id"], entry["content"][0]["text"], entry.get("error", False))
        for entry in agent.context
        if entry["type"] == 4
    ]


def shape(agent: Agent) -> list[int]:
    """The types of the messages in an agent's context."""
    return [entry["type"] for entry in agent.context]


def done(terminal: object) -> Done:
    assert isinstance(terminal, Done)
    return terminal


def failed(terminal: object) -> Error:
    assert isinstance(terminal, Error)
    return terminal
