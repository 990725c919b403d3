"""Arguments of a call that come as values with paths (`partialArgs`), put together.

Two things are made of them: the value, which counts in the end, and JSON text that grows with them, so that
what had come of a call that is cut off can be shown. Values mostly come in the order of the document. Where
they don't, the text stops growing, and only the value is whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, TypeAlias

import msgspec

from .chat_blocks import join_surrogates

Path: TypeAlias = "tuple[str | int, ...]"

MAX_GAP = 4096
"""How far beyond its end a list may be set: padding is memory."""

_STEP = re.compile(
    r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""", re.DOTALL
)
_VALUES = ("numberValue", "boolValue")


class PartialArguments:
    """The arguments of one call. `add` each piece, then `close`."""

    def __init__(self) -> None:
        self._value: dict[str, Any] = {}
        self._texts: dict[Path, list[str]] = {}
        """Strings by path, in pieces; their places in the value are filled in at the end."""
        self._writer = _Writer()

    def add(self, piece: Mapping[str, Any]) -> str:
        """Take one piece and return the JSON text it adds. ValueError: it does not fit what came before."""
        path = read_path(piece.get("jsonPath"))
        text = piece.get("stringValue")
        if isinstance(text, str):
            if path in self._texts:
                self._texts[path].append(text)
            else:
                self._set(path, "")
                self._texts[path] = [text]
            return self._writer.string(path, text)
        found = [piece[name] for name in _VALUES if piece.get(name) is not None]
        if not found and "nullValue" not in piece:
            return ""  # it only announces what is to come
        value = found[0] if found else None
        self._texts.pop(path, None)
        self._set(path, value)
        return self._writer.value(path, value)

    def close(self) -> str:
        """Return the JSON text that makes the whole complete."""
        return self._writer.close()

    @property
    def value(self) -> dict[str, Any]:
        """The arguments as far as they came."""
        for path, pieces in self._texts.items():
            self._set(path, join_surrogates("".join(pieces)))
        return self._value

    def _set(self, path: Path, value: object) -> None:
        target: Any = self._value
        for step, following in pairwise(path):
            if not _has(target, step, path):
                _put(target, step, [] if isinstance(following, int) else {})
            target = target[step]
        _has(target, path[-1], path)
        _put(target, path[-1], value)


def _has(target: object, step: str | int, path: Path) -> bool:
    """Tell whether something is at *step* of *target*. ValueError: there can't be."""
    if isinstance(step, str) and isinstance(target, dict):
        return step in target
    if isinstance(step, int) and isinstance(target, list) and step - len(target) <= MAX_GAP:
        return step < len(target) and target[step] is not None
    raise ValueError(f"arguments of a call: {path!r} does not fit what came before")


def _put(target: Any, step: str | int, value: object) -> None:
    if isinstance(step, int):
        target.extend([None] * (step + 1 - len(target)))
    target[step] = value


def read_path(path: object) -> Path:
    """Return the steps of a JSON path such as `$.items[0].name`. ValueError: it is none, or the root's."""
    steps: list[str | int] = []
    at = 1 if isinstance(path, str) and path.startswith("$") else -1
    while isinstance(path, str) and 0 < at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            break
        plain, index, single, double = found.groups()
        quoted = single if single is not None else double
        steps.append(
            int(index) if index is not None else plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        )
        at = found.end()
    if not isinstance(path, str) or at != len(path) or not steps or isinstance(steps[0], int):
        raise ValueError(f"arguments of a call: {path!r:.80} is no path of theirs")
    return tuple(steps)


class _Open:
    """A container whose text is not closed: what is in it."""

    __slots__ = ("is_list", "seen")

    def __init__(self, *, is_list: bool) -> None:
        self.is_list = is_list
        self.seen: set[str | int] = set()

    def takes(self, step: str | int) -> bool:
        """Tell whether *step* can be written next."""
        return step == len(self.seen) if self.is_list else step not in self.seen


class _Writer:
    """JSON text of one object, written front to back."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._leaf: Path = ()
        self._in_string = False
        self._lost = False  # a value came out of order

    def string(self, path: Path, text: str) -> str:
        if self._in_string and path == self._leaf and not self._lost:
            return _escaped(text)
        written = self._go_to(path)
        if self._lost:
            return ""
        self._in_string = True
        return f'{written}"{_escaped(text)}'

    def value(self, path: Path, value: object) -> str:
        written = self._go_to(path)
        return "" if self._lost else f"{written}{_encoded(value)}"

    def close(self) -> str:
        if self._lost:
            return ""
        if not self._open:
            return "{}"
        return self._end_string() + self._pop(0)

    def _go_to(self, path: Path) -> str:
        """Return the text from the value before to that at *path*."""
        shared = 0
        while shared < min(len(path), len(self._leaf)) - 1 and path[shared] == self._leaf[shared]:
            shared += 1
        if self._open and not self._open[shared].takes(path[shared]):
            self._lost = True
        if self._lost:
            return ""
        written = self._end_string() + (self._pop(shared + 1) if self._open else self._push(path[0]))
        for depth in range(shared, len(path)):
            written += self._step(path[depth])
            if depth + 1 < len(path):
                written += self._push(path[depth + 1])
        self._leaf = path
        return written

    def _step(self, step: str | int) -> str:
        inside = self._open[-1]
        written = "," if inside.seen else ""
        if isinstance(step, str):
            written += f"{_encoded(step)}:"
        elif step != len(inside.seen):
            self._lost = True  # a list that does not begin at its beginning
        inside.seen.add(step)
        return written

    def _push(self, first: str | int) -> str:
        self._open.append(_Open(is_list=isinstance(first, int)))
        return "[" if isinstance(first, int) else "{"

    def _pop(self, depth: int) -> str:
        written = ""
        while len(self._open) > depth:
            written += "]" if self._open.pop().is_list else "}"
        return written

    def _end_string(self) -> str:
        was, self._in_string = self._in_string, False
        return '"' if was else ""


def _escaped(text: str) -> str:
    return _encoded(text)[1:-1]


def _encoded(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # half a surrogate pair: as an escape, so that the other half can join it
        return json.dumps(value)
