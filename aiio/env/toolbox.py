"""What one model may call: tools of the Env's catalog, and functions of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from .tools import Tool, ToolCatalog

if TYPE_CHECKING:
    from .env import Env

ToolRef: TypeAlias = "str | Callable[..., Any]"
"""A name in the Env's catalog (`"*"`: all of it), or a function, described by its signature and docstring."""


class Toolbox:
    """What one model may call: an agent's, or a step's.

    Args:
      env: its catalog is looked at whenever it is needed, so that tools may come and go; None: there are
        only functions of its own.
      tools: None is all of the Env's tools, `[]` none.

    Raises:
      TypeError: not a sequence of names and functions, or a function whose schema can't be derived.
      ValueError: a name that the Env does not know, or two tools of one name.
    """

    def __init__(self, env: Env | None, tools: Sequence[ToolRef] | None = None) -> None:
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
            if env is None or env.tool(name) is None:
                known = ", ".join(schema["name"] for schema in self._shared(None)) or "none"
                raise ValueError(f"unknown tool {name!r}; the Env has: {known}")
            if self._own.get(name) is not None:
                raise ValueError(f"there are two tools named {name!r}")
        self._names = names

    def schemas(self) -> list[dict[str, Any]]:
        """Return the descriptions to publish now. An own function hides a tool of the Env with its name."""
        shared = [schema for schema in self._shared(self._names) if self._own.get(schema["name"]) is None]
        return shared + self._own.schemas()

    def find(self, name: object) -> Tool | None:
        """Return the tool a model means by *name*; None when it may not call any of that name.

        The entry's `eligible` is as of now: its availability is asked anew.
        """
        if not isinstance(name, str):
            return None
        own = self._own.get(name)
        if own is not None or self._env is None:
            return own
        tool = self._env.tool(name)
        if tool is None or tool.secret or (self._names is not None and name not in self._names):
            return None
        if tool.available is not None:
            self._env.refresh_tool_availability()
        return tool

    def _shared(self, names: list[str] | None) -> list[dict[str, Any]]:
        return [] if self._env is None else self._env.tool_schemas(names)
