"""What all reading processes share: the passes over a load, the CPU meter, the report as one JSON line.

`python -m scripts.benchmarks.read_X SERVER LOAD PASSES` reads LOAD from SERVER once to warm up (a short
answer of the same kind), then PASSES times, measured. CPU is user and system time of the whole process by
`getrusage`. For a burst it is taken around the whole pass, connecting and settling included. For a
paced load it starts when every stream has had its first event: there the cost of a frame is
the question, not that of a hundred connections. In a timed load, a timer ticks from there on. Streams that
are held are another matter: see `hold`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import trio

from .lateness import Lateness, tick
from .loads import HELD, OVER_TLS, Load, parse_load, text_digest

Read: TypeAlias = Callable[[list[str], Callable[[], None]], Awaitable[None]]
"""Read one stream to its end and append its pieces of text to the list; call the other argument once, when
the first of them has come."""

OpenClient: TypeAlias = Callable[[str], AbstractAsyncContextManager[Read]]
"""Set up everything that a process sets up once, for the base URL given."""

Together: TypeAlias = Callable[[int, Callable[[int], Awaitable[None]]], Awaitable[None]]
"""Run so many tasks of the second argument at the same time, each with its number."""

WARM_UP_EVENTS = 500

TICK = 0.0053
"""Seconds between two ticks of the timer in the loop of a timed load, not in step with its frames."""


def process_cpu() -> float:
    """Return the user and system CPU seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def resident_kb() -> float:
    """Return how much memory this process has, in kB; where the system does not tell: the most it has had."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except FileNotFoundError:  # not Linux
        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return largest / 1024 if sys.platform == "darwin" else float(largest)  # in bytes there
    return pages * resource.getpagesize() / 1024


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


async def in_a_nursery(count: int, task: Callable[[int], Awaitable[None]]) -> None:
    """Run *count* tasks at the same time, on trio."""
    async with trio.open_nursery() as nursery:
        for index in range(count):
            nursery.start_soon(task, index)


async def read_once(
    read: Read,
    load: Load,
    meter: Meter,
    together: Together = in_a_nursery,
    begun: Callable[[], object] = lambda: None,
) -> list[str]:
    """Read all streams of *load* at the same time, measured, and return the text of each.

    *begun* is called when every stream has had its first event.
    """
    results: list[list[str]] = [[] for _ in range(load.streams)]
    to_start = load.streams

    def started() -> None:
        nonlocal to_start
        to_start -= 1
        if not to_start:
            begun()
            if load.period_ms:
                meter.start()

    async def read_into(index: int) -> None:
        await read(results[index], started)

    meter.start()
    await together(load.streams, read_into)
    meter.stop()
    if to_start:
        raise RuntimeError(f"{to_start} of {load.streams} streams did not report their first event")
    return ["".join(result) for result in results]


Outcome: TypeAlias = tuple[Meter, list[str], dict[str, float]]
"""What the passes cost, the text of each stream, and other figures, by name."""


async def _run(
    open_client: OpenClient,
    server: str,
    load: Load,
    passes: int,
    together: Together,
    kill: Callable[[], None],
) -> Outcome:
    if load.content in OVER_TLS:
        server = server.replace("http", "https", 1)
    warm_up = replace(
        load,
        content="text" if load.content in HELD else load.content,
        events=min(load.events, WARM_UP_EVENTS),
        streams=1,
        period_ms=0,
    )
    async with open_client(f"{server}/{warm_up.path}") as read:
        await read_once(read, warm_up, Meter(), together)
    async with open_client(f"{server}/{load.path}") as read:
        if load.content in HELD:
            return await hold(read, load, kill if load.content == "killed" else None)
        if load.content == "timed":
            return await _read_timed(read, load)
        return await _read_all(read, load, passes, together)


async def _read_all(read: Read, load: Load, passes: int, together: Together) -> Outcome:
    meter, first_event_ms = Meter(), list[float]()
    texts: set[tuple[str, ...]] = set()
    for _ in range(passes):
        asked = time.perf_counter()

        def begun(asked: float = asked) -> None:
            first_event_ms.append(1000 * (time.perf_counter() - asked))

        texts.add(tuple(await read_once(read, load, meter, together, begun)))
    if len(texts) != 1:
        raise RuntimeError("the passes received different texts")
    return meter, list(texts.pop()), {"first_event_ms": statistics.median(first_event_ms)}


async def _read_timed(read: Read, load: Load) -> Outcome:
    meter, late = Meter(), Lateness()
    async with trio.open_nursery() as nursery:
        timer = partial(tick, late, period=TICK)
        texts = await read_once(read, load, meter, begun=lambda: nursery.start_soon(timer))
        nursery.cancel_scope.cancel()
    return meter, texts, late.figures()


async def hold(read: Read, load: Load, kill: Callable[[], None] | None) -> Outcome:
    """Open all streams of *load*, which fall silent after their first event, and stop them all at once.

    They are stopped by *kill*, or by cancelling the scope around them. What is measured is the stopping,
    until the last task is gone; what came before is in the figures. `os.getppid` is called where the starting
    and the stopping begin and end: callgrind, if it counts, sees that (do_starts.py).
    """
    texts: list[list[str]] = [[] for _ in range(load.streams)]
    to_start, all_started = load.streams, trio.Event()

    def started() -> None:
        nonlocal to_start
        to_start -= 1
        if not to_start:
            all_started.set()

    gc.collect()
    before, began = resident_kb(), process_cpu()
    meter = Meter()
    os.getppid()
    async with trio.open_nursery() as nursery:
        for pieces in texts:
            nursery.start_soon(read, pieces, started)
        await all_started.wait()
        os.getppid()
        figures = {"start_cpu_ms": 1000 * (process_cpu() - began)}
        gc.collect()
        figures["kb_per_stream"] = (resident_kb() - before) / load.streams
        meter.start()
        os.getppid()
        if kill is None:
            nursery.cancel_scope.cancel()
        else:
            kill()
    os.getppid()
    meter.stop()
    return meter, ["".join(pieces) for pieces in texts], {**figures, "stop_ms": 1000 * meter.wall_s[0]}


def run_reader(
    open_client: OpenClient,
    *,
    run: Callable[..., Outcome] = trio.run,
    together: Together = in_a_nursery,
    kill: Callable[[], None] = lambda: None,
) -> None:
    """Do what the command line asks for, and print the report.

    Args:
      run: as `trio.run`, for clients that need another event loop.
      together: what runs tasks at the same time on that loop.
      kill: stops all readings by the client's own means.
    """
    server, path, passes = sys.argv[1:]
    print_report(*run(_run, open_client, server, parse_load(path), int(passes), together, kill))


async def _gather(count: int, task: Callable[[int], Awaitable[None]]) -> None:
    await asyncio.gather(*map(task, range(count)))


def _asyncio_run(main: Callable[..., Coroutine[Any, Any, Outcome]], *args: Any) -> Outcome:
    return asyncio.run(main(*args))


def run_reader_on_asyncio(open_client: OpenClient) -> None:
    """Do as `run_reader`, for a client that runs on asyncio only; neither held nor timed loads."""
    run_reader(open_client, run=_asyncio_run, together=_gather)


def print_report(meter: Meter, texts: list[str], figures: Mapping[str, float] | None = None) -> None:
    """Print what was measured, *figures* too, with the proof that *texts*, one a stream, came out."""
    report = {
        "sha256": text_digest(texts),
        "cpu_s": meter.cpu_s,
        "wall_s": meter.wall_s,
        "figures": dict(figures or {}),
        "python": platform.python_version(),
    }
    print(json.dumps(report))
