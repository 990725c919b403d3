"""The tool catalog: what models may call, as seen by those who publish it."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import ErrorKind, ProviderError
from .tool_schema import derive_schema

Available = Callable[[Any], object]
"""Called with the Env; a tool is offered when exactly True comes back."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_HOOKS = ("available", "on_timeout", "detect")
_FLAGS = ("safe", "trusted", "secret")
_METADATA = frozenset({*_HOOKS, *_FLAGS, "sandbox", "storage", "builtin", "file", "status"})


@dataclass(slots=True, kw_only=True)
class Tool:
    """One tool. `eligible` changes when availability is refreshed, nothing else does."""

    name: str
    fn: Callable[..., Any]
    schema: Mapping[str, Any]
    """`{"description", "input_schema", ...}`, published with the name."""
    available: Available | None = None
    eligible: bool = True
    """Whether it is offered now. With `available` it starts as not offered."""
    safe: bool = False
    trusted: bool = False
    secret: bool = False
    """Left out of the catalog unless secret ones are asked for."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What else the harness keeps about it; never published."""


class ToolCatalog:
    """Tools by name, in order of registration.

    A name that is not registered is looked for once with *find*, when somebody asks for it by name: what is
    merely installed is never offered to a model unasked. What is found is a function; its attribute
    `aiio_tool`, if it has one, holds further arguments of `register` (`schema`, `available`, ...).
    """

    def __init__(self, find: Callable[[str], Any] = lambda name: None) -> None:
        self._tools: dict[str, Tool] = {}
        self._find = find
        self._sought: set[str] = set()

    def register(
        self,
        fn: Callable[..., Any],
        *,
        schema: Mapping[str, Any] | None = None,
        name: str | None = None,
        **metadata: Any,
    ) -> Tool:
        """Add a tool and return its entry.

        Args:
          fn: what runs when a model calls the tool, with the call's arguments by name.
          schema: `{"description", "input_schema", ...}`, or a JSON Schema of an object alone; None: derived
            from the signature and docstring of *fn*.
          name: what models call it; by default the function's name.
          metadata: `available`, `on_timeout`, `detect` (callables), `safe`, `trusted`, `secret` (flags),
            `sandbox`, `storage`, `builtin`, `file`, `status`.

        Raises:
          TypeError: something is not callable, not an object, not known, or no schema could be derived.
          ValueError: a name that is taken, or that providers refuse.
        """
        if not callable(fn):
            raise TypeError(f"a tool is callable, {fn!r} is not")
        key = getattr(fn, "__name__", None) if name is None else name
        if not isinstance(key, str) or not _NAME.fullmatch(key):
            raise ValueError(f"a tool's name is 1 to 64 of a-z, A-Z, 0-9, _ and -, not {key!r}")
        if key in self._tools:
            raise ValueError(f"there is a tool named {key!r} already")
        if unknown := sorted(metadata.keys() - _METADATA):
            raise TypeError(
                f"tool {key!r}: unknown {', '.join(unknown)}; known: {', '.join(sorted(_METADATA))}"
            )
        for hook in _HOOKS:
            check = metadata.get(hook)
            if check is not None and not callable(check):
                raise TypeError(f"tool {key!r}: {hook} must be callable, not {check!r}")
        available = metadata.pop("available", None)
        if inspect.iscoroutinefunction(available):
            raise TypeError(f"tool {key!r}: available must be a plain function, not an async one")
        tool = Tool(
            name=key,
            fn=fn,
            schema=_whole_schema(schema, key) if schema is not None else derive_schema(fn),
            available=available,
            eligible=available is None,
            **{flag: metadata.pop(flag, False) is True for flag in _FLAGS},
            metadata=metadata,
        )
        self._tools[key] = tool
        return tool

    def get(self, name: str) -> Tool | None:
        """Return the entry of *name*, or None. ProviderError: it is installed, and can't be used."""
        if name not in self._tools and name not in self._sought:
            self._sought.add(name)
            self._take_plugin(name)
        return self._tools.get(name)

    def _take_plugin(self, name: str) -> None:
        fn = self._find(name)
        if fn is None:
            return
        try:
            self.register(fn, name=name, **getattr(fn, "aiio_tool", {}))
        except (TypeError, ValueError) as exc:
            text = f"plug-in tool {name!r} can't be used: {exc}"
            raise ProviderError(ErrorKind.PROVIDER, text, code="broken_plugin") from exc

    def refresh_availability(self, env: Any) -> None:
        """Ask every tool that has `available` anew; only True makes it eligible, an exception does not."""
        for tool in self._tools.values():
            if tool.available is not None:
                tool.eligible = _ask(tool.available, env)

    def schemas(self, names: object = None, *, include_secret: bool = False) -> list[dict[str, Any]]:
        """Return `{"name", "description", "input_schema", ...}` of the eligible tools: fresh dicts.

        *names*: None or `["*"]` is all, `[]` none, a list those of it that are known, in its order.
        TypeError: anything else.
        """
        found = [
            tool for tool in self._selected(names) if tool.eligible and (include_secret or not tool.secret)
        ]
        return [{"name": tool.name, **copy.deepcopy(dict(tool.schema))} for tool in found]

    def _selected(self, names: object) -> list[Tool]:
        if names is None or names == ["*"]:
            return list(self._tools.values())
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise TypeError(f"tools are selected by a list of names, None or ['*'], not by {names!r}")
        return [tool for name in dict.fromkeys(names) if (tool := self.get(name)) is not None]


def _ask(available: Available, env: Any) -> bool:
    try:
        return available(env) is True
    except Exception:  # noqa: BLE001  # a tool whose check is broken is not available
        return False


def _whole_schema(schema: object, name: str) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        raise TypeError(f"tool {name!r}: a schema is an object, not {schema!r}")
    whole = {"input_schema": schema} if "input_schema" not in schema and "type" in schema else dict(schema)
    whole.setdefault("description", "")
    whole.setdefault("input_schema", {"type": "object", "properties": {}})
    if not isinstance(whole["input_schema"], Mapping):
        raise TypeError(f"tool {name!r}: input_schema is an object, not {whole['input_schema']!r}")
    return copy.deepcopy(whole)
