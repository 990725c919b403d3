"""A fleet of agents under one nursery, one a stream of the load: how late timers are, what an agent weighs.

Beside the agents a timer ticks, see lateness.py; the start of the agents counts, too. What an agent weighs is
how much the process has grown at its largest, divided by the agents; before that one agent has run.

Every agent must end with its one terminal event, `Done`, and with the text that was sent.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import trio

import aiio

from .lateness import Lateness, tick
from .loads import Load, parse_load
from .reading import Meter, print_report, resident_kb


def largest_kb() -> float:
    """Return the largest size this process has had, in kB."""
    try:
        status = Path("/proc/self/status").read_text("ascii")
    except FileNotFoundError:  # not Linux
        return resident_kb()  # which is the largest size there
    # Not `ru_maxrss`: on Linux that begins with the size of the process that started this one.
    return float(status.partition("VmHWM:")[2].split()[0])


async def run_fleet(env: aiio.Env, load: Load) -> list[str]:
    """Run one agent for each stream of *load* and return their texts. RuntimeError: one went astray."""
    seen: Counter[str] = Counter()
    handle = env.on_event(lambda event: seen.update([event.name]))
    texts: list[str] = []
    async with aiio.open_fleet(env) as fleet:
        for _ in range(load.streams):
            fleet.start(aiio.Agent(env=env, model="bench/bench"), "Go.")
            await trio.lowlevel.checkpoint()  # or the agents would begin in one long step
        async for result in fleet.results():
            if result.result is None or not result.result.ok:
                raise RuntimeError(f"{result.key} failed: {result}")
            texts.append(result.result.text)
    env.off_event(handle)
    if not seen["io_start"] == seen["io_done"] == len(texts) == load.streams or env.active_io:
        raise RuntimeError(f"{load.streams} agents, {seen['io_start']} began, {seen['io_done']} ended")
    return texts


async def measure(server: str, load: Load) -> tuple[Meter, list[str], dict[str, float]]:
    """Run the fleet once; return what it cost, the texts, and the figures."""
    meter, late = Meter(), Lateness()
    async with aiio.open_env() as env:
        one = replace(load, streams=1, events=2, period_ms=0)
        env.register_endpoint("bench", provider="openai_chat", url=f"{server}/{one.path}")
        await run_fleet(env, one)
        env.register_endpoint("bench", provider="openai_chat", url=f"{server}/{load.path}")
        before = largest_kb()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick, late)
            meter.start()
            texts = await run_fleet(env, load)
            meter.stop()
            nursery.cancel_scope.cancel()
    figures = {
        **late.figures(),
        "kb_per_agent": (largest_kb() - before) / load.streams,
    }
    return meter, texts, figures


def main() -> None:
    """Do what the command line asks for, and print the report."""
    server, path, _ = sys.argv[1:]
    print_report(*trio.run(measure, server, parse_load(path)))


if __name__ == "__main__":
    main()
