"""One turn in a session: what was said goes to disk, the answer is printed as it comes and goes to disk too.

Printing runs beside the request and never holds it up: an answer is received, and saved, however slow the
terminal is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import trio

from aiio.agents import Agent, AgentResult
from aiio.context.callbacks import callback_name
from aiio.context.events import EventType
from aiio.context.store import Context
from aiio.context.types import Message, MessageType, system_message
from aiio.context.validate import is_message
from aiio.env.env import Env

from .exits import CliFault
from .models import LimitOptions, chosen_model
from .output import Output, OutputLost
from .printer import LAST_WORDS, Printer
from .session import Session
from .sessions import reason_of

_CALLBACKS = [callback_name(event) for event in EventType]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Whom a session asks, and how."""

    model: str
    settings: dict[str, Any]
    limits: LimitOptions

    def agent(self, env: Env, context: Context) -> Agent:
        """Return an agent on *context* that is offered no tools. CliFault: it can't be made."""
        try:
            return Agent(
                env=env, model=self.model, tools=[], context=context, settings=self.settings, **self.limits
            )
        except (TypeError, ValueError) as exc:
            raise CliFault(str(exc)) from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """How a turn ended."""

    result: AgentResult | None
    """None: it could not be saved; what came is in the context, in memory."""
    not_saved: str | None = None
    """Why."""
    lost: OutputLost | None = None
    """Why the output took no more."""


async def take_turn(session: Session, agent: Agent, printer: Printer, out: Output) -> Turn:
    """Let *agent* answer, and print what comes; Ctrl-C kills the request and keeps the partial answer."""
    result: AgentResult | None = None
    fault: OSError | None = None
    crash: Exception | None = None
    lost: OutputLost | None = None
    send, receive = trio.open_memory_channel[Any](math.inf)

    def stop() -> None:
        out.give_up_at(trio.current_time() + LAST_WORDS)
        agent.kill_nowait("Ctrl-C")

    async def print_all() -> None:
        nonlocal lost
        try:
            async for event in receive:
                await printer.event(event)
        except OutputLost as exc:
            lost = exc
            agent.kill_nowait("the output takes no more")

    session.on_stop = stop
    async with trio.open_nursery() as nursery:
        nursery.start_soon(print_all)
        try:
            result = await agent.run(callbacks=dict.fromkeys(_CALLBACKS, send.send_nowait))
        except OSError as exc:
            fault = exc
        except Exception as exc:  # noqa: BLE001  # raised below: the nursery would wrap it into a group
            crash = exc
        finally:
            send.close()
    if crash is not None:
        raise crash
    if fault is not None and lost is None:
        await printer.end()  # of its end nobody was told
    return Turn(result=result, not_saved=None if fault is None else reason_of(fault), lost=lost)


def session_model(env: Env, named: str | None, context: Context) -> str:
    """Return the selector for a session: *named*, else the one it used last, else as for every command."""
    last = (context.settings or {}).get("model")
    return chosen_model(env, named or (last if isinstance(last, str) and last else None))


def remember_model(context: Context, model: str) -> None:
    """Keep *model* in the session's file, for the next time."""
    context.settings = {**(context.settings or {}), "model": model}


def set_system(context: Context, text: str) -> None:
    """Make *text* the system message in front."""
    first, wanted = context.at(0), system_message(text)
    if first == wanted:
        return
    if is_message(first) and first["type"] == MessageType.SYSTEM:
        context.edit(0, wanted)
    else:
        context.prepend([wanted])


def add_question(context: Context, question: Message) -> None:
    """Append *question*, unless the very same was said last, and not answered: then it is asked again."""
    if context.at(-1) != question:
        context.append(question)
