"""What prompts on Ray workers cost on this machine: memory, requests per second, and the time a stop takes.

Against the loopback server of the benchmarks: streams that send one piece and then hold still, to weigh
what is in flight; answers, to see what one costs its worker and the driver. `scripts/scale --help`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import trio

from aiio.env.env import Env, open_env
from aiio.scale import Job, RayEngine, Recipe, open_spread
from scripts.benchmarks.loads import Load
from scripts.benchmarks.measuring import loopback_server

WORKERS = 2
HELD = Load(content="held", events=20, batch=1)
PACE = 0.05
"""Seconds between two looks at what other processes do."""

ESTABLISHED = "01"
"""In /proc/net/tcp."""

_TICKS = os.sysconf("SC_CLK_TCK")


def env_in(folder: Path) -> Env:
    """Return a worker's Env, and leave a file in *folder* whose name is the worker's process id."""
    (folder / str(os.getpid())).touch()
    return open_env(config=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """What one process is, or several together."""

    rss_kb: int
    cpu: float
    """Seconds."""


def look(pid: int | str) -> Process:
    """Return how the process is doing. OSError: there is none, or no /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return Process(
        rss_kb=int(fields[21]) * os.sysconf("SC_PAGE_SIZE") // 1024,
        cpu=(int(fields[11]) + int(fields[12])) / _TICKS,
    )


def together(folder: Path) -> Process:
    """Return all workers of *folder* as one."""
    found = [look(entry.name) for entry in folder.iterdir()]
    return Process(rss_kb=sum(one.rss_kb for one in found), cpu=sum(one.cpu for one in found))


def connections(url: str) -> int:
    """Return how many TCP connections to the server at *url* its clients have open."""
    port = f"{urlsplit(url).port:04X}"
    lines = Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]
    return sum(
        fields[2].endswith(f":{port}") and fields[3] == ESTABLISHED for fields in map(str.split, lines)
    )


async def until(condition: Callable[[], bool]) -> None:
    """Wait until *condition* holds: other processes make it true, and tell nobody."""
    while not condition():  # noqa: ASYNC110  # see above
        await trio.sleep(PACE)


def jobs(count: int) -> list[Job]:
    """Return *count* prompts."""
    return [Job(key=str(number), model="vllm/bench", text="Go.") for number in range(count)]


async def hold(url: str, count: int, options: dict[str, str]) -> None:
    """Hold *count* streams open over all workers, weigh them, and stop them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipe = Recipe(
            settings={"url": f"{url}/{HELD.path}"}, connect_timeout="never", stuck_timeout="never"
        )
        engine = RayEngine(recipe, make_env=partial(env_in, folder), options=dict(options))
        async with open_spread(engine, jobs(count), workers=WORKERS, max_active=count) as spread:
            await until(lambda: len(os.listdir(folder)) == WORKERS)
            await trio.sleep(20 * PACE)
            before, driver = together(folder), look("self")
            kinds: list[str] = []

            async def collect() -> None:
                async for ended in spread:
                    kinds.append(getattr(ended.terminal, "kind", "done"))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(collect)
                await until(lambda: connections(url) + len(kinds) >= count)
                await trio.sleep(20 * PACE)
                after, driver_after, held = together(folder), look("self"), count - len(kinds)
                sockets = connections(url)
                began = time.perf_counter()
                spread.stop_nowait("measured")
                await until(lambda: not connections(url))
                closed = time.perf_counter() - began
            told = time.perf_counter() - began
    cells = (
        str(held),
        f"{before.rss_kb / WORKERS / 1024:.0f} MB",
        f"{(after.rss_kb - before.rss_kb) / held:.1f} kB",
        f"{sockets / held:.2f}",
        f"{(after.cpu - before.cpu) / held * 1000:.2f} ms",
        f"{(driver_after.rss_kb - driver.rss_kb) / held:.1f} kB",
        f"{closed:.2f} s",
        f"{told:.2f} s",
    )
    print(f"| {' | '.join(cells)} |", flush=True)


async def hurry(url: str, count: int, load: Load, active: int, options: dict[str, str]) -> None:
    """Have *count* answers, *active* at a time, and see what each costs whom."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipe = Recipe(settings={"url": f"{url}/{load.path}"})
        engine = RayEngine(recipe, make_env=partial(env_in, folder), options=dict(options))
        async with open_spread(engine, jobs(count), workers=WORKERS, max_active=active) as spread:
            await anext(spread)
            before, cpu, began = together(folder), time.process_time(), time.perf_counter()
            done = 0
            async for ended in spread:
                done += ended.result is not None and ended.result.ok
            seconds = time.perf_counter() - began
            after, cpu = together(folder), time.process_time() - cpu
    theirs = after.cpu - before.cpu
    print(
        f"\n{done} answers of {load.events} chunks, {load.batch} a write, {active} at a time: "
        f"{done / seconds:.0f} a second on this machine; CPU of each: "
        f"{cpu / done * 1000:.2f} ms of the driver, {theirs / done * 1000:.2f} ms of its worker"
    )


def main() -> None:
    """Measure what the command line asks for, and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--held", default="200,1000,2000", help="numbers of streams held open")
    parser.add_argument("--tls", action="store_true", help="over TLS, as with providers")
    parser.add_argument("--answers", type=int, default=4000, help="answers that are received; 0: none")
    parser.add_argument("--chunks", type=int, default=20, help="chunks of each")
    parser.add_argument("--batch", type=int, default=20, help="chunks that come together")
    given = parser.parse_args()
    load = Load(content="text", events=given.chunks, batch=given.batch)
    with loopback_server() as server, tempfile.TemporaryDirectory(prefix="ray-") as folder:
        options = {"_temp_dir": folder}
        url = server.url.replace("http:", "https:") if given.tls else server.url
        os.environ["SSL_CERT_FILE"] = server.ca_file  # for the workers, too
        print(
            "| held open | a worker, idle | each: memory | sockets | CPU to begin | at the driver "
            "| all closed | all told |\n|" + " ---: |" * 8
        )
        for count in filter(None, map(int, given.held.split(","))):
            trio.run(hold, url, count, options)
        if given.answers:
            trio.run(hurry, url, given.answers, load, 200, options)


if __name__ == "__main__":
    main()
