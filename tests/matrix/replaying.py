"""Whether what a stopped request has left can be sent again, to every dialect."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from aiio.providers.base import dialect_class
from tests.handoff.contexts import after
from tests.providers.dialects import DIALECTS
from tests.providers.fakes import FakeIO

SOCKET_DIALECTS = {"openai_responses_ws": "gpt-5.2", "realtime": "gpt-realtime", "gemini_live": "gemini-live"}
"""Dialects that only a WebSocket carries, each with a model; their judge is that a request can be made."""


def refusals(content: list[Any]) -> list[str]:
    """Return the dialects that do not take a conversation that goes on after *content*, and why."""
    context = after(copy.deepcopy(content))
    before = copy.deepcopy(context)
    found: list[str] = []
    for dialect in DIALECTS.values():
        try:
            dialect.body(context)
        except Exception as exc:  # noqa: BLE001  # whatever a judge or a provider raises, it is a refusal
            found.append(f"does not replay to {dialect.name}: {exc!r:.200}")
    for name, model in SOCKET_DIALECTS.items():
        io = FakeIO(model=model)
        try:
            _, body = dialect_class(name)("http://x", io).request(context, io)
            msgspec.json.encode(body)
        except Exception as exc:  # noqa: BLE001
            found.append(f"does not replay to {name}: {exc!r:.200}")
    if context != before:
        found.append("a replay changed the message")
    return found
