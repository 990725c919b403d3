"""`aiio auth`: credentials, put in, listed and forgotten; none is ever shown."""

from __future__ import annotations

import sys
from typing import Any

import click

from aiio.env.errors import ProviderError

from .endpoints import MISSING, NEEDS_NONE, credential_state, table
from .exits import DONE, CliFault
from .output import Output, say
from .session import Session

LONGEST = 1 << 16
"""Characters of a credential that are read from stdin."""


def read_secret(endpoint: str) -> str:
    """Return the credential that the user types unseen, or that comes through a pipe.

    click.Abort: Ctrl-C, or the end of input. CliFault: nothing came.
    """
    if sys.stdin is None:
        raise CliFault("there is no input to read the credential from")
    if sys.stdin.isatty():
        text: str = click.prompt(f"Credential for {endpoint} (not shown)", hide_input=True, err=True)
    else:
        text = sys.stdin.read(LONGEST)
    if not text.strip():
        raise CliFault("no credential came: type it at the prompt, or pipe it in")
    return text


async def set_auth(session: Session, endpoint: str, secret: str, *, local: bool = False) -> int:
    """Keep *secret* for *endpoint*.

    Raises:
      CliFault: unknown endpoint, or the disk refused.
      ProviderError: no request could carry it.
    """
    env = session.env
    check_endpoint(session, endpoint)
    if env.files.folder is None:
        raise CliFault("nothing can be kept while AIIO_NO_CONFIG turns the settings files off")
    try:
        await env.login(endpoint, secret, scope="local" if local else "package")
    except (OSError, ValueError) as exc:
        raise CliFault(f"the credential was not kept: {_reason(exc)}") from exc
    say(f"the credential of {endpoint} is kept in {env.credential_source(endpoint)}")
    return DONE


async def list_auth(session: Session, out: Output) -> int:
    """Print where each endpoint that has a credential, or lacks one, gets it from."""
    env = session.env
    states = {name: credential_state(env, name) for name in env.endpoint_names()}
    rows = [{"endpoint": name, "credential": state} for name, state in states.items() if state != NEEDS_NONE]
    await out.text(table(sorted(rows, key=lambda row: row["credential"].startswith(MISSING))))
    return DONE


async def remove_auth(session: Session, endpoint: str, *, local: bool = False) -> int:
    """Forget what is kept for *endpoint*. CliFault: unknown endpoint, or the disk refused."""
    env = session.env
    check_endpoint(session, endpoint)
    try:
        removed = await env.auth_remove(endpoint, scope="local" if local else None)
    except (OSError, ValueError) as exc:
        raise CliFault(f"the credential was not removed: {_reason(exc)}") from exc
    say(f"the credential of {endpoint} was removed" if removed else f"no credential of {endpoint} is kept")
    source = env.credential_source(endpoint)
    if source is not None:
        say(f"{endpoint} still has one in {source}")
    return DONE


def check_endpoint(session: Session, name: str) -> None:
    """Raise `CliFault` for an endpoint that nobody knows."""
    try:
        session.env.endpoint(name)
    except ValueError as exc:
        raise CliFault(str(exc)) from exc


def _reason(exc: Any) -> str:
    assert not isinstance(exc, ProviderError)
    return exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
