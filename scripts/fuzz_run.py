"""Fuzz framing, dialects and the session reader, and say how much of it was done; run by `scripts/fuzz`.

Two ways. Led by coverage (atheris, the default): slower, but it finds its way into every corner; what it
finds interesting is kept in `.fuzz/corpus`. In bulk (--bulk): the same laws on blind changes of the seeds and
of that corpus, several times as fast, in as many processes as --jobs says.

What counts: an execution is one input that was taken whole through its target with all laws checked.
However often the laws have it decoded for that (cut in pieces, frame by frame, by the judge), it counts once.
An input that came before counts again: nobody compares them. In bulk, what was in hand when the time was up
does not count.

An input that breaks a law, hangs (10 s) or takes too much memory (2 GB) goes to `.fuzz/findings`; to see it
again: `scripts/fuzz --try FILE TARGET`. It is mended, and becomes a test in tests/fuzz/test_findings.py.
`.fuzz/tally.jsonl` adds up what all runs did, but for quick ones; --tally shows it. Ctrl-C: the table so far.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import fuzz_bulk, fuzz_led
from .fuzz_report import Tally, Verdict, Watch, state_of_the_code, table
from .fuzz_targets import Target, all_targets, groups

FOLDER = Path(".fuzz")
QUICK_SECONDS, QUICK_RUNS = 1, 600
"""What --quick gives each target, whichever is less."""
CODE = (Path("aiio"), Path("tests/fuzz"))


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzz, print the table, and return the exit code: 1 when a law was broken, 2 for bad options."""
    parser = _parser()
    chosen = parser.parse_args(argv)
    blind = chosen.bulk or chosen.tally or chosen.file
    targets = all_targets() if blind else fuzz_led.instrumented()
    sums = groups(targets)
    tally = Tally(FOLDER / "tally.jsonl")
    if chosen.tally:
        verdicts, codes = tally.read()
        order = [*targets, *(one.name for one in verdicts)]  # there may have been others
        verdicts.sort(key=lambda one: order.index(one.name))
        print(table(verdicts, sums), f"states of the code: {len(codes)}", sep="\n")
        return 0
    names = list(dict.fromkeys(name for one in chosen.target or targets for name in sums.get(one, (one,))))
    if unknown := [name for name in names if name not in targets]:
        parser.error(f"no target {unknown[0]!r}; there are {', '.join((*targets, *sums))}")
    picked = [targets[name] for name in names]
    if chosen.file is not None:
        if len(picked) != 1:
            parser.error("--try needs the name of one target")
        picked[0].check(chosen.file.read_bytes())
        print("no law is broken")
        return 0
    code = state_of_the_code(CODE)
    verdicts = []
    with folders(kept=not chosen.quick) as (corpus, findings):
        for verdict in (_in_bulk if chosen.bulk else _led)(picked, chosen, corpus, findings):
            verdicts.append(verdict)
            if not chosen.quick:
                tally.add(verdict, code)
        print(table(verdicts, sums))
        broken = [one for one in verdicts if one.finding]
        for one in broken:
            print(f"\nFAILED {one.name}; its input is in {findings}:\n{one.finding}")
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--seconds", type=int, default=30, help="for each target (default: 30)")
    how.add_argument("--runs", type=int, help="executions of each target")
    quick = f"a second or {QUICK_RUNS} executions each, from the seeds alone: for CI"
    how.add_argument("--quick", action="store_true", help=quick)
    add("--bulk", action="store_true", help="blind and fast instead of led by coverage")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="processes of --bulk (default: cores)")
    add("--seed", type=int, default=0, help="of all choices; 0: another each time")
    add("--try", dest="file", metavar="FILE", type=Path, help="check one input of one target")
    add("--tally", action="store_true", help="what all runs together did")
    add("target", nargs="*", metavar="TARGET", help="a target, `framing`, `dialects` (default: all)")
    return parser


def _led(
    targets: Sequence[Target], chosen: argparse.Namespace, corpus: Path, findings: Path
) -> Iterator[Verdict]:
    watch = Watch()
    log = Path(tempfile.mkdtemp()) / "log"
    limits = [f"-runs={chosen.runs}"] if chosen.runs else [f"-max_total_time={_seconds(chosen)}"]
    if chosen.quick:
        limits.append(f"-runs={QUICK_RUNS}")
    for target in targets:
        place = write_seeds(target, corpus)
        yield fuzz_led.run(target, limits, place, findings, log, chosen.seed, watch)
        if watch.stopped:
            return


def _in_bulk(
    targets: Sequence[Target], chosen: argparse.Namespace, corpus: Path, findings: Path
) -> Iterator[Verdict]:
    watch = Watch()
    folder = Path(tempfile.mkdtemp())
    limit = {"runs": chosen.runs} if chosen.runs else {"seconds": _seconds(chosen)}
    for target in targets:
        yield fuzz_bulk.run(
            target,
            read_pool(target, corpus),
            findings,
            folder,
            chosen.seed,
            watch,
            jobs=chosen.jobs,
            **limit,
        )
        if watch.stopped:
            return


def _seconds(chosen: argparse.Namespace) -> int:
    return QUICK_SECONDS if chosen.quick else chosen.seconds


@contextlib.contextmanager
def folders(*, kept: bool) -> Iterator[tuple[Path, Path]]:
    """Yield the folders of corpus and findings. Not *kept*: the corpus is a temporary one."""
    findings = FOLDER / "findings"
    findings.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        tempfile.tempdir = temporary  # also what forked children make goes with it
        try:
            yield FOLDER / "corpus" if kept else Path(temporary) / "corpus", findings
        finally:
            tempfile.tempdir = None


def write_seeds(target: Target, corpus: Path) -> Path:
    """Write the seeds of *target* below *corpus*, and return their folder."""
    place = corpus / target.name
    place.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds():
        (place / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    return place


def read_pool(target: Target, corpus: Path) -> list[bytes]:
    """Return what fuzzing of *target* in bulk begins with: its seeds, and its inputs below *corpus*."""
    place = corpus / target.name
    kept = [path.read_bytes() for path in sorted(place.iterdir())] if place.is_dir() else []
    return [data[: target.longest] for data in dict.fromkeys([*target.seeds(), *kept])]


if __name__ == "__main__":
    sys.exit(main())
