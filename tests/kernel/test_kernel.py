"""Networks fail in the kernel: what a write makes of it. drill.py has the cells, each on its own wire."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .drill import CELLS, NOISE

ROOT = Path(__file__).parents[2]
GROUPS = 2
"""Processes side by side. Most cells wait."""
PATIENCE = 110

DONE = {"type": "Done", "text": "Hm", "state": "idle"}
NETWORK = {"type": "Error", "kind": "network", "cancelled": False, "retryable": True, "state": "idle"}
NOTHING = {**NETWORK, "emitted": False, "text": ""}
PARTIAL = {**NETWORK, "emitted": True, "text": "Hm"}
CANCELLED = {"type": "Error", "kind": "cancelled", "cancelled": True, "emitted": True, "text": "Hm"}

EXPECTED: dict[str, dict[str, Any]] = {
    "nothing": DONE,
    "drop in the answer": {**PARTIAL, "limit": "stuck"},
    "drop in the answer, overall": {**NETWORK, "limit": "overall"},
    "drop in the answer, kill": {**CANCELLED, "state": "closed"},
    "drop in the answer, cancel": {**CANCELLED, "state": "idle"},
    "drop of SYN": {**NOTHING, "limit": "connect"},
    "drop of SYN-ACK": {**NOTHING, "limit": "connect"},
    "drop before the head": {**NOTHING, "limit": "connect"},
    "reset by the network": {**PARTIAL, "limit": None},
    "socket destroyed": {**PARTIAL, "limit": None},
    "port refused by the network": {**NOTHING, "limit": None},
    "host unreachable": {**NOTHING, "limit": None},
    "prohibited by a router": {**NOTHING, "limit": None},
    "link down before connect": {**NOTHING, "limit": None},
    "far link down before connect": {**NOTHING, "limit": "connect"},
    "far link down in the answer": {**PARTIAL, "limit": "stuck"},
    "link down in the answer": {**PARTIAL, "limit": "stuck"},
    "link down and up in the answer": {**DONE, "text": "HmHm"},
    "our acknowledgements lost": {**PARTIAL, "limit": "stuck"},
    "narrow link": DONE,
    "large packets vanish": DONE,
    "large packets vanish, long prompt": {**NOTHING, "limit": "connect"},
    NOISE: DONE,
}
ALWAYS = {"terminals": 1, "in_flight": 0, "files": []}
"""Whatever happens: one terminal event, nobody in the ledger, no socket left."""


def refusal() -> str | None:
    """Return why the cells can't run here; None: they can."""
    for program in ("unshare", "nsenter", "ip", "nft", "ss"):
        if shutil.which(program, path=_path()) is None:
            return f"{program} is not installed (Debian: util-linux, iproute2, nftables)"
    tried = subprocess.run([*_unshare(), "true"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"no network namespace of our own: {tried.stderr.strip()}"


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


def _unshare() -> list[str]:
    return ["unshare", "--net", "--map-root-user"]


def drill(cells: list[list[str]]) -> dict[str, Any]:
    """Return what became of *cells*; each list of them is run in a process of its own, side by side."""
    env = {**os.environ, "PATH": _path(), "PYTHONPATH": str(ROOT)}
    command = [*_unshare(), sys.executable, "-m", "tests.kernel.drill"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = [subprocess.Popen([*command, *group], env=env, cwd=ROOT, **pipes) for group in cells]
    results: dict[str, Any] = {}
    try:
        for process in running:
            out, err = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, err.decode()
            results |= json.loads(out)
    finally:
        for process in running:
            process.kill()
            process.communicate()
    return results


@pytest.fixture
def allowed() -> None:
    why = refusal()
    if why is not None:
        pytest.skip(why)


def checked(results: dict[str, Any]) -> None:
    """Fail for cells that are not as they must be; else skip when the machine can't do one."""
    missing = {name: facts["missing"] for name, facts in results.items() if "missing" in facts}
    wrong = [
        f"{name}: {facts}, not {EXPECTED[name]}"
        for name, facts in results.items()
        if name not in missing
        and any(facts[key] != value for key, value in {**ALWAYS, **EXPECTED[name]}.items())
    ]
    assert not wrong, "\n".join(wrong)
    if missing:
        pytest.skip(f"the other cells passed; this machine can't do {missing}")


@pytest.mark.usefixtures("allowed")
def test_every_fault_of_the_wire_ends_in_one_terminal_of_the_right_kind_and_leaves_nothing() -> None:
    names = [name for name in CELLS if name != NOISE]
    results = drill([names[at::GROUPS] for at in range(GROUPS)])
    assert len(results) == len(names) >= 20
    checked(results)


@pytest.mark.usefixtures("allowed")
def test_an_answer_comes_through_loss_delay_and_reordering() -> None:
    emulator = ["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    tried = subprocess.run([*_unshare(), *emulator], env={"PATH": _path()}, capture_output=True, check=False)
    if tried.returncode:
        pytest.skip("this kernel has no network emulator (module sch_netem)")
    checked(drill([[NOISE]]))


def test_every_cell_has_its_expectation() -> None:
    assert EXPECTED.keys() == CELLS.keys()
