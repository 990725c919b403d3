"""`IO`: one provider session. A complete context goes in, events come out, one terminal event ends it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import trio

from aiio.context.callbacks import handlers_by_class
from aiio.context.events import Terminal
from aiio.context.log import get_logger
from aiio.context.types import Message
from aiio.context.validate import has_content, has_replay_data, is_record, validate_context
from aiio.env.durations import Duration
from aiio.env.endpoints import split_selector
from aiio.transports.base import Slot

from .answer import Answer
from .limits import Limits, check_duration, resolve_limit
from .readouts import ContextUsage, PlanUsage
from .request import Request
from .state import Cause, IOState, Step, move
from .stream import EventStream

if TYPE_CHECKING:
    from aiio.env.endpoints import Endpoint
    from aiio.env.env import Env
    from aiio.providers.base import Provider

Callbacks = Mapping[str, Callable[[Any], object] | bool | None]
"""Plain functions by callback name (`on_text_delta`, ...); None or False: a no-op; no key: the default."""


class IO:
    """One endpoint and model, one request at a time; keeps no context.

    Args:
      env: settings, credentials, the ledger.
      model: `"<endpoint>/<model>"`, split at the first slash.
      url: replaces the endpoint's URL.
      timeout: overall limit, from admission to the last byte.
      connect_timeout: to the response head; 1 ms for each byte of the request body is added.
      stuck_timeout: longest wait between two pieces of message data. Keep-alives are not data.
      settings: overrides laid over the endpoint's settings; anything but a mapping is ignored.
      tools: names of tools to publish; None or `["*"]`: all, `[]`: none.
      on_data: gets every event whose callback is missing.
      on_log: gets the text of errors whose callback is missing.

    Limits are a `Duration` (a bare number is milliseconds, `"never"` turns one off). Each falls
    through write option > this > endpoint settings > provider metadata > default.

    Raises:
      TypeError, ValueError: no env, a malformed selector, an unknown endpoint or model, a bad duration.
    """

    def __init__(
        self,
        *,
        env: Env,
        model: str,
        url: str | None = None,
        timeout: Duration | None = None,
        connect_timeout: Duration | None = None,
        stuck_timeout: Duration | None = None,
        settings: Mapping[str, Any] | None = None,
        tools: Sequence[str] | None = None,
        on_data: Callable[[Any], object] | None = None,
        on_log: Callable[[str], object] | None = None,
    ) -> None:
        if env is None:
            raise TypeError("IO needs an env: async with aiio.open_env() as env: ...")
        self.env = env
        self.endpoint_name: str
        self.endpoint_name, self._model = split_selector(model)
        endpoint = env.endpoint(self.endpoint_name)
        self.provider_class: type[Provider] = env.provider(endpoint.provider)
        self._check_model(self._model, endpoint)
        self._url = url
        self._durations = {
            "timeout": check_duration("timeout", timeout),
            "connect_timeout": check_duration("connect_timeout", connect_timeout),
            "stuck_timeout": check_duration("stuck_timeout", stuck_timeout),
        }
        self._own: dict[str, Any] = dict(settings) if isinstance(settings, Mapping) else {}
        self._for_write: dict[str, Any] = {}
        self._tools = tools
        self._on_data, self._on_log = on_data, on_log
        self._state = IOState.IDLE
        self._request: Request | None = None
        self._killed = False
        self._slot = Slot()
        self._write_model: str | None = None
        self._context_usage = ContextUsage()
        self._plan_usage = PlanUsage()
        self.tools()  # a selection of the wrong type is misuse now, not at the first write

    def __repr__(self) -> str:
        return f"<aiio.IO {self.endpoint_name}/{self.current_model} {self._state.value}>"

    def _check_model(self, model: object, endpoint: Endpoint) -> None:
        if not isinstance(model, str) or not model.strip():  # a caller may not use a type checker
            raise ValueError(f"a model is a non-empty string, not {model!r}")
        known = endpoint.models
        if known and (model not in known or (known[model] or {}).get("secret")):
            shown = sorted(name for name, facts in known.items() if not (facts or {}).get("secret"))
            raise ValueError(
                f"endpoint {self.endpoint_name!r} has no model {model!r}; it has: {', '.join(shown)}"
            )

    # -- readouts ---------------------------------------------------------------------------------

    @property
    def state(self) -> IOState:
        """`"idle" | "sending" | "reading" | "closed"`; a queued request is `sending`."""
        return self._state

    @property
    def settings(self) -> dict[str, Any]:
        """The endpoint's live settings with this IO's overrides laid over; a fresh dict each time."""
        read = None if self._request is None else self._request.settings
        return self.env.endpoint_settings(self.endpoint_name, self._overrides) if read is None else dict(read)

    @property
    def _overrides(self) -> dict[str, Any]:
        return {**self._own, **self._for_write}

    @property
    def current_model(self) -> str:
        """The bare model id: the running request's override, else this IO's own."""
        return self._write_model or self._model

    @property
    def token(self) -> str | None:
        """The credential of the request in flight, for its provider; None when there is none."""
        return None if self._request is None else self._request.token

    @property
    def request_scope(self) -> trio.CancelScope | None:
        """The cancel scope of the request in flight, to look at; None when idle. Stop it by `kill`."""
        return None if self._request is None else self._request.scope

    @property
    def context_usage(self) -> dict[str, int]:
        """`{used?, total?}` tokens of the context window, as reported for the current or last request."""
        return self._context_usage.snapshot()

    def set_context_usage(self, *, used: Any = None, total: Any = None) -> None:
        """Report context consumption; anything but a finite number is ignored. For providers.

        A *total* is remembered as the model's window, for `Env.context_window`.
        """
        self._context_usage.report(used, total)
        self.env.windows.report(self.endpoint_name, self.current_model, total)

    @property
    def plan_usage(self) -> dict[str, Any] | None:
        """`{label?, quotas: {name: {total?, remaining?, used?, reset?}}}` as last reported; None: never."""
        return self._plan_usage.snapshot()

    def set_plan_usage(self, *, label: Any = None, quotas: Any = None) -> None:
        """Report rate limits and allowances, merged key by key. For providers."""
        self._plan_usage.report(label, quotas)

    @property
    def kept(self) -> Mapping[str, Any] | None:
        """What a provider remembered with the connection that is kept (setting `ws_keep`); None: none is."""
        return self._slot.memory

    def keep(self, memory: Mapping[str, Any]) -> None:
        """Say that the connection may serve the next request, with *memory* then. For providers."""
        self._slot.keep(memory)

    def repaired(self, what: str, **facts: Any) -> None:
        """Log a change that the provider made to its copy of the context. For providers."""
        get_logger().info("context.repaired", what=what, endpoint=self.endpoint_name, **facts)

    def tools(self) -> list[dict[str, Any]]:
        """Return the tool descriptions that a request would publish now.

        Raises:
          TypeError: the selection given to this IO is neither None nor a list of names.
        """
        return self.env.tool_schemas(self._tools)

    # -- settings ---------------------------------------------------------------------------------

    def set_option(self, key: str, value: Any) -> None:
        """Set an override for later requests of this IO; None clears it. Never stored."""
        if value is None:
            self._own.pop(key, None)
        else:
            self._own[key] = value

    async def auth_set(self, auth: Any, scope: str | None = None) -> None:
        """Store credentials for this IO's endpoint: `env.auth_set(endpoint, auth, scope)`.

        Cancellation: whole or not at all. Always a checkpoint.
        """
        await self.env.auth_set(self.endpoint_name, auth, scope)

    # -- requests ---------------------------------------------------------------------------------

    async def write(
        self,
        context: list[Message],
        callbacks: Callbacks | None = None,
        *,
        model: str | None = None,
        timeout: Duration | None = None,
        connect_timeout: Duration | None = None,
        stuck_timeout: Duration | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Terminal:
        """Run one request over *context* and return its terminal event.

        Args:
          context: messages and records, oldest first. Read, never changed. Records and messages
            without content stay here and are not sent.
          callbacks: plain functions by name (`on_text_delta`, `on_done`, ...), called in the order of the
            events, inside this call. One that must stop the request calls `kill_nowait()`.
          model: a bare model id of the same endpoint, for this request.
          timeout, connect_timeout, stuck_timeout: limits of this request.
          settings: overrides for this request.

        Returns:
          `Done`, or `Error` for whatever the provider, the network or the clock did, or for `kill()`.

        Raises:
          trio.BusyResourceError: a request is already in flight on this IO; it is not disturbed.
          trio.ClosedResourceError: `kill` was called before.
          TypeError, ValueError: an invalid context (with the index), callback, duration or model.
          Exception: what a callback raised, as it is; the terminal callback was called before.

        Cancellation: not atomic. The provider may have received the request, and may bill it. The terminal
        callback gets an `Error` of kind `cancelled` with what had been assembled, then `Cancelled` goes on.
        Always a checkpoint.
        """
        return await self._begin(
            context,
            callbacks,
            model=model,
            durations={
                "timeout": timeout,
                "connect_timeout": connect_timeout,
                "stuck_timeout": stuck_timeout,
            },
            settings=settings,
        ).run()

    def stream(
        self,
        context: list[Message],
        *,
        model: str | None = None,
        timeout: Duration | None = None,
        connect_timeout: Duration | None = None,
        stuck_timeout: Duration | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> EventStream:
        """Run one request, and hand its events to an `async for`.

            async with io.stream(context) as events:
                async for event in events:
                    ...
            events.terminal

        Arguments and errors are those of `write`; misuse is raised on entering. Leaving the block early
        cancels the request and waits until it has settled. Events wait in memory for one read only: a slow
        consumer slows the reading down, and its own time does not count as the provider's silence.
        """

        def begin(on_data: Callable[[Any], object], after_batch: Callable[[], Awaitable[None]]) -> Request:
            return self._begin(
                context,
                None,
                model=model,
                durations={
                    "timeout": timeout,
                    "connect_timeout": connect_timeout,
                    "stuck_timeout": stuck_timeout,
                },
                settings=settings,
                on_data=on_data,
                after_batch=after_batch,
            )

        return EventStream(self.env, begin)

    async def kill(self, reason: str | None = None) -> None:
        """Cancel the request in flight, wait until it has settled, and close this IO for good.

        Its write returns an `Error` of kind `cancelled` with the partial message. Before, during and after
        a request, twice, and from any task: all fine. From a callback use `kill_nowait`.

        Cancellation: the request stays killed; only the wait ends. Always a checkpoint.
        """
        request = self._request
        self.kill_nowait(reason)
        if request is not None:
            await request.wait_settled()
        else:
            await trio.lowlevel.checkpoint()

    def kill_nowait(self, reason: str | None = None) -> None:
        """Do what `kill` does without waiting; for callbacks, signal handlers and other sync code."""
        self._killed = True
        if self._request is None:
            self._move(Step.CLOSE)
        else:
            self._request.stop(Cause.KILL, reason)

    def _begin(
        self,
        context: list[Message],
        callbacks: Callbacks | None,
        *,
        model: str | None,
        durations: Mapping[str, Duration | None],
        settings: Mapping[str, Any] | None,
        on_data: Callable[[Any], object] | None = None,
        after_batch: Callable[[], Awaitable[None]] | None = None,
    ) -> Request:
        """Check the arguments of a write, and reserve this IO for it. Raises what `write` raises."""
        reserved = move(self._state, Step.WRITE)
        validate_context(context)
        explicit = {option: check_duration(option, value) for option, value in durations.items()}
        binding = {"on_data": on_data or self._on_data, "on_log": self._on_log}
        handlers = handlers_by_class(callbacks or {}, binding)
        if model is not None:
            self._check_model(model, self.env.endpoint(self.endpoint_name))
        for_write = dict(settings) if isinstance(settings, Mapping) else {}
        merged = self.env.endpoint_settings(self.endpoint_name, {**self._own, **for_write})
        overall, connect, stuck = (
            resolve_limit(option, (explicit[option], self._durations[option]), merged, self.provider_class)
            for option in ("timeout", "connect_timeout", "stuck_timeout")
        )
        sent = [
            entry
            for entry in context
            if not is_record(entry) and (has_content(entry) or has_replay_data(entry))
        ]
        request = Request(
            self,
            model or self._model,
            Answer(self, sent, handlers),
            Limits(overall=overall, connect=connect, stuck=stuck),
            after_batch,
        )
        self._state, self._request = reserved, request
        self._write_model, self._for_write = model, for_write
        return request

    def _move(self, step: Step) -> None:
        self._state = move(self._state, step)
        if step is Step.CLOSE:
            self._slot.close_nowait()

    def _finished(self, terminal: Terminal) -> None:
        """Take note that the request has its terminal event, and be idle, or closed if killed meanwhile."""
        usage = terminal.usage or {}
        if usage.get("source") == "provider" and "used" not in self._context_usage.snapshot():
            self._context_usage.report(used=usage.get("total_tokens"))
        self._request = None
        self._write_model = None
        self._for_write = {}
        self._move(Step.CLOSE if self._killed else Step.SETTLE)
