"""What a command prints, when it is run in the test's own trio run.

printed = Printed(tmp_path, {"model": "a/b"}, OPENAI_API_KEY="k")
assert await endpoints(printed.session, printed.out) == 0
assert "openai" in printed.text()
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from aiio.cli.output import Output
from aiio.cli.session import Session
from aiio.env.env import Env


class Printed:
    """An Env with files of its own under *folder*, a session, and an output to look into."""

    def __init__(self, folder: Path, settings: dict[str, Any] | None = None, **environ: str) -> None:
        self.user = folder / "user"
        files = {"AIIO_CONFIG_DIR": str(self.user), "AIIO_CACHE_DIR": str(folder / "cache")}
        self.env = Env(settings, environ={**files, **environ})
        self.session = Session(self.env)
        self._path = folder / "printed"
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self.out = Output(self._fd)

    def text(self) -> str:
        """Everything printed so far."""
        return self._path.read_text()

    def rows(self) -> list[dict[str, Any]]:
        """The same, as lines of JSON."""
        return [json.loads(line) for line in self.text().splitlines()]

    def __enter__(self) -> Printed:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)
