"""`open_fleet`: many agents under one nursery, and their results as they come.

A fleet waits for its agents, as a nursery does for its tasks, and unlike one it lets nothing of one agent
reach another: what an agent's run raises is a result, kept with the others. What the body of the block
raises leaves as itself, never in a group.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

import trio

from aiio.env.groups import first_leaf

from .agent import Agent, AgentState
from .inbox import Input
from .result import AgentResult
from .run import AgentRun

if TYPE_CHECKING:
    from aiio.env.env import Env

LEFT = "the fleet was left by an exception"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetResult:
    """How one agent of a fleet ended."""

    key: str
    agent: Agent
    result: AgentResult | None
    """None: its run raised."""
    exception: Exception | None
    """What its run raised: a programming error, in a callback say."""
    elapsed_ms: float
    """Since it was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStats:
    """A fleet at one moment."""

    running: int
    """Agents at work: their request is in flight, or their tools run."""
    queued: int
    """Agents whose request waits for a slot."""
    done: int
    """Agents that finished."""
    failed: Mapping[str, int]
    """Agents that ended otherwise: by error kind (`cancelled` if killed), `Stopped`, or `crashed` (a bug)."""
    output_tokens: int
    """Of all requests that have ended."""


@dataclass(slots=True, kw_only=True)
class _Entry:
    """One agent at work."""

    key: str
    agent: Agent
    run: AgentRun
    began: float


class Fleet:
    """Made by `open_fleet`; entered once."""

    def __init__(self, env: Env, max_active: int | None = None) -> None:
        self._env = env
        self._max_active = max_active
        self._manager: Any = None
        self._nursery: trio.Nursery | None = None
        """None: no agent can be started."""
        self._leaving = False
        self._working: dict[str, _Entry] = {}
        self._keys: set[str] = set()
        self._results: deque[FleetResult] = deque()
        self._changed = trio.Event()
        self._done = 0
        self._failed: Counter[str] = Counter()
        self._output_tokens = 0

    async def __aenter__(self) -> Fleet:
        """Open the fleet. ValueError: *max_active* is no limit. RuntimeError: it was entered before."""
        if self._manager is not None:
            raise RuntimeError("a fleet is entered once; open another one")
        if self._max_active is not None:
            self._env.max_active = self._max_active
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for all agents, killed first when the body raised; a cancellation has reached them already."""
        if exc is not None and not isinstance(exc, trio.Cancelled):
            self.kill_nowait(reason=LEFT)
        self._leaving = True
        self._close_if_empty()
        try:
            # Not told of `exc`: it would come back in a group, and lose its cause when taken out.
            await self._manager.__aexit__(None, None, None)
        except BaseException as raised:  # noqa: BLE001  # one of several is picked, none is swallowed
            leaf = first_leaf(raised)
            if exc is None or not isinstance(leaf, trio.Cancelled):
                raise leaf from None

    # -- readouts ---------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """How many agents are at work, those that wait for a slot left out."""
        return len(self._working) - self.queued

    @property
    def queued(self) -> int:
        """How many agents wait for a slot."""
        return sum(entry.agent.state is AgentState.QUEUED for entry in self._working.values())

    def stats(self) -> FleetStats:
        """Return the counters as of now. Costs a look at every agent at work."""
        queued = self.queued
        unfinished = sum(_output_tokens(entry.run) for entry in self._working.values())
        return FleetStats(
            running=len(self._working) - queued,
            queued=queued,
            done=self._done,
            failed=MappingProxyType(dict(self._failed)),
            output_tokens=self._output_tokens + unfinished,
        )

    # -- work -------------------------------------------------------------------------------------

    def start(self, agent: Agent, text: Input | None = None, key: str | None = None) -> str:
        """Let *agent* run in a task of its own; returns its key at once.

        Args:
          agent: idle. One without a name takes the key as its name.
          text: what it is told; None answers its context as it stands.
          key: stands for it in results and `kill`; by default `agent-1`, `agent-2`, ...

        Raises:
          ValueError: an agent of that key is at work, or there is nothing to say.
          TypeError: not text.
          trio.BusyResourceError, trio.ClosedResourceError: the agent runs, or was killed.
          RuntimeError: the fleet is not entered, or was left.
        """
        if self._nursery is None:
            raise RuntimeError(
                "this fleet is not open: enter it with `async with aiio.open_fleet(env) as fleet:`"
            )
        if key is None:
            key = self._next_key()
        elif key in self._working:
            raise ValueError(f"an agent with the key {key!r} is at work")
        entry = _Entry(key=key, agent=agent, run=agent._begin(text), began=trio.current_time())
        agent._named(key)
        self._working[key] = entry
        self._keys.add(key)
        self._env.emit("agent_added", agent=agent, key=key)
        self._nursery.start_soon(self._run, entry, name=f"aiio.agent {key}")
        return key

    def results(self) -> FleetResults:
        """Return an iterator over results, each handed out once, in the order in which agents ended.

        It ends when every agent started so far has ended and its result was taken; after further starts
        iterate again. Results nobody takes are kept.
        """
        return FleetResults(self)

    async def kill(self, key: str | None = None, reason: str | None = None) -> None:
        """Kill one agent, or all at work, and wait until they have ended. One that has ended is left alone.

        Raises:
          ValueError: no agent of that key was ever started.

        Cancellation: they stay killed; only the wait ends. Always a checkpoint.
        """
        chosen = self.kill_nowait(key, reason)
        await trio.lowlevel.checkpoint()
        for run in chosen:
            await run.ended.wait()

    def kill_nowait(self, key: str | None = None, reason: str | None = None) -> list[AgentRun]:
        """Do what `kill` does without waiting; returns the runs it stopped. ValueError: no such key, ever."""
        if key is not None and key not in self._keys:
            raise ValueError(f"there is no agent with the key {key!r}")
        chosen = [entry for entry in self._working.values() if key in (None, entry.key)]
        for entry in chosen:
            entry.agent.kill_nowait(reason)
        return [entry.run for entry in chosen]

    # -- inside -----------------------------------------------------------------------------------

    def _next_key(self) -> str:
        number = len(self._keys) + 1
        while f"agent-{number}" in self._keys:
            number += 1
        return f"agent-{number}"

    async def _run(self, entry: _Entry) -> None:
        """Run one agent. Raises only cancellation, and what is no Exception."""
        result: AgentResult | None = None
        exception: Exception | None = None
        outcome = "cancelled"
        try:
            result = await entry.run.go()
            outcome = result.outcome
        except Exception as exc:  # noqa: BLE001  # the bug of one agent's owner must not end the others
            exception, outcome = exc, "crashed"
        finally:
            del self._working[entry.key]
            self._count(entry, outcome)
            if result is not None or exception is not None:
                self._results.append(
                    FleetResult(
                        key=entry.key,
                        agent=entry.agent,
                        result=result,
                        exception=exception,
                        elapsed_ms=(trio.current_time() - entry.began) * 1000,
                    )
                )
            self._notify()
            self._env.emit("agent_removed", agent=entry.agent, key=entry.key)
            self._close_if_empty()

    def _close_if_empty(self) -> None:
        """Take no more agents once the block is left and the last one has ended: the nursery is closing."""
        if self._leaving and not self._working:
            self._nursery = None

    def _count(self, entry: _Entry, outcome: str) -> None:
        self._output_tokens += _output_tokens(entry.run)
        if outcome == "done":
            self._done += 1
        else:
            self._failed[outcome] += 1

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _next_result(self) -> FleetResult | None:
        """Return the next result; None: there is none left and nobody is at work. Always a checkpoint."""
        await trio.lowlevel.checkpoint()
        while not self._results:
            if not self._working:
                return None
            await self._changed.wait()
        return self._results.popleft()


class FleetResults:
    """Iterates over the results of a fleet; see `Fleet.results`. Holds no scope: leave it when you like."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def __aiter__(self) -> FleetResults:
        return self

    async def __anext__(self) -> FleetResult:
        """Return the next result. Cancellation: safe, no result is lost."""
        result = await self._fleet._next_result()
        if result is None:
            raise StopAsyncIteration
        return result

    def next_nowait(self) -> FleetResult:
        """Return the next result if there is one now. trio.WouldBlock: there is none."""
        if not self._fleet._results:
            raise trio.WouldBlock
        return self._fleet._results.popleft()


def open_fleet(env: Env, max_active: int | None = None) -> Fleet:
    """Return a fleet, to be entered: `async with aiio.open_fleet(env) as fleet:`.

    Leaving the block waits for all agents. Leaving it by an exception, or a cancellation, ends them first;
    the exception comes out as itself, and every agent's context holds its partial answer.

    Args:
      env: what the agents use; its limit is set to *max_active* when the fleet is entered.
      max_active: requests in flight at a time, in the whole Env; None: as it is.
    """
    return Fleet(env, max_active)


def _output_tokens(run: AgentRun) -> int:
    return int((run.usage or {}).get("output_tokens") or 0)
