"""The commands about endpoints, models, credentials and settings, in click; app.py adds them to `aiio`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import click

from .output import Output
from .session import Command, Session

_json = click.option("--json", "json_lines", is_flag=True, help="Print lines of JSON.")
_local = click.option("--local", is_flag=True, help="For the working directory only.")

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Options(Protocol):
    """A decorator that adds options to a command."""

    def __call__(self, function: _Function, /) -> _Function:
        """Return *function* with the options added."""
        ...


Execute = Callable[[Command, dict[str, Any]], int]
"""Runs the work of a command with what the log options say."""


def add_commands(cli: click.Group, log_options: Options, execute: Execute) -> None:
    """Add `endpoints`, `models`, `auth`, `config` and `doctor` to *cli*."""
    _add_lists(cli, log_options, execute)
    _add_auth(cli, log_options, execute)
    _add_config(cli, log_options, execute)
    _add_doctor(cli, log_options, execute)


def _add_lists(cli: click.Group, log_options: Options, execute: Execute) -> None:
    @cli.command()
    @_json
    @log_options
    def endpoints(json_lines: bool, **more: Any) -> int:
        """List the endpoints: dialect, where the credential stands, where it runs, URL.

        \b
        Examples:
          aiio endpoints
          aiio endpoints --json
        """
        from .endpoints import endpoints

        return execute(lambda session: endpoints(session, _out(), json_lines=json_lines), more)

    @cli.command()
    @click.argument("endpoint", required=False)
    @click.option("--refresh", is_flag=True, help="Ask the server even if its list is fresh.")
    @_json
    @log_options
    def models(endpoint: str | None, refresh: bool, json_lines: bool, **more: Any) -> int:
        """List the models of ENDPOINT, or of all endpoints that answer.

        \b
        Examples:
          aiio models
          aiio models openai --refresh
        """
        from .models_list import models

        async def work(session: Session) -> int:
            return await models(session, _out(), endpoint, refresh=refresh, json_lines=json_lines)

        return execute(work, more)


def _add_auth(cli: click.Group, log_options: Options, execute: Execute) -> None:
    @cli.group()
    def auth() -> None:
        """Credentials: kept in the system's keyring if there is one that works, else in a private file.

        \b
        Examples:
          aiio auth set openai
          aiio auth list
        """

    @auth.command("set")
    @click.argument("endpoint")
    @_local
    @log_options
    def set_auth(endpoint: str, local: bool, **more: Any) -> int:
        """Keep a credential for ENDPOINT; it is asked for, or read from stdin, and never shown.

        \b
        Examples:
          aiio auth set openai
          pass show openai | aiio auth set openai
        """
        from .auth import read_secret, set_auth

        secret = read_secret(endpoint)
        return execute(lambda session: set_auth(session, endpoint, secret, local=local), more)

    @auth.command("list")
    @log_options
    def list_auth(**more: Any) -> int:
        """List where the credentials of the endpoints stand; none is shown.

        \b
        Examples:
          aiio auth list
        """
        from .auth import list_auth

        return execute(lambda session: list_auth(session, _out()), more)

    @auth.command("remove")
    @click.argument("endpoint")
    @_local
    @log_options
    def remove_auth(endpoint: str, local: bool, **more: Any) -> int:
        """Forget what is kept for ENDPOINT.

        \b
        Examples:
          aiio auth remove openai
          aiio auth remove openai --local
        """
        from .auth import remove_auth

        return execute(lambda session: remove_auth(session, endpoint, local=local), more)


def _add_config(cli: click.Group, log_options: Options, execute: Execute) -> None:
    @cli.group()
    def config() -> None:
        """Settings: the user's config.toml, and aiio.toml in the working directory.

        \b
        Examples:
          aiio config show
          aiio config set model openai/gpt-5
        """

    @config.command("show")
    @log_options
    def show(**more: Any) -> int:
        """Print the settings as they hold, credentials masked.

        \b
        Examples:
          aiio config show
        """
        from .config import show

        return execute(lambda session: show(session, _out()), more)

    @config.command("set")
    @click.argument("key")
    @click.argument("value")
    @log_options
    def set_value(key: str, value: str, **more: Any) -> int:
        """Set KEY to VALUE (JSON, or else text) in the user's config.toml.

        \b
        Examples:
          aiio config set model openai/gpt-5
          aiio config set providers.openai.timeout 5m
        """
        from .config import set_value

        return execute(lambda session: set_value(session, key, value), more)


def _add_doctor(cli: click.Group, log_options: Options, execute: Execute) -> None:
    @cli.command()
    @click.argument("endpoint", metavar="[ENDPOINT[/MODEL]]", required=False)
    @_json
    @log_options
    def doctor(endpoint: str | None, json_lines: bool, **more: Any) -> int:
        """Find out why ENDPOINT does not work, step by step, and what to do.

        With a MODEL, and for servers on this machine, the last step asks for one word.

        \b
        Examples:
          aiio doctor openai
          aiio doctor vllm/qwen3
        """
        from .doctor import doctor

        return execute(lambda session: doctor(session, _out(), endpoint, json_lines=json_lines), more)


def _out() -> Output:
    return Output(sys.stdout.fileno())
