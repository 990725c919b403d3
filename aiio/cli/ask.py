"""`aiio ask`: one request, its text on stdout as it comes."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import trio

from aiio.context.events import Error, Terminal
from aiio.context.parse import parse_context
from aiio.context.types import Message, system_message, user_message
from aiio.context.validate import has_content, validate_context

from .exits import BAD_INPUT, BY_KIND, DONE, READER_GONE, CliFault, explain
from .models import NO_LIMITS, LimitOptions, chosen_model, endpoint_of, make_io
from .output import Output, OutputLost, say, visible, write_error
from .printer import LAST_WORDS, Printer
from .session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked, and how."""

    context: list[Message]
    model: str | None = None
    session: str | None = None
    """The session to ask in; None: none."""
    dir: str | None = None
    """The folder of sessions; None: as configured."""
    json_lines: bool = False
    thinking: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    limits: LimitOptions = field(default_factory=lambda: NO_LIMITS)


def read_context(prompt: str | None, system: str | None) -> list[Message]:
    """Return the context to ask with: *prompt* as it stands, else stdin's (JSON, JSON lines or prose).

    CliFault: there is nothing, stdin is a terminal, or what it holds is no context.
    """
    if prompt is not None and prompt != "-":
        context = [user_message(prompt)]
    elif prompt is None and sys.stdin.isatty():
        raise CliFault("nothing to ask: give a prompt as an argument, or a prompt or context on stdin")
    else:
        context = _context_in(sys.stdin.buffer.read())
    if not any(map(has_content, context)):
        raise CliFault("nothing to ask: the prompt is empty")
    return [system_message(system), *context] if system else context


def _context_in(data: bytes) -> list[Message]:
    try:
        return validate_context(parse_context(data.decode("utf-8-sig")))
    except UnicodeDecodeError as exc:
        raise CliFault(f"stdin is not UTF-8 text (byte {exc.start}); send text or JSON") from exc
    except TypeError as exc:
        raise CliFault(f"stdin holds no valid context: {exc}") from exc


async def ask(session: Session, question: Question, out: Output) -> int:
    """Run one request, print what comes, and return the exit code. In a session, all of it is saved there.

    CliFault: the model or a limit is not usable, or the output takes nothing more. What had arrived by
    then is printed on stderr.
    """
    if question.session is not None:
        from .sessions_ask import ask_in_session

        return await ask_in_session(session, question, out)
    selector = chosen_model(session.env, question.model)
    io = make_io(session.env, selector, settings=question.settings, **question.limits)

    def stop() -> None:
        out.give_up_at(trio.current_time() + LAST_WORDS)
        io.kill_nowait("Ctrl-C")

    session.on_stop = stop
    printer = Printer(out, json_lines=question.json_lines, thinking=question.thinking)
    events = io.stream(question.context)
    try:
        async with events:
            async for event in events:
                await printer.event(event)
    except OutputLost as lost:
        return lost_code(session, lost, events.terminal)
    return report(session, selector, events.terminal)


def report(session: Session, selector: str, terminal: Terminal | None) -> int:
    """Say how a request to *selector* ended, unless it was answered; return the exit code for it."""
    if not isinstance(terminal, Error):
        return DONE
    if session.stopping:
        say("stopped; what had arrived is above" if terminal.message else "stopped; nothing had arrived")
        return session.signal_code
    say(session.env.scrub(explain(terminal, endpoint_of(session.env, selector))))
    return BY_KIND[terminal.kind]


def lost_code(session: Session, lost: OutputLost, terminal: Terminal | None) -> int:
    """Deal with an output that takes nothing more: a pipe closed early is fine, a full disk is not."""
    if session.stopping:
        return session.signal_code
    if lost.reader_gone:
        return READER_GONE
    say(f"stdout can't be written ({lost}); the answer so far follows here, complete")
    message = None if terminal is None else terminal.message
    blocks = [] if message is None else message["content"]
    write_error(visible("".join(block["text"] for block in blocks if block.get("type") == "text")) + "\n")
    return BAD_INPUT
