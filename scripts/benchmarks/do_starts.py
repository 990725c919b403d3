"""Instructions to start a request and to stop it, counted by callgrind: figures that hardly vary.

`python -m scripts.benchmarks.do_starts SERVER LOAD PASSES` lets each of READERS hold the streams of LOAD
under `valgrind --tool=callgrind`; `hold` says where counting begins and ends. The kernel is not counted.
"""

from __future__ import annotations

import json
import sys
import tempfile

from .do_instructions import totals, under_callgrind
from .loads import Load, expected_digest, parse_load, stream_pieces
from .reading import Meter, print_report

READERS = ("least", "aiio", "httpx")
PHASES = ("start", "stop")


def count(reader: str, server: str, load: Load, folder: str) -> dict[str, float]:
    """Return the instructions of each phase for one stream of *load*, as *reader* holds it."""
    counts = f"{folder}/{reader}"
    report = json.loads(under_callgrind(counts, f"read_{reader}", server, load.path, "1"))
    if report["sha256"] != expected_digest(load):
        raise RuntimeError(f"{reader}: the text received is not the text sent")
    return {phase: total / load.streams for phase, total in totals(counts, PHASES).items()}


def main() -> None:
    """Do what the command line asks for, and print the report: each count, and each over that of httpx."""
    server, path, _ = sys.argv[1:]
    load, meter = parse_load(path), Meter()
    meter.start()
    with tempfile.TemporaryDirectory() as folder:
        counts = {reader: count(reader, server, load, folder) for reader in READERS}
    meter.stop()
    figures = {f"{reader}_{phase}": counts[reader][phase] for reader in READERS for phase in PHASES}
    figures |= {
        f"{reader}_{phase}_ratio": counts[reader][phase] / counts["httpx"][phase]
        for reader in READERS
        for phase in PHASES
    }
    print_report(meter, ["".join(stream_pieces(load))] * load.streams, figures)


if __name__ == "__main__":
    main()
