"""The cells of the matrix, generated; the rules that leave cells out, each with its reason."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, islice, product


class Place(StrEnum):
    """How far the answer has come."""

    BEFORE_HEAD = "before-head"
    """The request was read and nothing sent. WebSocket: the handshake was read."""
    AFTER_HEAD = "after-head"
    """WebSocket: the handshake was accepted, and no message has come."""
    IN_FRAME = "in-frame"
    IN_CHARACTER = "in-character"
    BETWEEN_FRAMES = "between-frames"
    IN_ARGUMENTS = "in-arguments"
    AFTER_FINISH = "after-finish"
    """The reason for finishing has come, the end marker has not."""
    AFTER_TERMINAL = "after-terminal"
    """The end marker has come; the body or socket is still open."""


class Fault(StrEnum):
    """What the peer, or whoever is between, does at the place."""

    STALL = "stall"
    RESET = "rst"
    EOF = "eof"
    """The connection is closed, properly for TCP and TLS."""
    HALF_CLOSE = "half-close"
    """FIN in one direction, over TLS without its closing message; the other side stays open."""
    SLOW_CLOSE = "slow-close"
    """Silence for a while, then the end; WebSocket: a polite close frame, and the socket stays open."""
    GARBAGE = "garbage"
    TLS_ALERT = "tls-alert"
    OVERSIZED_LINE = "oversized-line"
    """WebSocket: an oversized message."""
    OVERSIZED_HEAD = "oversized-head"
    GZIP_BOMB = "gzip-bomb"
    WRONG_LENGTH = "wrong-length"
    """The body is longer than announced; WebSocket: so is a frame, or its length is none."""
    INFORMATIONAL = "1xx"
    REDIRECT = "redirect"
    PROXY_PAGE = "proxy-page"
    """Somebody between shows an HTML page."""


class Action(StrEnum):
    """How the write is stopped at the place, right before the fault."""

    NONE = "none"
    KILL = "kill"
    OUTER = "outer"
    OVERALL = "overall"
    """Nothing comes until the limit fires; so for the other two."""
    CONNECT = "connect"
    STUCK = "stuck"


LIMITS = (Action.OVERALL, Action.CONNECT, Action.STUCK)
MID_FRAME = (Place.IN_FRAME, Place.IN_CHARACTER, Place.IN_ARGUMENTS)
COMPLETE = (Place.AFTER_FINISH, Place.AFTER_TERMINAL)
IN_THE_HEAD = (Fault.OVERSIZED_HEAD, Fault.INFORMATIONAL, Fault.REDIRECT)

TRANSPORTS: dict[str, tuple[str, ...]] = {
    "chat": ("http", "https", "lent"),
    "responses": ("http",),
    "anthropic": ("http",),
    "gemini": ("http",),
    "ollama": ("http", "https"),
    "responses_ws": ("ws", "wss"),
    "realtime": ("ws",),
    "gemini_live": ("ws",),
}
"""Dialects, and how each is reached.

TLS is a sample, one dialect of each framing; so is HTTP through a client that the caller has lent.
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """One trial."""

    dialect: str
    transport: str
    place: Place
    fault: Fault
    action: Action

    def __str__(self) -> str:
        return f"{self.dialect}/{self.transport}/{self.place}/{self.fault}/{self.action}"

    @property
    def websocket(self) -> bool:
        """Whether the dialect is spoken over a WebSocket."""
        return self.transport in ("ws", "wss")

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.transport in ("https", "wss")


RULES: list[tuple[str, Callable[[Cell], bool]]] = [
    ("an alert is spoken over TLS only", lambda c: c.fault is Fault.TLS_ALERT and not c.tls),
    (
        "the dialect gives its reason for finishing in its last frame",
        lambda c: c.place is Place.AFTER_FINISH and c.dialect not in ("chat", "anthropic", "gemini"),
    ),
    (
        "the dialect has no end marker but the end of the body",
        lambda c: c.place is Place.AFTER_TERMINAL and c.dialect == "gemini",
    ),
    (
        "the fault is one of the response head, which has passed",
        lambda c: c.fault in IN_THE_HEAD and c.place is not Place.BEFORE_HEAD,
    ),
    (
        "a line of the head that is too long is the oversized head",
        lambda c: c.fault is Fault.OVERSIZED_LINE and c.place is Place.BEFORE_HEAD,
    ),
    (
        "before the handshake is answered a half close is an end of stream",
        lambda c: c.websocket and c.fault is Fault.HALF_CLOSE and c.place is Place.BEFORE_HEAD,
    ),
    (
        "the answer to a handshake has no body whose length could be wrong",
        lambda c: c.websocket and c.fault is Fault.WRONG_LENGTH and c.place is Place.BEFORE_HEAD,
    ),
    (
        "no compression is agreed on over a WebSocket, and no proxy has a page to show in it",
        lambda c: (
            c.websocket
            and c.fault in (Fault.GZIP_BOMB, Fault.PROXY_PAGE)
            and c.place is not Place.BEFORE_HEAD
        ),
    ),
    (
        "a WebSocket frame says its length before it begins",
        lambda c: c.websocket and c.fault is Fault.OVERSIZED_LINE and c.place in MID_FRAME,
    ),
    (
        "the connect budget ends with the head, or with the first message",
        lambda c: c.action is Action.CONNECT and not _connecting(c),
    ),
    (
        "the stuck limit begins where the connect budget ends",
        lambda c: c.action is Action.STUCK and _connecting(c),
    ),
    (
        "the answer is complete, and no limit runs any more",
        lambda c: (
            (c.action is Action.STUCK and c.place in COMPLETE)
            or (c.action is Action.OVERALL and c.place is Place.AFTER_TERMINAL)
        ),
    ),
    (
        "a silence that nobody ends is ended by a limit, which has its own cells",
        lambda c: c.fault is Fault.STALL and c.action is Action.NONE and c.place not in COMPLETE,
    ),
]
"""Why a cell is left out: the first reason that holds is the one counted."""


def _connecting(cell: Cell) -> bool:
    first = (Place.BEFORE_HEAD, Place.AFTER_HEAD) if cell.websocket else (Place.BEFORE_HEAD,)
    return cell.place in first


def _every_one() -> Iterator[Cell]:
    for dialect, transports in TRANSPORTS.items():
        for rest in product(transports, Place, Fault, Action):
            yield Cell(dialect, *rest)


def left_out(cell: Cell) -> str | None:
    """Return why *cell* makes no sense; None: it does."""
    return next((reason for reason, holds in RULES if holds(cell)), None)


def all_cells() -> list[Cell]:
    """Return every cell that makes sense."""
    return [cell for cell in _every_one() if left_out(cell) is None]


def counted_out() -> Counter[str]:
    """Return how many cells each rule leaves out."""
    return Counter(reason for cell in _every_one() if (reason := left_out(cell)) is not None)


def sample(size: int = 150) -> list[Cell]:
    """Return *size* cells that hold every pair of values that any cell has; always the same ones."""
    pairs = {cell: pairs_of(cell) for cell in all_cells()}
    cells = list(pairs)
    random.Random(1009).shuffle(cells)
    seen: set[tuple[str, str]] = set()
    chosen: dict[Cell, None] = {}
    for wanted in range(10, 0, -1):  # first those that bring the most that is new
        for cell in cells:
            if len(new := pairs[cell] - seen) >= wanted:
                chosen[cell] = None
                seen |= new
    more = (cell for cell in cells if cell not in chosen)
    return sorted([*chosen, *islice(more, size - len(chosen))], key=str)


def pairs_of(cell: Cell) -> set[tuple[str, str]]:
    """Return the pairs of values that *cell* has."""
    return set(combinations((cell.dialect, cell.transport, cell.place, cell.fault, cell.action), 2))
