"""Frames made different: values of other types, keys gone, frames doubled, moved, from other answers.

What random bytes do to JSON is mostly no JSON any more, and a dialect refuses it before it looks. This keeps
it JSON. Deterministic: the same *seed* makes the same of the same frames.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec

VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    7,
    2**31,
    2**63,
    -(2**63) - 1,
    1.5,
    1e308,
    "",
    "x",
    "{}",
    '{"a":',
    "0",
    "null",
    "stop",
    "tool_calls",
    "length",
    "error",
    "é🦅",
    "a\nb",
    "<think>",
    "</think>",
    [],
    {},
    [None],
    [[]],
    [{}],
    {"a": {}},
    {"type": "text"},
    ["x", 1],
)
"""What takes the place of something: other types, edges of numbers, words that mean something."""

RAW = (
    b"\xed\xa0\xbd",
    b"\\ud83d",
    b"\\udc00",
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"9" * 400,
    b"\xff",
    b"\x00",
    b"[[",
)
"""What the encoder would not write."""


def mutated(frames: Sequence[bytes], others: Sequence[bytes], seed: int) -> list[bytes]:
    """Return *frames* after one to four changes; *others* are frames to take from."""
    chance = random.Random(seed)
    changed = list(frames)
    for _ in range(chance.choice((1, 1, 2, 4))):
        _change(changed, others, chance)
    return changed


def _change(frames: list[bytes], others: Sequence[bytes], chance: random.Random) -> None:
    if not frames:
        frames += chance.choices(others, k=2) if others else []
        return
    at = chance.randrange(len(frames))
    match chance.randrange(16):
        case 0:
            del frames[at]
        case 1:
            frames.insert(at, chance.choice(frames))
        case 2:
            frames[at:] = []
        case 3:
            other = chance.randrange(len(frames))
            frames[at], frames[other] = frames[other], frames[at]
        case 4 | 5 if others:
            frames.insert(at, chance.choice(others))
        case 6:
            line = frames[at]
            place = chance.randrange(len(line) + 1)
            frames[at] = line[:place] + chance.choice(RAW) + line[place + chance.randrange(3) :]
        case _:
            frames[at] = _changed_json(frames[at], chance)


def _changed_json(frame: bytes, chance: random.Random) -> bytes:
    try:
        root = [msgspec.json.decode(frame)]
    except (ValueError, RecursionError):
        return frame
    holder, key = chance.choice(_places(root))
    match chance.randrange(8):
        case 0 | 1 if isinstance(holder, dict):
            del holder[key]
        case 2 if isinstance(holder, list) and holder is not root:
            holder.insert(key, holder[key])
        case 3:
            other, name = chance.choice(_places(root))
            holder[key] = msgspec.json.decode(msgspec.json.encode(other[name]))
        case 4 if isinstance(holder[key], int) and not isinstance(holder[key], bool):
            holder[key] += chance.choice((-1, 1, 2, 5000))
        case _:
            holder[key] = chance.choice(VALUES)
    try:
        return msgspec.json.encode(root[0])
    except (ValueError, OverflowError, TypeError):
        return frame


def _places(root: list[Any]) -> list[tuple[Any, Any]]:
    """Return every (container, key or index) below *root*, the root's own included."""
    found: list[tuple[Any, Any]] = []
    pending: list[Any] = [root]
    while pending:
        holder = pending.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], dict | list):
                pending.append(holder[key])
    return found
