"""The states of an IO, and the causes that end a request, as tables.

Everything that decides *what happened* is here; `request.py` only finds out *when*. The drawing of one
write in the documents is made from these tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import trio

from aiio.context.events import ErrorKind


class IOState(StrEnum):
    """What an IO is doing."""

    IDLE = "idle"
    SENDING = "sending"
    READING = "reading"
    CLOSED = "closed"


class Step(StrEnum):
    """What moves an IO from state to state."""

    WRITE = "write"
    """A request begins: queued for a slot, then being sent."""
    HEAD = "head"
    """The response head, or the first WebSocket frame, is there."""
    RESEND = "resend"
    """The one resend, with credentials that changed meanwhile."""
    SETTLE = "settle"
    """The request has its terminal event."""
    CLOSE = "close"
    """The IO was killed and nothing of it runs any more."""


MOVES: dict[tuple[IOState, Step], IOState] = {
    (IOState.IDLE, Step.WRITE): IOState.SENDING,
    (IOState.SENDING, Step.HEAD): IOState.READING,
    (IOState.SENDING, Step.RESEND): IOState.SENDING,
    (IOState.READING, Step.RESEND): IOState.SENDING,
    (IOState.SENDING, Step.SETTLE): IOState.IDLE,
    (IOState.READING, Step.SETTLE): IOState.IDLE,
    (IOState.IDLE, Step.CLOSE): IOState.CLOSED,
    (IOState.SENDING, Step.CLOSE): IOState.CLOSED,
    (IOState.READING, Step.CLOSE): IOState.CLOSED,
    (IOState.CLOSED, Step.CLOSE): IOState.CLOSED,
}
"""Every pair that is missing here is misuse, or a bug of ours."""


def move(state: IOState, step: Step) -> IOState:
    """Return the state after *step*.

    Raises:
      trio.BusyResourceError: a request is already in flight.
      trio.ClosedResourceError: the IO was killed.
      RuntimeError: any other pair that `MOVES` lacks.
    """
    following = MOVES.get((state, step))
    if following is not None:
        return following
    if state is IOState.CLOSED:
        raise trio.ClosedResourceError("this IO was killed; make a new one")
    if step is Step.WRITE:
        raise trio.BusyResourceError("a request is already in flight on this IO; one IO runs one at a time")
    raise RuntimeError(f"no move from {state} by {step.value}")


class Cause(StrEnum):
    """Why a request ended. The first one to happen is the one reported."""

    ANSWERED = "answered"
    """The provider said it is done."""
    FAULT = "fault"
    """The provider, the network or a plug-in failed: see the `ProviderError` beside it."""
    KILL = "kill"
    """`kill()` or `kill_nowait()`."""
    OVERALL = "overall"
    CONNECT = "connect"
    STUCK = "stuck"
    OUTER = "outer"
    """A cancel scope around the write, somebody else's."""
    LEFT = "left"
    """The `async with io.stream(...)` block was left before the answer ended."""
    CRASH = "crash"
    """A callback of the caller raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a cause means for the terminal event."""

    kind: ErrorKind
    cancelled: bool = False
    limit: str | None = None
    retryable: bool = False
    text: str
    """The sentence; `{budget}`, `{silence}` and `{reason}` are filled in."""


OUTCOMES: dict[Cause, Outcome] = {
    Cause.KILL: Outcome(kind=ErrorKind.CANCELLED, cancelled=True, text="cancelled{reason}"),
    Cause.OUTER: Outcome(kind=ErrorKind.CANCELLED, cancelled=True, text="cancelled from outside the write"),
    Cause.LEFT: Outcome(
        kind=ErrorKind.CANCELLED, cancelled=True, text="cancelled: the stream was left before its end"
    ),
    Cause.CRASH: Outcome(
        kind=ErrorKind.CANCELLED, cancelled=True, text="cancelled: a callback raised {reason}"
    ),
    Cause.OVERALL: Outcome(
        kind=ErrorKind.NETWORK,
        limit="overall",
        retryable=True,
        text="request aborted: not finished within {budget} (the overall limit)",
    ),
    Cause.CONNECT: Outcome(
        kind=ErrorKind.NETWORK,
        limit="connect",
        retryable=True,
        text="request aborted: no response within {budget} (the connect budget)",
    ),
    Cause.STUCK: Outcome(
        kind=ErrorKind.NETWORK,
        limit="stuck",
        retryable=True,
        text="request aborted: no message data for {silence} (the stuck limit is {budget})",
    ),
}
"""Causes that are not the provider's own word; `ANSWERED` and `FAULT` bring their terminal event along."""
