"""The commands `sessions` and `chat`, in click; app.py adds them to `aiio`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import click

from .config_commands import Execute, Options
from .exits import CliFault
from .models import LimitOptions, parse_settings
from .output import Output
from .session import Session

dir_option: Final = click.option(
    "--dir", metavar="FOLDER", help="The folder of sessions [default: setting `sessions`, or the user's own]."
)
_json = click.option("--json", "json_lines", is_flag=True, help="Print lines of JSON.")
_new_id = click.option("--as", "new_id", metavar="NAME", help="Name of the new session [default: a UUID].")


def add_commands(
    cli: click.Group,
    model_options: Options,
    log_options: Options,
    limits: Callable[[dict[str, Any]], LimitOptions],
    execute: Execute,
) -> None:
    """Add `chat` and `sessions` to *cli*; *limits* takes the limits out of a command's options."""
    _add_chat(cli, model_options, log_options, limits, execute)

    @cli.group()
    def sessions() -> None:
        """Conversations kept on disk by `chat` and `ask --session`.

        \b
        Examples:
          aiio sessions list
          aiio sessions show birds
          aiio sessions fork birds --as fish
        """

    _add_readers(sessions, log_options, execute)
    _add_changers(sessions, log_options, execute)
    _add_copiers(sessions, log_options, execute)


def _add_chat(
    cli: click.Group,
    model_options: Options,
    log_options: Options,
    limits: Callable[[dict[str, Any]], LimitOptions],
    execute: Execute,
) -> None:
    @cli.command()
    @click.option("--session", "name", metavar="NAME", help="Go on with session NAME, or begin it.")
    @dir_option
    @model_options
    @click.option("--thinking", is_flag=True, help="Show what the model thinks, on stderr.")
    @log_options
    def chat(
        name: str | None,
        dir: str | None,
        model: str | None,
        system: str | None,
        pairs: tuple[str, ...],
        thinking: bool,
        **more: Any,
    ) -> int:
        """Converse at a prompt; every turn is on disk before the next prompt.

        Ctrl-C stops an answer and keeps what had come; at the prompt it gives up the line. Ctrl-D leaves.
        /help lists the commands.

        \b
        Examples:
          aiio chat -m openai/gpt-5
          aiio chat --session birds
        """
        from .chat import ChatOptions
        from .chat import chat as converse

        options = ChatOptions(
            session=name,
            dir=dir,
            model=model,
            system=system,
            thinking=thinking,
            settings=parse_settings(pairs),
            limits=limits(more),
        )

        async def work(session: Session) -> int:
            return await converse(session, options, _out())

        return execute(work, more)


def _add_readers(sessions: click.Group, log_options: Options, execute: Execute) -> None:
    @sessions.command("list")
    @dir_option
    @click.option("--limit", "-n", type=click.IntRange(min=1), default=50, show_default=True)
    @click.option("--all", "all_", is_flag=True, help="All of them.")
    @click.option("--here", is_flag=True, help="Only those begun in the working directory.")
    @_json
    @log_options
    def list_(dir: str | None, limit: int, all_: bool, here: bool, json_lines: bool, **more: Any) -> int:
        """List sessions, the one written last first.

        \b
        Examples:
          aiio sessions list --here
          aiio sessions list --all --json
        """
        from .sessions import list_sessions

        async def work(session: Session) -> int:
            most = None if all_ else limit
            return await list_sessions(session, _out(), dir, limit=most, here=here, json_lines=json_lines)

        return execute(work, more)

    @sessions.command()
    @click.argument("session_id", metavar="SESSION")
    @dir_option
    @_json
    @log_options
    def show(session_id: str, dir: str | None, json_lines: bool, **more: Any) -> int:
        """Print what is said in SESSION; also while it is in use.

        With --json, its messages as JSON lines: what `aiio ask` takes on stdin.

        \b
        Examples:
          aiio sessions show birds
          aiio sessions show birds --json | aiio ask -m openai/gpt-5
        """
        from .sessions import show

        return execute(lambda session: show(session, _out(), session_id, dir, json_lines=json_lines), more)


def _add_changers(sessions: click.Group, log_options: Options, execute: Execute) -> None:
    @sessions.command()
    @click.argument("session_id", metavar="SESSION")
    @click.argument("new_id", metavar="NAME")
    @dir_option
    @log_options
    def rename(session_id: str, new_id: str, dir: str | None, **more: Any) -> int:
        """Rename SESSION.

        \b
        Examples:
          aiio sessions rename birds wrens
        """
        from .sessions import rename

        return execute(lambda session: rename(session, session_id, new_id, dir), more)

    @sessions.command()
    @click.argument("session_ids", metavar="SESSION...", nargs=-1, required=True)
    @dir_option
    @click.option("--yes", "-y", is_flag=True, help="Do not ask.")
    @log_options
    def delete(session_ids: tuple[str, ...], dir: str | None, yes: bool, **more: Any) -> int:
        """Delete sessions, for good.

        \b
        Examples:
          aiio sessions delete birds fish
          aiio sessions delete --yes birds
        """
        from .sessions import delete

        if not yes:
            _confirm(f"Delete {', '.join(session_ids)} for good?")
        return execute(lambda session: delete(session, session_ids, dir), more)


def _add_copiers(sessions: click.Group, log_options: Options, execute: Execute) -> None:
    @sessions.command()
    @click.argument("damaged", metavar="FILE|SESSION")
    @dir_option
    @_new_id
    @log_options
    def recover(damaged: str, dir: str | None, new_id: str | None, **more: Any) -> int:
        """Save what can be saved of a damaged session file into a new session, and print the name of that.

        The file is only read.

        \b
        Examples:
          aiio sessions recover birds
          aiio sessions recover ./copy.session.jsonl --as birds-again
        """
        from .sessions import recover

        return execute(lambda session: recover(session, _out(), damaged, dir, new_id), more)

    @sessions.command()
    @click.argument("session_id", metavar="SESSION")
    @dir_option
    @click.option("--upto", type=int, metavar="N", help="The last message to copy, as `show` numbers them.")
    @_new_id
    @log_options
    def fork(session_id: str, dir: str | None, upto: int | None, new_id: str | None, **more: Any) -> int:
        """Copy SESSION into a new one, to go on differently, and print the name of that.

        \b
        Examples:
          aiio sessions fork birds --upto 4 --as fish
        """
        from .sessions import fork

        return execute(lambda session: fork(session, _out(), session_id, dir, upto=upto, new_id=new_id), more)


def _confirm(question: str) -> None:
    """Ask a person. CliFault: there is none, or no was said."""
    if not sys.stdin.isatty():
        raise CliFault("nobody is there to be asked: say --yes")
    if not click.confirm(question, err=True):
        raise CliFault("nothing was deleted")


def _out() -> Output:
    return Output(sys.stdout.fileno())
