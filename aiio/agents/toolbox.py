"""The tools of one agent: those of the Env it may use, and functions of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from aiio.env.tools import Tool, ToolCatalog

if TYPE_CHECKING:
    from aiio.env.env import Env

AgentTool: TypeAlias = "str | Callable[..., Any]"
"""A name in the Env's catalog (`"*"`: all of it), or a function, described by its signature and docstring."""


class Toolbox:
    """What one agent's model may call.

    Args:
      env: its catalog is looked at whenever it is needed, so that tools may come and go.
      tools: None is all of the Env's tools, `[]` none.

    Raises:
      TypeError: not a sequence of names and functions, or a function whose schema can't be derived.
      ValueError: a name that the Env does not know, or two tools of one name.
    """

    def __init__(self, env: Env, tools: Sequence[AgentTool] | None = None) -> None:
        self._env = env
        self._own = ToolCatalog()
        self._names: list[str] | None = None
        """Names in the Env's catalog; None: all."""
        if tools is None:
            return
        if not isinstance(tools, list | tuple):
            raise TypeError(f"tools are a list of names and functions, not {tools!r}")
        names = [entry for entry in tools if isinstance(entry, str)]
        for entry in tools:
            if not isinstance(entry, str):
                self._own.register(entry)
        if "*" in names:
            return
        for name in names:
            if env.tool(name) is None:
                known = ", ".join(schema["name"] for schema in env.tool_schemas()) or "none"
                raise ValueError(f"unknown tool {name!r}; the Env has: {known}")
            if self._own.get(name) is not None:
                raise ValueError(f"there are two tools named {name!r}")
        self._names = names

    def schemas(self) -> list[dict[str, Any]]:
        """Return the descriptions to publish now. An own function hides a tool of the Env with its name."""
        shared = [
            schema for schema in self._env.tool_schemas(self._names) if self._own.get(schema["name"]) is None
        ]
        return shared + self._own.schemas()

    def find(self, name: str) -> Tool | None:
        """Return the tool a model means by *name*; None when it may not call any of that name.

        The entry's `eligible` is as of now: its availability is asked anew.
        """
        own = self._own.get(name)
        if own is not None:
            return own
        tool = self._env.tool(name)
        if tool is None or tool.secret or (self._names is not None and name not in self._names):
            return None
        if tool.available is not None:
            self._env.refresh_tool_availability()
        return tool
