"""What stands in a session file: one line that says whose it is, then one line a message or record.

    {"type":"session-metadata","version":1,"id":...,"uuid":...,"name":...,"cwd":...,"created":...[,"agent":...]}
    {"type":2,"content":[{"type":"text","text":"Hi"}]}

The id in the first line is the identity of a session; the name of its file is for people.
"""

from __future__ import annotations

import os
import re
import unicodedata
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias
from uuid import UUID

from .text import json_line, parse_json
from .types import Message, Record
from .validate import is_message, is_record

HEADER_TYPE = "session-metadata"
VERSION = 1
SUFFIX = ".jsonl"

Folder: TypeAlias = "str | os.PathLike[str]"

STRING_INSIDE = re.compile(r'(?:[^"\\\x00-\x1f]|\\u[0-9a-fA-F]{4}|\\[^u])*', re.DOTALL)
"""What stands inside of a JSON string, up to its end or to what can't stand there, a cut escape say."""

_ANONYMOUS = frozenset({"0", "false", "anon"})
_NAME_BYTES = 120  # of a file name, whose limit is 255 on most disks
_OUR_NAME = re.compile(r"\d{4}-\d\d-\d\d [0-9a-f]{8}( .*)?\.jsonl", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of a session file."""

    id: str
    """What a person or program calls the session."""
    uuid: str
    """What it is called even when its id changes."""
    name: str | None
    """The readable part of its file's name."""
    cwd: str
    """The folder it was started in."""
    created: str
    """ISO 8601, UTC."""
    settings: dict[str, Any] | None = None
    """The owner's."""

    def line(self) -> bytes:
        """Return it as it is written. TypeError, ValueError: the settings are no JSON data."""
        fields: dict[str, Any] = {"type": HEADER_TYPE, "version": VERSION, "id": self.id, "uuid": self.uuid}
        fields |= {"name": self.name, "cwd": self.cwd, "created": self.created}
        if self.settings is not None:
            fields["agent"] = self.settings
        return json_line(fields, "settings")

    def file_name(self) -> str:
        """Return `<day> <8 digits of the uuid>[ <name>].jsonl`."""
        title = _printable(self.name or "").encode()[:_NAME_BYTES].decode(errors="ignore").strip()
        return f"{self.created[:10]} {self.uuid[:8]}{title and ' '}{title}{SUFFIX}"

    def renamed(self, name: str | None) -> Header:
        """Return it with another name."""
        return replace(self, name=name)


@dataclass(frozen=True, slots=True)
class LineProblem:
    """A line of a session file that could not be read."""

    line: int
    """Counted from 1."""
    reason: str


def parse_header(line: bytes) -> Header:
    """Return the header in *line*. ValueError: it is none, and why."""
    fields = parse_line(line)
    if not isinstance(fields, dict) or fields.get("type") != HEADER_TYPE:
        raise ValueError(f"the first line is no {HEADER_TYPE} record")
    version = fields.get("version", VERSION)
    if version != VERSION:
        raise ValueError(f"the file is of version {version!r}, this program reads version {VERSION}")
    name, cwd, settings = fields.get("name"), fields.get("cwd"), fields.get("agent")
    return Header(
        id=_checked(check_id, fields.get("id")),
        uuid=_checked(check_uuid, fields.get("uuid")),
        name=name if isinstance(name, str) and name else None,
        cwd=cwd if isinstance(cwd, str) else "",
        created=_checked(_check_time, fields.get("created")),
        settings=settings if isinstance(settings, dict) else None,
    )


def parse_entry(line: bytes) -> Message | Record | None:
    """Return the message or record in *line*, None for a further header. ValueError: why it is neither."""
    value = parse_line(line)
    if isinstance(value, dict) and value.get("content", 0) is None and not is_record(value):
        value["content"] = []  # some programs wrote an empty answer like this; a record is its owner's
    if is_message(value):
        return value
    if not is_record(value):
        raise ValueError("neither a message nor a record")
    return None if value["type"] == HEADER_TYPE else value


def parse_line(line: bytes) -> Any:
    """Return the JSON value in *line*. ValueError: it holds none."""
    return parse_json(line.decode())


def entry_line(entry: Message | Record, index: int) -> bytes:
    """Return *entry* as it is written. TypeError, ValueError: no JSON data; names *index* and the place."""
    return json_line(entry, f"context[{index}]")


def names_a_session(file_name: str) -> bool:
    """Tell whether a file has the kind of name that is given to session files."""
    return _OUR_NAME.fullmatch(file_name) is not None


# -- ids and names


def id_anonymous(value: object) -> bool:
    """Tell whether *value*, given as a session id, asks for no session: False, `0`, `false`, `anon`."""
    if isinstance(value, str):
        return value.strip().lower() in _ANONYMOUS
    return value is False or (type(value) is int and value == 0)


def check_id(value: object) -> str:
    """Return *value* if it may be a session id: 1 to 64 characters, no white space, slashes, controls.

    TypeError: it is no string. ValueError: it may not; says why.
    """
    if not isinstance(value, str):
        raise TypeError(f"a session id is a string, not {value!r}")
    if not 1 <= len(value) <= 64:
        raise ValueError(f"a session id has 1 to 64 characters: {value!r:.80}")
    if value in (".", "..") or any(map(_not_in_an_id, value)):
        raise ValueError(f"a session id has no white space, slashes or control characters: {value!r}")
    if id_anonymous(value):
        raise ValueError(f"{value!r} is no session id: it asks for no session")
    return value


def check_uuid(value: object) -> str:
    """Return *value* if it has the shape of a UUID, in its usual spelling. ValueError: it has not."""
    try:
        return str(UUID(value if isinstance(value, str) else ""))
    except ValueError:
        raise ValueError(f"not a UUID: {value!r:.80}") from None


def is_uuid(value: str) -> bool:
    """Tell whether *value* is a UUID in its usual spelling."""
    try:
        return check_uuid(value) == value.lower()
    except ValueError:
        return False


def timestamp(moment: datetime) -> str:
    """Return *moment* as it stands in a header."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def title_of(text: str) -> str:
    """Return what names a session that begins with *text*: its first 24 characters; may be empty."""
    return " ".join(_printable(text.lstrip()[:500]).split())[:24].strip()


def _printable(text: str) -> str:
    """Return *text* without what a file name must not have."""
    text = "".join(" " if char.isspace() else char for char in text if not _unprintable(char))
    return re.sub(r"[/\\]", "-", text)


def _unprintable(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cs") and not char.isspace()


def _not_in_an_id(char: str) -> bool:
    return char.isspace() or char in "/\\" or _unprintable(char)


def _checked(check: Any, value: object) -> str:
    """Return `check(value)`, whose TypeError is a ValueError for the reader of a file."""
    try:
        return str(check(value))
    except TypeError as exc:
        raise ValueError(str(exc)) from None


def _check_time(value: object) -> str:
    if not isinstance(value, str) or not re.match(r"\d{4}-\d\d-\d\d(T|$)", value):
        raise ValueError(f"not a time: {value!r:.80}")
    return value
