"""aimock over all five protocols: text, reasoning, a tool loop, errors, truncation, disconnect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import aiio
from aiio.agents import Agent
from aiio.context.events import Done, Error, ErrorKind, FinishReason
from aiio.context.types import user_message
from aiio.env.env import Env, open_env

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]

PATHS = {
    "openai_chat": "/v1",
    "openai_responses": "/v1",
    "anthropic": "",
    "gemini": "/v1beta",
    "ollama": "",
}
each = pytest.mark.parametrize("protocol", PATHS)

WHOLE = "This text is cut somewhere in the middle of it, for sure."


@asynccontextmanager
async def peer(url: str, protocol: str) -> AsyncIterator[Env]:
    async with open_env() as env:
        env.register_endpoint("peer", provider=protocol, url=url + PATHS[protocol], auth="key-of-the-test")
        yield env


async def said(url: str, protocol: str, prompt: str) -> Done | Error:
    async with peer(url, protocol) as env:
        return await aiio.IO(env=env, model="peer/gemini-3-pro").write([user_message(prompt)])


def text_of(terminal: Done | Error, kind: str = "text") -> str:
    blocks = terminal.message["content"] if terminal.message else []
    return "".join(block["text"] for block in blocks if block["type"] == kind)


@each
async def test_text(aimock: str, protocol: str) -> None:
    terminal = await said(aimock, protocol, "plain")
    assert isinstance(terminal, Done)
    assert text_of(terminal) == "Hello from aimock, wörld 🐦."
    assert terminal.finish is FinishReason.STOP


@each
async def test_reasoning(aimock: str, protocol: str) -> None:
    terminal = await said(aimock, protocol, "think")
    assert isinstance(terminal, Done)
    assert text_of(terminal) == "It is blue."
    # What aimock calls `reasoning_content` on this wire, Ollama calls `thinking`.
    expected = "" if protocol == "ollama" else "Let me think about the sky."
    assert text_of(terminal, "thinking") == expected


@each
async def test_a_tool_loop(aimock: str, protocol: str) -> None:
    seen: list[str] = []

    def look(at: str) -> str:
        """Look at a thing."""
        seen.append(at)
        return f"{at} is blue"

    async with peer(aimock, protocol) as env:
        env.register_tool(look)
        agent = Agent(env=env, model="peer/gemini-3-pro", tools=["look"], max_rounds=4)
        result = await agent.run("tools")
    assert isinstance(result.terminal, Done), result.terminal
    assert sorted(seen) == ["sea", "sky"]
    assert (result.text, result.rounds) == ("Both are blue.", 2)


@each
async def test_E1_a_rate_limit(aimock: str, protocol: str) -> None:
    terminal = await said(aimock, protocol, "limited")
    assert isinstance(terminal, Error)
    assert (terminal.kind, terminal.status, terminal.retryable) == (ErrorKind.PROVIDER, 429, True)
    assert terminal.retry_after_ms == 7000
    assert "Rate limit exceeded." in terminal.error
    assert terminal.message is None


@each
@pytest.mark.parametrize("end", ["truncated", "disconnected"])
async def test_E3_a_stream_that_breaks_off_is_no_answer_and_its_text_is_kept(
    aimock: str, protocol: str, end: str
) -> None:
    terminal = await said(aimock, protocol, end)
    assert isinstance(terminal, Error)
    assert terminal.kind is ErrorKind.NETWORK
    assert 0 < len(text_of(terminal)) < len(WHOLE)
    assert WHOLE.startswith(text_of(terminal))
