"""aiio: structured concurrency for LLM provider IO, on trio.

A complete context goes in, normalized events come out, and exactly one terminal event ends every request,
with the partial message kept when it was stopped. Start with `open_env` and `IO`.

What one write needs is imported with the package; agents, bridges and the builder when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aiio.context import (
    FALLBACK_CONTEXT_WINDOWS,
    MIME_BY_EXTENSION,
    TOKENS_PER_WORD,
    ContentType,
    Context,
    Done,
    Error,
    ErrorKind,
    EventType,
    FinishReason,
    MessageType,
    SessionLockedError,
    Start,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    append_message,
    assembly_callbacks,
    assistant_message,
    binary_content,
    callback_name,
    content_indexer,
    create_assembler,
    detect_mime,
    dispatch,
    error_text,
    estimate_context_tokens,
    estimate_tokens,
    estimate_usage,
    fallback_context_window,
    file_message,
    finalize_usage,
    has_content,
    has_error,
    is_context,
    is_message,
    is_record,
    is_response_event,
    mimetype_of,
    normalize_callbacks,
    parse_context,
    rebuild_message,
    system_message,
    text_content,
    tool_result_message,
    usage_add,
    usage_details,
    usage_headers,
    usage_normalize,
    user_message,
    validate_context,
    validate_message,
    validate_response_event,
    word_count,
)
from aiio.env import (
    Duration,
    Env,
    HttpStatusError,
    KnownEndpoint,
    ProviderError,
    classify_error,
    depletion_error,
    open_env,
)
from aiio.io import (
    IO,
    EventStream,
    IOState,
    body_bytes,
    connect_budget,
    resolve_timeout,
    sanitize_request,
)
from aiio.providers import (
    Provider,
    define_provider,
)

if TYPE_CHECKING:
    from aiio.agents import (
        Agent,
        AgentResult,
        AgentState,
        Budget,
        ContextGuard,
        Fleet,
        FleetResult,
        FleetStats,
        Stopped,
        history_of,
        open_fleet,
        repair_linkage,
    )
    from aiio.bridges import Interrupted, from_asyncio, run_sync
    from aiio.builder import (
        BuiltContext,
        CharUnit,
        ContextBuilder,
        ContextBuildError,
        ContextDefinitionError,
        ContextErrorCode,
        ContextFragment,
        ContextPlan,
        FragmentDefinition,
        FragmentUsage,
        Lifetime,
        Trust,
        define_context_fragments,
    )

__version__ = "0.1.0"

__all__ = [
    "FALLBACK_CONTEXT_WINDOWS",
    "IO",
    "MIME_BY_EXTENSION",
    "TOKENS_PER_WORD",
    "Agent",
    "AgentResult",
    "AgentState",
    "Budget",
    "BuiltContext",
    "CharUnit",
    "ContentType",
    "Context",
    "ContextBuildError",
    "ContextBuilder",
    "ContextDefinitionError",
    "ContextErrorCode",
    "ContextFragment",
    "ContextGuard",
    "ContextPlan",
    "Done",
    "Duration",
    "Env",
    "Error",
    "ErrorKind",
    "EventStream",
    "EventType",
    "FinishReason",
    "Fleet",
    "FleetResult",
    "FleetStats",
    "FragmentDefinition",
    "FragmentUsage",
    "HttpStatusError",
    "IOState",
    "Interrupted",
    "KnownEndpoint",
    "Lifetime",
    "MessageType",
    "Provider",
    "ProviderError",
    "SessionLockedError",
    "Start",
    "Stopped",
    "TextDelta",
    "TextEnd",
    "TextStart",
    "ThinkingDelta",
    "ThinkingEnd",
    "ThinkingStart",
    "ToolCallDelta",
    "ToolCallEnd",
    "ToolCallStart",
    "Trust",
    "append_message",
    "assembly_callbacks",
    "assistant_message",
    "binary_content",
    "body_bytes",
    "callback_name",
    "classify_error",
    "connect_budget",
    "content_indexer",
    "create_assembler",
    "define_context_fragments",
    "define_provider",
    "depletion_error",
    "detect_mime",
    "dispatch",
    "error_text",
    "estimate_context_tokens",
    "estimate_tokens",
    "estimate_usage",
    "fallback_context_window",
    "file_message",
    "finalize_usage",
    "from_asyncio",
    "has_content",
    "has_error",
    "history_of",
    "is_context",
    "is_message",
    "is_record",
    "is_response_event",
    "mimetype_of",
    "normalize_callbacks",
    "open_env",
    "open_fleet",
    "parse_context",
    "rebuild_message",
    "repair_linkage",
    "resolve_timeout",
    "run_sync",
    "sanitize_request",
    "system_message",
    "text_content",
    "tool_result_message",
    "usage_add",
    "usage_details",
    "usage_headers",
    "usage_normalize",
    "user_message",
    "validate_context",
    "validate_message",
    "validate_response_event",
    "word_count",
]

_LATER = {
    "agents": (
        "Agent AgentResult AgentState Budget ContextGuard Fleet FleetResult FleetStats Stopped "
        "history_of open_fleet repair_linkage"
    ),
    "bridges": "Interrupted from_asyncio run_sync",
    "builder": (
        "BuiltContext CharUnit ContextBuildError ContextBuilder ContextDefinitionError ContextErrorCode "
        "ContextFragment ContextPlan FragmentDefinition FragmentUsage Lifetime Trust define_context_fragments"
    ),
}
_HOME = {name: room for room, names in _LATER.items() for name in names.split()}
_ROOMS = ("agents", "bridges", "builder", "observe", "runs", "scale", "testing", "transports")


def __getattr__(name: str) -> Any:
    """Import the room that *name* comes from, or that is called *name*, when it is first asked for."""
    if name in _HOME:
        value = getattr(import_module(f"aiio.{_HOME[name]}"), name)
    elif name in _ROOMS:
        value = import_module(f"aiio.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
