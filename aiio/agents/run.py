"""One run of an agent: ask the model, make the calls it wants, ask again, until it has nothing more to call.

    join     what was sent to steer the agent joins the context
    repair   calls and results are paired
    keep     a context that is too full for its model is compacted, see compaction.py
    save     a context with a session file is flushed
    ask      one write, of the context or what a builder makes of it; its message joins the context, whole or
             partial, and is saved; callbacks hear of it
    act      the calls of a whole answer are made; their results join in call order, then what tools told the
             model beside them
    next     when the model wants no more, what was queued starts a further round

However a run ends, its context is left in pairs, and saved: calls that were not made get an error result that
says why. Nobody hears of an end (`on_done`, `on_error`, `agent_done`, who waits in `kill`) before that. When
saving fails, the run raises that, unless something else ended it already.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from structlog.contextvars import bound_contextvars

from aiio.context.callbacks import Callback, CallbackSet
from aiio.context.events import Done, Error, ErrorKind, FinishReason, Terminal
from aiio.context.linkage import call_ids, tool_calls, with_unique_calls
from aiio.context.log import get_logger
from aiio.context.types import Block, Usage, system_message, tool_result_message, user_message

from .calls import CANCELLED, CallPolicy, CallResult, make_calls, note_for_model
from .compaction import WindowKeeper
from .conversation import save_shielded
from .result import AgentResult, Stopped, message_text
from .spending import Spending

if TYPE_CHECKING:
    from .agent import Agent

NOT_WHOLE = "not made: the answer with this call ended early"
NOT_MADE = "not made: the agent had used up {}"
REFUSED = "not made: the model, or its provider, refused to go on with this answer"


class Phase(StrEnum):
    """What a run is at."""

    ASKING = "asking"
    ACTING = "acting"
    SAVING = "saving"


class AgentRun:
    """Made by `Agent`, run once. Holds the agent until it has ended."""

    def __init__(self, agent: Agent, callbacks: CallbackSet) -> None:
        self._agent = agent
        self._conversation = agent._conversation
        self._callbacks = {**callbacks, "on_done": self._take, "on_error": self._take}
        self._tellers: Mapping[type[Any], Callback] = {
            Done: callbacks["on_done"],
            Error: callbacks["on_error"],
        }
        self._began = trio.current_time()
        self._spending = Spending(agent)
        self._keeper = WindowKeeper(agent, self._ask_aside)
        self._killed = False
        self._reason: str | None = None
        self._acting: trio.CancelScope | None = None
        self._unanswered: list[Block] = []
        self._calls = 0
        self._raised: str | None = None
        """What ended it by raising, in a word."""
        self._stopped: Stopped | None = None
        self._untold: Terminal | None = None
        """The terminal event that its callback has not got yet."""
        self.terminal: Terminal | None = None
        """Of the last request; None before the first one ended."""
        self.rounds: int = 0
        self.phase: Phase = Phase.ASKING
        self.ended: trio.Event = trio.Event()

    @property
    def usage(self) -> Usage | None:
        """Summed over the requests that have ended; None: there was none."""
        return self._spending.usage

    def stop(self, reason: str | None) -> None:
        """End the run as soon as may be; its IO is stopped by the caller. Sync, from anywhere."""
        if not self._killed:
            self._killed, self._reason = True, reason
        if self._acting is not None:
            self._acting.cancel(reason)

    async def go(self) -> AgentResult:
        """Run to the end; see `Agent.run` for what it returns and raises."""
        agent = self._agent
        agent.env.emit("agent_start", agent=agent)
        result: AgentResult | None = None
        try:
            with bound_contextvars(agent=agent.name):
                await self._rounds_and_settling()
            result = self._result()
            return result
        except BaseException as exc:
            cancelled = isinstance(exc, trio.Cancelled)
            self._raised = "cancelled" if cancelled else f"raised {type(exc).__name__}"
            raise
        finally:
            agent._run = None
            self.ended.set()
            self._report()
            agent.env.emit("agent_done", agent=agent, result=result, outcome=self._outcome)

    async def _rounds_and_settling(self) -> None:
        try:
            await self._rounds()
        except BaseException:
            self._settle()
            await self._save_anyway()
            self._agent._absorb()
            raise
        self._settle()
        try:
            await self._save()
        finally:
            self._agent._absorb()  # what was sent during that

    # -- the loop ---------------------------------------------------------------------------------

    async def _rounds(self) -> None:
        agent = self._agent
        while True:
            agent._join(agent._inbox.take_steering())
            self._repair()
            await self._keeper.look()
            self.phase = Phase.SAVING
            await self._conversation.save()
            self._stopped = self._why_stop_unasked()
            if self._stopped is not None:
                await self._end_unasked()
                return
            await self._ask()
            if self._finished():
                return
            self._stopped = self._why_stop()
            if self._stopped is None and self._unanswered:
                await self._act()
                self._stopped = self._why_stop()
            elif self._stopped is None:
                agent._join(agent._inbox.take_next())
            if self._stopped is not None:
                return

    def _repair(self) -> None:
        repaired = self._conversation.repair()
        if repaired:
            get_logger().info("agent.linkage_repaired", agent=self._agent.name, repairs=repaired)

    def _why_stop_unasked(self) -> Stopped | None:
        """Return why no request is made although one is due: something has come since the last one."""
        if self._killed:  # before the first step of its task, while it was saved, or a summary made
            return Stopped.KILLED
        return self._spending.used_up()

    async def _end_unasked(self) -> None:
        """End a run that was stopped between two requests, or before the first."""
        await trio.lowlevel.checkpoint()
        if self.terminal is None:
            self.terminal = Error(error=self._cancelled_by(), kind=ErrorKind.CANCELLED, cancelled=True)

    def _cancelled_by(self) -> str:
        """Return the text of the error for what was stopped by us."""
        if self._stopped is not None and self._stopped is not Stopped.KILLED:
            return f"cancelled: the agent had used up {self._spending.words(self._stopped)}"
        return f"cancelled: {self._reason}" if self._reason else "cancelled"

    def _finished(self) -> bool:
        """Tell whether the last request ends the run by itself: it failed, or nobody wants more."""
        if isinstance(self.terminal, Error):
            if self.terminal.cancelled and self._stopped is None:
                self._stopped = Stopped.KILLED
            return True
        return not self._unanswered and not self._agent._inbox

    def _why_stop(self) -> Stopped | None:
        if self._killed:
            return Stopped.KILLED
        used_up = self._spending.used_up()
        if used_up is None and self.rounds >= self._agent.max_rounds:
            return Stopped.MAX_ROUNDS
        return used_up

    async def _ask(self) -> None:
        """Make one request; its message joins the context however it ends, and is saved, and then told.

        Raises what a builder, `IO.write`, saving, and the callback for its end raise. An end that can't be
        saved is told to nobody.
        """
        agent = self._agent
        context = agent._request()
        self.phase = Phase.ASKING
        self.rounds += 1
        try:
            with trio.CancelScope(deadline=self._spending.deadline) as scope:
                await agent._io.write(context, self._callbacks)
        except BaseException:
            if await self._save_anyway() and self._untold is not None:
                self._tell(self._untold)
            raise
        if scope.cancelled_caught and isinstance(self.terminal, Error):
            self._stopped = Stopped.KILLED if self._killed else Stopped.TIME_BUDGET
            self.terminal = self._untold = msgspec.structs.replace(self.terminal, error=self._cancelled_by())
        await self._save()
        assert self._untold is not None  # every write has its terminal event
        self._tell(self._untold)
        await self._spending.price_all()

    async def _ask_aside(self, context: list[Any]) -> Terminal:
        """Make a request that is no part of the conversation; its usage counts. Killed like any other."""
        agent = self._agent
        ended: list[Terminal] = []

        def book(terminal: Terminal) -> None:
            ended.append(terminal)
            self._spending.book(terminal)

        self.phase = Phase.ASKING
        settings = {"tool_choice": "none"} if agent._io.tools() else None
        with trio.CancelScope(deadline=self._spending.deadline):
            await agent._io.write(context, {"on_done": book, "on_error": book}, settings=settings)
        await self._spending.price_all()
        return ended[0]

    def _take(self, terminal: Terminal) -> None:
        """Keep the books of a request that has ended: its callback, so it comes however a write ends."""
        self.terminal = self._untold = terminal
        self._spending.book(terminal)
        if terminal.message is not None:
            message = with_unique_calls(terminal.message, call_ids(self._conversation.entries()))
            self._unanswered = tool_calls(message)
            self._conversation.append(message)
            if isinstance(terminal, Done) and terminal.finish is FinishReason.REFUSAL:
                self._answer({}, REFUSED)
        if isinstance(terminal, Done):
            self._agent._gauge.note(terminal.usage, self._conversation.entries())

    def _tell(self, terminal: Terminal) -> None:
        """Call the callback for the end of a request. Raises what it raises."""
        self._untold = None
        self._tellers[type(terminal)](terminal)

    async def _save(self) -> None:
        """Make durable what has come, cancelled or not. OSError, TypeError, ValueError: it can't be."""
        self.phase = Phase.SAVING
        await save_shielded(self._conversation)

    async def _save_anyway(self) -> bool:
        """Save while an exception is on its way, which matters more than this. False: it failed."""
        try:
            await self._save()
        except (OSError, TypeError, ValueError) as exc:
            why = self._agent.env.scrub(str(exc))
            get_logger().error("agent.not_saved", agent=self._agent.name, error=why)
            return False
        return True

    async def _act(self) -> None:
        """Make the calls of the last answer; all of them have a result afterwards, cancelled or not."""
        agent, calls = self._agent, self._unanswered
        self.phase = Phase.ACTING
        self._calls += len(calls)
        terminal = self.terminal
        cut = isinstance(terminal, Done) and terminal.finish is FinishReason.LENGTH
        policy = CallPolicy(
            timeout=agent.tool_timeout,
            concurrency=agent.tool_concurrency,
            scrub=agent.env.scrub,
            agent=agent.name,
            cut=cut,
            emit=partial(agent.env.emit, agent=agent),
        )
        results: dict[int, CallResult] = {}
        try:
            with trio.CancelScope(deadline=self._spending.deadline) as self._acting:
                await make_calls(calls, agent._toolbox, policy, results)
        finally:
            self._acting = None
            self._answer(results, CANCELLED)
            for place in sorted(results):
                if results[place].system is not None:
                    self._conversation.append(system_message(results[place].system))
        note = note_for_model(calls, results)
        if note is not None:
            self._conversation.append(user_message(note))

    def _answer(self, results: Mapping[int, CallResult], otherwise: str) -> None:
        """Append the results of the last answer's calls in their order, *otherwise* for those without one."""
        calls, self._unanswered = self._unanswered, []
        for place, call in enumerate(calls):
            if place in results:
                self._conversation.append(results[place].message)
            else:
                name = str(call.get("name") or "")
                self._conversation.append(tool_result_message(call["call_id"], name, otherwise, error=True))

    # -- the end ----------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Leave a context that can be sent again."""
        if isinstance(self.terminal, Error):
            why = NOT_WHOLE
        elif self._stopped is None or self._stopped is Stopped.KILLED:
            why = CANCELLED
        else:
            why = NOT_MADE.format(self._spending.words(self._stopped))
        self._answer({}, why)
        self._agent._absorb()

    def _result(self) -> AgentResult:
        assert self.terminal is not None  # a run that returns has made a request, or was killed before
        return AgentResult(
            terminal=self.terminal,
            text=message_text(self.terminal.message),
            rounds=self.rounds,
            usage=self.usage,
            stopped=self._stopped,
            elapsed_ms=(trio.current_time() - self._began) * 1000,
            cost=self._spending.cost,
            unpriced=self._spending.unpriced,
            compactions=self._keeper.compactions,
        )

    @property
    def _outcome(self) -> str:
        return self._raised or self._result().outcome

    def _report(self) -> None:
        """Write the line `agent.settled`: facts with keys, no content."""
        usage = self.usage or {}
        get_logger().info(
            "agent.settled",
            agent=self._agent.name,
            model=self._agent.model,
            outcome=self._outcome,
            reason=self._reason,
            rounds=self.rounds,
            tool_calls=self._calls,
            input_tokens=usage.get("input_tokens"),
            output_tokens=usage.get("output_tokens"),
            cost_usd=self._spending.cost,
            elapsed_ms=round((trio.current_time() - self._began) * 1000, 1),
        )
