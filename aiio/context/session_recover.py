"""What can be saved from a session file that is damaged, or from a fragment of one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from .session_files import Loaded, read_session
from .session_format import STRING_INSIDE, SUFFIX, Folder, Header, LineProblem, parse_entry
from .session_list import file_of
from .text import parse_json, parse_json_at
from .types import ContentType
from .validate import block_has_content, has_content, is_message, is_record

if TYPE_CHECKING:
    from .store import Context

_TEXTS = (ContentType.TEXT, ContentType.THINKING)
_TRIES = 1000  # beginnings of a message that are looked at in one bad line

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<cut>"(?:[^"\\]|\\.)*\\?\Z)|[{}\[\],:]|[^\s"{}\[\],:]+', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What `Context.recover` did."""

    context: Context
    """A new session with what was saved."""
    file: str
    """The damaged file, which is as it was."""
    problems: tuple[LineProblem, ...]
    """Each line that was not whole, and what became of it."""


@dataclass(frozen=True, slots=True)
class Salvage:
    """What was saved from a file."""

    header: Header | None
    entries: list[Any]
    problems: tuple[LineProblem, ...]


def damaged_file(path_or_id: Folder, dir: Folder) -> str:
    """Return the file that is meant: a path, a file name in *dir*, or the id of a session there.

    FileNotFoundError: there is none.
    """
    name = os.fspath(path_or_id)
    for path in (name, os.path.join(dir, name), os.path.join(dir, name + SUFFIX)):
        if os.path.isfile(path):
            return os.path.abspath(path)
    path = file_of(name, dir) or ""
    if not path:
        raise FileNotFoundError(2, "no such session or file", os.path.join(dir, name))
    return path


def salvage(path: str) -> Salvage:
    """Read the file at *path* and save what can be saved, in the order of its lines.

    From a line that is not whole: entries that stand whole in it, behind a fragment; and of a message that
    was cut off, its whole blocks and the text that there is. A tool call or file that was cut off is dropped.

    OSError: the file can't be read.
    """
    loaded: Loaded = read_session(path)
    if not loaded.problems:
        return Salvage(loaded.header, loaded.entries, ())
    entries: list[Any] = []
    problems: list[LineProblem] = []
    reasons = {problem.line: problem.reason for problem in loaded.problems}
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            reason = reasons.get(number)
            if reason is None:
                entries += _entry(line, is_header=number == 1 and loaded.header is not None)
                continue
            saved = list(_pieces(line.rstrip(b"\r\n").decode(errors="replace")))
            entries += saved
            outcome = f"saved {len(saved)} of it" if saved else "nothing of it could be saved"
            problems.append(LineProblem(number, f"{reason}; {outcome}"))
    return Salvage(loaded.header, entries, tuple(problems) or loaded.problems)


def _entry(line: bytes, *, is_header: bool) -> list[Any]:
    entry = None if is_header or not line.strip() else parse_entry(line)
    return [] if entry is None else [entry]


def _pieces(line: str) -> Iterator[Any]:
    """Yield what can be saved from a bad line: whole entries, and what is left of one before another."""
    at = 0
    while at < len(line):
        end = None
        if (whole := _whole_at(line, at)) is not None:
            entry, end = whole
            yield entry
        else:
            end = next((start for start in _starts(line, at + 1) if _is_message_at(line, start)), len(line))
            if (message := _cut_message(line[at:end])) is not None:
                yield message
        at = end


def _whole_at(line: str, at: int) -> tuple[Any, int] | None:
    """Return the message or record that begins at *at*, and where it ends."""
    try:
        value, end = parse_json_at(line, at)
    except ValueError:
        return None
    return (value, end) if is_message(value) or is_record(value) else None


def _is_message_at(line: str, start: int) -> bool:
    whole = _whole_at(line, start)
    return whole is not None and is_message(whole[0])  # a block would pass for a record


def _starts(line: str, at: int) -> Iterator[int]:
    """Yield where a message may begin, at *at* or behind it."""
    for match in islice(re.compile(r'\{"(?:type|content)":').finditer(line, at), _TRIES):
        yield match.start()


def _cut_message(fragment: str) -> Any:
    """Return the message that *fragment* is the beginning of, as far as it can be used; None: not at all."""
    text, is_cut_inside = _closed(fragment)
    try:
        message = parse_json(text)
    except ValueError:
        return None
    if not is_message(message):
        return None
    blocks = message["content"]
    last = blocks[-1] if blocks else None
    if (
        is_cut_inside
        and isinstance(last, dict)
        and not (last.get("type") in _TEXTS and block_has_content(last))
    ):
        del blocks[-1]
    return message if has_content(message) else None


def _closed(fragment: str) -> tuple[str, bool]:
    """Return the beginning of a message made whole, and whether it was cut inside of its content.

    A value that was cut is left out, unless it is a `text`.
    """
    open_brackets: list[str] = []
    end, closers, before, key, part = 0, "", "", "", ""
    for match in _TOKEN.finditer(fragment):
        token, at = match[0], match.end()
        if match["cut"]:
            if before == ":" and key == '"text"':
                text = STRING_INSIDE.match(token[1:])
                end, closers = match.start(), _closing(open_brackets)
                return f'{fragment[:end]}"{text and text[0]}"{closers}', True
            break
        if token in "{[":
            part = key if len(open_brackets) == 1 else part
            open_brackets.append("}" if token == "{" else "]")
        elif token in "}]":
            del open_brackets[-1:]
            end, closers = at, _closing(open_brackets)
        elif token == ",":
            end, closers = match.start(), _closing(open_brackets)
        elif token.startswith('"') and before in "{," and open_brackets[-1:] == ["}"]:
            key = token
        elif token.startswith('"'):
            end, closers = at, _closing(open_brackets)
        before = token
    return fragment[:end] + closers, len(open_brackets) > 1 and part == '"content"'


def _closing(open_brackets: list[str]) -> str:
    return "".join(reversed(open_brackets))
