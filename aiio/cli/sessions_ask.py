"""`aiio ask --session`: one turn of a conversation that is kept on disk."""

from __future__ import annotations

from aiio.context.store import Context
from aiio.context.types import Message, MessageType

from .ask import Question, lost_code, report
from .chat_turn import Asking, Turn, add_question, remember_model, session_model, set_system, take_turn
from .exits import CliFault
from .output import Output
from .printer import Printer
from .session import Session
from .sessions import opened, sessions_folder
from .sessions_text import text_of


async def ask_in_session(session: Session, question: Question, out: Output) -> int:
    """Go on with the session, or begin it: ask, print what comes, and return the exit code.

    What was asked is on disk before it is sent, and the answer, whole or partial, before this returns.

    CliFault: the session or the model is not usable.
    """
    folder = sessions_folder(session.env, question.dir)
    async with opened(question.session, folder) as context:
        model = session_model(session.env, question.model, context)
        asking = Asking(model=model, settings=question.settings, limits=question.limits)
        agent = asking.agent(session.env, context)
        _add(context, question.context)
        remember_model(context, model)
        printer = Printer(out, json_lines=question.json_lines, thinking=question.thinking)
        turn = await take_turn(session, agent, printer, out)
        return _code(session, model, turn)


def _add(context: Context, messages: list[Message]) -> None:
    """Append what is asked; a system message in front takes the place of the session's."""
    if messages[0]["type"] == MessageType.SYSTEM:
        set_system(context, text_of(messages[0]))
        messages = messages[1:]
    for message in messages:
        add_question(context, message)


def _code(session: Session, model: str, turn: Turn) -> int:
    """Say how it ended, and return the exit code. CliFault: it is not saved."""
    terminal = None if turn.result is None else turn.result.terminal
    if turn.lost is not None:
        return lost_code(session, turn.lost, terminal)
    if turn.not_saved is not None:
        raise CliFault(turn.not_saved)
    return report(session, model, terminal)
