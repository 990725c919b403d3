"""What can be said to `aiio chat` itself: `/help`, `/model`, and so on."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from aiio.context.types import MessageType
from aiio.context.validate import is_message
from aiio.env import sessions
from aiio.env.env import Env

from .chat_turn import set_system
from .exits import CliFault
from .sessions import close_session, session_table, told
from .sessions_text import text_of

if TYPE_CHECKING:
    from .chat import Chat

LISTED = 20
"""Sessions that `/sessions` shows."""

_COMMAND = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """One command."""

    takes: str
    """Its argument, for the help."""
    what: str
    work: Callable[[Chat, str], Awaitable[None]]
    """Gets the argument, without space around it; may be empty. CliFault, OSError: why it can't be done."""


def parse_command(text: str) -> tuple[str, str] | None:
    """Return the name of a command and its argument; None: *text* is for the model. CliFault: unknown.

    A path is no command: `/etc/hosts says` is for the model.
    """
    match = _COMMAND.fullmatch(text.strip())
    if match is None:
        return None
    name, rest = match[1], (match[2] or "").strip()
    if name not in COMMANDS:
        raise CliFault(f"there is no command /{name}; /help lists them")
    return name, rest


def complete(env: Env, line: str, word: str) -> Iterable[str]:
    """Return what *word*, at the end of *line*, may become: a command, or an endpoint for `/model`."""
    words = line.split(" ")
    if len(words) == 1:
        return [
            f"/{name} " if COMMANDS[name].takes else f"/{name}"
            for name in COMMANDS
            if f"/{name}".startswith(word)
        ]
    if words[0] == "/model" and len(words) == 2:
        return [f"{name}/" for name in env.endpoint_names() if f"{name}/".startswith(word)]
    return []


async def _help(chat: Chat, rest: str) -> None:
    shown = [(f"/{name} {command.takes}".rstrip(), command.what) for name, command in COMMANDS.items()]
    width = max(len(usage) for usage, _ in shown)
    chat.show("\n".join(f"{usage:<{width}}  {what}" for usage, what in shown))


async def _model(chat: Chat, rest: str) -> None:
    if rest:
        chat.use_model(rest)
        await _save(chat)
    chat.show(chat.model)


async def _system(chat: Chat, rest: str) -> None:
    if rest:
        set_system(chat.context, rest)
        await _save(chat)
    first = chat.context.at(0)
    is_system = is_message(first) and first["type"] == MessageType.SYSTEM
    chat.show(text_of(first) if is_system else "(no system message)")


async def _sessions(chat: Chat, rest: str) -> None:
    with told():
        found = await sessions.list_sessions(str(chat.context.dir), limit=LISTED)
    chat.show(session_table(found) or "(none yet)")


async def _rename(chat: Chat, rest: str) -> None:
    with told():
        await sessions.rename(chat.context, rest)
    chat.show(f"this session is {chat.context.id}")


async def _fork(chat: Chat, rest: str) -> None:
    with told():
        copy = await sessions.fork(chat.context, None, rest or None)
        try:
            await sessions.flush(copy)
            await close_session(chat.context)
        except BaseException:
            with trio.CancelScope(shield=True):
                await sessions.aclose(copy)
            raise
    former, chat.context = chat.context, copy
    chat.show(f"this session is {copy.id}, a copy of {former.id}")


async def _undo(chat: Chat, rest: str) -> None:
    at = _last_question(chat)
    undone = text_of(chat.context.at(at))
    chat.context.rollback(at)
    await _save(chat)
    chat.lines.remember(undone)
    chat.show(f"undone: {undone}")


async def _retry(chat: Chat, rest: str) -> None:
    at = _last_question(chat)
    if at + 1 < len(chat.context):
        chat.context.rollback(at + 1)
    await chat.answer()


async def _quit(chat: Chat, rest: str) -> None:
    chat.over = True


def _last_question(chat: Chat) -> int:
    """Return the index of the last message of the user. CliFault: there is none."""
    for at in range(len(chat.context) - 1, -1, -1):
        entry = chat.context.at(at)
        if is_message(entry) and entry["type"] == MessageType.USER:
            return at
    raise CliFault("nothing was said yet")


async def _save(chat: Chat) -> None:
    with told():
        await sessions.flush(chat.context)


COMMANDS = {
    "help": Command("", "show this", _help),
    "model": Command("[ENDPOINT/MODEL]", "show whom is asked, or ask another from now on", _model),
    "system": Command("[TEXT]", "show the system message, or set it", _system),
    "undo": Command("", "take back what was said last, and its answer", _undo),
    "retry": Command("", "ask the last question again, instead of its answer", _retry),
    "sessions": Command("", "list the sessions written last", _sessions),
    "rename": Command("NAME", "rename this session", _rename),
    "fork": Command("[NAME]", "go on in a copy of this session", _fork),
    "quit": Command("", "leave; so does Ctrl-D", _quit),
}
"""By name, in the order of the help."""
