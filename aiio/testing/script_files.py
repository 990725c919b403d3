"""Scripts as files, for the command line: JSON lines, each the list of steps for one request.

    [{"say": "Let me look. "}, {"call": "look", "arguments": {"at": 1}}, "finish"]
    [{"fail": 429, "retry_after": "2s"}]
    [{"say": "Hello"}, {"pause": "5s"}, "hang"]

A step is an object whose first key is its name, with the first argument of the function of that name in
steps.py, and whose other keys are the other arguments; or only a name. The last line is played for all
further requests.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import steps as s
from .steps import Script, Step, check_script

_STEPS: dict[str, Callable[..., Step]] = {
    "say": s.say,
    "think": s.think,
    "call": s.call,
    "pause": s.pause,
    "head": s.head,
    "ping": s.ping,
    "raw": lambda text: s.raw(text.encode()),
    "finish": s.finish,
    "fail": s.fail,
    "hang": s.hang,
}


def load_scripts(path: str | Path) -> list[Script]:
    """Return the scripts in the file *path*, at least one.

    Raises:
      ValueError: not a file of scripts; the text names the file and the line.
      OSError: it can't be read.
    """
    path = Path(path)
    scripts: list[Script] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                scripts.append(parse_script(json.loads(line)))
            except (TypeError, ValueError, AttributeError) as exc:
                raise ValueError(f"{path}, line {number}: {exc}") from exc
    if not scripts:
        raise ValueError(f"{path} holds no script")
    return scripts


def parse_script(value: Any) -> Script:
    """Return the script that a JSON value describes. TypeError, ValueError, AttributeError: none."""
    if not isinstance(value, list):
        raise TypeError(f"a script is a list of steps, not {value!r}")
    script = [_step(item) for item in value]
    check_script(script)
    return script


def _step(item: Any) -> Step:
    fields = {item: True} if isinstance(item, str) else item
    if not isinstance(fields, dict) or not fields or next(iter(fields)) not in _STEPS:
        raise ValueError(f"not a step: {item!r}; the first key is one of {', '.join(_STEPS)}")
    (name, first), *others = fields.items()
    given = [] if first is True else [first]
    return _STEPS[name](*given, **dict(others))
