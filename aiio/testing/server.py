"""A provider on loopback, in the trio run of the test: it speaks five dialects and does what it is told.

    async with mock_server(env=env) as server:
        server.play(say("Let me "), hang())                  # every request, whatever its dialect
        server.play_next(fail(429, retry_after="2s"))        # before that, one request
        server.replay("incident.jsonl")                      # recordings, one a request
        agent = Agent(env=env, model=server.model("anthropic"))

Which dialect a request speaks is told by its path: `.../chat/completions`, `.../responses`,
`.../messages`, `...:streamGenerateContent`, `/api/chat`. Answers are always streamed; one connection
serves one request. `GET .../models`, `/api/tags`, `/api/show` and `/api/ps` tell of one model. Nothing here
checks a request: look at `server.requests`.

On an autojump clock, bytes on their way over loopback look like idleness: give it a threshold, as the fixture
`aiio_clock` does, or use `scripted`, which needs no socket.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, assert_never
from urllib.parse import unquote

import trio

from .actions import (
    Action,
    Begin,
    Cut,
    KeepAlive,
    Refuse,
    Reset,
    Send,
    Silence,
    Wait,
    WaitUntil,
    script_actions,
)
from .dialects import Dialect, dialect_of
from .http import LAST_CHUNK, Request, chunk_bytes, head_bytes, read_request
from .loopback import abort, listening, wait_gone
from .peers import Peer
from .playbook import Playbook
from .recordings import Recording, load_recordings
from .steps import Script, Step, check_script, finish, say

if TYPE_CHECKING:
    from aiio.env.env import Env

MODEL_ID = "mock"
Answering: TypeAlias = Callable[[Request], Script]
"""Makes the script for a request."""
_Play: TypeAlias = Callable[[Request, Dialect], Iterator[Action]]


class MockServer(Peer):
    """The running server; see the module's docstring. Made by `mock_server`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.requests: list[Request] = []
        """Oldest first, bodies whole."""
        self._plays: Playbook[_Play] = Playbook(_scripted((say("Hello."), finish())))

    def play(self, *steps: Step) -> None:
        """Answer every request with *steps*; what was queued is dropped. TypeError, ValueError: no script."""
        self._plays.set(_scripted(steps))

    def play_next(self, *steps: Step) -> None:
        """Answer one request with *steps*, after those queued before. TypeError, ValueError: no script."""
        self._plays.queue(_scripted(steps))

    def answer(self, make: Answering) -> None:
        """Answer every request with the script that *make* returns for it; what it raises ends the server."""

        def play(request: Request, dialect: Dialect) -> Iterator[Action]:
            steps = make(request)
            check_script(steps)
            return script_actions(steps, dialect.renderer(_model_in(request)))

        self._plays.set(play)

    def replay(self, *recordings: str | Path | Recording, speed: float = 1.0) -> None:
        """Answer each request with the next answer recorded, and with the last one when there are no more.

        Args:
          recordings: files (see recordings.py), each of which may hold several answers, or answers.
          speed: how many times faster than it was; `math.inf`: without pauses.

        Raises:
          ValueError: no recordings, a file that is none, or a speed of 0 or less.
          OSError: a file can't be read.
        """
        if not speed > 0:
            raise ValueError(f"a speed is greater than 0, not {speed!r}")
        answers: list[Recording] = []
        for found in recordings:
            answers += [found] if isinstance(found, Recording) else load_recordings(found)
        self._plays.set_all(_recorded(answer, speed) for answer in answers)

    async def handle(self, stream: trio.SocketStream) -> None:
        """Serve one connection. Cancellation: the answer is cut off where it is."""
        request = await read_request(stream)
        listed = _listing(request)
        if listed is not None:
            await Exchange(stream).refuse(Refuse(200, listed, {"content-type": "application/json"}))
            return
        self.requests.append(request)
        dialect = dialect_of(request.target)
        if dialect is None:
            body = json.dumps({"error": {"message": f"no such path: {request.target}"}}).encode()
            await Exchange(stream).refuse(Refuse(404, body, {"content-type": "application/json"}))
            return
        await Exchange(stream).carry_out(self._plays.take()(request, dialect))


class Exchange:
    """One answer on its connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._began = trio.current_time()

    async def refuse(self, refusal: Refuse) -> None:
        """Send a whole answer."""
        headers = {**refusal.headers, "content-length": str(len(refusal.body)), "connection": "close"}
        await self._stream.send_all(head_bytes(refusal.status, headers) + refusal.body)

    async def carry_out(self, actions: Iterator[Action]) -> None:
        """Do what *actions* say, and end the body. Ends early when the client leaves."""
        for action in actions:
            match action:
                case Wait(seconds):
                    if await self._client_left(trio.current_time() + seconds):
                        return
                case WaitUntil(seconds):
                    if await self._client_left(self._began + seconds):
                        return
                case Begin(status, headers):
                    framed = {**headers, "transfer-encoding": "chunked", "connection": "close"}
                    await self._stream.send_all(head_bytes(status, framed))
                case Send(frames):
                    await self._chunk(b"".join(frames))
                case KeepAlive(data):
                    await self._chunk(data)
                case Refuse():
                    await self.refuse(action)
                    return
                case Reset():
                    abort(self._stream)
                    return
                case Cut():
                    return
                case Silence():
                    await wait_gone(self._stream)
                    return
                case _:
                    assert_never(action)
        await self._stream.send_all(LAST_CHUNK)

    async def _chunk(self, data: bytes) -> None:
        if data:  # an empty chunk would end the body
            await self._stream.send_all(chunk_bytes(data))

    async def _client_left(self, deadline: float) -> bool:
        """Wait until *deadline*; tell whether the client left before."""
        with trio.move_on_at(deadline):
            await wait_gone(self._stream)
            return True
        return False


@asynccontextmanager
async def mock_server(
    *steps: Step, env: Env | None = None, name: str = "mock", port: int = 0
) -> AsyncIterator[MockServer]:
    """Run a server for the length of the block.

    Args:
      steps: how every request is answered, until told otherwise; none: a short greeting.
      env: where its endpoints are registered, one a dialect, for `server.model(dialect)`.
      name: what those endpoints' names begin with.
      port: on 127.0.0.1; 0: any that is free.

    Raises what the block raises, never a group. TypeError, ValueError: no script. OSError: the port is taken.
    Cancellation, as any end of the block, closes the port and all connections.
    """
    server = MockServer(name)
    if steps:
        server.play(*steps)
    async with listening(server.handle, port) as loopback:
        server.attach(loopback)
        if env is not None:
            server.register(env)
        yield server


def _scripted(steps: Script) -> _Play:
    check_script(steps)
    return lambda request, dialect: script_actions(steps, dialect.renderer(_model_in(request)))


def _recorded(recording: Recording, speed: float) -> _Play:
    return lambda request, dialect: recording.actions(speed)


def _model_in(request: Request) -> str:
    """Return the model's id in *request*: in its body, for Gemini in its path."""
    before, colon, _ = request.target.rpartition(":")
    if colon and "/models/" in before:
        return unquote(before.rpartition("/models/")[2])
    try:
        body = request.json()
    except ValueError:
        return MODEL_ID
    model = body.get("model") if isinstance(body, dict) else None
    return model if isinstance(model, str) else MODEL_ID


def _listing(request: Request) -> bytes | None:
    """Return the list of models, if *request* asks for it: in a form that each dialect finds its own in."""
    path = request.target.partition("?")[0]
    if path.endswith(("/api/show", "/api/ps")):  # nothing more is known of it, and it is not loaded
        return b'{"models": []}'
    if request.method != "GET" or not path.endswith(("/models", "/api/tags")):
        return None
    gemini = {"name": f"models/{MODEL_ID}", "supportedGenerationMethods": ["generateContent"]}
    openai = {"id": MODEL_ID, "object": "model", "type": "model"}
    if path.endswith("/v1beta/models"):
        return json.dumps({"models": [gemini]}).encode()
    if path.endswith("/api/tags"):
        return json.dumps({"models": [{"name": MODEL_ID, "model": MODEL_ID}]}).encode()
    return json.dumps({"object": "list", "data": [openai], "has_more": False}).encode()
