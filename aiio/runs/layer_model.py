"""A model call of a layer's: one request beside the run's own, for a summary or a judgement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiio.context.types import Message, system_message, user_message
from aiio.env.toolbox import Toolbox

from .adapters import messages_to_items
from .errors import RunConfigError
from .items import extract_assistant_text
from .model_request import IDLE, ModelRequest, make_io

if TYPE_CHECKING:
    from .context import RunContext


async def ask(context: RunContext, text: str, *, instructions: str = "", model: str | None = None) -> str:
    """Ask a model one thing, without history and tools, and return the text of its answer.

    It is a paid call of *context*: what it costs counts for it and all above. Nothing of it joins the log.

    Args:
      context: of the layer that asks.
      text: what the user says.
      instructions: the system message; "": none.
      model: a selector; None: the harness's.

    Raises:
      RunConfigError: MISSING_MODEL, NO_LLM_PROVIDER.
      RunError: as `ModelRequest.send`.

    Cancellation: what it may have cost is held.
    """
    env, model = context.harness.env, model or context.harness.model
    if env is None:
        raise RunConfigError("NO_LLM_PROVIDER", "a layer has no env to ask", hint="give Harness(env=...)")
    if not model:
        raise RunConfigError("MISSING_MODEL", "a layer has no model to ask", hint="give Harness(model=...)")
    messages: list[Message] = [system_message(instructions)] if instructions else []
    io = make_io(env, model, Toolbox(None, []), {"stuck_timeout": IDLE})
    request = ModelRequest(context, io, round=0, max_output=None, keep_partial=False)
    answer = await request.send([*messages, user_message(text)])
    return "" if answer.message is None else extract_assistant_text(messages_to_items([answer.message]))
