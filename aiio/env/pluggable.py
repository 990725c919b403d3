"""What is plugged into an Env: dialects, transports, tools, and listeners to its events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from aiio.context.log import get_logger

from .listeners import Listener, ListenerHandle, Listeners
from .registry import Registry, from_entry_points
from .scrub import Scrubber
from .tools import Tool, ToolCatalog


class Pluggable:
    """The part of an `Env` that others plug into."""

    def __init__(self) -> None:
        self.scrubber = Scrubber()
        self.tools = ToolCatalog(partial(from_entry_points, "aiio.tools"))
        self._registry = Registry(self)
        self._listeners = Listeners(partial(self._report, "env.listener_failed"))

    def register_provider(self, cls: Any) -> None:
        """Add a dialect under its own name (`define_provider`). TypeError: it breaks the contract."""
        self._registry.register_provider(cls)

    def provider(self, key: str) -> Any:
        """Return the class of dialect *key*. ProviderError: there is none."""
        return self._registry.provider(key)

    def register_transport(self, scheme: str, transport: Any) -> None:
        """Add a transport, or its class, for a URL scheme; the Env closes it. TypeError: it has no `open`."""
        self._registry.register_transport(scheme, transport)

    def transport(self, url: str) -> Any:
        """Return the transport for *url*, made when first needed. ProviderError: none serves its scheme."""
        return self._registry.transport(url)

    def register_tool(
        self,
        fn: Callable[..., Any],
        schema: Mapping[str, Any] | None = None,
        available: Callable[[Any], object] | None = None,
        *,
        name: str | None = None,
        **metadata: Any,
    ) -> Tool:
        """Add a tool; see `ToolCatalog.register`. With *available*, it is offered after a refresh said so."""
        return self.tools.register(fn, schema=schema, name=name, available=available, **metadata)

    def tool(self, name: str) -> Tool | None:
        """Return the entry of tool *name*, or None."""
        return self.tools.get(name)

    def tool_schemas(self, names: object = None) -> list[dict[str, Any]]:
        """Return the descriptions to publish; *names*: None or `["*"]` all, `[]` none, a list those of it."""
        return self.tools.schemas(names)

    def refresh_tool_availability(self) -> None:
        """Ask the tools that have `available` anew; before every request."""
        self.tools.refresh_availability(self)

    # --- events ---

    def on_event(self, fn: Listener) -> ListenerHandle:
        """Call *fn* with every `EnvEvent`; return what `off_event` takes. TypeError: not a plain function."""
        return self._listeners.add(fn)

    def off_event(self, handle: object) -> bool:
        """Stop calling a listener. False: it was not there."""
        return self._listeners.remove(handle)

    def emit(self, name: str, **data: Any) -> None:
        """Tell the listeners. What one raises is logged, and harms nobody."""
        self._listeners.emit(name, data)

    def scrub(self, text: str) -> str:
        """Return *text* with every credential masked."""
        return self.scrubber.text(text)

    def _report(self, event: str, what: str, error: Exception) -> None:
        get_logger().error(event, what=what, error=self.scrub(f"{type(error).__name__}: {error}"))
