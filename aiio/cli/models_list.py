"""`aiio models`: which models can be asked for."""

from __future__ import annotations

import json
from typing import Any

from aiio.env.access import Models

from .endpoints import table
from .exits import DONE, CliFault
from .output import Output, say
from .session import Session

ALL_LIMIT = "5s"
"""How long all endpoints together may take."""


async def models(
    session: Session, out: Output, endpoint: str | None, *, refresh: bool = False, json_lines: bool = False
) -> int:
    """Print the models of *endpoint*, or of all endpoints that can be asked, as selectors.

    Raises:
      CliFault: unknown endpoint.
      ProviderError: the endpoint has no list, or does not answer and none is known.
    """
    env = session.env
    if endpoint is None:
        found = await env.refresh_models(ALL_LIMIT)
        if not found:
            say("no endpoint answered; `aiio endpoints` shows what they lack, `aiio doctor ENDPOINT` why")
    else:
        found = {endpoint: await _of_one(session, endpoint, refresh=refresh)}
    rows = [_row(name, model, facts) for name, listed in found.items() for model, facts in listed.items()]
    if json_lines:
        for row in rows:
            await out.line(json.dumps(row).encode() + b"\n")
    else:
        shown = [{"model": row["model"], "context": row.get("context_window") or "-"} for row in rows]
        await out.text(table(shown))
    return DONE


async def _of_one(session: Session, endpoint: str, *, refresh: bool) -> Models:
    env = session.env
    try:
        env.endpoint(endpoint)
    except ValueError as exc:
        raise CliFault(str(exc)) from exc
    if refresh:
        await env.model_lists.fetch(endpoint)
    found = await env.models(endpoint)
    if not found:
        await env.model_lists.fetch(endpoint)  # says why
    return found


def _row(endpoint: str, model: str, facts: Any) -> dict[str, Any]:
    return {**facts, "model": f"{endpoint}/{model}"}
