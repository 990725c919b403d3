"""Recorded WebSocket sessions, played by a loopback server, one write a turn, frame by frame.

A recording is a list of `{"dir": "send" | "recv" | "open" | "close", ...}`; `turns_of` cuts it into what one
write each gets to see.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.providers.manifest import Row
from tests.serving import reset
from tests.ws_serving import Socket

Record = dict[str, Any]


@dataclass
class Turn:
    """What the server says in one write: after each message of the client, and how it ends."""

    frames: list[Any] = field(default_factory=list)
    closes: Record | None = None
    asked: Record | None = None
    """The message that was sent for it when it was recorded."""


def records_of(row: Row) -> list[Record]:
    """Return the records of a recording."""
    return [json.loads(line) for line in row.data.decode().splitlines()]


def turns_of(records: list[Record], asks: Callable[[Any], bool], ends: Callable[[Any], bool]) -> list[Turn]:
    """Return the turns in *records*.

    Args:
      asks: tells whether what the client sent begins a turn.
      ends: tells whether what the server sent is the end of one.
    """
    turns: list[Turn] = []
    over = True
    for record in records:
        data = record.get("data")
        match record["dir"]:
            case "send" if asks(data):
                turns.append(Turn(asked=data))
                over = False
            case "recv" if turns:
                if over and not ends(data) and _begins(data):
                    turns.append(Turn())
                turns[-1].frames.append(data)
                over = over or ends(data)
            case "close":
                turns[-1].closes = record
            case "open":
                over = True
    return turns


def _begins(data: Any) -> bool:
    return isinstance(data, dict) and data.get("type") == "response.created"


async def play(socket: Socket, turn: Turn) -> None:
    """Send the frames of *turn*, each as one message, and end the socket as it was ended."""
    for frame in turn.frames:
        await socket.text(json.dumps(frame, ensure_ascii=False))
    if turn.closes is None:
        await socket.until_gone()
    elif turn.closes["code"] == 1006:
        await reset()(socket.exchange)
    else:
        await socket.close(turn.closes["code"], turn.closes.get("reason", ""))
