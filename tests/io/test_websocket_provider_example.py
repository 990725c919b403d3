"""A user's own WebSocket provider, as docs/write-a-provider.md shows it, and what it gets for free."""

from __future__ import annotations

import json
from typing import Any

import trio
from trio.testing import MockClock

import aiio
from aiio.context.events import Done, Error
from tests.examples.parrot_provider import Parrot
from tests.ws_serving import Socket, serve_ws


async def parrot(socket: Socket) -> None:
    """The server."""
    await socket.accept()
    said = json.loads(await socket.message())["said"]
    await socket.text('{"who":"?"}')
    name = json.loads(await socket.message())["name"]
    await socket.text(*(json.dumps({"word": f"{word} "}) for word in [*said, "says", name]))
    await trio.sleep(10)
    await socket.text('{"end":true}')
    await socket.until_gone()


async def written(**options: Any) -> Any:
    async with serve_ws(parrot) as server, aiio.open_env() as env:
        env.register_provider(Parrot)
        env.register_endpoint("parrot", provider="parrot", url=server.url, auth="key-1")
        terminal = await aiio.IO(env=env, model="parrot/grey").write([aiio.user_message("Hello")], **options)
        await server.http.wait_idle()
        [socket] = server.sockets
        assert socket.request.target == "/talk"
        assert socket.request.headers["authorization"] == "Bearer key-1"
        return terminal


async def test_it_talks(autojump_clock: MockClock) -> None:
    terminal = await written()
    assert isinstance(terminal, Done)
    assert terminal.message == {"type": 3, "content": [{"type": "text", "text": "Hello says aiio "}]}


async def test_its_answer_can_be_stuck_and_keeps_the_partial(autojump_clock: MockClock) -> None:
    terminal = await written(stuck_timeout="4s")
    assert isinstance(terminal, Error)
    assert terminal.limit == "stuck"
    assert terminal.message is not None
    assert terminal.message["content"] == [{"type": "text", "text": "Hello says aiio "}]
