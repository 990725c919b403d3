"""`aiio endpoints`: who can be asked, and what is missing."""

from __future__ import annotations

import json
from typing import Any

from aiio.env.env import Env
from aiio.env.errors import ProviderError

from .exits import DONE
from .output import Output
from .session import Session

NEEDS_NONE = "needs none"
MISSING = "missing"


async def endpoints(session: Session, out: Output, *, json_lines: bool = False) -> int:
    """Print one line per endpoint: name, dialect, credential, where it runs, URL. Never a credential."""
    running = await session.env.detect_endpoints()
    rows = [endpoint_row(session.env, name, running=name in running) for name in session.env.endpoint_names()]
    if json_lines:
        for row in rows:
            await out.line(json.dumps(row).encode() + b"\n")
    else:
        await out.text(table([{key: value or "-" for key, value in row.items()} for row in rows]))
    return DONE


def endpoint_row(env: Env, name: str, *, running: bool = False) -> dict[str, str | None]:
    """Return what to say about endpoint *name*, every value fit to be shown."""
    endpoint = env.endpoint(name)
    if endpoint.embedded:
        place = "embedded"
    elif env.endpoint_local(name):
        place = "this machine, running" if running else "this machine"
    else:
        place = "remote"
    url = None if endpoint.url is None else env.scrub(str(endpoint.url))
    return {
        "endpoint": name,
        "dialect": endpoint.provider,
        "credential": credential_state(env, name),
        "runs": place,
        "url": url,
    }


def credential_state(env: Env, name: str) -> str:
    """Return where the credential of endpoint *name* stands, or that it is missing or can't be used."""
    try:
        env.credential(name)
    except ProviderError as exc:
        if exc.code == "no_credential":
            variables = " or ".join(env.endpoint(name).env_keys)
            return f"{MISSING}: {variables}" if variables else MISSING
        return f"unusable: {exc.message}"
    return env.credential_source(name) or NEEDS_NONE


def table(rows: list[dict[str, Any]]) -> str:
    """Return *rows*, all with the same keys, as aligned columns under their names; no rows, no text.

    A line end inside of a value, which a server may have chosen, makes no row.
    """
    if not rows:
        return ""
    lines = [list(rows[0]), *[[" ".join(str(value).splitlines()) for value in row.values()] for row in rows]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return "\n".join(padded) + "\n"
