"""Inputs made different. Frames: values of other types, keys gone, frames doubled, moved, from other answers.

What random bytes do to JSON is mostly no JSON any more, and a dialect refuses it before it looks. What is
done to frames here keeps them JSON. For framing, bytes become other bytes and tokens of the format.
Deterministic: what is made depends on the input and on *chance* alone.
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
    "$.a[1]['b'].c",
    "data:image/png;base64,AAAA",
    "AAA=",
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


_CHANGES = (1, 1, 2, 4)
_EVERY_BYTE = 255
"""The first byte of an input for framing that is cut at every place."""


def mutated(frames: Sequence[bytes], others: Sequence[bytes], chance: random.Random) -> list[bytes]:
    """Return *frames* after one to four changes; *others* are frames to take from."""
    changed = list(frames)
    for _ in range(chance.choice(_CHANGES)):
        _change(changed, others, chance)
    return changed


def shortened(frames: Sequence[bytes], most: int, chance: random.Random) -> list[bytes]:
    """Return *frames* made to *most* bytes: without some of them, and without some of what is in the longest.

    What else there is to an answer stays: the order of its frames, and how they begin and end.
    """
    kept = list(frames)
    while kept and sum(map(len, kept)) > most:
        longest = max(range(len(kept)), key=lambda at: len(kept[at]))
        fewer = _without_one(kept[longest], chance) if len(kept) < 4 or chance.randrange(3) else None
        if fewer is not None:
            kept[longest] = fewer
        else:
            del kept[chance.randrange(len(kept))]
    return kept


def _without_one(frame: bytes, chance: random.Random) -> bytes | None:
    """Return JSON without one of its leaves, a long one rather, but never a type; None: there is none."""
    try:
        root = [msgspec.json.decode(frame)]
    except (ValueError, RecursionError):
        return None
    leaves = [place for place in _places(root)[1:] if place[1] != "type" and not _is_full(place[0][place[1]])]
    if not leaves:
        return None
    holder, key = max(chance.choices(leaves, k=3), key=lambda leaf: len(repr(leaf[0][leaf[1]])))
    del holder[key]
    return msgspec.json.encode(root[0])


def _is_full(value: Any) -> bool:
    return isinstance(value, dict | list) and bool(value)


def mutated_bytes(data: bytes, tokens: Sequence[bytes], chance: random.Random) -> bytes:
    """Return another input for framing: three bytes that cut, the rest after one to four changes."""
    cuts, rest = data[:3], data[3:]
    for _ in range(chance.choice(_CHANGES)):
        at, size = chance.randrange(len(rest) + 1), chance.randrange(1, 8)
        match chance.randrange(12):
            case 0:
                rest = rest[:at] + rest[at + size :]
            case 1:
                rest = rest[: at + size] + rest[at:]
            case 2:
                rest = rest[:at] + bytes([chance.randrange(256)]) + rest[at + 1 :]
            case 3:
                rest = rest[:at]
            case 4:
                rest = rest[at:]
            case 5 | 6:
                token = chance.choice(tokens)
                rest = rest[:at] + token + rest[at + len(token) :]
            case _:
                rest = rest[:at] + chance.choice(tokens) + rest[at:]
    if not chance.randrange(8):
        cuts = bytes((_EVERY_BYTE, 0, 0))
    elif len(cuts) < 3 or chance.randrange(2):
        cuts = bytes(chance.randrange(min(len(rest) + 2, _EVERY_BYTE)) for _ in range(3))
    return cuts + rest


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
