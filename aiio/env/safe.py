"""`env.safe`: the same Env, with no tools but those that are marked as safe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from .tools import Tool, ToolCatalog

if TYPE_CHECKING:
    from .env import Env


class SafeCatalog:
    """A view of *catalog* in which only tools with `safe=True` are; nothing can be added through it."""

    def __init__(self, catalog: ToolCatalog) -> None:
        self._catalog = catalog

    def get(self, name: str) -> Tool | None:
        """Return the entry of *name* if it is safe, or None. ProviderError: it is installed and broken."""
        tool = self._catalog.get(name)
        return tool if tool is not None and tool.safe else None

    def schemas(self, names: object = None, *, include_secret: bool = False) -> list[dict[str, Any]]:
        """As `ToolCatalog.schemas`, of safe tools."""
        found = self._catalog.schemas(names, include_secret=include_secret)
        return [schema for schema in found if self.get(schema["name"]) is not None]

    def refresh_availability(self, env: Any) -> None:
        """As `ToolCatalog.refresh_availability`."""
        self._catalog.refresh_availability(env)

    def register(self, fn: Callable[..., Any], **more: Any) -> NoReturn:
        """Refuse, with a TypeError."""
        raise TypeError("env.safe is a view: register tools at the Env itself")


class SafeEnv:
    """What `env.safe` is. All but the tools is the Env's own; nothing can be set or registered here."""

    tools: SafeCatalog

    def __init__(self, env: Env) -> None:
        object.__setattr__(self, "_env", env)
        object.__setattr__(self, "tools", SafeCatalog(env.tools))

    def __repr__(self) -> str:
        return f"<safe view of {self._env!r}>"

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_env"), name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"env.safe is a view: set {name!r} at the Env itself")

    @property
    def safe(self) -> SafeEnv:
        """Itself."""
        return self

    def register_tool(self, fn: Callable[..., Any], *args: Any, **more: Any) -> NoReturn:
        """Refuse, with a TypeError."""
        self.tools.register(fn)

    def tool(self, name: str) -> Tool | None:
        """Return the entry of tool *name* if it is safe, or None."""
        return self.tools.get(name)

    def tool_schemas(self, names: object = None, *, include_secret: bool = False) -> list[dict[str, Any]]:
        """As `Env.tool_schemas`, of safe tools."""
        return self.tools.schemas(names, include_secret=include_secret)

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """As `Env.call_tool`, cancellation and all. PermissionError: the tool is not marked as safe."""
        if self._env.tool(name) is not None and self.tool(name) is None:
            raise PermissionError(f"tool {name!r} is not safe: it is not marked so, and this is env.safe")
        return await self._env.call_tool(name, arguments)
