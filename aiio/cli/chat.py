"""`aiio chat`: a conversation at a prompt; every turn is on disk before the next prompt.

At the prompt Ctrl-C gives the line up, and says how to leave when there is none; during an answer it stops
the request and keeps what had come. Ctrl-D leaves.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from aiio.context.events import Error
from aiio.context.store import Context
from aiio.context.types import MessageType, user_message
from aiio.context.validate import is_message
from aiio.env.env import Env
from aiio.env.errors import ProviderError

from .ask import lost_code
from .chat_commands import COMMANDS, complete, parse_command
from .chat_lines import Interrupted, Lines, open_lines
from .chat_turn import Asking, add_question, remember_model, session_model, set_system, take_turn
from .exits import BY_KIND, DONE, CliFault, explain, fault_sentence
from .models import NO_LIMITS, LimitOptions, check_model, endpoint_of
from .output import Output, say, visible, write_error
from .printer import Printer
from .session import Session
from .sessions import close_session, open_session, sessions_folder
from .sessions_text import text_of

PROMPT = "> "
HINT = "Ctrl-D or /quit leaves, /help lists the commands"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """What `aiio chat` was asked to do."""

    session: str | None = None
    """The session to go on with, or to begin; None: a new one."""
    dir: str | None = None
    model: str | None = None
    system: str | None = None
    thinking: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    limits: LimitOptions = field(default_factory=lambda: NO_LIMITS)


async def chat(session: Session, options: ChatOptions, out: Output) -> int:
    """Converse until the input ends, and return the exit code.

    When no person types, a request that failed counts for the code, and the next one goes on all the same.

    Raises:
      CliFault: the session or the model is not usable, or the session can't be written at the end.
      ProviderError: the credential is missing.
    """
    folder = sessions_folder(session.env, options.dir)
    context = await open_session(options.session, folder)
    talk = Chat(session, options, out, context, open_lines(partial(complete, session.env)))
    try:
        return await talk.run()
    finally:
        talk.lines.close()
        await close_session(talk.context)  # a fork may have taken its place


class Chat:
    """A conversation at the prompt. Commands work on its attributes."""

    def __init__(
        self, session: Session, options: ChatOptions, out: Output, context: Context, lines: Lines
    ) -> None:
        self.session = session
        self.env: Env = session.env
        self.context = context
        self.lines = lines
        self.model: str = ""
        self.over: bool = False
        """Set to leave."""
        self._options = options
        self._out = out
        self._code: int | None = None
        """The exit code, where it is not the usual one."""

    async def run(self) -> int:
        """Converse until the input ends, or somebody wants to leave; returns the exit code."""
        self.use_model(session_model(self.env, self._options.model, self.context))
        if self._options.system:
            set_system(self.context, self._options.system)
        self._greet()
        while not self.over:
            text = await self._read()
            if text is None:
                break
            await self._obey(text)
        self._take_leave()
        if self._code is not None:
            return self._code
        return self.session.signal_code if self.session.stopping else DONE

    # -- for commands -----------------------------------------------------------------------------

    def use_model(self, selector: str) -> None:
        """Ask *selector* from now on. ValueError, ProviderError: it can't be asked."""
        try:
            check_model(self.env, selector, self._options.settings)
        except (TypeError, ValueError) as exc:
            raise CliFault(str(exc)) from exc
        self.model = selector
        remember_model(self.context, selector)

    async def answer(self) -> None:
        """Let the model answer the conversation as it stands, and print what comes."""
        asking = Asking(model=self.model, settings=self._options.settings, limits=self._options.limits)
        agent = asking.agent(self.env, self.context)
        printer = Printer(self._out, thinking=self._options.thinking)
        turn = await take_turn(self.session, agent, printer, self._out)
        self.session.on_stop = self._forgive
        self._out.give_up_at(math.inf)
        terminal = None if turn.result is None else turn.result.terminal
        stopped = self.session.stopping
        self._forgive()
        if turn.not_saved is not None:
            say(f"{turn.not_saved} (session {self.context.id})")
        if turn.lost is not None and not stopped:
            self._code, self.over = lost_code(self.session, turn.lost, terminal), True
        elif isinstance(terminal, Error) and stopped:
            say("stopped; what had arrived is kept" if terminal.message else "stopped; nothing had arrived")
        elif isinstance(terminal, Error):
            self._code = None if self.lines.by_hand else BY_KIND[terminal.kind]
            say(self.env.scrub(explain(terminal, endpoint_of(self.env, self.model))))

    def show(self, text: str) -> None:
        """Print *text* beside the conversation, on stderr."""
        write_error(visible(text).rstrip("\n") + "\n")

    def tell(self, sentence: str) -> None:
        """Print *sentence* as `aiio: ...`, without credentials."""
        say(self.env.scrub(sentence))

    # -- inside -----------------------------------------------------------------------------------

    def _greet(self) -> None:
        for entry in self.context:
            if is_message(entry) and entry["type"] == MessageType.USER:
                self.lines.remember(text_of(entry))
        if self.lines.by_hand:
            count = sum(map(_is_said, self.context))
            said = f" ({count} message{'s' if count > 1 else ''} so far)" if count else ""
            say(f"session {self.context.id}{said}, {self.model}; {HINT}")

    def _take_leave(self) -> None:
        if self.lines.by_hand and any(map(_is_said, self.context)):
            say(f"to go on: aiio chat --session {self.context.id}")

    async def _read(self) -> str | None:
        """Return the next line; an empty one when Ctrl-C gave it up. None: the end, or a signal."""
        with trio.CancelScope() as scope:
            self.session.on_stop = partial(self._stopped_at_prompt, scope.cancel)
            try:
                text = await self.lines.line(PROMPT)
                if text is None and self.lines.by_hand:
                    write_error("\n")
                return text
            except Interrupted as interrupted:
                if interrupted.empty:
                    say(HINT)
                return ""
            finally:
                self.session.on_stop = self._forgive
        return None

    def _stopped_at_prompt(self, leave: Callable[[], object]) -> None:
        """A signal came at the prompt: one to leave, or the Ctrl-C of a terminal without GNU readline."""
        if self.lines.by_hand and self.session.stopped_by == signal.SIGINT:
            self._forgive()
            write_error(f"\n{HINT}\n{PROMPT}")
        else:
            leave()

    def _forgive(self) -> None:
        """A Ctrl-C has had its effect: the next one is a first one again. A SIGTERM stays."""
        if self.session.stopped_by == signal.SIGINT:
            self.session.stopped_by = None
        elif self.session.stopping:
            self.over = True

    async def _obey(self, text: str) -> None:
        """Carry out a command, or say *text* to the model. What goes wrong is told, and no end."""
        try:
            command = parse_command(text)
            if command is not None:
                name, rest = command
                await COMMANDS[name].work(self, rest)
            elif text.strip():
                add_question(self.context, user_message(text))
                await self.answer()
        except CliFault as fault:
            self.tell(str(fault))
        except ProviderError as exc:
            self.tell(fault_sentence(exc))


def _is_said(entry: Any) -> bool:
    return is_message(entry) and entry["type"] != MessageType.SYSTEM
