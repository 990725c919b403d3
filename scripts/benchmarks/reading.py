"""What all reading processes share: the passes over a load, the CPU meter, the report as one JSON line.

`python -m scripts.benchmarks.read_X SERVER LOAD PASSES` reads LOAD from SERVER once to warm up (a short
answer of the same kind), then PASSES times, measured. CPU is user and system time of the whole process by
`getrusage`. For a burst it is taken around the whole pass, connecting and settling included. For a
paced load it starts when every stream has had its first event: there the cost of a frame is
the question, not that of a hundred connections.
"""

from __future__ import annotations

import json
import platform
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import trio

from .loads import Load, parse_load, text_digest

Read: TypeAlias = Callable[[Callable[[], None]], Awaitable[list[str]]]
"""Read one stream to its end and return its pieces of text; call the argument once, at the first event."""

OpenClient: TypeAlias = Callable[[str], AbstractAsyncContextManager[Read]]
"""Set up everything that a process sets up once, for the base URL given."""

WARM_UP_EVENTS = 500


def process_cpu() -> float:
    """Return the user and system CPU seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@dataclass(slots=True)
class Meter:
    """What the passes cost, in order."""

    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)
    _began: tuple[float, float] = (0.0, 0.0)

    def start(self) -> None:
        """Begin a measured part."""
        self._began = (process_cpu(), time.perf_counter())

    def stop(self, per: int = 1) -> None:
        """End the measured part that began last; it did the same thing *per* times, and one counts."""
        cpu, wall = self._began
        self.wall_s.append((time.perf_counter() - wall) / per)
        self.cpu_s.append((process_cpu() - cpu) / per)


async def read_once(read: Read, load: Load, meter: Meter) -> list[str]:
    """Read all streams of *load* at the same time, measured, and return the text of each."""
    results: list[list[str]] = [[] for _ in range(load.streams)]
    to_start = load.streams

    def started() -> None:
        nonlocal to_start
        to_start -= 1
        if not to_start and load.period_ms:
            meter.start()

    async def read_into(index: int) -> None:
        results[index] = await read(started)

    meter.start()
    async with trio.open_nursery() as nursery:
        for index in range(load.streams):
            nursery.start_soon(read_into, index)
    meter.stop()
    if to_start:
        raise RuntimeError(f"{to_start} of {load.streams} streams did not report their first event")
    return ["".join(result) for result in results]


async def _run(open_client: OpenClient, server: str, load: Load, passes: int) -> tuple[Meter, list[str]]:
    warm_up = replace(load, events=min(load.events, WARM_UP_EVENTS), streams=1, period_ms=0)
    async with open_client(f"{server}/{warm_up.path}") as read:
        await read_once(read, warm_up, Meter())
    meter = Meter()
    texts: set[tuple[str, ...]] = set()
    async with open_client(f"{server}/{load.path}") as read:
        for _ in range(passes):
            texts.add(tuple(await read_once(read, load, meter)))
    if len(texts) != 1:
        raise RuntimeError("the passes received different texts")
    return meter, list(texts.pop())


def run_reader(open_client: OpenClient) -> None:
    """Do what the command line asks for, and print the report."""
    server, path, passes = sys.argv[1:]
    print_report(*trio.run(_run, open_client, server, parse_load(path), int(passes)))


def print_report(meter: Meter, texts: list[str]) -> None:
    """Print what was measured, with the proof that *texts*, one a stream, came out."""
    report = {
        "sha256": text_digest(texts),
        "cpu_s": meter.cpu_s,
        "wall_s": meter.wall_s,
        "python": platform.python_version(),
    }
    print(json.dumps(report))
