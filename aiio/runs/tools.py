"""The tools of a step: making one call."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import trio

from aiio.context.types import Block, ContentType, Message, tool_result_message
from aiio.env.tool_calls import call_function, failure_message, misfit, result_message
from aiio.env.toolbox import Toolbox, ToolRef
from aiio.env.tools import Tool

from .context import RunContext
from .errors import RunError, RunErrorKind, error_kind
from .layers import Ruling
from .step import check_id
from .step_tools import StepTools


async def answer_call(call: Block, tools: Toolbox, context: RunContext) -> Message:
    """Make one call of a model and return its result message.

    What goes wrong (an unknown tool, arguments that do not fit, an exception) is an error result that tells
    the model. Raises only `RunError` (cancelled), and what is no Exception.

    Cancellation: an async tool is cancelled, a plain one's thread is abandoned.
    """
    call_id, name = str(call.get("call_id") or ""), str(call.get("name") or "")
    tool = tools.find(call.get("name"))
    arguments = call.get("arguments")
    refused: str | None = None
    if tool is None or not tool.eligible:
        offered = ", ".join(schema["name"] for schema in tools.schemas()) or "none"
        refused = f"there is no tool {name!r}; tools you may call: {offered}"
    elif call.get("partial") or not isinstance(arguments, dict):
        refused = (
            f"the call of {name!r} was not made: its arguments are no JSON object; call it again with one"
        )
    if tool is None or refused is not None:
        await trio.lowlevel.checkpoint()
        return tool_result_message(call_id, name, refused, error=True)
    assert isinstance(arguments, dict)  # else it was refused
    try:
        value = await run_tool(tool, arguments, context)
    except Exception as exc:
        if error_kind(exc) == RunErrorKind.CANCELLED:
            raise
        env = context.harness.env
        return failure_message(call_id, name, exc, str if env is None else env.scrub)
    return result_message(call_id, name, value)


async def run_tool(tool: Tool, arguments: Mapping[str, Any], context: RunContext) -> Any:
    """Return what *tool* returns: awaited when it is async, else from a thread.

    A parameter named `context` that its schema does not publish gets the run's context.

    Raises:
      TypeError: the arguments do not fit.
      Exception: what the tool raises.
    """
    return await call_function(tool.fn, _fitting(tool, arguments, context))


def _fitting(tool: Tool, arguments: Mapping[str, Any], context: RunContext) -> dict[str, Any]:
    """Return what *tool* is to be called with. TypeError: the arguments do not fit."""
    given = dict(arguments)
    if _wants_context(tool):
        given["context"] = context
    unfit = misfit(tool.fn, given)
    if unfit is not None:
        raise TypeError(unfit)
    return given


def _wants_context(tool: Tool) -> bool:
    try:
        parameters = inspect.signature(tool.fn).parameters
    except (TypeError, ValueError):  # some builtins have none
        return False
    return "context" in parameters and "context" not in tool.schema["input_schema"].get("properties", {})


@dataclass(frozen=True, slots=True)
class InvokeTool:
    """See `invoke_tool`."""

    id: str
    tool: ToolRef
    arguments: Mapping[str, Any] | None
    kind: str = "invoke_tool"

    async def run(self, context: RunContext, input: Any) -> Any:
        """Make the call, if it fits and the layers allow it."""
        tools = StepTools(context.harness.env, [self.tool], context.layers)
        name = self.tool if isinstance(self.tool, str) else str(getattr(self.tool, "__name__", ""))
        tool = tools.find(name)
        arguments = self.arguments if self.arguments is not None else input
        try:
            if tool is None or not tool.eligible:
                raise ValueError(f"the tool {name!r} is not available now")
            if not isinstance(arguments, Mapping):
                raise TypeError(f"arguments are a mapping, not {arguments!r}")
            given = _fitting(tool, arguments, context)
            await self._gate(context, name, arguments)
            return await call_function(tool.fn, given)
        except Exception as exc:
            if error_kind(exc) in (RunErrorKind.CANCELLED, RunErrorKind.STEERING_DENIED):
                raise
            text = f"step {self.id!r}: {type(exc).__name__}: {exc}"
            raise RunError(RunErrorKind.STEP_FAILED, text, step_id=self.id, retries_exhausted=False) from exc

    async def _gate(self, context: RunContext, name: str, arguments: Mapping[str, Any]) -> None:
        """Ask the layers. RunError: steering_denied."""
        block = {"type": ContentType.TOOL_CALL.value, "call_id": self.id, "name": name}
        verdict = await context.layers.gate({**block, "arguments": dict(arguments)})
        if verdict.ruling is not Ruling.ALLOW:
            raise RunError(
                RunErrorKind.STEERING_DENIED,
                f"step {self.id!r}: a layer denied the call of {name!r}: {verdict.reason}",
                step_id=self.id,
                reason=verdict.reason,
            )


def invoke_tool(id: str, tool: ToolRef, arguments: Mapping[str, Any] | None = None) -> InvokeTool:
    """Return a step that calls *tool* with *arguments*, None: with the step's input.

    Args:
      id: of the step.
      tool: a function, or a name: in the env's catalog, or `layer/fn` of what a layer provides.
      arguments: by name.

    The step raises `RunError`: step_failed, with what was wrong as its cause; steering_denied: a layer does
    not allow the call.
    """
    return InvokeTool(check_id(id), tool, arguments)
