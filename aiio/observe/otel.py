"""OpenTelemetry: spans and metrics of writes, agents and tools, made of what an Env tells its listeners.

The rooms that do the work know nothing of this; the extra `otel` is needed by `instrument` alone. A span is
the current one for what runs inside it, so a write lies under its agent's span, and what a tool does under
the tool's.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from aiio.context.events import Done, Terminal
from aiio.env.listeners import EnvEvent

from . import otel_names as names
from .otel_content import messages_json, value_json
from .otel_ends import End, end_of_agent, end_of_tool, end_of_write

if TYPE_CHECKING:
    from aiio.env.env import Env

    from .otel_spans import OpenSpan, Recorder

MISSING_EXTRA = "OpenTelemetry needs its extra: pip install 'aiio-runtime[otel]'"


def instrument(
    env: Env, *, tracer_provider: Any = None, meter_provider: Any = None, content: bool = False
) -> Instrumentation:
    """Report what happens on *env* as spans and metrics, from now on.

        with observe.instrument(env):
            ...

    Args:
      env: whose writes, agents and tools.
      tracer_provider, meter_provider: OpenTelemetry's; None: the global ones.
      content: whether prompts, answers, arguments and results of tools go into spans, and what providers say
        about errors, which may quote them. Credentials are masked either way.

    Raises:
      ImportError: the extra `otel` is not installed.
    """
    try:
        from .otel_spans import Recorder
    except ImportError as exc:
        raise ImportError(MISSING_EXTRA) from exc
    return Instrumentation(env, Recorder(tracer_provider, meter_provider), content=content)


class Instrumentation:
    """Listens to an Env until it is closed. Made by `instrument`; a context manager that closes."""

    def __init__(self, env: Env, recorder: Recorder, *, content: bool) -> None:
        self._env = env
        self._recorder = recorder
        self._content = content
        self._open: dict[Any, OpenSpan] = {}
        self._closing = False
        self._handlers = {
            "io_start": self._write_begins,
            "io_done": self._write_ends,
            "agent_start": self._agent_begins,
            "agent_done": self._agent_ends,
            "tool_start": self._tool_begins,
            "tool_done": self._tool_ends,
        }
        self._handle = env.on_event(self._hear)

    def __enter__(self) -> Instrumentation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Begin no more spans; those that are open end when what they are about ends. Idempotent."""
        self._closing = True
        self._leave_if_idle()

    def _hear(self, event: EnvEvent) -> None:
        handler = self._handlers.get(event.name)
        if handler is not None:
            handler(event.data)

    def _leave_if_idle(self) -> None:
        if self._closing and not self._open:
            self._env.off_event(self._handle)

    def _begin(self, key: Any, operation: str, subject: str, attributes: Mapping[str, Any]) -> None:
        if not self._closing:
            self._open[key] = self._recorder.begin(operation, subject, attributes)

    def _end(self, key: Any, end: End) -> None:
        found = self._open.pop(key, None)
        if found is not None:  # None: it began before `instrument`, or after `close`
            self._recorder.end(found, end)
        self._leave_if_idle()

    # -- writes -----------------------------------------------------------------------------------

    def _write_begins(self, data: Mapping[str, Any]) -> None:
        io = data["io"]
        settings = io.settings
        attributes = {
            **self._model(io.endpoint_name, io.current_model),
            **_server(data["url"] or self._env.endpoint(io.endpoint_name).url),
            names.REQUEST_STREAM: True,
        }
        for setting, name in names.REQUEST_SETTINGS.items():
            if isinstance(value := settings.get(setting), int | float):
                attributes[name] = value
        if self._content:
            attributes[names.INPUT_MESSAGES] = messages_json(data["context"], self._env.scrub)
        self._begin(io, names.CHAT, io.current_model, attributes)

    def _write_ends(self, data: Mapping[str, Any]) -> None:
        terminal: Terminal = data["terminal"]
        end = end_of_write(terminal, data["trace"], words=self._content)
        if self._content and terminal.message is not None:
            finish = terminal.finish.value if isinstance(terminal, Done) else "error"
            said = messages_json([terminal.message], self._env.scrub, finish)
            end.attributes[names.OUTPUT_MESSAGES] = said
        self._end(data["io"], end)

    # -- agents and tools -------------------------------------------------------------------------

    def _agent_begins(self, data: Mapping[str, Any]) -> None:
        agent = data["agent"]
        endpoint, _, model = agent.model.partition("/")
        attributes = {names.AGENT_NAME: agent.name, **self._model(endpoint, model)}
        self._begin(agent, names.INVOKE_AGENT, agent.name, attributes)

    def _agent_ends(self, data: Mapping[str, Any]) -> None:
        self._end(data["agent"], end_of_agent(data["result"], data["outcome"], words=self._content))

    def _tool_begins(self, data: Mapping[str, Any]) -> None:
        call = data["call"]
        name = str(call.get("name") or "")
        attributes = {
            names.TOOL_NAME: name,
            names.TOOL_CALL_ID: call["call_id"],
            names.TOOL_TYPE: "function",
            names.AGENT_NAME: data["agent"].name,
        }
        if self._content:
            attributes[names.TOOL_ARGUMENTS] = value_json(call.get("arguments"), self._env.scrub)
        self._begin((data["agent"], call["call_id"]), names.EXECUTE_TOOL, name, attributes)

    def _tool_ends(self, data: Mapping[str, Any]) -> None:
        end = end_of_tool(data["outcome"])
        if self._content and data["result"] is not None:
            said = value_json(data["result"]["content"], self._env.scrub)
            end.attributes[names.TOOL_RESULT] = said
        self._end((data["agent"], data["call"]["call_id"]), end)

    def _model(self, endpoint: str, model: str) -> dict[str, Any]:
        return {names.PROVIDER_NAME: names.PROVIDERS.get(endpoint, endpoint), names.REQUEST_MODEL: model}


def _server(url: str | None) -> dict[str, Any]:
    """Return the server's address; the embedded model's is known too late to be of use."""
    parts = urlsplit(url or "")
    if not parts.hostname:
        return {}
    port = parts.port or {"http": 80, "https": 443, "ws": 80, "wss": 443}.get(parts.scheme)
    return {names.SERVER_ADDRESS: parts.hostname, **({} if port is None else {names.SERVER_PORT: port})}
