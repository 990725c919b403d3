"""Twelve agents under one nursery, on the embedded model: ten answer, one is killed, one meets its limit.

    python scripts/quickstart_demo.py TRACE.jsonl

Shows how each ended, what the two stopped ones had said by then, and what the trace tells about them. The
exit code is 1 when it did not come out like that.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio
from rich.console import Console
from rich.table import Table

import aiio
from aiio.agents import Fleet, FleetResult
from aiio.observe import configure, read_trace

MODEL = "local/smollm2"
AT_A_TIME = 4
"""What the model's server does at the same time."""

KILLED, LIMITED = "killed", "limited"
KILL_AFTER = 40
"""Characters of an answer after which its agent is killed."""

OVERALL_LIMIT = "6s"
SHORT: dict[str, Any] = {"max_tokens": 40}
ENDLESS: dict[str, Any] = {"max_tokens": 1800, "extra_body": {"ignore_eos": True}}
"""Settings for an answer that goes on until somebody stops it."""

SUBJECTS = (
    "rivers",
    "birds",
    "colours",
    "trees",
    "planets",
    "languages",
    "fruits",
    "metals",
    "games",
    "seas",
)


async def kill_at(told: trio.Event, fleet: Fleet) -> None:
    """Kill the agent when it was told that the time has come."""
    await told.wait()
    await fleet.kill(KILLED, reason="enough was said")


def counting(limit: int, reached: Callable[[], None]) -> Callable[[Any], None]:
    """Return a callback for text that calls *reached* when *limit* characters came."""
    seen = 0

    def count(event: Any) -> None:
        nonlocal seen
        seen += len(event.text)
        if seen >= limit:
            reached()

    return count


async def run_agents() -> list[FleetResult]:
    """Run the twelve and return their results in the order they ended."""
    story = "Tell me a very long story about a lighthouse and its keeper."
    async with aiio.open_env() as env, aiio.open_fleet(env, max_active=AT_A_TIME) as fleet:
        told = trio.Event()
        env.nursery.start_soon(kill_at, told, fleet)
        callbacks = {"on_text_delta": counting(KILL_AFTER, told.set)}
        fleet.start(
            aiio.Agent(env=env, model=MODEL, settings=ENDLESS, callbacks=callbacks), story, key=KILLED
        )
        fleet.start(
            aiio.Agent(env=env, model=MODEL, settings=ENDLESS, timeout=OVERALL_LIMIT), story, key=LIMITED
        )
        for subject in SUBJECTS:
            agent = aiio.Agent(env=env, model=MODEL, system="Answer in one sentence.", settings=SHORT)
            fleet.start(agent, f"Name three {subject}.", key=subject)
        return [result async for result in fleet.results()]


def show(results: list[FleetResult], trace: list[dict[str, Any]]) -> None:
    """Print the table, and the trace lines of the two that were stopped."""
    table = Table(title=f"{len(results)} agents on {MODEL}")
    for column in ("agent", "outcome", "limit"):
        table.add_column(column, no_wrap=True)
    for column in ("tokens", "ms"):
        table.add_column(column, no_wrap=True, justify="right")
    table.add_column("text")
    for result in results:
        terminal = terminal_of(result)
        outcome = "done" if isinstance(terminal, aiio.Done) else terminal.kind.value
        limit = (terminal.limit or "") if isinstance(terminal, aiio.Error) else ""
        tokens = (terminal.usage or {}).get("output_tokens", "")
        table.add_row(result.key, outcome, limit, str(tokens), f"{result.elapsed_ms:.0f}", excerpt(result))
    console = Console()
    console.print(table)
    for record in trace:
        if record.get("agent") in (KILLED, LIMITED):
            console.print(f"trace of {record['agent']!r}:", style="bold")
            console.print_json(json.dumps(record))


def terminal_of(result: FleetResult) -> aiio.Done | aiio.Error:
    """Return the terminal event of an agent's run; raise what it raised."""
    if result.result is None:
        raise result.exception or AssertionError("neither a result nor an exception")
    return result.result.terminal


def excerpt(result: FleetResult, width: int = 60) -> str:
    """Return the beginning of what the agent said, on one line."""
    text = " ".join(result.result.text.split()) if result.result is not None else ""
    return text if len(text) <= width else f"{text[: width - 1]}\u2026"


def complaints(results: list[FleetResult], trace: list[dict[str, Any]]) -> list[str]:
    """Return what did not come out as it should."""
    found = []
    by_key = {result.key: result for result in results}
    if len(by_key) != len(SUBJECTS) + 2:
        found.append(f"{len(by_key)} agents ended, not {len(SUBJECTS) + 2}")
    for subject in SUBJECTS:
        if not isinstance(terminal_of(by_key[subject]), aiio.Done):
            found.append(f"{subject} did not finish")
    match terminal_of(by_key[KILLED]):
        case aiio.Error(kind=aiio.ErrorKind.CANCELLED, message=dict()):
            pass
        case other:
            found.append(f"the killed agent has no cancelled partial answer but {other!r:.200}")
    match terminal_of(by_key[LIMITED]):
        case aiio.Error(limit="overall" | "stuck", message=dict()):
            pass
        case other:
            found.append(f"the limited agent has no partial answer cut by its limit but {other!r:.200}")
    traced = {record.get("agent") for record in trace}
    found += [f"the trace has no line of {key}" for key in by_key if key not in traced]
    return found


def main(path: Path) -> int:
    """Run, show, judge."""
    path.unlink(missing_ok=True)
    with configure(path):
        results = trio.run(run_agents)
    trace = read_trace(path)
    show(results, trace)
    wrong = complaints(results, trace)
    for complaint in wrong:
        print(f"not as it should be: {complaint}", file=sys.stderr)
    print(f"the whole trace is in {path}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
