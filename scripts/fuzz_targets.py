"""Coverage-led fuzzing by atheris; run by `scripts/fuzz`.

Every target is a law of tests/fuzz and the seeds to begin with. One process imports everything under
instrumentation, and forks for each target, because libFuzzer never returns. What it finds interesting is
kept in `.fuzz/corpus` for the next run; an input that breaks a law goes to `.fuzz/findings`. To see it again:
`scripts/fuzz --try FILE TARGET`. A finding is mended, and its input becomes a test in tests/fuzz.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(".fuzz")
QUICK_SECONDS = 1.0
FRAMING_BYTES = 160
"""Bytes of an input for framing: nothing there looks further, and some inputs are cut at every byte."""
LONGEST = 3000
"""Bytes of any other input."""
HANG = 10
"""Seconds that one execution may take."""
MEMORY = 2048
"""MB that the process of a target may take."""

_LAWS = ("answering", "framing_laws", "session_laws", "mutations", "corpus")


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is fuzzed."""

    name: str
    check: Callable[[bytes], None]
    """Raises AssertionError when a law is broken; anything else that it raises is a finding too."""
    seeds: Callable[[], list[bytes]]
    longest: int = LONGEST
    mutate: Callable[[bytes, int], bytes] | None = None
    """Makes another input of one, where that knows more than changing bytes; the number decides how."""


@dataclass(frozen=True)
class Verdict:
    """What fuzzing one target gave."""

    name: str
    executions: int
    seconds: float
    covered: int
    """Edges and comparisons that libFuzzer counts."""
    finding: str = ""
    """The end of what was said of a broken law; empty: none was broken."""


def all_targets() -> dict[str, Target]:
    """Return the targets by name. Imports what they test."""
    answering, framing, session, mutations, corpus = (
        importlib.import_module(f"tests.fuzz.{name}") for name in _LAWS
    )
    targets = [
        _framing("sse", framing.check_sse, framing, corpus.sse_seeds),
        _framing("sse-limit", framing.check_sse_limit, framing, corpus.sse_seeds),
        _framing("ndjson", framing.check_ndjson, framing, corpus.ndjson_seeds),
        _framing("ndjson-limit", framing.check_ndjson_limit, framing, corpus.ndjson_seeds),
        _framing("body", framing.check_whole, framing, corpus.ndjson_seeds),
        _framing("chunked", framing.check_chunked, framing, corpus.chunked_seeds),
        *(_dialect(name, answering, mutations, corpus) for name in answering.NAMES),
        Target(name="session", check=_session(session), seeds=corpus.session_seeds),
    ]
    return {target.name: target for target in targets}


def _framing(name: str, check: Any, framing: Any, seeds: Callable[[], list[bytes]]) -> Target:
    def split(data: bytes) -> None:
        check(*framing.split(data))

    return Target(name=name, check=split, seeds=seeds, longest=FRAMING_BYTES)


def _dialect(name: str, answering: Any, mutations: Any, corpus: Any) -> Target:
    others = [frame for frames in corpus.frames_of(name) for frame in frames]

    def mutate(data: bytes, seed: int) -> bytes:
        frames = mutations.mutated(data[2:].split(b"\n"), others, seed)
        choices = data[:2] if seed % 8 else bytes([seed >> 8 & 255, seed >> 16 & 255])
        return choices.ljust(2, b"\0") + b"\n".join(frames)

    return Target(
        name=name,
        check=lambda data: answering.check_bytes(name, data),
        seeds=lambda: corpus.dialect_seeds(name),
        mutate=mutate,
    )


def _session(session: Any) -> Callable[[bytes], None]:
    path: list[str] = []

    def check(data: bytes) -> None:
        if not path:  # in the process that fuzzes; its folder goes with the run's
            path.append(os.path.join(tempfile.mkdtemp(), "session.jsonl"))
        with open(path[0], "wb") as file:
            file.write(data)
        session.check_file(path[0])

    return check


# -- one target, in a process of its own


def fuzz(target: Target, limit: str, corpus: Path, findings: Path, log: Path, seed: int) -> None:
    """Fuzz *target* within *limit*, an option of libFuzzer, whose log goes to *log*. Never returns."""
    atheris = importlib.import_module("atheris")  # in an environment of its own

    with open(log, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    options = [
        "fuzz",
        str(corpus),
        limit,
        f"-artifact_prefix={findings}/{target.name}-",
        f"-max_len={target.longest}",
        f"-timeout={HANG}",
        f"-rss_limit_mb={MEMORY}",
        f"-seed={seed}",
        "-print_final_stats=1",
        "-len_control=0",
    ]
    more: dict[str, Any] = {}
    if (mutate := target.mutate) is not None:

        def custom(data: bytes, max_size: int, seed: int) -> bytes:
            changed: bytes = mutate(data, seed // 4) if seed % 4 else atheris.Mutate(data, max_size)
            return changed[:max_size]

        more["custom_mutator"] = custom

    def check(data: bytes) -> None:
        try:
            target.check(data)
        except BaseException:  # libFuzzer writes down only what hangs or takes too much memory
            (findings / f"{target.name}-{hashlib.sha256(data).hexdigest()[:16]}").write_bytes(data)
            raise

    atheris.Setup(options, check, **more)
    atheris.Fuzz()


def run(target: Target, limit: str, corpus: Path, findings: Path, log: Path, seed: int) -> Verdict:
    """Fuzz *target* in a process of its own, and return what came of it."""
    began = time.monotonic()
    child = os.fork()
    if not child:
        try:
            fuzz(target, limit, corpus, findings, log, seed)
        finally:
            os._exit(70)
    try:
        _, status = os.waitpid(child, 0)
    except KeyboardInterrupt:  # the child got it too, and says how far it came
        _, status = os.waitpid(child, 0)
        raise
    said = log.read_text(errors="replace")
    return verdict(target.name, said, os.waitstatus_to_exitcode(status), time.monotonic() - began)


def verdict(name: str, said: str, code: int, seconds: float) -> Verdict:
    """Return what libFuzzer's log says of a run that ended with *code*."""
    counts = re.findall(r"stat::number_of_executed_units:\s*(\d+)", said) or re.findall(
        r"^#(\d+)", said, re.M
    )
    covered = re.findall(r"cov: (\d+)", said)
    finding = "" if code == 0 else _finding(said) or f"ended with exit code {code}"
    return Verdict(
        name, int(counts[-1]) if counts else 0, seconds, int(covered[-1]) if covered else 0, finding
    )


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


# -- here


def table(verdicts: Sequence[Verdict]) -> str:
    """Return the executions of each target as a Markdown table."""
    rows = [("target", "executions", "a second", "covered", "findings")]
    rows += [
        (
            one.name,
            f"{one.executions:,}",
            f"{one.executions / max(one.seconds, 0.001):,.0f}",
            str(one.covered),
            "1" if one.finding else "-",
        )
        for one in verdicts
    ]
    rows.append(("all", f"{sum(one.executions for one in verdicts):,}", "", "", ""))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(lines)


@contextlib.contextmanager
def folders(*, kept: bool) -> Iterator[tuple[Path, Path]]:
    """Yield the folders of corpus and findings. Not *kept*: the corpus is a temporary one."""
    findings = FOLDER / "findings"
    with tempfile.TemporaryDirectory() as temporary:
        tempfile.tempdir = temporary  # also what forked children make goes with it
        try:
            yield FOLDER / "corpus" if kept else Path(temporary) / "corpus", findings
        finally:
            tempfile.tempdir = None
    with contextlib.suppress(OSError):
        findings.rmdir()  # unless there are some


def write_seeds(target: Target, corpus: Path) -> Path:
    """Write the seeds of *target* below *corpus*, and return their folder."""
    place = corpus / target.name
    place.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds():
        (place / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    return place


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzz, print the table, and return the exit code: 1 when a law was broken, 2 for bad options."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description="Fuzz framing, dialects and sessions.")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--seconds", type=int, default=30, help="for each target (default: 30)")
    how.add_argument("--runs", type=int, help="executions of each target")
    how.add_argument("--quick", action="store_true", help="about a second each, from the seeds alone: for CI")
    parser.add_argument("--seed", type=int, default=0, help="of libFuzzer's choices; 0: another each time")
    parser.add_argument("--try", dest="file", metavar="FILE", type=Path, help="check one input of one target")
    parser.add_argument("target", nargs="*", metavar="TARGET", help="name of a target (default: all)")
    chosen = parser.parse_args(argv)
    targets = _instrumented()
    if unknown := [name for name in chosen.target if name not in targets]:
        parser.error(f"no target {unknown[0]!r}; there are {', '.join(targets)}")
    picked = [targets[name] for name in chosen.target or targets]
    if chosen.file is not None:
        if len(picked) != 1:
            parser.error("--try needs the name of one target")
        picked[0].check(chosen.file.read_bytes())
        print("no law is broken")
        return 0
    seconds = max(1, round(QUICK_SECONDS)) if chosen.quick else chosen.seconds
    limit = f"-runs={chosen.runs}" if chosen.runs else f"-max_total_time={seconds}"
    return _fuzz_all(picked, limit, chosen.seed, kept=not chosen.quick)


def _fuzz_all(targets: Sequence[Target], limit: str, seed: int, *, kept: bool) -> int:
    verdicts: list[Verdict] = []
    with folders(kept=kept) as (corpus, findings):
        findings.mkdir(parents=True, exist_ok=True)
        log = Path(tempfile.mkdtemp()) / "log"
        with contextlib.suppress(KeyboardInterrupt):
            for target in targets:
                verdicts.append(run(target, limit, write_seeds(target, corpus), findings, log, seed))
                if sys.stderr.isatty():
                    print(f"{target.name}: {verdicts[-1].executions:,}", file=sys.stderr)
        print(table(verdicts))
        broken = [one for one in verdicts if one.finding]
        for one in broken:
            print(f"\nFAILED {one.name}; its input is in {findings}:\n{one.finding}")
    return 1 if broken else 0


def _instrumented() -> dict[str, Target]:
    """Import what is fuzzed in the way that lets atheris see where an execution goes."""
    atheris = importlib.import_module("atheris")  # in an environment of its own

    with atheris.instrument_imports(include=["aiio"]):
        return all_targets()


if __name__ == "__main__":
    sys.exit(main())
