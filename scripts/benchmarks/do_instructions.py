"""Instructions an event takes, counted by callgrind: a number that a busy machine does not move.

`python -m scripts.benchmarks.do_instructions - LOAD PASSES` renders LOAD, and the same with three times the
events, into files, and lets in_memory.py read them under `valgrind --tool=callgrind`. The difference between
the two counts, divided by the events between them, is the cost of an event; what a request costs drops out.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from .in_memory import FACTORS, READERS, SIZES
from .loads import Load, expected_digest, parse_load, stream_pieces, wire_writes
from .reading import Meter, print_report

PIECE_BYTES = 1 << 15


def prepare(load: Load, folder: Path) -> None:
    """Write every answer that is read into *folder*, in pieces."""
    for factor in FACTORS:
        writes = wire_writes(replace(load, events=factor * load.events, batch=1))
        writes = (writes[0].partition(b"\r\n\r\n")[2], *writes[1:])
        body = b"".join(writes)
        whole = [body[start : start + PIECE_BYTES] for start in range(0, len(body), PIECE_BYTES)]
        for size, pieces in zip(SIZES, (whole, list(writes)), strict=True):
            Path(folder, f"{size}-{factor}").write_bytes(pickle.dumps(pieces))


def count(folder: Path) -> tuple[dict[str, int], dict[str, str]]:
    """Return the instructions of each reading, and the digests of what was read, by reader, size, factor."""
    counts = f"{folder}/counts"
    digests: dict[str, str] = json.loads(
        under_callgrind(counts, "in_memory", str(folder), options=["--instr-atstart=no"])
    )
    return totals(counts, digests), digests


def under_callgrind(counts: str, module: str, *arguments: str, options: Iterable[str] = ()) -> str:
    """Run a *module* of this package under callgrind and return what it printed.

    Each time that it calls `os.getppid`, what was executed since the last call is dumped as *counts*.N.
    """
    command = ["valgrind", "--tool=callgrind", "--dump-before=getppid", f"--callgrind-out-file={counts}"]
    child = [sys.executable, "-m", f"{__package__}.{module}", *arguments]
    done = subprocess.run(
        [*command, *options, *child],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}:\n{done.stderr[-800:]}")
    return done.stdout


def totals(counts: str, names: Iterable[str]) -> dict[str, int]:
    """Return the instructions of each part that counts, from the dumps written as *counts*.N.

    They are numbered from 1; those with odd numbers hold what came before a part, the others a part.
    """
    return {name: total(Path(f"{counts}.{2 * number}")) for number, name in enumerate(names, start=1)}


def total(dump: Path) -> int:
    """Return the instructions in one dump of callgrind."""
    found = re.search(r"^totals: (\d+)$", dump.read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{dump.name} has no totals")
    return int(found[1])


def main() -> None:
    """Do what the command line asks for, and print the report."""
    _, path, _ = sys.argv[1:]
    load, meter = parse_load(path), Meter()
    meter.start()
    with tempfile.TemporaryDirectory() as folder:
        prepare(load, Path(folder))
        counts, digests = count(Path(folder))
    meter.stop()
    for name, digest in digests.items():
        if digest != expected_digest(replace(load, events=int(name[-1]) * load.events)):
            raise RuntimeError(f"{name}: the text received is not the text sent")
    events = (FACTORS[1] - FACTORS[0]) * load.events
    figures = {
        f"{reader}_{size}": (counts[f"{reader}-{size}-3"] - counts[f"{reader}-{size}-1"]) / events
        for reader in READERS
        for size in SIZES
    }
    print_report(meter, ["".join(stream_pieces(load))], figures)


if __name__ == "__main__":
    main()
