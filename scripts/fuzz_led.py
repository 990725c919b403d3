"""Fuzzing led by coverage: atheris looks where each input goes, and keeps those that go somewhere new.

One process imports what is tested under instrumentation, and forks for each target, because libFuzzer
never returns.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from .fuzz_report import LED, Verdict, Watch, keep_finding
from .fuzz_targets import HANG, MEMORY, Target, all_targets

INTERRUPTED = 72
"""The exit code of libFuzzer after a Ctrl-C."""
INSTRUMENTED = (
    "aiio.providers",
    "aiio.transports.framing",
    "aiio.transports.http_body",
    "aiio.context.assemble",
    "aiio.context.session_files",
    "aiio.context.session_format",
    "aiio.context.session_recover",
    "aiio.context.usage_data",
)
"""Where coverage leads: the modules that read what others sent. To be looked at makes a module far slower."""


def instrumented() -> dict[str, Target]:
    """Import what is fuzzed in the way that lets atheris see where an execution goes."""
    atheris = importlib.import_module("atheris")  # in an environment of its own

    # atheris can look at a whole package only, but for single modules that it is told of. It names each.
    with (
        contextlib.redirect_stderr(io.StringIO()),
        atheris.instrument_imports(include=["aiio"], exclude=left_out(Path("aiio"))),
    ):
        return all_targets()


def left_out(package: Path) -> list[str]:
    """Return the modules of *package* that coverage does not lead through."""
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in package.rglob("*.py")]
    return [name for name in names if not any(f"{name}.".startswith(f"{one}.") for one in INSTRUMENTED)]


def run(
    target: Target, limits: Sequence[str], corpus: Path, findings: Path, log: Path, seed: int, watch: Watch
) -> Verdict:
    """Fuzz *target* in a process of its own within *limits*, options of libFuzzer; return what it gave."""
    began = time.monotonic()
    log.write_bytes(b"")
    child = os.fork()
    if not child:
        try:
            _fuzz(target, limits, corpus, findings, log, seed)
        finally:
            os._exit(70)
    ended, status = os.waitpid(child, os.WNOHANG)
    while not ended:
        if not watch.pause(target.name, lambda: _executions(log.read_text(errors="replace"))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGINT)  # it says how far it came
            ended, status = os.waitpid(child, 0)
            break
        ended, status = os.waitpid(child, os.WNOHANG)
    said = log.read_text(errors="replace")
    return verdict(target.name, said, os.waitstatus_to_exitcode(status), time.monotonic() - began)


def _fuzz(target: Target, limits: Sequence[str], corpus: Path, findings: Path, log: Path, seed: int) -> None:
    """Fuzz *target*, whose log goes to *log*. Never returns."""
    atheris = importlib.import_module("atheris")  # in an environment of its own

    for number in (signal.SIGINT, signal.SIGTERM):  # libFuzzer has handlers of its own
        signal.signal(number, signal.SIG_DFL)
    with open(log, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    options = [
        "fuzz",
        str(corpus),
        *limits,
        f"-artifact_prefix={findings}/{target.name}-",
        f"-max_len={target.longest}",
        f"-timeout={HANG}",
        f"-rss_limit_mb={MEMORY}",
        f"-seed={seed}",
        "-print_final_stats=1",
        "-len_control=0",
    ]

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        changed: bytes = target.mutate(data, Random(seed)) if seed % 4 else atheris.Mutate(data, max_size)
        return changed[:max_size]

    def check(data: bytes) -> None:
        try:
            target.check(data)
        except BaseException:  # libFuzzer writes down only what hangs or takes too much memory
            keep_finding(findings, target.name, data)
            raise

    atheris.Setup(options, check, custom_mutator=mutate)
    atheris.Fuzz()


def verdict(name: str, said: str, code: int, seconds: float) -> Verdict:
    """Return what libFuzzer's log says of a run that ended with *code*."""
    covered = re.findall(r"cov: (\d+)", said)
    return Verdict(
        name=name,
        mode=LED,
        executions=_executions(said),
        seconds=seconds,
        covered=int(covered[-1]) if covered else 0,
        finding="" if code in (0, INTERRUPTED) else _finding(said) or f"ended with exit code {code}",
    )


def _executions(said: str) -> int:
    counts = re.findall(r"stat::number_of_executed_units:\s*(\d+)", said) or re.findall(
        r"^#(\d+)", said, re.M
    )
    return int(counts[-1]) if counts else 0


def _finding(said: str) -> str:
    """Return the part of libFuzzer's log that tells of a broken law, a hang or too much memory."""
    lines = said.splitlines()
    starts = [at for at, line in enumerate(lines) if "Uncaught Python exception" in line or "ERROR:" in line]
    kept = [
        line
        for line in lines[starts[0] if starts else -20 :]
        if not re.match(r"stat::|#\d+|MS: |\\x|0x|NOTE|artifact_prefix|Base64", line)
    ]
    return "\n".join(kept[:60])
