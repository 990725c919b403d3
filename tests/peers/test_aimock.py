"""aimock over all its protocols, the WebSockets plain and through nginx's TLS.

Text, reasoning, a tool loop, errors, truncation, disconnect, and a kill that it notices.

aimock is not the specification. Over a WebSocket it differs from what providers send, and aiio stays with
the providers (their own frames are replayed in tests/io/test_websocket_recordings.py):

- Responses: an error has neither `status` nor `headers`, so there is no time to wait in it.
- Realtime: no `rate_limits.updated`, no `conversation.item.done` for what the client created; usage is all 0.
- Live: text messages only (Google's are binary); an error is a message `{"error": ...}`, where Google is
  said to close the socket with the error as the reason; `turnComplete` follows a `toolCall` at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio

import aiio
from aiio.agents import Agent
from aiio.context.events import Done, Error, ErrorKind, FinishReason
from aiio.context.types import Message, user_message
from aiio.env.env import Env, open_env

from .processes import NotHereError, connections_at

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]

HTTP = {
    "openai_chat": "/v1",
    "openai_responses": "/v1",
    "anthropic": "",
    "gemini": "/v1beta",
    "ollama": "",
}
SOCKETS = {"openai_responses_ws": "/v1", "openai_realtime": "/v1", "gemini_live": "/v1beta"}
PATHS = {**HTTP, **SOCKETS}
WAYS = [*HTTP, *(f"{protocol} over {scheme}" for protocol in SOCKETS for scheme in ("ws", "wss"))]

WHOLE = "This text is cut somewhere in the middle of it, for sure."

GONE_WITHIN = 2.0
"""Seconds the server may hold a connection that we left; the judge's patience, on the real clock."""


@dataclass(frozen=True)
class Peer:
    """One way to talk to aimock."""

    protocol: str
    url: str
    port: int
    """Its own, whatever stands before it."""
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def over_a_socket(self) -> bool:
        """Whether this is a WebSocket."""
        return self.protocol in SOCKETS

    @asynccontextmanager
    async def env(self) -> AsyncIterator[Env]:
        """Yield an env that knows it as `peer`."""
        async with open_env(self.settings) as env:
            env.register_endpoint("peer", provider=self.protocol, url=self.url, auth="key-of-the-test")
            yield env

    async def says(self, *context: Message) -> Done | Error:
        """Return how it answers."""
        async with self.env() as env:
            return await aiio.IO(env=env, model="peer/gemini-3-pro").write(list(context))


@pytest.fixture(params=WAYS)
def peer(request: pytest.FixtureRequest, aimock: str) -> Peer:
    """Each way in turn."""
    protocol, _, scheme = request.param.partition(" over ")
    port = urlsplit(aimock).port
    assert port is not None
    if scheme == "wss":
        front = request.getfixturevalue("aimock_behind_nginx")
        url = front.url.replace("https", "wss") + PATHS[protocol]
        return Peer(protocol, url, port, {"ca_file": front.ca_file})
    url = aimock.replace("http", "ws") if scheme else aimock
    return Peer(protocol, url + PATHS[protocol], port)


def text_of(terminal: Done | Error, kind: str = "text") -> str:
    blocks = terminal.message["content"] if terminal.message else []
    return "".join(block["text"] for block in blocks if block["type"] == kind)


async def test_text(peer: Peer) -> None:
    terminal = await peer.says(user_message("plain"))
    assert isinstance(terminal, Done), terminal
    assert text_of(terminal) == "Hello from aimock, wörld 🐦."
    assert terminal.finish is FinishReason.STOP


async def test_reasoning(peer: Peer) -> None:
    terminal = await peer.says(user_message("think"))
    assert isinstance(terminal, Done)
    assert text_of(terminal) == "It is blue."
    # What aimock calls `reasoning_content` on this wire, Ollama calls `thinking`; sessions have none there.
    without = peer.protocol in ("ollama", "openai_realtime", "gemini_live")
    assert text_of(terminal, "thinking") == ("" if without else "Let me think about the sky.")


async def test_a_tool_loop(peer: Peer) -> None:
    seen: list[str] = []

    def look(at: str) -> str:
        """Look at a thing."""
        seen.append(at)
        return f"{at} is blue"

    async with peer.env() as env:
        env.register_tool(look)
        agent = Agent(env=env, model="peer/gemini-3-pro", tools=["look"], max_rounds=4)
        result = await agent.run("tools")
    assert isinstance(result.terminal, Done), result.terminal
    assert sorted(seen) == ["sea", "sky"]
    assert (result.text, result.rounds) == ("Both are blue.", 2)


async def test_E1_a_rate_limit(peer: Peer) -> None:
    terminal = await peer.says(user_message("limited"))
    assert isinstance(terminal, Error)
    assert (terminal.kind, terminal.retryable) == (ErrorKind.PROVIDER, True)
    told = (None, None) if peer.over_a_socket else (429, 7000)
    assert (terminal.status, terminal.retry_after_ms) == told
    assert "Rate limit exceeded." in terminal.error
    assert terminal.message is None


@pytest.mark.parametrize("end", ["truncated", "disconnected"])
async def test_E3_a_stream_that_breaks_off_is_no_answer_and_its_text_is_kept(peer: Peer, end: str) -> None:
    terminal = await peer.says(user_message(end))
    assert isinstance(terminal, Error)
    assert terminal.kind is ErrorKind.NETWORK
    assert terminal.status == (1006 if peer.over_a_socket else None)
    assert 0 < len(text_of(terminal)) < len(WHOLE)
    assert WHOLE.startswith(text_of(terminal))


async def becomes_idle(peer: Peer) -> bool:
    """Tell whether the server has let go of all connections in time."""
    try:
        with trio.move_on_after(GONE_WITHIN):
            while connections_at(peer.port):
                await trio.sleep(0.02)
            return True
    except NotHereError as exc:
        pytest.skip(str(exc))
    return False


async def test_a_killed_answer_is_noticed_and_can_be_followed_up(peer: Peer) -> None:
    asked, pieces, held = user_message("long"), [], []
    assert await becomes_idle(peer)
    async with peer.env() as env:
        io = aiio.IO(env=env, model="peer/gemini-3-pro")

        def heard(event: Any) -> None:
            pieces.append(event.text)
            if len(pieces) == 3:
                held.append(connections_at(peer.port))
                io.kill_nowait("heard enough")

        killed = await io.write([asked], {"on_text_delta": heard})
        assert isinstance(killed, Error)
        assert (killed.cancelled, killed.error) == (True, "cancelled: heard enough")
        assert text_of(killed) == "".join(pieces) != ""
        assert held == [1]
        assert await becomes_idle(peer)
    assert killed.message is not None
    followed = await peer.says(asked, killed.message, user_message("plain"))
    assert isinstance(followed, Done), followed
    assert text_of(followed) == "Hello from aimock, wörld 🐦."
