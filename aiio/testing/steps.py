"""A script: what a model says, when, and how it ends. The same one plays on virtual time and over a socket.

    [think("hm"), say("Let me look. "), call("look", {"at": 1}), finish()]
    [say("Hello"), pause("5s"), say(" there"), hang()]
    [fail(429, retry_after="2s")]

Each step is one write of the server, so the steps are the edges at which text arrives. A script that ends
without `finish`, `fail` or `hang` closes politely without an end signal, as a broken gateway would.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from aiio.env.durations import Duration, parse_duration

Reason: TypeAlias = Literal["stop", "length", "tool_use", "refusal"]
"""Why the model stops, in aiio's words; each dialect has its own."""
REASONS: tuple[Reason, ...] = ("stop", "length", "tool_use", "refusal")


@dataclass(frozen=True, slots=True)
class Say:
    """A piece of text."""

    text: str


@dataclass(frozen=True, slots=True)
class Think:
    """A piece of reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call."""

    name: str
    arguments: str
    """JSON text, or as much of it as comes."""
    call_id: str | None = None
    """None: `call_1`, `call_2`, ..."""
    cut: bool = False
    """It is begun and never completed."""

    def pieces(self, size: int = 8) -> list[str]:
        """Return the arguments in the pieces in which they stream."""
        return [self.arguments[at : at + size] for at in range(0, len(self.arguments), size)]


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence for *seconds*, before the response head if nothing was sent before."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Head:
    """The response head, without anything to follow it yet."""

    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ping:
    """A keep-alive, in the dialect's own form."""


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes of the body as they are, in no dialect."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The end signal."""

    reason: Reason | None = None
    """None: `tool_use` after calls, else `stop`."""
    input_tokens: int = 11
    output_tokens: int = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """The provider says no with *status*; without one the connection is reset."""

    status: int | None = None
    message: str = "scripted failure"
    code: str | None = None
    retry_after: float | None = None
    """Seconds; sent in the header `retry-after-ms`."""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hang:
    """Nothing more, until the client leaves."""


Step: TypeAlias = Say | Think | Call | Pause | Head | Ping | Raw | Finish | Fail | Hang
"""One write of the server, a silence, or an end; made by `say`, `pause`, `finish`, ..."""
Script: TypeAlias = Sequence[Step]
"""What a server does about one request, in order."""

_LAST = (Finish, Fail, Hang)
_AFTER_CUT = (Pause, Ping, Raw, Fail, Hang)


def say(text: str) -> Say:
    """Say *text*, in one piece."""
    return Say(text)


def think(text: str) -> Think:
    """Think *text*, in one piece."""
    return Think(text)


def call(
    name: str,
    arguments: Mapping[str, Any] | str | None = None,
    *,
    call_id: str | None = None,
    cut: bool = False,
) -> Call:
    """Call tool *name*.

    Args:
      arguments: an object, or JSON text, which may be broken.
      call_id: None numbers the calls of an answer.
      cut: the call is begun with these arguments and not completed; only silence or an end may follow.
        A dialect whose calls come in one frame sends half of that frame.
    """
    text = arguments if isinstance(arguments, str) else json.dumps(dict(arguments or {}))
    return Call(name, text, call_id, cut)


def pause(duration: Duration) -> Pause:
    """Send nothing for *duration* (a bare number is milliseconds). TypeError, ValueError: it is none."""
    return Pause(seconds_of(duration))


def head(headers: Mapping[str, str] | None = None) -> Head:
    """Send the response head now, with *headers* on top of the dialect's."""
    return Head(dict(headers or {}))


def ping() -> Ping:
    """Send a keep-alive, which is no progress."""
    return Ping()


def raw(data: bytes) -> Raw:
    """Send *data* as it is: garbage, half a frame, somebody else's dialect."""
    return Raw(data)


def finish(reason: Reason | None = None, *, input_tokens: int = 11, output_tokens: int = 7) -> Finish:
    """End the answer properly. ValueError: an unknown *reason*."""
    if reason is not None and reason not in REASONS:
        raise ValueError(f"unknown reason {reason!r}; there are {', '.join(REASONS)}")
    return Finish(reason=reason, input_tokens=input_tokens, output_tokens=output_tokens)


def fail(
    status: int | None = None,
    message: str = "scripted failure",
    *,
    code: str | None = None,
    retry_after: Duration | None = None,
    headers: Mapping[str, str] | None = None,
) -> Fail:
    """Fail: as the first thing an HTTP answer with *status*, in mid-answer an error frame of the dialect.

    Args:
      status: of the HTTP answer, at least 400; None resets the connection.
      message: the provider's sentence.
      code: its word; None: one that goes with *status*.
      retry_after: what the provider asks to wait, in header `retry-after-ms`.
      headers: more headers of the HTTP answer.

    Raises:
      TypeError, ValueError: a status below 400, or a duration that is none.
    """
    if status is not None and not 400 <= status <= 599:
        raise ValueError(f"a failure has a status from 400 to 599, not {status!r}")
    wait = None if retry_after is None else seconds_of(retry_after)
    return Fail(status=status, message=message, code=code, retry_after=wait, headers=dict(headers or {}))


def hang() -> Hang:
    """Say nothing more, and leave the connection open until the client goes."""
    return Hang()


def check_script(steps: Script) -> None:
    """Raise for a script that makes no sense.

    Raises:
      TypeError: something that is no step.
      ValueError: a step that can't be played where it stands.
    """
    before: Step | None = None
    ended = cut = False
    for step in steps:
        if not isinstance(step, Step):
            raise TypeError(f"not a step of a script: {step!r}")
        if ended:
            raise ValueError(f"nothing can follow {before!r}, and {step!r} does")
        if cut and type(step) not in _AFTER_CUT:
            raise ValueError(f"only silence or an end can follow a call that is cut, not {step!r}")
        cut = cut or (isinstance(step, Call) and step.cut)
        before, ended = step, isinstance(step, _LAST)


def seconds_of(duration: Duration) -> float:
    """Return *duration* in seconds. TypeError, ValueError: it is none."""
    seconds = parse_duration(duration)
    assert seconds is not None  # only None is
    return seconds
