"""The tools of a step: which there are, and making one call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import trio

from aiio.context.text import compact_json
from aiio.context.types import Block, Message, tool_result_message
from aiio.env.groups import first_leaf
from aiio.env.tools import Tool, ToolCatalog

from .context import RunContext
from .errors import RunError, RunErrorKind, error_kind
from .step import check_id

if TYPE_CHECKING:
    from aiio.env.env import Env

RunTool: TypeAlias = "str | Callable[..., Any]"
"""A name in the env's catalog, or a function, described by its signature and docstring."""


class RunTools:
    """What the model of a step may call.

    Args:
      env: its catalog; None: there are only own functions.
      tools: None: all of the env's; `[]`: none.

    Raises:
      TypeError: a function whose schema can't be derived.
      ValueError: a name that the env does not know, or two tools of one name.
    """

    def __init__(self, env: Env | None, tools: Sequence[RunTool] | None) -> None:
        self._env = env
        self._own = ToolCatalog()
        self._names: list[str] | None = None
        if tools is None:
            return
        self._names = [tool for tool in tools if isinstance(tool, str)]
        for tool in tools:
            if not isinstance(tool, str):
                self._own.register(tool)
        for name in self._names:
            if env is None or env.tool(name) is None:
                raise ValueError(f"unknown tool {name!r}")
            if self._own.get(name) is not None:
                raise ValueError(f"there are two tools named {name!r}")

    def schemas(self) -> list[dict[str, Any]]:
        """Return the descriptions to publish now."""
        shared = [] if self._env is None else self._env.tool_schemas(self._names)
        return [schema for schema in shared if self._own.get(schema["name"]) is None] + self._own.schemas()

    def find(self, name: object) -> Tool | None:
        """Return the tool that a model means by *name*; None: it may not call any of that name."""
        if not isinstance(name, str):
            return None
        own = self._own.get(name)
        if own is not None or self._env is None:
            return own
        tool = self._env.tool(name)
        hidden = tool is None or tool.secret or not tool.eligible
        return None if hidden or (self._names is not None and name not in self._names) else tool


async def answer_call(call: Block, tools: RunTools, context: RunContext) -> Message:
    """Make one call of a model and return its result message.

    What goes wrong (an unknown tool, arguments that do not fit, an exception) is an error result that tells
    the model. Raises only `RunError` (cancelled), and what is no Exception.

    Cancellation: an async tool is cancelled, a plain one's thread is abandoned.
    """
    call_id, name = str(call.get("call_id") or ""), str(call.get("name") or "")
    tool = tools.find(call.get("name"))
    arguments = call.get("arguments")
    refused: str | None = None
    if tool is None:
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
        leaf = first_leaf(exc)
        text = f"the tool {name!r} failed: {type(leaf).__name__}: {leaf}".rstrip(": ")
        scrub = context.harness.env.scrub if context.harness.env is not None else str
        return tool_result_message(call_id, name, scrub(text), error=True)
    return tool_result_message(call_id, name, _as_text(value))


async def run_tool(tool: Tool, arguments: Mapping[str, Any], context: RunContext) -> Any:
    """Return what *tool* returns: awaited when it is async, else in a thread.

    A parameter named `context` that its schema does not publish gets the run's context.

    Raises:
      TypeError: the arguments do not fit.
      Exception: what the tool raises.
    """
    given = dict(arguments)
    try:
        signature: inspect.Signature | None = inspect.signature(tool.fn)
    except (TypeError, ValueError):  # some builtins have none
        signature = None
    if signature is not None:
        if "context" in signature.parameters and "context" not in tool.schema["input_schema"].get(
            "properties", {}
        ):
            given["context"] = context
        signature.bind(**given)
    if inspect.iscoroutinefunction(tool.fn):
        return await tool.fn(**given)
    # In a tuple, because trio refuses a bare coroutine from a thread; a wrapped async function gives one.
    (value,) = await trio.to_thread.run_sync(lambda: (tool.fn(**given),), abandon_on_cancel=True)
    return await value if inspect.isawaitable(value) else value


@dataclass(frozen=True, slots=True)
class InvokeTool:
    """See `invoke_tool`."""

    id: str
    tool: RunTool
    arguments: Mapping[str, Any] | None
    kind: str = "invoke_tool"

    async def run(self, context: RunContext, input: Any) -> Any:
        """Make the call."""
        tools = RunTools(context.harness.env, [self.tool])
        name = self.tool if isinstance(self.tool, str) else str(getattr(self.tool, "__name__", ""))
        tool = tools.find(name)
        arguments = self.arguments if self.arguments is not None else input
        try:
            if tool is None:
                raise ValueError(f"the tool {name!r} is not available now")
            if not isinstance(arguments, Mapping):
                raise TypeError(f"arguments are a mapping, not {arguments!r}")
            return await run_tool(tool, arguments, context)
        except Exception as exc:
            if error_kind(exc) == RunErrorKind.CANCELLED:
                raise
            text = f"step {self.id!r}: {type(exc).__name__}: {exc}"
            raise RunError(RunErrorKind.STEP_FAILED, text, step_id=self.id, retries_exhausted=False) from exc


def invoke_tool(id: str, tool: RunTool, arguments: Mapping[str, Any] | None = None) -> InvokeTool:
    """Return a step that calls *tool* with *arguments*, None: with the step's input.

    The step raises `RunError` (step_failed) with what was wrong as its cause.
    """
    return InvokeTool(check_id(id), tool, arguments)


def _as_text(value: Any) -> Any:
    """Return a tool's value as the text of its result."""
    if value is None:
        return "(no output)"
    if isinstance(value, str):
        return value or "(no output)"
    try:
        return compact_json(value)
    except (TypeError, ValueError):
        return str(value)
