"""Who reads, or works without a server: module, requirements, and the virtual environment that holds them.

aiio and the bare reader run on the interpreter that runs the bench. Third-party contenders get environments
of their own under `.bench/`, one for each set of requirements, named after it and made when it is first
needed, so that other versions can't disturb and a change of the requirements makes a new one.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".bench"


class BenchError(Exception):
    """Something could not be run, or did not do what it was to do; the text says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One way to read an answer."""

    name: str
    module: str
    """Below `scripts.benchmarks`."""
    requirements: tuple[str, ...] = ()
    """For pip, pinned; none: it runs on the bench's own interpreter."""
    big: bool = False
    """Its requirements take a minute to install."""
    program: str | None = None
    """A program that it needs, which is no Python package."""

    def reason_to_skip(self, *, quick: bool) -> str | None:
        """Tell why it is not to be measured; None: it is."""
        if quick and self.big:
            return "its environment takes too long for --quick"
        if self.program is not None and shutil.which(self.program) is None:
            return f"no {self.program}"
        return None


OFFICIAL = (
    "openai[realtime]==3.57.0",
    "websockets==15.0.1",
    "anthropic==2.14.0",
    "ollama==0.6.3",
    "trio==0.35.0",
)
"""The official clients share an environment, which takes as long to make as that of one of them."""

CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender(name="bare", module="read_bare"),
        Contender(name="least", module="read_least"),
        Contender(name="aiio", module="read_aiio"),
        Contender(name="trio-websocket", module="read_trio_websocket"),
        Contender(name="builder", module="do_builder"),
        Contender(name="context", module="do_context"),
        Contender(name="runs", module="do_runs"),
        Contender(name="agents", module="do_agents"),
        Contender(name="httpx", module="read_httpx"),
        Contender(name="imports", module="do_imports"),
        Contender(name="instructions", module="do_instructions", program="valgrind"),
        Contender(name="starts", module="do_starts", program="valgrind"),
        Contender(name="openai", module="read_openai", requirements=OFFICIAL),
        Contender(name="openai-websocket", module="read_openai_ws", requirements=OFFICIAL),
        Contender(name="anthropic", module="read_anthropic", requirements=OFFICIAL),
        Contender(name="ollama", module="read_ollama", requirements=OFFICIAL),
        Contender(
            name="pydantic-ai",
            module="read_pydantic_ai",
            requirements=("pydantic-ai-slim[openai]==2.68.0", "openai==3.57.0", "trio==0.35.0"),
            big=True,
        ),
        Contender(
            name="langchain",
            module="read_langchain",
            requirements=("langchain-openai==1.7.4", "openai==3.57.0", "trio==0.35.0"),
            big=True,
        ),
        Contender(
            name="litellm",
            module="read_litellm",
            requirements=("litellm==1.110.2", "openai==3.57.0", "trio==0.35.0"),
            big=True,
        ),
    )
}


_MAKING = threading.Lock()
"""Held by who makes an environment; another thread may want the same one."""


def interpreter(contender: Contender) -> Path:
    """Return the interpreter that runs *contender*, with its environment made if need be.

    Raises:
      BenchError: the environment could not be made; nothing half-made is left behind.
    """
    if not contender.requirements:
        return Path(sys.executable)
    key = "\n".join((*contender.requirements, sys.version, sysconfig.get_platform()))
    name = re.split(r"[\[=]", contender.requirements[0])[0]
    home = CACHE / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    python = home / "bin" / "python"
    complete = home / "complete"
    with _MAKING:
        if not complete.exists():
            shutil.rmtree(home, ignore_errors=True)
            try:
                _run([sys.executable, "-m", "venv", str(home)])
                _run([str(python), "-m", "pip", "install", "--quiet", *contender.requirements])
            except BenchError:
                shutil.rmtree(home, ignore_errors=True)
                raise
            complete.write_text("\n".join(contender.requirements) + "\n", encoding="utf-8")
    return python


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"{' '.join(command)} failed:\n{done.stderr.strip()[-2000:]}")
