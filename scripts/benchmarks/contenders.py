"""Who reads, or works without a server: module, requirements, and the virtual environment that holds them.

aiio and the bare reader run on the interpreter that runs the bench. A third-party contender gets an
environment of its own under `.bench/`, named after its requirements and made when it is first needed, so that
versions can't disturb one another and a change of the requirements makes a new one.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
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


CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender(name="bare", module="read_bare"),
        Contender(name="aiio", module="read_aiio"),
        Contender(name="trio-websocket", module="read_trio_websocket"),
        Contender(name="builder", module="do_builder"),
        Contender(name="context", module="do_context"),
        Contender(name="openai", module="read_openai", requirements=("openai==3.57.0", "trio==0.35.0")),
        Contender(
            name="anthropic", module="read_anthropic", requirements=("anthropic==2.14.0", "trio==0.35.0")
        ),
        Contender(name="ollama", module="read_ollama", requirements=("ollama==0.6.3", "trio==0.35.0")),
    )
}


def interpreter(contender: Contender) -> Path:
    """Return the interpreter that runs *contender*, with its environment made if need be.

    Raises:
      BenchError: the environment could not be made; nothing half-made is left behind.
    """
    if not contender.requirements:
        return Path(sys.executable)
    key = "\n".join((*contender.requirements, sys.version, sysconfig.get_platform()))
    home = CACHE / f"{contender.name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    python = home / "bin" / "python"
    complete = home / "complete"
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
