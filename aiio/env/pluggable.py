"""What is plugged into an Env: dialects, transports, tools, and listeners to its events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from aiio.context.log import get_logger

from .errors import ErrorKind, ProviderError
from .listeners import Listener, ListenerHandle, Listeners
from .presets import Presets
from .registry import Registry, from_entry_points
from .scrub import Scrubber
from .tool_calls import call_function, misfit
from .tools import Tool, ToolCatalog


class Pluggable:
    """The part of an `Env` that others plug into."""

    def __init__(self) -> None:
        self.scrubber: Scrubber = Scrubber()
        self.tools: ToolCatalog = ToolCatalog(partial(from_entry_points, "aiio.tools"))
        self.presets: Presets = Presets(self._installed_provider)
        self._registry = Registry(self, self.presets.take)
        self._listeners = Listeners(partial(self._report, "env.listener_failed"))

    def register_provider(self, cls: Any) -> None:
        """Add a dialect under its own name (`define_provider`), and the endpoints that it knows.

        TypeError: it breaks the contract; the text names the hook.
        """
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

    def tool_schemas(self, names: object = None, *, include_secret: bool = False) -> list[dict[str, Any]]:
        """Return the descriptions to publish; *names*: None or `["*"]` all, `[]` none, a list those of it."""
        return self.tools.schemas(names, include_secret=include_secret)

    def refresh_tool_availability(self) -> None:
        """Ask the tools that have `available` anew; before every request."""
        self.tools.refresh_availability(self)

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Call tool *name* with *arguments* by name, and return what it returns.

        An async tool is awaited, a plain one runs in a thread. Agents make their calls with limits, and put
        the outcome into a message; this is one bare call.

        Raises:
          ValueError: there is no such tool.
          ProviderError: it is not available now: its `available` was asked anew.
          TypeError: the arguments don't fit.
          Exception: what the tool raises.

        Cancellation: an async tool is cancelled; a plain one's thread is abandoned and may run on.
        """
        tool = self.tool(name)
        if tool is None:
            raise ValueError(f"there is no tool {name!r}")
        if tool.available is not None:
            self.refresh_tool_availability()
        if not tool.eligible:
            raise ProviderError(
                ErrorKind.PROVIDER, f"tool {name!r} is not available now", code="tool_unavailable"
            )
        given = dict(arguments or {})
        if (wrong := misfit(tool.fn, given)) is not None:
            raise TypeError(f"tool {name!r}: {wrong}")
        return await call_function(tool.fn, given)

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

    def _installed_provider(self, name: str) -> Any:
        return self._registry.installed_provider(name)

    def _report(self, event: str, what: str, error: Exception) -> None:
        get_logger().error(event, what=what, error=self.scrub(f"{type(error).__name__}: {error}"))
