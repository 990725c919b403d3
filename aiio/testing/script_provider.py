"""A provider that follows a script on whatever clock runs, without a socket.

    async with scripted(say("Hi"), pause("5s"), finish()) as peer:
        agent = Agent(env=peer.env, model=peer.model)

On trio's autojump clock hours pass at once, and times are exact. `add_script` does the same on an Env
that is there.
"""

from __future__ import annotations

import http
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import trio

from aiio.context.types import Message
from aiio.env.env import Env
from aiio.env.errors import ErrorKind, HttpStatusError, ProviderError
from aiio.providers.base import Events, Provider, ProviderIO, define_provider
from aiio.providers.faults import error_event, status_fault
from aiio.transports.base import TransportRequest

from .actions import Action, Begin, KeepAlive, Refuse, Send, Silence, Wait, script_actions
from .event_dialect import EventRenderer
from .playbook import Playbook
from .steps import Script, Step, check_script, finish, say

PROVIDER = "aiio_scripted"
SCHEME = "scripted"
RESET = "the script broke the connection"

_numbers = count(1)
_STATUS = {found.value for found in http.HTTPStatus}


@define_provider(name=PROVIDER)
class ScriptedProvider(Provider):
    """A frame is a JSON list of aiio's own events, or an error object."""

    def request(self, context: Sequence[Message], io: ProviderIO) -> tuple[Mapping[str, Any], Any]:
        """Return what `ScriptedPeer.requests` shows: model, messages and tools."""
        return {}, {"model": io.current_model, "messages": list(context), "tools": list(io.tools())}

    def translate(self, native: Any, state: Any, io: ProviderIO) -> Events:
        """Return the events that the frame holds."""
        match native:
            case dict():
                return [error_event(native, now=time.time())]
            case list():
                return native
            case _:
                raise ValueError("a scripted frame is a list of events, or an error object")

    def classify_error(self, error: Exception) -> ProviderError:
        """Return *error* as any dialect would."""
        if isinstance(error, HttpStatusError):
            return status_fault(error, endpoint=self.io.endpoint_name, now=time.time())
        return super().classify_error(error)


class ScriptedConnection:
    """One answer; see `Connection`."""

    def __init__(self, peer: ScriptedPeer, actions: Iterator[Action], begin: Begin) -> None:
        self.status: int = begin.status
        self.headers: dict[str, str] = dict(begin.headers)
        self.bytes_received: int = 0
        self.keepalives: int = 0
        self._peer, self._actions = peer, actions
        self._action: Action | None = None
        self._due: float | None = None
        self._closed = False

    async def receive(self) -> list[bytes] | None:
        """See `Connection`."""
        while True:
            if self._action is None:
                self._action = next(self._actions, None)
            match self._action:
                case Wait(seconds):
                    self._due = trio.current_time() + seconds if self._due is None else self._due
                    await trio.sleep_until(self._due)
                    self._action = self._due = None
                    continue
                case Silence():
                    await trio.sleep_forever()
            await trio.lowlevel.checkpoint()
            match self._action:
                case Send(frames):
                    self._action = None
                    self.bytes_received += sum(map(len, frames))
                    return list(frames)
                case KeepAlive():
                    self._action = None
                    self.keepalives += 1
                    return []
                case None:
                    return None
            raise ProviderError(ErrorKind.NETWORK, RESET, phase="body", bytes_received=self.bytes_received)

    async def aclose(self) -> None:
        """Close it."""
        if not self._closed:
            self._closed = True
            self._peer.open -= 1
        await trio.lowlevel.checkpoint()


class ScriptedPeer:
    """The scripted provider on one Env; also its transport."""

    def __init__(self, env: Env, name: str) -> None:
        self.env = env
        self.model: str = f"{name}/mock"
        """The selector for it."""
        self.requests: list[dict[str, Any]] = []
        """`{"model", "messages", "tools"}` of every request, in aiio's own form."""
        self.open = 0
        """Connections now."""
        self._scripts: Playbook[Script] = Playbook((say("Hello."), finish()))

    def play(self, *steps: Step) -> None:
        """Answer every request with *steps*; what was queued is dropped. TypeError, ValueError: no script."""
        check_script(steps)
        self._scripts.set(steps)

    def play_next(self, *steps: Step) -> None:
        """Answer one request with *steps*, after those queued before. TypeError, ValueError: no script."""
        check_script(steps)
        self._scripts.queue(steps)

    def begin(self, request: TransportRequest) -> Iterator[Action]:
        """Take note of *request* and return what its answer does."""
        self.requests.append(json.loads(request.body or b"{}"))
        return script_actions(self._scripts.take(), EventRenderer("mock"))


class ScriptedTransport:
    """Plays the scripts of one peer; see `Transport`."""

    def __init__(self, peer: ScriptedPeer) -> None:
        self._peer = peer

    async def open(self, request: TransportRequest, nursery: trio.Nursery) -> ScriptedConnection:
        """See `Transport`."""
        actions = self._peer.begin(request)
        await trio.lowlevel.checkpoint()
        while True:
            match action := next(actions):  # a script says at least that an answer begins
                case Wait(seconds):
                    await trio.sleep(seconds)
                case Silence():
                    await trio.sleep_forever()
                case Refuse(status, body, headers):
                    phrase = http.HTTPStatus(status).phrase if status in _STATUS else ""
                    raise HttpStatusError(status, phrase, body.decode(), headers)
                case Begin():
                    if request.head_came is not None:
                        request.head_came()
                    self._peer.open += 1
                    return ScriptedConnection(self._peer, actions, action)
                case _:
                    raise ProviderError(ErrorKind.NETWORK, RESET, phase="head")

    async def aclose(self) -> None:
        """Nothing is shared."""
        await trio.lowlevel.checkpoint()


def add_script(env: Env, *steps: Step, name: str = "script") -> ScriptedPeer:
    """Register endpoint *name* on *env*, whose one model answers every request with *steps*.

    Without steps it gives a short greeting. TypeError, ValueError: no script, or a name that can't be used.
    """
    peer = ScriptedPeer(env, name)
    if steps:
        peer.play(*steps)
    scheme = f"{SCHEME}-{next(_numbers)}"
    env.register_provider(ScriptedProvider)
    env.register_transport(scheme, ScriptedTransport(peer))
    env.register_endpoint(
        name, provider=PROVIDER, url=f"{scheme}://peer", auth="scripted-key", proxy="direct"
    )
    return peer


@asynccontextmanager
async def scripted(*steps: Step, max_active: int | None = None) -> AsyncIterator[ScriptedPeer]:
    """Give an Env of its own, without files and environment, whose endpoint `script` plays *steps*.

    Args:
      steps: how every request is answered, until told otherwise.
      max_active: requests in flight at a time; None: no limit.

    TypeError, ValueError: no script. Cancellation, as any end of the block, closes the Env.
    """
    async with Env(config=False, environ={}, max_active=max_active) as env:
        yield add_script(env, *steps)
