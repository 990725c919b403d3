"""A provider and a transport that follow a script, on whatever clock the test runs.

A frame is a JSON list of events; the script says when frames come, when the head comes, and how it ends:

    async with scripted(Head(after=1), Say("Hi"), Pause(5), Finish()) as (env, wire):
        terminal = await aiio.IO(env=env, model="script/m").write(CONTEXT)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import trio

from aiio.context.events import Done
from aiio.context.types import Message, user_message
from aiio.env.env import Env, open_env
from aiio.providers.base import Provider, ProviderIO, define_provider
from aiio.transports.base import Connection, TransportRequest

CONTEXT: list[Message] = [user_message("Hello")]
MODEL = "script/m"


@dataclass(frozen=True)
class Head:
    """Let the response head come *after* seconds (0 when the script has none)."""

    after: float = 0.0


@dataclass(frozen=True)
class Pause:
    """Let *seconds* pass."""

    seconds: float


@dataclass(frozen=True)
class Frames:
    """Hand over *frames* at once; a frame is a list of event dicts, or raw bytes."""

    frames: tuple[Any, ...]


@dataclass(frozen=True)
class Ping:
    """A keep-alive: a read that completes no frame."""


@dataclass(frozen=True)
class Fail:
    """Raise *error* out of `receive`."""

    error: BaseException


@dataclass(frozen=True)
class Refuse:
    """Raise *error* out of `open`, instead of a head."""

    error: BaseException


def frames(*events: Sequence[Any] | Mapping[str, Any] | bytes) -> Frames:
    return Frames(events)


def say(text: str, index: int = 0) -> Frames:
    """A piece of text."""
    return frames([{"type": "text_delta", "content_index": index, "text": text}])


def finish(reason: str = "stop", **fields: Any) -> Frames:
    """The end signal."""
    return frames([{"type": "done", "done_reason": reason, **fields}])


WILL_END: list[Any] = ["complete"]
"""A frame after which only late usage may follow. One that is a dict (`{"usage": ...}`) goes into state."""

HANG = Pause(float("inf"))
Step = Head | Pause | Frames | Ping | Fail | Refuse


@define_provider(name="scripted")
class Scripted(Provider):
    """Frames are lists of events."""

    def request(self, context: Sequence[Message], io: ProviderIO) -> tuple[dict[str, Any], Any]:
        return {"x-model": io.current_model}, {"messages": list(context)}

    def translate(self, native: Any, state: Any, io: ProviderIO) -> Any:
        if native == WILL_END:
            state["ending"] = True
            return ()
        if isinstance(native, dict):
            state.update(native)
            return ()
        return native

    def ending(self, state: Any) -> bool:
        return "ending" in state

    def finish(self, state: Any, io: ProviderIO) -> Any:
        return [Done(done_reason="stop", usage=state.get("usage"))] if self.ending(state) else []


@dataclass
class Wire:
    """What the transport saw."""

    requests: list[TransportRequest] = field(default_factory=list)
    opened: int = 0
    closed: int = 0

    @property
    def open(self) -> int:
        return self.opened - self.closed


class ScriptedConnection:
    """Plays the steps after the head."""

    status = 200

    def __init__(self, wire: Wire, steps: list[Step], close_takes: float) -> None:
        self._wire, self._steps, self._close_takes = wire, steps, close_takes
        self._due: float | None = None
        self._closed = False
        self.headers: Mapping[str, str] = {"x-request-id": "req-1"}
        self.bytes_received = 0
        self.keepalives = 0

    async def receive(self) -> list[bytes] | None:
        while self._steps:
            match self._steps[0]:
                case Pause(seconds):
                    if self._due is None:
                        self._due = trio.current_time() + seconds
                    await trio.sleep_until(self._due)
                    self._due = None
                    self._steps.pop(0)
                    continue
                case Frames(found):
                    await trio.lowlevel.checkpoint()
                    self._steps.pop(0)
                    raw = [item if isinstance(item, bytes) else msgspec.json.encode(item) for item in found]
                    self.bytes_received += sum(map(len, raw))
                    return raw
                case Ping():
                    await trio.lowlevel.checkpoint()
                    self._steps.pop(0)
                    self.keepalives += 1
                    return []
                case Fail(error):
                    await trio.lowlevel.checkpoint()
                    raise error
                case Head() | Refuse():
                    raise AssertionError("a head belongs at the beginning")
        await trio.lowlevel.checkpoint()
        return None

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._wire.closed += 1
            await trio.sleep(self._close_takes)


class ScriptedTransport:
    """Plays one script per request; the last one again for all further requests."""

    def __init__(self, *scripts: Sequence[Step], close_takes: float = 0.0) -> None:
        self.wire = Wire()
        self._close_takes = close_takes
        self._scripts = [list(script) for script in scripts]

    async def open(self, request: TransportRequest, nursery: trio.Nursery) -> Connection:
        self.wire.requests.append(request)
        number = min(len(self.wire.requests), len(self._scripts)) - 1
        steps = list(self._scripts[number])
        await trio.lowlevel.checkpoint()
        while steps and isinstance(steps[0], Head):
            await trio.sleep(steps.pop(0).after)  # type: ignore[union-attr]  # it is a Head
        if steps and isinstance(steps[0], Refuse):
            raise steps[0].error
        self.wire.opened += 1
        return ScriptedConnection(self.wire, steps, self._close_takes)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def scripted(
    *steps: Step, max_active: int | None = None, close_takes: float = 0.0, **policy: Any
) -> AsyncIterator[tuple[Env, Wire]]:
    """An Env whose endpoint `script` plays *steps* for every request."""
    async with scripts(steps, max_active=max_active, close_takes=close_takes, **policy) as found:
        yield found


@asynccontextmanager
async def scripts(
    *each: Sequence[Step], max_active: int | None = None, close_takes: float = 0.0, **policy: Any
) -> AsyncIterator[tuple[Env, Wire]]:
    """An Env whose endpoint `script` plays one script per request, the last one again for the rest."""
    transport = ScriptedTransport(*each, close_takes=close_takes)
    async with open_env(max_active=max_active) as env:
        env.register_provider(Scripted)
        env.register_transport("scripted", transport)
        env.register_endpoint("script", provider="scripted", url="scripted://peer", **policy)
        yield env, transport.wire
