"""What the WebSocket tests here talk to: servers that speak each dialect, and one by `websockets`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

import aiio
from tests.serving import Exchange, serve
from tests.ws_serving import Socket

CONTEXT = [aiio.user_message("Hello")]
CREATED = {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}


# -- Responses


def delta(text: str) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text}


def message(text: str) -> dict[str, Any]:
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return {"type": "response.output_item.done", "output_index": 0, "item": item}


def completed(name: str = "resp_1") -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return {"type": "response.completed", "response": {"id": name, "status": "completed", "usage": usage}}


def answer(text: str, name: str = "resp_1") -> list[dict[str, Any]]:
    return [CREATED, delta(text), message(text), completed(name)]


async def say(socket: Socket, *events: Mapping[str, Any]) -> None:
    await socket.text(*map(json.dumps, events))


@asynccontextmanager
async def peer(url: str, **settings: Any) -> AsyncIterator[aiio.IO]:
    """An IO that talks to *url*: Responses, over whatever it names, unless a provider is given."""
    async with aiio.open_env() as env:
        provider = "openai_responses_ws" if url.startswith("ws") else "openai_responses"
        settings = {"provider": provider, "auth": "key-1", **settings}
        env.register_endpoint("peer", url=url, **settings)
        yield aiio.IO(env=env, model="peer/m")


# -- all three dialects


async def no_session(socket: Socket) -> None:
    """The first message is the request."""
    assert json.loads(await socket.message())["type"] == "response.create"


async def realtime_session(socket: Socket) -> None:
    """Set a Realtime session up and take the conversation."""
    await say(socket, {"type": "session.created", "session": {}})
    update = json.loads(await socket.message())
    await say(socket, {"type": "session.updated", "session": update["session"]})
    while json.loads(await socket.message())["type"] != "response.create":
        pass


async def live_session(socket: Socket) -> None:
    """Take a Live setup and the turn after it."""
    assert "setup" in json.loads(await socket.message())
    await say(socket, {"setupComplete": {}})
    assert "clientContent" in json.loads(await socket.message())


@dataclass(frozen=True)
class Dialect:
    """How a server of one dialect behaves."""

    session: Callable[[Socket], Awaitable[None]]
    """What comes after the handshake and before the answer."""
    half: Sequence[Mapping[str, Any]]
    """An answer that says "Half" and is not over."""
    whole: Sequence[Mapping[str, Any]]
    """An answer that says "Whole"."""


def _live(text: str) -> dict[str, Any]:
    return {"serverContent": {"modelTurn": {"parts": [{"text": text}]}}}


_DONE = {"type": "response.done", "response": {"id": "resp_1", "status": "completed", "output": []}}
DIALECTS = {
    "openai_responses_ws": Dialect(no_session, [CREATED, delta("Half")], answer("Whole")),
    "openai_realtime": Dialect(
        realtime_session, [CREATED, delta("Half")], [CREATED, delta("Whole"), message("Whole"), _DONE]
    ),
    "gemini_live": Dialect(
        live_session, [_live("Half")], [_live("Whole"), {"serverContent": {"turnComplete": True}}]
    ),
}


# -- a server that nobody here wrote


@dataclass
class Independent:
    """The server side of the library `websockets`, sans-I/O; answers each message with *answers*.

    With a *refusal* it answers the handshake with that status. It pings once, fragments what it says, closes
    with *close* after its answer if that is given, and notes what it was told.
    """

    answers: Sequence[Mapping[str, Any]] = ()
    refusal: int | None = None
    close: int | None = None
    url: str = ""
    asked: list[Any] = field(default_factory=list)
    """Messages of the client, and the code it closed with."""

    async def __call__(self, exchange: Exchange) -> None:
        """Serve one connection."""
        protocol = ServerProtocol()
        while data := await exchange.stream.receive_some(65536):
            protocol.receive_data(bytes(data))
            for event in protocol.events_received():
                self._hear(event, protocol)
            for reply in protocol.data_to_send():
                if not reply:
                    return
                await exchange.send(reply)

    def _hear(self, event: object, protocol: ServerProtocol) -> None:
        if isinstance(event, Request):
            if self.refusal is not None:
                protocol.send_response(protocol.reject(self.refusal, '{"error":{"message":"not you"}}'))
                return
            protocol.send_response(protocol.accept(event))
            protocol.send_ping(b"are you there")
            return
        assert isinstance(event, Frame)
        if event.opcode is Opcode.TEXT:
            self.asked.append(json.loads(bytes(event.data)))
            for one in self.answers:
                text = json.dumps(one, ensure_ascii=False).encode()
                protocol.send_text(text[:5], fin=False)
                protocol.send_continuation(text[5:], fin=True)
            if self.close is not None:
                protocol.send_close(self.close, "because")
        elif event.opcode is Opcode.CLOSE:
            assert protocol.close_rcvd is not None
            self.asked.append(protocol.close_rcvd.code)


@asynccontextmanager
async def independent(*answers: Mapping[str, Any], **options: Any) -> AsyncIterator[Independent]:
    """Run one. At the end of the block all connections must have gone."""
    server = Independent(answers, **options)
    async with serve(server, read="nothing") as http:
        server.url = http.url.replace("http", "ws")
        yield server
        await http.wait_idle()
