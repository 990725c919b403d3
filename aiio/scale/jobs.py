"""What goes to a worker, and what comes back. Plain data: it crosses from process to process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import trio

from aiio.agents import Agent, AgentResult, Budget, FleetResult
from aiio.context.events import Done, Error, ErrorKind, Terminal
from aiio.context.types import Message
from aiio.env.durations import Duration
from aiio.env.scrub import is_secret_name

if TYPE_CHECKING:
    from aiio.env.env import Env


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One prompt, to be answered once."""

    key: str
    """Stands for it in results; one of a kind."""
    model: str
    """`"<endpoint>/<model>"`, of an endpoint that the worker's Env knows."""
    text: str | None = None
    """What is said; None: the context is answered as it stands."""
    context: list[Message] = field(default_factory=list)
    """What was said before. Read, never changed."""
    system: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How every job is asked. The limits are those of `IO`."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Laid over the endpoint's settings."""
    timeout: Duration | None = None
    connect_timeout: Duration | None = None
    stuck_timeout: Duration | None = None
    budget: Budget | None = None
    """Of each job."""

    def check_no_secrets(self) -> None:
        """Refuse settings that hold a credential: it would leave the process. ValueError: names it."""
        name = _secret_in(self.settings)
        if name is not None:
            raise ValueError(
                f"the setting {name!r} is a credential and is not sent to workers: put it into their "
                "environment or their configuration"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A worker is up, and can be given jobs."""

    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A worker is gone, and with it what it was given: the last report of it."""

    worker: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How one job ended."""

    key: str
    worker: str
    """Who had it last."""
    terminal: Terminal
    """Of its last request; holds the partial message if it was stopped."""
    result: AgentResult | None = None
    """None: there is none, as its run raised, never began, or was lost."""
    timings: Mapping[str, Any] = field(default_factory=dict)
    """`{started_at, first_event_ms?, total_ms}`, on the clock of the worker."""
    unknown_billed: int = 0
    """How often the job was at a worker that was lost: requests that may have been billed, nobody knows."""


Report: TypeAlias = Joined | Ended | Lost
"""What an engine tells about its workers."""


class Timings:
    """When what happened to one prompt, on trio's clock; made when it begins."""

    __slots__ = ("_began", "_first_event", "_started_at")

    def __init__(self) -> None:
        self._started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._began = trio.current_time()
        self._first_event: float | None = None

    def note_event(self, event: object) -> None:
        """Note the first piece of an answer."""
        if self._first_event is None:
            self._first_event = trio.current_time()

    def so_far(self) -> dict[str, Any]:
        """Return `{started_at, first_event_ms?, total_ms}` as of now; queueing is part of them."""
        timings: dict[str, Any] = {"started_at": self._started_at}
        if self._first_event is not None:
            timings["first_event_ms"] = _ms(self._first_event - self._began)
        return timings | {"total_ms": _ms(trio.current_time() - self._began)}

    @property
    def callbacks(self) -> dict[str, Callable[[object], None]]:
        """What an agent must be given, so that its first event is noted."""
        return {f"on_{kind}_delta": self.note_event for kind in ("text", "thinking", "tool_call")}


def make_agent(env: Env, job: Job, recipe: Recipe, timings: Timings) -> Agent:
    """Return an agent that asks *job*. TypeError, ValueError: it can't be asked here."""
    return Agent(
        env=env,
        model=job.model,
        name=job.key,
        system=job.system,
        context=list(job.context),
        settings=recipe.settings,
        timeout=recipe.timeout,
        connect_timeout=recipe.connect_timeout,
        stuck_timeout=recipe.stuck_timeout,
        budget=recipe.budget,
        guard=None,  # a prompt is asked as it is
        callbacks=timings.callbacks,
    )


def terminal_of(ended: FleetResult) -> Terminal:
    """Return how an agent's run ended; one that crashed (a bug of ours or a plug-in's) is an error too."""
    if ended.result is not None and isinstance(ended.result.terminal, Done | Error):
        return ended.result.terminal
    return crash(ended.exception)


def crash(exc: Exception | None) -> Error:
    """Return *exc*, which nobody expected, as a terminal event."""
    return Error(error=f"unexpected {type(exc).__name__}: {exc}", kind=ErrorKind.MALFORMED)


def _secret_in(settings: Mapping[str, Any]) -> str | None:
    """Return the name of a setting that holds a credential, at any depth; None: there is none."""
    for name, value in settings.items():
        if is_secret_name(name) or name == "auth":
            return name
        found = _secret_in(value) if isinstance(value, Mapping) else None
        if found is not None:
            return found
    return None


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
