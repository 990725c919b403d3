"""What must come of a cell, by spec/io.md and field-faults.md. One function, and no look at the code.

The order is that of the laws: a write that had its terminal event has it; who stopped the write comes
before the fault, since it was first; an answer that gave its reason for finishing is an answer; of what is
left, the fault decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from .answers import NDJSON
from .cells import LIMITS, Action, Cell, Fault, Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A terminal event."""

    kind: str | None = None
    """None: `done`."""
    limit: str | None = None
    cancelled: bool = False
    retryable: bool = False
    status: int | None = None
    """None: not looked at."""
    whole: bool = False
    """All of the answer is there, whatever the place."""


DONE = Expected(whole=True)
CANCELLED = Expected(kind="cancelled", cancelled=True)
NETWORK = Expected(kind="network", retryable=True)
MALFORMED = Expected(kind="malformed")

_OF_THE_FAULT: dict[Fault, Expected] = {
    Fault.RESET: NETWORK,  # E5: every transport fault, in every phase
    Fault.EOF: NETWORK,  # E3, Decided 7: an end that nobody announced
    Fault.HALF_CLOSE: NETWORK,
    Fault.SLOW_CLOSE: NETWORK,  # I1: nor is a close with 1000 an end
    Fault.TLS_ALERT: NETWORK,  # A13: TLS errors are network
    Fault.OVERSIZED_LINE: MALFORMED,  # a frame that can't be read
    Fault.OVERSIZED_HEAD: NETWORK,  # E5 names it
    Fault.INFORMATIONAL: DONE,  # the answer is still to come, and comes
    Fault.REDIRECT: Expected(kind="provider", status=307),  # H5: not followed, and won't change
}


def expected(cell: Cell) -> Expected:
    """Return the terminal event that *cell* must end with."""
    if cell.place is Place.AFTER_TERMINAL:
        return DONE
    if cell.action in (Action.KILL, Action.OUTER):
        return CANCELLED  # Decided 4 and 12
    if cell.place is Place.AFTER_FINISH:
        return DONE  # Decided 7
    if cell.action in LIMITS:
        return Expected(kind="network", limit=cell.action.value, retryable=True)  # A11, B1
    return _OF_THE_FAULT.get(cell.fault) or _by_place(cell)


def _by_place(cell: Cell) -> Expected:
    """Return what comes of the faults that mean one thing in the head and another in the body."""
    in_the_head = cell.place is Place.BEFORE_HEAD
    match cell.fault:
        case Fault.GARBAGE if in_the_head or (cell.place is Place.AFTER_HEAD and not cell.websocket):
            return NETWORK  # E5: no status line, no length of a chunk
        case Fault.GARBAGE:
            return MALFORMED  # D2
        case Fault.GZIP_BOMB:  # J2, error bodies too: there the status counts
            return Expected(kind="provider", status=500, retryable=True) if in_the_head else MALFORMED
        case Fault.WRONG_LENGTH:  # a body that is over before its end; a message that is none
            return MALFORMED if cell.websocket else NETWORK
        case Fault.PROXY_PAGE if in_the_head:
            return Expected(kind="provider", status=502, retryable=True)  # E6
        case Fault.PROXY_PAGE:  # to server-sent events its lines say nothing; to JSON lines they are none
            return MALFORMED if cell.dialect in NDJSON else NETWORK
        case _:
            raise ValueError(f"nothing is known of {cell}")
