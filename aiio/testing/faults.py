"""Faults of a connection, at an exact byte, for the proxy in proxy.py.

    stall(after=300)                     nothing more of the answer from its byte 300 on
    stall("2s", after=300)               a gap
    reset(after=10, direction="up")      RST towards the server when ten bytes of the request have passed
    latency("80ms"), throttle(2000)      every byte later; no more than 2,000 bytes a second

Bytes are those of the TCP stream in that direction, so the response head counts. `down` is from the server
to the client. As text, for a command line: `KIND[=VALUE][@BYTE][:up]`, as in `stall=2s@300`, `reset@10:up`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

from aiio.env.durations import Duration

from .steps import seconds_of

Direction: TypeAlias = Literal["up", "down"]


class FaultKind(StrEnum):
    """What goes wrong."""

    LATENCY = "latency"
    """Bytes arrive later, in order."""
    THROTTLE = "throttle"
    """Bytes arrive slowly."""
    STALL = "stall"
    """Bytes stop, for a while or for good; the connection stays open."""
    RESET = "reset"
    """RST to whom the bytes go; the other side is closed."""
    EOF = "eof"
    """The connection is closed on both sides, properly for TCP."""
    HALF_CLOSE = "half_close"
    """FIN to whom the bytes go, and what it sends still passes; later bytes to it are dropped."""
    SLOW_CLOSE = "slow_close"
    """All bytes arrive, but the end of the stream does so late."""
    REFUSE = "refuse"
    """Nobody listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of one direction."""

    kind: FaultKind
    after: int = 0
    """Bytes that pass before it."""
    direction: Direction = "down"
    seconds: float = math.inf
    """How long, for latency, stall and slow close."""
    rate: float = math.inf
    """Bytes a second, for throttle."""

    def __post_init__(self) -> None:
        if self.after < 0:
            raise ValueError(f"a fault comes after 0 bytes or more, not {self.after!r}")
        if self.direction not in ("up", "down"):
            raise ValueError(f"a direction is 'up' or 'down', not {self.direction!r}")
        if not self.rate > 0:
            raise ValueError(f"a rate is more than 0 bytes a second, not {self.rate!r}")


def latency(duration: Duration, *, after: int = 0, direction: Direction = "down") -> Fault:
    """Have bytes arrive *duration* later than they would, in order."""
    return Fault(kind=FaultKind.LATENCY, seconds=seconds_of(duration), after=after, direction=direction)


def throttle(bytes_per_second: float, *, after: int = 0, direction: Direction = "down") -> Fault:
    """Let no more than so many bytes pass a second."""
    return Fault(kind=FaultKind.THROTTLE, rate=bytes_per_second, after=after, direction=direction)


def stall(duration: Duration = math.inf, *, after: int = 0, direction: Direction = "down") -> Fault:
    """Let nothing pass for *duration*; by default until the receiver leaves."""
    return Fault(kind=FaultKind.STALL, seconds=seconds_of(duration), after=after, direction=direction)


def reset(*, after: int = 0, direction: Direction = "down") -> Fault:
    """Send a TCP RST to whom the bytes go."""
    return Fault(kind=FaultKind.RESET, after=after, direction=direction)


def eof(*, after: int = 0, direction: Direction = "down") -> Fault:
    """Close the connection on both sides."""
    return Fault(kind=FaultKind.EOF, after=after, direction=direction)


def half_close(*, after: int = 0, direction: Direction = "down") -> Fault:
    """End the stream (FIN) in this direction only; what would follow is dropped."""
    return Fault(kind=FaultKind.HALF_CLOSE, after=after, direction=direction)


def slow_close(duration: Duration, *, direction: Direction = "down") -> Fault:
    """Pass the end of the stream on *duration* after it came."""
    return Fault(kind=FaultKind.SLOW_CLOSE, seconds=seconds_of(duration), direction=direction)


def refuse() -> Fault:
    """Refuse connections: nobody listens on the port."""
    return Fault(kind=FaultKind.REFUSE)


_TEXT = re.compile(
    r"(?P<kind>[a-z_]+)(?:=(?P<value>[^@:]+))?(?:@(?P<after>\d+))?(?::(?P<direction>up|down))?"
)
_FROM_TEXT: dict[FaultKind, Callable[[str], dict[str, float]]] = {
    FaultKind.LATENCY: lambda value: {"seconds": seconds_of(value)},
    FaultKind.STALL: lambda value: {"seconds": seconds_of(value)},
    FaultKind.SLOW_CLOSE: lambda value: {"seconds": seconds_of(value)},
    FaultKind.THROTTLE: lambda value: {"rate": float(value)},
}
"""Kinds that take a value; only a stall can do without."""


def parse_fault(text: str) -> Fault:
    """Return the fault that *text* describes. ValueError: none; the text is quoted."""
    found = _TEXT.fullmatch(text.strip())
    if found is None or found["kind"] not in tuple(FaultKind):
        kinds = ", ".join(FaultKind)
        raise ValueError(f"not a fault: {text!r} (KIND[=VALUE][@BYTE][:up], where KIND is one of {kinds})")
    kind, value = FaultKind(found["kind"]), found["value"]
    takes = _FROM_TEXT.get(kind)
    if value is None and takes is not None and kind is not FaultKind.STALL:
        raise ValueError(
            f"{kind} needs a value, as in {kind}={1000 if kind is FaultKind.THROTTLE else '50ms'}"
        )
    if value is not None and takes is None:
        raise ValueError(f"{kind} takes no value, {text!r} gives it one")
    more = takes(value) if takes is not None and value is not None else {}
    direction: Direction = "up" if found["direction"] == "up" else "down"
    return Fault(kind=kind, after=int(found["after"] or 0), direction=direction, **more)
