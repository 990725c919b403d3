"""Mixed traffic for minutes, and the books: what was started is what ended, and nothing is left behind.

Run by `scripts/soak`. The server is another process, so what this one holds is the client's alone. Each
worker writes again and again: a dialect, a fate that the server plays, an action of ours, a limit. Beside
them one task changes `max_active`, and one kills the server and puts another in its place. From time to time
all workers stop, and what the process holds then is noted: descriptors, tasks, threads, memory.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import math
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
import trio.testing

import aiio
from aiio.env.listeners import EnvEvent
from aiio.env.registry import BUILTIN_PROVIDERS
from tests.io.kept_kills import random_kills
from tests.serving import Authority

WORKERS = 24
CHECKS, CHECK_EVERY = 24, 3.0
"""How often in a run all workers stop and are counted up, at most, and not after fewer seconds than that."""
RESTARTS, RESTART_EVERY = 12, 6.0
"""How often in a run the server is killed, at most, and not after fewer seconds than that."""
SAFETY = "30s"
"""A limit that must not fire: whoever waits that long hangs."""
WANTED = {"connect": "40ms", "stuck": "40ms", "overall": "40ms"}
"""Limits that are to fire."""
NOISE = 3.0
"""Standard errors of the slope of memory over time that are within noise."""
SLACK = 2 << 20
"""Bytes that memory may be said to grow by in a run, whatever the noise: allocators round up."""
MORE_BLOCKS = 5000
"""The same in pieces that Python has given out: trio keeps up to a thousand deadlines that are past."""

KEPT_FOR = 0.25
"""Seconds that a connection is kept with `--keep`: all are gone soon after the workers stopped."""

FATES: dict[str, frozenset[str]] = {
    "whole": frozenset({"done"}),
    "slow": frozenset({"done"}),
    "stall": frozenset({"limit stuck", "limit connect"}),
    "mute": frozenset({"limit connect", "limit stuck"}),
    "rst": frozenset({"network"}),
    "eof": frozenset({"network"}),
    "half-close": frozenset({"network"}),
    "refuse401": frozenset({"auth", "network"}),
    "refuse429": frozenset({"provider", "network"}),
    "refuse500": frozenset({"provider", "network"}),
}
"""What the server does, and how a write may end then. A WebSocket can't be refused any more: it is closed."""
FATE_WEIGHTS = (40, 14, 8, 4, 6, 6, 4, 3, 4, 3)
ACTIONS = ("none", "kill", "kill_nowait", "outer", "callback", "leave", "overall")
ACTION_WEIGHTS = (60, 6, 5, 8, 6, 8, 7)


@dataclass
class Books:
    """What was started, and how it ended."""

    started: Counter[str] = field(default_factory=Counter)
    """By dialect."""
    ended: Counter[str] = field(default_factory=Counter)
    """Terminal events, by what they say."""
    actions: Counter[str] = field(default_factory=Counter)
    io_start: int = 0
    io_done: int = 0
    returned: int = 0
    cancelled: int = 0
    """Writes out of which `Cancelled` came, or streams that were left."""
    wrong: list[str] = field(default_factory=list)
    """The first laws broken."""
    warned: list[str] = field(default_factory=list)
    """Warnings, and exceptions that nobody heard."""
    reused: int = 0
    """Answers on connections that were kept."""
    redone: int = 0
    """Requests that went out again, because the server had given up a kept connection."""
    restarts: int = 0
    limits: int = 0
    """Changes of `max_active`."""

    def complain(self, what: str) -> None:
        """Take note of a broken law."""
        if len(self.wrong) < 20:
            self.wrong.append(what)

    def problems(self) -> list[str]:
        """Return what does not add up."""
        found = [*self.wrong, *self.warned[:20]]
        started, ended = sum(self.started.values()), sum(self.ended.values())
        if started != ended:
            found.append(f"{started} were started and {ended} ended")
        if started != self.returned + self.cancelled:
            found.append(
                f"{started} were started, {self.returned} returned and {self.cancelled} were cancelled"
            )
        if self.io_start != self.io_done:
            found.append(f"{self.io_start} events io_start, {self.io_done} io_done")
        return found


@dataclass(frozen=True)
class Held:
    """What the process holds while no request is in flight."""

    at: float
    """Seconds since the run began."""
    files: int
    tasks: int
    threads: int
    """Without trio's workers, which come and go."""
    resident: int
    """Bytes."""
    blocks: int
    """Pieces of memory that Python has given out: what is held, whatever the allocators round up to."""


class Server:
    """The other process, and the one that stands by to take its place."""

    def __init__(self) -> None:
        self._standby = self._spawn()
        self._now: subprocess.Popen[str] | None = None
        self.port = 0
        self.epoch = 0
        """Odd: nobody listens. Changes when the server is killed, and when another has taken its place."""

    def _spawn(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "scripts.soak_server"]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is ours
        )

    async def replace(self) -> None:
        """Kill the server that listens, and let the next one listen on its port. The first time: start."""
        assert self._standby.stdout is not None
        await trio.to_thread.run_sync(self._standby.stdout.readline)  # it is ready
        self.epoch |= 1
        if self._now is not None:
            self._end(self._now)
        self._now = self._standby
        assert self._now.stdin is not None
        self._now.stdin.write(f"{self.port}\n")
        self._now.stdin.flush()
        assert self._now.stdout is not None
        said = await trio.to_thread.run_sync(self._now.stdout.readline)
        self.port = int(said)
        self.epoch += 1
        self._standby = self._spawn()

    def close(self) -> None:
        """Kill both."""
        for process in (self._now, self._standby):
            if process is not None:
                self._end(process)

    def _end(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


class Soak:
    """One run.

    Args:
      seconds: how long.
      workers: writes at once.
      seed: of all choices.
      keep: keep HTTP connections.
    """

    def __init__(self, seconds: float, workers: int, seed: int, *, keep: bool = False) -> None:
        self.seconds = seconds
        self.keep = keep
        self.books = Books()
        self.held: list[Held] = []
        self._workers = workers
        self._chance = random.Random(seed)
        self._server = Server()
        self._began = 0.0
        self._stopped = False
        self._stop_asked = trio.Event()
        self._busy = 0
        self._sessions: list[aiio.IO] = []  # made since the last count
        self._open = trio.Event()  # workers may begin another write
        self._open.set()
        self._quiet = trio.Event()

    async def run(self) -> None:
        """Run to the end, or until `stop`."""
        try:
            await self._server.replace()
            async with aiio.Env(environ={}) as env:
                self._register(env)
                self._began = time.monotonic()
                async with trio.open_nursery() as nursery:
                    await nursery.start(self._signals)
                    nursery.start_soon(self._restart)
                    nursery.start_soon(self._change_limit, env)
                    async with trio.open_nursery() as workers:
                        for number in range(self._workers):
                            workers.start_soon(self._work, env, random.Random(self._chance.random()), number)
                        print("began", flush=True)
                        await self._count_up(env)
                    nursery.cancel_scope.cancel()
                if env.active_io or env.queued:
                    self.books.complain("the ledger is not empty")
        finally:
            self._server.close()

    def stop(self) -> None:
        """Begin no more writes, and come to the end."""
        self._stopped = True
        self._stop_asked.set()
        self._open.set()

    def _register(self, env: aiio.Env) -> None:
        for provider in BUILTIN_PROVIDERS:
            socket = provider in ("openai_responses_ws", "openai_realtime", "gemini_live")
            url = f"{'ws' if socket else 'http'}://127.0.0.1:{self._server.port}"
            options: dict[str, Any] = {"ws_keep": True} if provider == "openai_responses_ws" else {}
            options |= {"http_keep": self.keep, "http_keep_idle": f"{KEPT_FOR}s"}
            env.register_endpoint(provider, provider=provider, url=url, auth="soak-key", **options)

        env.on_event(self._heard)

    def _heard(self, event: EnvEvent) -> None:
        self.books.io_start += event.name == "io_start"
        self.books.io_done += event.name == "io_done"
        if event.name == "io_done" and (reuse := event.data["trace"].reuse) is not None:
            self.books.reused += reuse.taken
            self.books.redone += event.data["trace"].redone

    # -- beside the writes

    async def _signals(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            task_status.started()
            async for _ in signals:
                self.stop()

    async def _restart(self) -> None:
        while True:
            await trio.sleep(max(RESTART_EVERY, self.seconds / (RESTARTS + 1)))
            await self._server.replace()
            self.books.restarts += 1

    async def _change_limit(self, env: aiio.Env) -> None:
        while True:
            await trio.sleep(0.25)
            env.max_active = self._chance.choice((None, None, 1, 3, self._workers // 2, self._workers))
            self.books.limits += 1

    async def _count_up(self, env: aiio.Env) -> None:
        """Stop all workers from time to time, and note what the process holds."""
        checks = max(1, min(CHECKS, int(self.seconds / CHECK_EVERY)))
        for number in range(1, checks + 1):
            until = self._began + self.seconds * number / checks
            with trio.move_on_after(max(0.0, until - time.monotonic())):
                await self._stop_asked.wait()
            self._open = trio.Event()
            if self._busy:
                self._quiet = trio.Event()
                with trio.move_on_after(60) as patience:
                    await self._quiet.wait()
                if patience.cancelled_caught:
                    self.books.complain(f"{self._busy} writes did not end within a minute")
                    os._exit(_report(self))  # they never will
            for io in self._sessions:
                await io.kill()  # so that no socket is kept for a next request
            self._sessions.clear()
            if self.keep:
                await trio.sleep(2 * KEPT_FOR)
                if len(env.transport("http://any").kept):
                    self.books.complain("connections are kept for longer than was said")
            await trio.testing.wait_all_tasks_blocked(0.05)
            gc.collect()
            give_back()
            self.held.append(now := self._holds())
            said = f"{now.at:.0f} s: {sum(self.books.started.values()):,} requests, {now.files} files,"
            print(said, f"{now.tasks} tasks, {now.resident / (1 << 20):.1f} MB", file=sys.stderr, flush=True)
            if self._stopped or number == checks:
                self.stop()
                return
            self._open.set()

    def _holds(self) -> Held:
        with open("/proc/self/statm") as file:
            resident = int(file.read().split()[1]) * resource.getpagesize()
        return Held(
            time.monotonic() - self._began,
            len(os.listdir("/proc/self/fd")),
            trio.lowlevel.current_statistics().tasks_living,
            sum("Trio thread" not in one.name and "trio." not in one.name for one in threading.enumerate()),
            resident,
            sys.getallocatedblocks(),
        )

    # -- a write

    async def _work(self, env: aiio.Env, chance: random.Random, number: int) -> None:
        sessions: dict[str, aiio.IO] = {}
        while True:
            while not self._open.is_set():  # another count may have begun while we were woken
                await self._open.wait()
            if self._stopped:
                return
            provider = chance.choice(list(BUILTIN_PROVIDERS))
            io = sessions.get(provider)
            if io is None or io.state == "closed":
                io = sessions[provider] = aiio.IO(env=env, model=f"{provider}/m")
                self._sessions.append(io)
            self._busy += 1
            try:
                await Write(self, io, chance).run()
            finally:
                self._busy -= 1
                if not self._busy:
                    self._quiet.set()
            if self._server.epoch & 1:
                await trio.sleep(0.02)  # nobody listens: no use in asking all the time

    @property
    def epoch(self) -> int:
        """See `Server.epoch`."""
        return self._server.epoch


class Write:
    """One write or stream, and what must hold for it."""

    def __init__(self, soak: Soak, io: aiio.IO, chance: random.Random) -> None:
        self._books, self._soak, self._io = soak.books, soak, io
        self._fate = chance.choices(list(FATES), FATE_WEIGHTS)[0]
        self._action = chance.choices(ACTIONS, ACTION_WEIGHTS)[0]
        # Few different texts: those whose length was estimated are remembered, up to a bound that is far off.
        self._order = f"soak {self._fate} {chance.randrange(0, 1000, 20)} {chance.randrange(1, 4)}"
        self._after = chance.uniform(0, 0.06)
        self._heard = 0
        self._stop_at = chance.randint(1, 12) if self._action in ("callback", "leave") else 0
        self._terminals: list[aiio.Done | aiio.Error] = []

    async def run(self) -> None:
        """Write, and note how it ended. Raises nothing."""
        books, dialect = self._books, self._io.endpoint_name
        books.started[dialect] += 1
        books.actions[self._action] += 1
        before = self._soak.epoch
        scope = trio.CancelScope()
        async with trio.open_nursery() as nursery:
            if self._action in ("kill", "kill_nowait", "outer"):
                nursery.start_soon(self._stop_later, scope)
            with scope:
                try:
                    await self._stream() if self._action == "leave" else await self._write()
                except Exception as exc:  # noqa: BLE001  # nothing may raise, whatever it is
                    books.complain(f"{self}: raised {exc!r}")
            nursery.cancel_scope.cancel()
        if scope.cancelled_caught:
            books.cancelled += 1
        self._note(same_server=before == self._soak.epoch and not before & 1)

    def __str__(self) -> str:
        return f"{self._io.endpoint_name}, {self._fate}, {self._action}"

    def _options(self) -> dict[str, Any]:
        options = {"timeout": SAFETY, "connect_timeout": SAFETY, "stuck_timeout": SAFETY}
        if self._fate in ("stall", "mute"):
            options |= {"connect_timeout": "80ms", "stuck_timeout": WANTED["stuck"]}
        if self._action == "overall":
            options["timeout"] = WANTED["overall"]
        return options

    async def _write(self) -> None:
        callbacks = {
            "on_text_delta": self._piece,
            "on_thinking_delta": self._piece,
            "on_done": self._terminals.append,
            "on_error": self._terminals.append,
        }
        terminal = await self._io.write([aiio.user_message(self._order)], callbacks, **self._options())
        self._books.returned += 1
        if self._terminals[-1:] != [terminal]:
            self._books.complain(f"{self}: returned another terminal event than it told")

    def _piece(self, event: Any) -> None:
        self._heard += 1
        if self._action == "callback" and self._heard == self._stop_at:
            self._io.kill_nowait("heard enough")

    async def _stream(self) -> None:
        async with self._io.stream([aiio.user_message(self._order)], **self._options()) as events:
            async for _ in events:
                self._heard += 1
                if self._heard == self._stop_at:
                    break
        assert events.terminal is not None
        self._terminals.append(events.terminal)
        self._books.returned += 1

    async def _stop_later(self, scope: trio.CancelScope) -> None:
        await trio.sleep(self._after)
        if self._action == "outer":
            scope.cancel()
        elif self._action == "kill":
            await self._io.kill("enough")
        else:
            self._io.kill_nowait("enough")

    def _note(self, *, same_server: bool) -> None:
        """Enter the end into the books, and check that it is one that may be."""
        if len(self._terminals) != 1:
            self._books.complain(f"{self}: {len(self._terminals)} terminal events")
            return
        (terminal,) = self._terminals
        how = _said(terminal)
        self._books.ended[how] += 1
        allowed = set(FATES[self._fate])
        if self._action != "none":
            allowed.add("limit overall" if self._action == "overall" else "cancelled")
        if not same_server:
            allowed.add("network")
        if how not in allowed:
            self._books.complain(f"{self}: {how}, where it may be {', '.join(sorted(allowed))}: {terminal}")
        if terminal.message is not None:
            aiio.validate_message(terminal.message)
        if self._io.state not in ("idle", "closed") or self._io in self._io.env.active_io:
            self._books.complain(f"{self}: left {self._io.state}")


def _said(terminal: aiio.Done | aiio.Error) -> str:
    if isinstance(terminal, aiio.Done):
        return "done"
    return f"limit {terminal.limit}" if terminal.limit else terminal.kind.value


# -- the figures


def give_back() -> None:
    """Have the C library return what it keeps for later, so that memory is what is held. glibc only."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def slope(held: Sequence[Held], what: str = "resident") -> tuple[float, float]:
    """Return how fast a figure grows a second, by least squares, and the standard error of that."""
    times, sizes = [one.at for one in held], [float(getattr(one, what)) for one in held]
    if len(held) < 3:
        return 0.0, math.inf
    rate, start = statistics.linear_regression(times, sizes)
    spread = sum((at - statistics.fmean(times)) ** 2 for at in times)
    left = sum((size - start - rate * at) ** 2 for at, size in zip(times, sizes, strict=True))
    return rate, math.sqrt(left / (len(held) - 2) / spread)


def after_warm_up(held: Sequence[Held]) -> Sequence[Held]:
    """Return *held* without the first quarter, in which caches fill and the allocator takes its share."""
    return held[len(held) // 4 :]


def left_behind(held: Sequence[Held]) -> list[str]:
    """Return what grew after the warm-up."""
    steady = after_warm_up(held)
    if not steady:
        return []
    found = [
        f"{what}: {counts[0]} at first, {counts[-1]} at the end"
        for what in ("files", "tasks", "threads")
        if (counts := [getattr(one, what) for one in steady])[-1] > counts[0]
    ]
    span = steady[-1].at - steady[0].at
    for what, slack, unit, scale in (("resident", SLACK, "kB", 1024), ("blocks", MORE_BLOCKS, "blocks", 1)):
        rate, error = slope(steady, what)
        if (rate - NOISE * error) * span > slack:
            found.append(f"memory grows by {rate / scale:.1f} {unit}/s, give or take {error / scale:.1f}")
    return found


def _report(soak: Soak) -> int:
    """Print the figures, and return the exit code."""
    books, held = soak.books, soak.held
    took = held[-1].at if held else 0.0
    started = sum(books.started.values())
    print(f"{started:,} requests in {took:.0f} s ({started / took if took else 0:.0f} a second)", end=", ")
    print(f"{books.restarts} restarts of the server, {books.limits} changes of max_active")
    print("by dialect: ", _counted(books.started))
    print("by action:  ", _counted(books.actions))
    print("ended:      ", _counted(books.ended), "=", f"{sum(books.ended.values()):,}")
    print(f"             {books.returned:,} returned, {books.cancelled:,} cancelled from outside")
    if soak.keep:
        print(f"             {books.reused:,} on kept connections, {books.redone:,} sent again")
    print(f"warnings:    {len(books.warned)}")
    if held:
        for what in ("files", "tasks", "threads"):
            print(f"{what + ':':12} {' '.join(str(getattr(one, what)) for one in held)}")
        print(f"{'memory:':12} {' '.join(f'{one.resident / (1 << 20):.1f}' for one in held)} MB")
        rate, error = slope(after_warm_up(held))
        print(f"{'':12} slope {rate * 60 / 1024:+.1f} kB a minute, standard error {error * 60 / 1024:.1f}")
        print(f"{'blocks:':12} {' '.join(str(one.blocks) for one in held)}")
        rate, error = slope(after_warm_up(held), "blocks")
        print(f"{'':12} slope {rate * 60:+.0f} a minute, standard error {error * 60:.0f}")
    problems = [*books.problems(), *left_behind(held)]
    for problem in problems:
        print(f"FAILED {problem}")
    print(f"{len(problems)} failed" if problems else "each request had its one end, and nothing is left")
    sys.stdout.flush()
    return 1 if problems else 0


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))


@contextmanager
def watched(books: Books) -> Iterator[None]:
    """Take down every warning, and what nobody could raise."""

    def shown(message: Any, category: Any, *more: Any, **facts: Any) -> None:
        books.warned.append(f"{category.__name__}: {message}")

    def unheard(raised: Any) -> None:
        books.warned.append(f"nobody heard {raised.exc_type.__name__}: {raised.exc_value}")

    before, sys.unraisablehook = sys.unraisablehook, unheard
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = shown
            yield
            gc.collect()
    finally:
        sys.unraisablehook = before


def _kill(kills: int, seed: int) -> int:
    """Stop so many writes at random checkpoints, print what became of them, and return the exit code."""
    for name, tls in (("plain", None), ("TLS", Authority())):
        books, before = Books(), len(os.listdir("/proc/self/fd"))
        with watched(books):
            found = trio.run(random_kills, kills, random.Random(seed), tls)
        left = len(os.listdir("/proc/self/fd")) - before
        print(f"{name}: {found}, {left} descriptors left, {len(books.warned)} warnings", flush=True)
        if left or books.warned:
            print(*books.warned, sep="\n")
            return 1
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the figures, and return the exit code: 1 when something does not add up."""
    parser = argparse.ArgumentParser(
        prog="scripts/soak", description="Mixed traffic, and the books about it."
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--minutes", type=float, default=10)
    how.add_argument("--seconds", type=float)
    how.add_argument("--kills", type=int, help="instead: so many over kept connections, and as many over TLS")
    parser.add_argument("--workers", type=int, default=WORKERS, help=f"writes at once (default: {WORKERS})")
    parser.add_argument("--seed", type=int, default=0, help="of all choices; 0: another each time")
    parser.add_argument("--keep", action="store_true", help="keep HTTP connections from write to write")
    chosen = parser.parse_args(argv)
    seconds = chosen.seconds if chosen.seconds is not None else chosen.minutes * 60
    if seconds <= 0 or chosen.workers < 1:
        parser.error("a run has more than 0 seconds, and at least one worker")
    seed = chosen.seed or random.SystemRandom().randrange(1, 1 << 30)
    print(f"seed {seed}", flush=True)
    if chosen.kills:
        return _kill(chosen.kills, seed)
    soak = Soak(seconds, chosen.workers, seed, keep=chosen.keep)
    with watched(soak.books):
        trio.run(soak.run)
    return _report(soak)


if __name__ == "__main__":
    sys.exit(main())
