"""Fuzzing in bulk: blind, but many times as many executions, in processes that nothing looks into.

Each changes inputs of a pool (the seeds, and what fuzzing led by coverage kept) and what came of them, again
and again. It keeps its count and the input in hand in memory that its parent sees too, so an input that hangs
or kills it is known all the same.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import resource
import signal
import struct
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from random import Random

from .fuzz_report import BULK, Verdict, Watch, keep_finding
from .fuzz_targets import HANG, MEMORY, Target

ONE_LONG_IN = 16
"""Of so many inputs taken from the pool one is longer than most inputs are."""
GOES_ON = 0.75
"""How often what was changed is changed again, instead of an input of the pool."""

_STATE = struct.Struct("<QI")  # executions, length of the input in hand, which follows


class _Desk:
    """What a process that fuzzes has on its desk, for its parent to see."""

    def __init__(self, longest: int) -> None:
        self._memory = mmap.mmap(-1, _STATE.size + longest)

    def take(self, done: int, data: bytes) -> None:
        """Take *data* in hand; *done* executions are behind us."""
        _STATE.pack_into(self._memory, 0, done, len(data))
        self._memory[_STATE.size : _STATE.size + len(data)] = data

    def done(self) -> int:
        """Return the executions that are behind us."""
        count: int = _STATE.unpack_from(self._memory)[0]
        return count

    def in_hand(self) -> bytes:
        """Return the input in hand, or the last one."""
        length: int = _STATE.unpack_from(self._memory)[1]
        return self._memory[_STATE.size : _STATE.size + length]


class _Worker:
    """One process that fuzzes, as its parent sees it."""

    def __init__(self, target: Target, pool: Sequence[bytes], chance: Random, log: Path) -> None:
        self.desk = _Desk(target.longest)
        self.log = log
        self.code: int | None = None
        """Its exit code; None: it runs."""
        self._seen, self._since = 0, time.monotonic()
        self._pid = os.fork()
        if not self._pid:
            _work(target, pool, chance, self.desk, log)

    def look(self) -> None:
        """Take note if it has ended, and end it when it hangs."""
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            self.code = os.waitstatus_to_exitcode(status)
        elif (done := self.desk.done()) != self._seen:
            self._seen, self._since = done, time.monotonic()
        elif time.monotonic() > self._since + HANG:
            self._since = time.monotonic()
            self.log.write_text(f"hangs: an execution took more than {HANG} seconds")
            os.kill(self._pid, signal.SIGKILL)

    def end(self) -> None:
        """End it, if it runs."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    def finding(self) -> str:
        """Return what was wrong with the input in hand; empty: it runs, or was ended."""
        if self.code is None:
            return ""
        return self.log.read_text(errors="replace") or f"ended with exit code {self.code}"


def run(
    target: Target,
    pool: Sequence[bytes],
    findings: Path,
    folder: Path,
    seed: int,
    watch: Watch,
    *,
    jobs: int,
    seconds: float = float("inf"),
    runs: float = float("inf"),
) -> Verdict:
    """Fuzz *target* from *pool* in *jobs* processes until *seconds* are over or *runs* executions done.

    Args:
      target: what to fuzz.
      pool: inputs to begin with.
      findings: the folder for an input that breaks a law; it is the last one.
      folder: for the processes' logs.
      seed: of all choices; 0: others each time.
      watch: told how far it came, and asked whether to go on.
      jobs: processes.
      seconds: on the clock.
      runs: of all processes together; a few more are done before that is noticed.
    """
    gc.collect()
    gc.freeze()  # what is here stays, in every process
    began = time.monotonic()
    workers = [
        _Worker(target, pool, _chance(seed, f"{target.name} {number}"), folder / f"log-{number}")
        for number in range(jobs)
    ]

    def executions() -> int:
        return sum(worker.desk.done() for worker in workers)

    try:
        while (
            watch.pause(target.name, executions)
            and time.monotonic() < began + seconds
            and executions() < runs
            and all(worker.code is None for worker in workers)
        ):
            for worker in workers:
                worker.look()
    finally:
        for worker in workers:
            worker.end()
    broken = [worker for worker in workers if worker.finding()]
    for worker in broken:
        keep_finding(findings, target.name, worker.desk.in_hand())
    return Verdict(
        name=target.name,
        mode=BULK,
        executions=executions(),
        seconds=time.monotonic() - began,
        finding=broken[0].finding() if broken else "",
    )


def _chance(seed: int, purpose: str) -> Random:
    return Random(f"{seed} {purpose}") if seed else Random()


def _work(target: Target, pool: Sequence[bytes], chance: Random, desk: _Desk, log: Path) -> None:
    """Fuzz until it is killed or something is found. Never returns."""
    code = 70
    try:
        log.write_bytes(b"")
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # its parent hears it
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY << 20, MEMORY << 20))
        _fuzz(target, pool, chance, desk)
    except BaseException:  # noqa: BLE001  # whatever it is: the input that led to it is a finding
        log.write_text(traceback.format_exc(limit=-12))
        code = 77
    finally:
        os._exit(code)


def _fuzz(target: Target, pool: Sequence[bytes], chance: Random, desk: _Desk) -> None:
    check, mutate, longest, short = target.check, target.mutate, target.longest, target.short
    ordinary = [data for data in pool if len(data) <= short] or list(pool)
    data, most, done = b"", 0, 0
    while True:
        if chance.random() >= GOES_ON or not 0 < len(data) <= most:
            from_all = not chance.randrange(ONE_LONG_IN)
            data = chance.choice(pool if from_all else ordinary)
            most = longest if from_all else short
        data = mutate(data, chance)[:longest]
        desk.take(done, data)
        check(data)
        done += 1
