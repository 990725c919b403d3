"""What a context of a run weighs: many in one tree, each with a step that waits, until the root is aborted.

`python -m scripts.benchmarks.do_runs - LOAD PASSES` builds a tree of as many contexts as LOAD has events.
What one weighs is what Python has allocated meanwhile, by `tracemalloc`, divided by them: the context, its
task, its step and its span. CPU is that of building the tree, stopping and unwinding it, without tracing.

Every context must hear of the abort, and have had its own piece of the text.
"""

from __future__ import annotations

import gc
import json
import platform
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from aiio.runs import Harness, RunContext, RunError, Step, in_parallel, run_code

from .loads import Load, parse_load, stream_pieces, text_digest
from .reading import Meter

FAN_OUT = 100
"""Children of one context."""


def leaf(number: int, piece: str, heard: dict[int, str]) -> Step:
    """Return a step that waits, and has heard its piece when it is stopped."""

    async def wait(input: Any, context: RunContext) -> None:
        try:
            await trio.sleep_forever()
        finally:
            if context.aborted:
                heard[number] = piece

    return run_code("wait", wait)


def tree(steps: list[Step]) -> Step:
    """Return one step that runs *steps* at the same time, at most `FAN_OUT` below one context."""
    while len(steps) > 1:
        steps = [
            in_parallel("wide", steps[start : start + FAN_OUT]) for start in range(0, len(steps), FAN_OUT)
        ]
    return steps[0]


async def run_tree(load: Load, full: Callable[[int], None]) -> str:
    """Run a tree of contexts, tell *full* of their number when all of them wait, and abort the root."""
    heard: dict[int, str] = {}
    steps = [leaf(number, piece, heard) for number, piece in enumerate(stream_pieces(load))]
    harness = Harness()
    context = harness.create_context()

    async def run() -> None:
        try:
            await harness.run(tree(steps), context=context)
        except RunError:
            return

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        full(len(context.tree()))
        context.abort("measured")
    return "".join(heard[number] for number in sorted(heard))


def weigh(load: Load) -> tuple[str, float]:
    """Return the text of one run, and the bytes of one context."""
    weighed: list[float] = []

    def full(contexts: int) -> None:
        gc.collect()
        weighed.append(tracemalloc.get_traced_memory()[0] / contexts)

    trio.run(run_tree, Load(content=load.content, events=10), lambda contexts: None)  # what is made once
    gc.collect()
    tracemalloc.start(1)
    try:
        text = trio.run(run_tree, load, full)
    finally:
        tracemalloc.stop()
    return text, weighed[0]


def main() -> None:
    """Do what the command line asks for, and print the report."""
    _, path, passes = sys.argv[1:]
    load, meter = parse_load(path), Meter()
    text, weight = weigh(load)
    for _ in range(int(passes)):
        meter.start()
        again = trio.run(run_tree, load, lambda contexts: None)
        meter.stop()
        if again != text:
            raise RuntimeError("the passes ended with different texts")
    report = {
        "sha256": text_digest([text]),
        "cpu_s": meter.cpu_s,
        "wall_s": meter.wall_s,
        "figures": {"bytes_per_context": weight},
        "python": platform.python_version(),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
