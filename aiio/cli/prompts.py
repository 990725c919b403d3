"""The prompts file of `aiio run`: one JSON value a line, all read and checked before anything is sent.

    "Name three birds."
    {"prompt": "Name three birds.", "key": "birds", "model": "openai/gpt-5", "system": "Be brief."}
    {"context": [{"type": 2, "content": [{"type": "text", "text": "Name three birds."}]}]}

The key names the line in the results; without one it is the line's number. Fields unknown here are
left alone, so a file can carry notes of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiio.context.text import parse_json
from aiio.context.types import Message
from aiio.context.validate import has_content, validate_context

from .exits import CliFault


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One line."""

    key: str | int
    """As written in the results; 7 and "7" are the same key."""
    line: int
    text: str | None = None
    """What is said; None: the context is answered as it stands."""
    context: list[Message] = field(default_factory=list)
    model: str | None = None
    """A selector of its own; None: the command's."""
    system: str | None = None


CheckModel = Callable[[str], None]
"""Raises ValueError for a selector that no request could use."""


def read_prompts(
    path: str, check_model: CheckModel, *, skip_bad: bool = False
) -> tuple[list[Prompt], list[str]]:
    """Return the prompts in the file at *path* (`-`: stdin), and what is wrong with the lines left out.

    Args:
      path: JSON lines, UTF-8; blank lines are passed over.
      check_model: asked about every line's own model.
      skip_bad: leave broken lines out; without it the first one is a fault.

    CliFault: unreadable, empty, or a broken line, named as `file:line`.
    """
    shown = "<stdin>" if path == "-" else path
    prompts: list[Prompt] = []
    faults: list[str] = []
    seen: dict[str, int] = {}
    for number, raw in enumerate(_lines(path, shown), 1):
        if not raw.strip():
            continue
        try:
            prompt = _prompt(raw, number, check_model)
            first = seen.setdefault(str(prompt.key), number)
            if first != number:
                raise ValueError(f"the key {prompt.key!r} is that of line {first} already")
        except ValueError as exc:
            fault = f"{shown}:{number}: {exc}"
            if not skip_bad:
                raise CliFault(f"{fault}; nothing was sent (mend it, or go on with --skip-bad)") from exc
            faults.append(fault)
        else:
            prompts.append(prompt)
    if not prompts and not faults:
        raise CliFault(f"{shown} holds no prompts; write one JSON value a line")
    return prompts, faults


def _lines(path: str, shown: str) -> Iterable[bytes]:
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as exc:
        raise CliFault(f"the prompts file {shown} can't be read: {exc.strerror}") from exc
    return data.removeprefix(b"\xef\xbb\xbf").split(b"\n")


def _prompt(raw: bytes, number: int, check_model: CheckModel) -> Prompt:
    """Return the prompt in one line. ValueError: says what is wrong with it."""
    try:
        value = parse_json(raw.decode())
    except UnicodeDecodeError as exc:
        raise ValueError(f"not UTF-8 text (byte {exc.start} of the line)") from exc
    except ValueError as exc:
        raise ValueError(f"not JSON ({exc})") from exc
    if isinstance(value, str):
        value = {"prompt": value}
    if not isinstance(value, dict):
        raise ValueError(f"a prompt is a string or an object, not {_kind(value)}")  # noqa: TRY004  # input, not code
    key = value.get("key", number)
    if isinstance(key, bool) or not isinstance(key, str | int) or key == "":
        raise ValueError(f"`key` is text or a whole number, not {_kind(key)}")
    model, system = _text_or_none(value, "model"), _text_or_none(value, "system")
    if model is not None:
        check_model(model)
    text, context = _content(value)
    return Prompt(key=key, line=number, text=text, context=context, model=model, system=system)


def _content(value: dict[str, Any]) -> tuple[str | None, list[Message]]:
    prompt, context = value.get("prompt"), value.get("context")
    if (prompt is None) == (context is None):
        raise ValueError("a prompt has either `prompt` or `context`")
    if context is None:
        if not isinstance(prompt, str) or not prompt.strip():
            raise ValueError(f"`prompt` is text that is not empty, not {_kind(prompt)}")
        return prompt, []
    try:
        validate_context(context)
    except TypeError as exc:
        raise ValueError(str(exc)) from exc
    if not any(map(has_content, context)):
        raise ValueError("`context` holds no message with content")
    return None, context


def _text_or_none(value: dict[str, Any], name: str) -> str | None:
    found = value.get(name)
    if found is not None and not isinstance(found, str):
        raise ValueError(f"`{name}` is text, not {_kind(found)}")
    return found


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a truth value"
        case str():
            return "empty text"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case _:
            return "an object"
