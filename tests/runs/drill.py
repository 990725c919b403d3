"""A workflow that is killed again and again: `python -m tests.runs.drill FOLDER SEED KILLS`.

Each attempt is a forked process that kills itself, as `kill -9` does, at a random moment of its saving and
asking; the next one restores. What came of it is in the file `end`, for `test_crash_drill.py`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import trio

from aiio.runs.code_steps import run_code
from aiio.runs.context import RunContext
from aiio.runs.harness import Harness
from aiio.runs.ledger import ledger_prefix
from aiio.runs.looping import loop
from aiio.runs.model_step import call_model
from aiio.runs.paid import PaidCall
from aiio.runs.parallel import in_parallel
from aiio.runs.spawning import spawn
from aiio.runs.stores import SQLiteStore
from aiio.runs.until import max_steps
from tests.agents.peer import MODEL, answer, peer

ID = "the-drill"
BILL = 0.2


def flat(endpoint: str, model: str, usage: Any) -> float:
    return 0.01 * float(usage["input_tokens"]) + 0.02 * float(usage["output_tokens"])


class Fate:
    """Kills this process at a moment that was drawn."""

    def __init__(self, moments: float) -> None:
        self.left = moments

    def moment(self) -> None:
        self.left -= 1
        if self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Store(SQLiteStore):
    """May die before and after every write."""

    fate: Fate

    async def put(self, key: str, value: bytes) -> None:
        self.fate.moment()
        await super().put(key, value)
        self.fate.moment()


class Drill:
    """One attempt."""

    def __init__(self, folder: Path, attempt: int, fate: Fate) -> None:
        self.folder, self.attempt, self.fate = folder, attempt, fate
        self.steps = 0

    def write(self, name: str, line: Any) -> None:
        with open(self.folder / name, "a") as file:
            file.write(json.dumps([self.attempt, line]) + "\n")

    def read(self, name: str) -> list[Any]:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    def code(self, name: str) -> Any:
        async def work(input: Any, context: RunContext) -> Any:
            await trio.lowlevel.checkpoint()
            context.state[name] = context.state.get(name, 0) + 1
            return [*(input or []), f"{name}{context.state[name]}"][-3:]

        return run_code(name, work)

    def ask(self, name: str) -> Any:
        async def work(input: Any, context: RunContext) -> Any:
            said = await context.execute(call_model("model", tools=[], max_output=5), f"{name}: {input}")
            return [*(input or []), said][-3:]

        return run_code(name, work)

    def workflow(self) -> Any:
        async def flow(input: Any, context: RunContext) -> Any:
            value = await context.execute(loop("think", [self.code("a"), self.ask("m")], max_steps(5)), [])
            paths = [loop(f"p{n}", [self.code("b"), self.ask("c")], max_steps(2)) for n in range(4)]
            wide = await context.execute(in_parallel("wide", paths), value)
            inner = loop("inner", [self.ask("d"), self.code("e")], max_steps(4))
            child = await context.execute(spawn("child", inner), value)
            last = await context.execute(self.ask("end"), child)
            return [wide, child, last, context.state, len(context.item_log)]

        return run_code("flow", flow)

    async def run(self) -> dict[str, Any]:
        def reply(body: dict[str, Any]) -> Any:
            self.fate.moment()
            self.write("bills", BILL)
            said = body["messages"][-1]["content"][0]["text"]
            return answer(f"heard {len(said)} of {len(body['messages'])}")

        store = Store(self.folder / "store.db")
        store.fate = self.fate
        with store:
            async with peer(reply) as (env, _):
                harness = Harness(env=env, model=MODEL, store=store, prices=flat)
                context = await harness.restore(ID) or harness.create_context(id=ID)
                paths = {entry.path for entry in context._execution.ledger._entries.values()}
                harness.on_event(lambda name, data: self.told(name, data, paths))
                output = await harness.run(self.workflow(), context=context)
                held = context.held_cost
                calls = await harness.paid_calls(ID)
                before, billed = context.cost, context.billed_cost
                sent = self.read("bills")
                lost = len(sent) - sum(call.cost_usd is not None for call in calls)

                def lookup(call: PaidCall) -> float:
                    nonlocal lost
                    lost -= 1
                    return BILL if lost >= 0 else 0.0

                await harness.reconcile(ID, lookup)
                return {
                    "output": output,
                    "steps": self.steps,
                    "bills": BILL * len(sent),
                    "bills_now": BILL * sum(attempt == self.attempt for attempt, _ in sent),
                    "before": before,
                    "billed": billed,
                    "held": held,
                    "cost": context.cost,
                    "held_after": context.held_cost,
                    "recorded": len(await store.keys(ledger_prefix(ID))),
                }

    def told(self, name: str, data: Any, recorded: set[str]) -> None:
        self.steps += name == "aiio:step_started"
        if name == "aiio:step_started" and data["path"] in recorded:
            self.write("again", data["path"])


def main(folder: Path, seed: int, kills: int) -> None:
    """Fork attempts until one ends."""
    chance = random.Random(seed)
    died = 0
    while True:
        moments = chance.randint(1, 14) if died < kills else float("inf")
        pid = os.fork()
        if pid == 0:
            found = trio.run(Drill(folder, died, Fate(moments)).run)
            (folder / "end").write_text(json.dumps({**found, "died": died}))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            raise SystemExit(os.WEXITSTATUS(status))
        died += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
