"""One run of one command: the Env, the log, the signals, and what becomes of an exception.

Exceptions end here. A `CliFault` is a sentence and an exit code; anything else is a bug of ours, told in
one sentence too, because a traceback can quote what must not be seen. The log has it, and `--debug`
shows it, both scrubbed.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NoReturn

import trio

from aiio.context.log import get_logger
from aiio.env.env import Env, open_env
from aiio.env.errors import ProviderError
from aiio.env.scrub import Scrubber
from aiio.observe import configure

from .exits import BAD_INPUT, BY_KIND, CRASHED, INTERRUPTED, CliFault, fault_sentence
from .output import say, visible, write_error

SHOW_CURSOR = "\x1b[?25h"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """What every command takes."""

    log: str | None = None
    """File to append log lines to."""
    level: str = "info"
    debug: bool = False
    """Show tracebacks, scrubbed, and log at level debug."""


class Session:
    """What a command works with: the Env, entered, and the signals."""

    def __init__(self, env: Env) -> None:
        self.env = env
        self.stopped_by: int | None = None
        """The signal that asked us to stop."""
        self.on_stop: Callable[[], object] = lambda: None
        """Called at the first signal, in trio; stops what runs. Plain, and quick."""

    @property
    def stopping(self) -> bool:
        """Whether a signal has asked us to stop."""
        return self.stopped_by is not None

    @property
    def signal_code(self) -> int:
        """The exit code for having been stopped."""
        return INTERRUPTED if self.stopped_by is None else 128 + self.stopped_by

    async def watch(
        self,
        leave: Callable[[int], object],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Turn SIGINT and SIGTERM into `on_stop` the first time, into *leave* (exit code) the second."""
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for number in signals:
                if self.stopping:
                    leave(128 + number)
                else:
                    self.stopped_by = number
                    self.on_stop()


Command = Callable[[Session], Awaitable[int]]
"""The work of a command; returns its exit code, raises `CliFault`."""


def leave_now(code: int) -> NoReturn:
    """End the process at once. Children of ours notice that their parent is gone."""
    if os.isatty(2):
        write_error(SHOW_CURSOR + "\n")
    os._exit(code)


def execute(command: Command, options: LogOptions) -> int:
    """Run *command* in a trio run of its own and return its exit code. Raises nothing but SystemExit."""
    scrubs: list[Callable[[str], str]] = [Scrubber().text]  # the last counts: the Env's, once there is one
    level = "debug" if options.debug else options.level
    try:
        log = configure(options.log, level=level, scrub=lambda text: scrubs[-1](text))
    except OSError as exc:
        say(f"the log {options.log} can't be written: {exc.strerror}; name another file with --log")
        return BAD_INPUT
    with log:
        try:
            env = open_env()
        except (TypeError, ValueError) as exc:  # the user's settings file; the text names file and line
            say(scrubs[-1](str(exc)))
            return BAD_INPUT
        scrubs.append(env.scrub)
        for note in env.files.notes:
            say(env.scrub(note))
        return _run(env, command, options)


def _run(env: Env, command: Command, options: LogOptions) -> int:
    try:
        return trio.run(_main, env, command)
    except CliFault as fault:
        say(env.scrub(str(fault)))
        return fault.code
    except ProviderError as exc:
        say(env.scrub(fault_sentence(exc)))
        return BY_KIND[exc.kind]
    except KeyboardInterrupt:
        say("stopped")
        return INTERRUPTED
    except Exception as exc:  # noqa: BLE001  # the boundary: see the module's docstring
        get_logger().exception("cli.crashed")
        return crashed(exc, options, env.scrub)


def crashed(exc: Exception, options: LogOptions, scrub: Callable[[str], str]) -> int:
    """Tell of a bug of ours in one sentence, and return the exit code for it."""
    where = f"the log {options.log} has the details" if options.log else "--log FILE keeps the details"
    say(scrub(f"unexpected {type(exc).__name__}: {exc}; this is a bug of aiio ({where}, --debug shows them)"))
    if options.debug:
        write_error(visible(scrub("".join(traceback.format_exception(exc)))))
    return CRASHED


async def _main(env: Env, command: Command) -> int:
    async with env:
        session = Session(env)
        await env.nursery.start(session.watch, leave_now)
        return await command(session)
