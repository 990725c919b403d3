"""Helpers for tests of sessions: messages, folders, and programs run as processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import IO, Any

from aiio.context.store import Context
from aiio.context.types import assistant_message, text_content, user_message

ROOT = Path(__file__).parent.parent.parent


def said(text: str) -> dict[str, Any]:
    return user_message(text)


def answered(text: str, **more: Any) -> dict[str, Any]:
    return {**assistant_message([text_content(text)]), **more}


def turns(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Messages that don't merge."""
    return [(answered if n % 2 else said)(f"m{n}") for n in range(start, start + count)]


def texts(context: Any) -> list[str]:
    return [entry["content"][0]["text"] for entry in context]


def names(folder: Path) -> list[str]:
    """The files of a folder that are not locks."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def lines_of(path: str | None) -> list[Any]:
    assert path is not None
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def die(context: Context) -> None:
    """Leave a context as a killed process would: unflushed, its lock void."""
    context._log.release()


def program(source: str, *arguments: object) -> subprocess.Popen[str]:
    """Start *source* as a process of its own; its standard streams are pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source), *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run_program(source: str, *arguments: object) -> str:
    """Run *source* to its end and return what it printed; it must succeed."""
    process = program(source, *arguments)
    output, _ = process.communicate()
    assert process.returncode == 0
    return output


def stream(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
