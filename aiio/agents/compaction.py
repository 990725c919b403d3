"""Compaction: a summary by the model takes the place of what was said, so that there is room to go on.

    before   system messages, records, turns ... | what the user said last, not answered yet
    after    system messages, records, the record of the turns, the summary | what the user said last

Nothing is lost. What leaves the context stays beside it in a record of the type `compacted`, which is never
sent and which a session file keeps like any other. A summary that fails (the provider's fault, a limit, an
answer cut short, a disk that is full) leaves the context as it was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from aiio.context.events import Done, FinishReason, Terminal
from aiio.context.linkage import tool_calls
from aiio.context.log import get_logger
from aiio.context.types import Message, MessageType, assistant_message, text_content, user_message
from aiio.context.validate import is_message, is_record

from .conversation import Conversation, save_shielded
from .guard import ContextGuard, Full
from .result import message_text

if TYPE_CHECKING:
    from .agent import Agent

SUMMARY = "summary"
"""The key of an assistant message that marks it a summary: `True`."""

COMPACTED = "compacted"
"""The type of the record that keeps what a summary stands for: `{type, messages}`."""

HEADING = "[Summary of the conversation so far]"

INSTRUCTION = (
    "Summarize the conversation so far for yourself: your answer will take its place, and you will see "
    "nothing else of it. Keep what was asked for, word for word where it matters; what was decided, found "
    "out and done; names, numbers and file paths; and what is left to do. Call no tools. "
    "Answer with the summary only."
)

GO_ON = "Go on from this summary."
"""What the user says when it is the model's turn, as an answer of the model's can't be the last message."""

Ask = Callable[[list[Any]], Awaitable[Terminal]]
"""Makes one request, books it, and returns its terminal event."""


class WindowKeeper:
    """Keeps one run of an agent within the window of its model, as its `ContextGuard` says."""

    def __init__(self, agent: Agent, ask: Ask) -> None:
        self._agent = agent
        self._ask = ask
        self._warned: set[Full] = set()
        self._tried_in_vain = False
        self._began = False
        self.compactions: int = 0
        """Summaries that took the place of what was said."""

    async def look(self) -> None:
        """Warn where there is cause to, and compact where that may help. Raises what saving does not expect.

        Cancellation: a summary in the making is given up; the context is as it was.
        """
        agent, guard = self._agent, self._agent._guard
        if guard is None or agent._builder is not None:  # a builder has its own budget
            return
        entries = agent._conversation.entries()
        if not self._began:
            self._began = True
            agent._gauge.begin(entries)
        if not _has_answers(entries):
            return  # there is nothing that could be done
        window = agent.env.context_window(agent.model)
        if window is None:
            return
        used = agent._gauge.tokens(entries)
        full = guard.looks_full(used, agent._gauge.began(entries), window)
        if full is None:
            return
        if full not in self._warned:
            self._warned.add(full)
            facts = {"why": full.value, "used": used, "window": window}
            get_logger().warning("agent.context_full", agent=agent.name, **facts)
            agent.env.emit("context_full", agent=agent, **facts)
        if guard.compact and not self._tried_in_vain:
            await self._compact(guard, used, window)

    async def _compact(self, guard: ContextGuard, used: int, window: int) -> None:
        agent = self._agent
        fault = await compact(agent._conversation, self._ask)
        entries = agent._conversation.entries()
        if fault is None:
            self.compactions += 1
            agent._gauge.restart(entries)
            left = agent._gauge.tokens(entries)
            # What is as full as before would be summarized again before every request.
            self._tried_in_vain = guard.looks_full(left, left, window) is not None
            get_logger().info("agent.compacted", agent=agent.name, used=used, left=left, window=window)
        else:
            self._tried_in_vain = True
            fault = agent.env.scrub(fault)
            get_logger().warning("agent.not_compacted", agent=agent.name, why=fault)
        agent.env.emit("context_compacted", agent=agent, error=fault)


async def compact(conversation: Conversation, ask: Ask) -> str | None:
    """Let a summary take the place of what was said and answered, and save that.

    Returns:
      None, or why it was not done; the conversation is as it was then.

    Raises what *ask* does; the conversation is as it was then, too.
    """
    former = [*conversation.entries()]
    answered = _answered(former)
    terminal = await ask([*former[:answered], user_message(INSTRUCTION)])
    fault = _fault(terminal)
    if fault is not None:
        return fault
    conversation.replace(_compacted(former, answered, message_text(terminal.message).strip()))
    try:
        await save_shielded(conversation)
    except (OSError, TypeError, ValueError) as exc:
        conversation.replace(former)
        return f"the compacted context can't be saved: {exc}"
    return None


def _fault(terminal: Terminal) -> str | None:
    """Return why the answer to the request for a summary is none; None: it is one."""
    if not isinstance(terminal, Done):
        return terminal.error
    if terminal.finish in (FinishReason.LENGTH, FinishReason.REFUSAL, FinishReason.PAUSED):
        return f"the summary is not whole ({terminal.finish.value})"
    if tool_calls(terminal.message):
        return "the model called tools instead of giving a summary"
    return None if message_text(terminal.message).strip() else "the summary is empty"


def _answered(entries: Sequence[Any]) -> int:
    """Return how many of *entries* a summary may stand for: not what the user said last, and waits."""
    turns = (MessageType.ASSISTANT, MessageType.TOOL_RESULT)
    places = (at for at, entry in enumerate(entries) if is_message(entry) and entry["type"] in turns)
    return max(places, default=-1) + 1


def _has_answers(entries: Iterable[Any]) -> bool:
    """Tell whether there is anything in *entries* that is worth a summary: more than a summary."""
    answers = (entry for entry in entries if is_message(entry) and entry["type"] == MessageType.ASSISTANT)
    return any(not answer.get(SUMMARY) for answer in answers)


def _compacted(entries: Sequence[Any], answered: int, summary: str) -> list[Any]:
    """Return what takes the place of *entries*; none of them is changed."""
    head, waiting = entries[:answered], list(entries[answered:])
    kept = [entry for entry in head if is_record(entry) or entry["type"] == MessageType.SYSTEM]
    gone = [entry for entry in head if not is_record(entry) and entry["type"] != MessageType.SYSTEM]
    told = assistant_message([text_content(f"{HEADING}\n\n{summary}")])
    told[SUMMARY] = True
    if not any(is_message(entry) and entry["type"] == MessageType.USER for entry in waiting):
        waiting.append(user_message(GO_ON))
    return [*kept, {"type": COMPACTED, "messages": gone}, told, *waiting]


def history_of(context: Iterable[Any]) -> list[Message]:
    """Return all messages of *context*, with what summaries stand for in their place; for people to read.

    Summaries are left out, and so is what made the model go on from one. A new list of the live messages.
    """
    history: list[Message] = []
    after_summary = False
    for entry in context:
        if is_message(entry):
            told_to_go_on = after_summary and entry == user_message(GO_ON)
            after_summary = bool(entry.get(SUMMARY))
            if not after_summary and not told_to_go_on:
                history.append(entry)
        elif is_record(entry) and entry["type"] == COMPACTED:
            history += history_of(entry["messages"])
    return history
