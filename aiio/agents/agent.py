"""`Agent`: a context, a model and tools, and the loop that lets them talk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

import trio

from aiio.builder import ContextBuilder
from aiio.context.callbacks import Callback, CallbackSet, normalize_callbacks
from aiio.context.store import Context
from aiio.context.types import Message, MessageType, Record, system_message, user_message
from aiio.context.validate import has_content, is_message
from aiio.env.durations import Duration
from aiio.env.toolbox import Toolbox, ToolRef
from aiio.io.io import IO
from aiio.io.limits import check_duration

from .conversation import conversation
from .guard import ContextGuard, Gauge
from .inbox import Inbox, Input
from .result import AgentResult
from .run import AgentRun, Phase
from .spending import Budget

if TYPE_CHECKING:
    from aiio.env.env import Env

Callbacks: TypeAlias = Mapping[str, "Callback | bool | None"]

WITHIN_THE_WINDOW = ContextGuard()

_numbers = count(1)


class AgentState(StrEnum):
    """What an agent is doing."""

    IDLE = "idle"
    QUEUED = "queued"
    """Its request waits for a slot (see `env.max_active`)."""
    ASKING = "asking"
    """Its request is in flight."""
    ACTING = "acting"
    """Tools run for it."""
    SAVING = "saving"
    """What was said is being written to its session file."""
    CLOSED = "closed"
    """It was killed, and nothing of it runs any more."""


class AgentIO(IO):
    """An IO that publishes the tools of one agent."""

    def __init__(self, toolbox: Toolbox, **options: Any) -> None:
        self._toolbox = toolbox
        super().__init__(**options)

    def tools(self) -> list[dict[str, Any]]:
        """Return the tool descriptions that a request would publish now."""
        return self._toolbox.schemas()


class Agent:
    """One conversation with a model that may call tools. One run at a time.

    Args:
      env: settings, credentials, the ledger, the tool catalog.
      model: `"<endpoint>/<model>"`.
      system: put at the head of the context, unless it stands there already.
      tools: names in the Env's catalog and plain functions, described by signature and docstring. None or
        `["*"]`: all of the Env's, `[]`: none. Async functions are awaited. Sync ones run in a thread; one
        that is cancelled or takes too long is abandoned: it runs on, and its result is dropped.
      context: messages and records, oldest first: a list, which is used itself and grows, or a `Context`. One
        that is saved is flushed before every request, and after it before anybody hears of its end.
      builder: makes what is sent, before each request; the context is what was said, and grows as ever. Its
        fragment for what was said needs the trust `"app"` if there are system messages or a server's items in
        it. The system text belongs into the builder, too.
      builder_input: makes the builder's input of the context, a list of messages and records to be read;
        None: that list is the input.
      max_rounds: requests one run may make.
      name: for logs; by default a number is given.
      tool_timeout: how long one call may take.
      tool_concurrency: calls of one answer made at a time.
      settings: overrides laid over the endpoint's settings.
      timeout, connect_timeout, stuck_timeout: limits of each request; see `IO`.
      callbacks: plain functions by name (`on_text_delta`, ...), for every run.
      budget: what one run may use of tokens, money and time; None: no limit.
      guard: what to do about a context that is too full for the model; None: nothing. By default a summary
        takes the place of most of *context*, which keeps what it stands for in a record; see `ContextGuard`.

    A duration is a `Duration` (a bare number is milliseconds).

    Raises:
      TypeError, ValueError: what `IO` raises, an invalid context (with the index) or a closed one, tools that
        are unknown or can't be described, a bad count, duration or callback.
    """

    def __init__(
        self,
        *,
        env: Env,
        model: str,
        system: str | None = None,
        tools: Sequence[ToolRef] | None = None,
        context: list[Message | Record] | Context | None = None,
        builder: ContextBuilder[Any] | None = None,
        builder_input: Callable[[list[Any]], Any] | None = None,
        max_rounds: int = 32,
        name: str | None = None,
        tool_timeout: Duration = "2m",
        tool_concurrency: int = 4,
        settings: Mapping[str, Any] | None = None,
        timeout: Duration | None = None,
        connect_timeout: Duration | None = None,
        stuck_timeout: Duration | None = None,
        callbacks: Callbacks | None = None,
        budget: Budget | None = None,
        guard: ContextGuard | None = WITHIN_THE_WINDOW,
    ) -> None:
        if env is None:
            raise TypeError("an Agent needs an env: async with aiio.open_env() as env: ...")
        if system is not None and not isinstance(system, str):
            raise TypeError(f"system is text, not {system!r}")
        if builder is not None and system:
            raise ValueError("system is a fragment of the builder, or there is no builder")
        if builder is None and builder_input is not None:
            raise ValueError("builder_input is for a builder, and there is none")
        if not isinstance(budget, Budget | None):
            raise TypeError(f"budget is an aiio.Budget, not {budget!r}")
        if not isinstance(guard, ContextGuard | None):
            raise TypeError(f"guard is an aiio.ContextGuard, not {guard!r}")
        seconds = check_duration("tool_timeout", tool_timeout)
        if seconds is None:
            raise TypeError('tool_timeout must be a duration; "never" turns it off')
        self.env = env
        self.model = model
        self.max_rounds: int = _positive("max_rounds", max_rounds)
        self.tool_concurrency: int = _positive("tool_concurrency", tool_concurrency)
        self.tool_timeout = seconds
        """In seconds."""
        self._name = name
        self._callbacks = dict(callbacks or {})
        normalize_callbacks(self._callbacks)  # misuse is misuse now, not at the first run
        self._toolbox = Toolbox(env, tools)
        self._io = AgentIO(
            self._toolbox,
            env=env,
            model=model,
            settings=settings,
            timeout=timeout,
            connect_timeout=connect_timeout,
            stuck_timeout=stuck_timeout,
        )
        self._context: list[Any] | Context = [] if context is None else context
        self._conversation = conversation(self._context)
        self._builder = builder
        self._builder_input = builder_input
        if system and not _begins_with(self._conversation.entries(), system):
            self._conversation.prepend(system_message(system))
        self._budget = budget
        self._guard = guard
        self._gauge = Gauge()
        self._inbox = Inbox()
        self._run: AgentRun | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<aiio.Agent {self.name} {self.model} {self.state.value}>"

    # -- readouts ---------------------------------------------------------------------------------

    @property
    def context(self) -> list[Any] | Context:
        """Messages and records, oldest first: all that was said, partial answers too. What was given.

        Between two runs it can be sent as it is, and be changed; while one runs it should only be read.
        """
        return self._context

    @property
    def name(self) -> str:
        """What logs call it."""
        if self._name is None:
            self._name = f"agent-{next(_numbers)}"
        return self._name

    @property
    def state(self) -> AgentState:
        """`"idle" | "queued" | "asking" | "acting" | "saving" | "closed"`."""
        if self._run is None:
            return AgentState.CLOSED if self._closed else AgentState.IDLE
        if self._run.phase is not Phase.ASKING:
            return AgentState(self._run.phase.value)
        return AgentState.ASKING if self._io in self.env.active_io else AgentState.QUEUED

    @property
    def pending(self) -> tuple[Input, ...]:
        """What was sent and has not joined the context yet, in the order in which it will."""
        return self._inbox.waiting()

    # -- talking ----------------------------------------------------------------------------------

    async def run(self, text: Input | None = None, callbacks: Callbacks | None = None) -> AgentResult:
        """Say *text* to the model and let it work until it calls no more tools.

        Args:
          text: text or content blocks; None answers the context as it stands.
          callbacks: laid over the agent's own, for this run. Called inside this call; `on_done` or `on_error`
            once per request, when its message is in the context, and on disk if that is saved.

        Returns:
          How it ended. A failed request, `kill()`, too many rounds and a budget that is used up are results,
          not exceptions. Nothing is retried: `run()` again sends the context as it stands.

        Raises:
          trio.BusyResourceError: it runs already; that run is not disturbed. `send` is for then.
          trio.ClosedResourceError: `kill` was called before.
          TypeError, ValueError: nothing to say, an invalid or closed context, an invalid callback; a context
            that is saved holds what is no JSON data.
          ContextBuildError: the builder makes nothing that may be sent, as it is too large, say.
          OSError: a context that is saved can't be written. What had come is in it, in memory; flush it when
            there is room, or run again.
          Exception: what a callback raised, as it is.

        Cancellation: the partial answer, and results for all its calls, are in `context` (and on disk, unless
        that fails: the log says so) before `Cancelled` goes on. The agent may run again. Always a checkpoint.
        """
        return await self._begin(text, callbacks).go()

    def send(self, text: Input, *, steer: bool = True) -> None:
        """Say *text* without waiting for an answer.

        To a running agent there are two ways. The request in flight goes on in both; `kill` is what stops it.

        - Steering: it joins the context before the next request, after the results of the tools that run now,
          and causes a request if there would have been none. The model hears it in the middle of its work.
        - Queued (`steer=False`): it waits until the model calls no more tools, and starts a further round
          then, as if `run` was called again. Each is answered by itself, in the order of sending, and
          what steers comes first.

        To an idle one: it joins at once; the next run saves and answers it. What still waits when a run ends
        early (it failed, was killed, has used up its rounds or budget) joins the context then.

        Raises:
          trio.ClosedResourceError: `kill` was called before.
          TypeError, ValueError: nothing to say.
        """
        if self._closed:
            raise trio.ClosedResourceError("this agent was killed; make a new one with its context")
        self._inbox.put(_checked_input(text), steer=steer)
        if self._run is None:
            self._absorb()

    async def kill(self, reason: str | None = None) -> None:
        """Stop the run, wait until it has ended, and close this agent for good.

        The request in flight or in the queue ends with its partial message in `context`; tools that run are
        cancelled, and their calls get an error result. Before, during and after a run, twice, from any task:
        all fine. From a callback use `kill_nowait`.

        Cancellation: the run stays killed; only the wait ends. Always a checkpoint.
        """
        run = self._run
        self.kill_nowait(reason)
        if run is not None:
            await run.ended.wait()
        else:
            await trio.lowlevel.checkpoint()

    def kill_nowait(self, reason: str | None = None) -> None:
        """Do what `kill` does without waiting; for callbacks, tools, signal handlers and other sync code."""
        self._closed = True
        if self._run is not None:
            self._run.stop(reason)
        self._io.kill_nowait(reason)

    # -- inside the room --------------------------------------------------------------------------

    def _begin(self, text: Input | None, callbacks: Callbacks | None = None) -> AgentRun:
        """Check the arguments of a run and reserve this agent for it. Raises what `run` raises for misuse."""
        if self._closed:
            raise trio.ClosedResourceError("this agent was killed; make a new one with its context")
        if self._run is not None:
            raise trio.BusyResourceError("this agent is running; send() is for saying more meanwhile")
        handlers: CallbackSet = normalize_callbacks({**self._callbacks, **(callbacks or {})})
        self._conversation.check()
        if text is not None:
            self._inbox.put(_checked_input(text), steer=True)
        elif not any(is_message(entry) and has_content(entry) for entry in self._conversation.entries()):
            raise ValueError("nothing to answer: the context is empty and no text was given")
        self._absorb()
        self._run = AgentRun(self, handlers)
        return self._run

    def _request(self) -> list[Any]:
        """Return what the next request sends. Raises what the builder does."""
        entries = self._conversation.entries()
        if self._builder is None:
            return entries
        said = list(entries)  # theirs; the context is not
        input = said if self._builder_input is None else self._builder_input(said)
        return self._builder.build(input=input).messages

    def _absorb(self) -> None:
        """Let all that was sent join the context."""
        self._join(self._inbox.take_all())

    def _join(self, inputs: Sequence[Input]) -> None:
        for said in inputs:
            self._conversation.append(user_message(said))

    def _named(self, name: str) -> None:
        """Take *name* unless a name was given."""
        if self._name is None:
            self._name = name


def _positive(option: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{option} must be an int >= 1, not {value!r}")
    return value


def _checked_input(text: object) -> Any:
    """Return *text* if it says something. TypeError: neither text nor blocks. ValueError: it is empty."""
    if not isinstance(text, str) and not (
        isinstance(text, list) and all(isinstance(block, dict) for block in text)
    ):
        raise TypeError(f"an agent is told text or a list of content blocks, not {text!r}")
    if not has_content(user_message(text)):
        raise ValueError(f"nothing to say: {text!r}")
    return text


def _begins_with(context: Sequence[Any], system: str) -> bool:
    first = next(filter(is_message, context), None)
    return (
        first is not None
        and first["type"] == MessageType.SYSTEM
        and first["content"] == system_message(system)["content"]
    )
