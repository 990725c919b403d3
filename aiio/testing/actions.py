"""What a peer does, step by step, without a word about who does it: scripts and recordings become these.

A server carries them out over a socket, the scripted transport on virtual time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, assert_never

from .steps import Call, Fail, Finish, Hang, Head, Pause, Ping, Raw, Say, Script, Think


@dataclass(frozen=True, slots=True)
class Begin:
    """The head of a good answer; comes once, before any data."""

    status: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Send:
    """Frames with their separators, in one write."""

    frames: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Bytes that make no frame."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing for *seconds*."""

    seconds: float


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing until *seconds* after the request came."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """A whole HTTP answer instead of a stream."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection breaks."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection is closed in the middle of the body."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Nothing more until the client leaves."""


Action: TypeAlias = Begin | Send | KeepAlive | Wait | WaitUntil | Refuse | Reset | Cut | Silence
"""When there are no more, the body ends cleanly."""


class Renderer(Protocol):
    """One answer in one dialect: called in the order of the script, it returns frames with separators."""

    content_type: str
    keep_alive: bytes

    def open(self) -> list[bytes]:
        """Return what comes before all content."""
        ...

    def say(self, text: str) -> list[bytes]:
        """Return a piece of text."""
        ...

    def think(self, text: str) -> list[bytes]:
        """Return a piece of reasoning."""
        ...

    def call(self, call: Call) -> list[bytes]:
        """Return a tool call, or the beginning of one."""
        ...

    def finish(self, finish: Finish) -> list[bytes]:
        """Return the end signal."""
        ...

    def error(self, fail: Fail) -> list[bytes]:
        """Return an error in mid-stream."""
        ...

    def refusal(self, fail: Fail) -> bytes:
        """Return the body of an HTTP answer that says no."""
        ...


def script_actions(steps: Script, renderer: Renderer) -> Iterator[Action]:
    """Yield what a peer does that plays *steps*, which `check_script` accepted, through *renderer*."""
    begun = opened = False
    calls = 0
    for step in steps:
        if isinstance(step, Pause):
            yield Wait(step.seconds)
            continue
        if isinstance(step, Hang):
            yield Silence()
            return
        if isinstance(step, Fail) and step.status is None:
            yield Reset()
            return
        if isinstance(step, Fail) and not begun:
            yield _refusal(step, step.status or 0, renderer)
            return
        if not begun:
            begun = True
            more = step.headers if isinstance(step, Head) else {}
            yield Begin(200, {"content-type": renderer.content_type, **more})
        if isinstance(step, Head):
            continue
        if isinstance(step, Ping):
            yield KeepAlive(renderer.keep_alive)
            continue
        opening = [] if opened or isinstance(step, Raw) else renderer.open()
        opened = opened or not isinstance(step, Raw)
        if isinstance(step, Call):
            calls += 1
            step = Call(step.name, step.arguments, step.call_id or f"call_{calls}", step.cut)
        yield Send((*opening, *_frames(step, renderer)))
    if not begun:
        yield Begin(200, {"content-type": renderer.content_type})


def _frames(step: Say | Think | Call | Raw | Finish | Fail, renderer: Renderer) -> list[bytes]:
    match step:
        case Say(text):
            return renderer.say(text)
        case Think(text):
            return renderer.think(text)
        case Call():
            return renderer.call(step)
        case Raw(data):
            return [data]
        case Finish():
            return renderer.finish(step)
        case Fail():
            return renderer.error(step)
        case _:
            assert_never(step)


def _refusal(fail: Fail, status: int, renderer: Renderer) -> Refuse:
    headers = {"content-type": "application/json"}
    if fail.retry_after is not None:
        headers["retry-after-ms"] = f"{fail.retry_after * 1000:g}"
    return Refuse(status, renderer.refusal(fail), {**headers, **fail.headers})
