"""Calling what a model wants called: the function of a tool, and the message that its result becomes."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import trio

from aiio.context.text import clean_text, compact_json
from aiio.context.types import ContentType, Message, text_content, tool_result_message
from aiio.context.validate import has_content

from .groups import first_leaf

NO_OUTPUT = "(no output)"

THREADS = 40
"""Plain tools that run at a time in one trio run, abandoned ones included."""

_RESULT_BLOCKS = (ContentType.TEXT, ContentType.IMAGE, ContentType.BINARY)
_threads: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("aiio.tools.threads")


def misfit(fn: Callable[..., Any], arguments: Mapping[str, Any]) -> str | None:
    """Return why *fn* can't be called with *arguments*; None when it can, or nobody knows."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # some builtins have none
        return None
    try:
        signature.bind(**arguments)
    except TypeError as exc:
        return str(exc)
    return None


async def call_function(fn: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Return what *fn* returns: awaited when it is async, else from a thread. Raises what it raises.

    Cancellation: an async function is cancelled; a plain one's thread is abandoned and may run on.
    """
    called = fn if inspect.isroutine(fn) or isinstance(fn, partial) else type(fn).__call__
    if inspect.iscoroutinefunction(called):
        return await fn(**arguments)
    # In a tuple, because trio refuses a bare coroutine from a thread; a wrapped async function gives one.
    (value,) = await trio.to_thread.run_sync(
        lambda: (fn(**arguments),), abandon_on_cancel=True, limiter=_thread_limiter()
    )
    return await _awaited(value) if inspect.isawaitable(value) else value


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


def _thread_limiter() -> trio.CapacityLimiter:
    """Return the limiter of this run. Not trio's own: stuck tools must not keep name resolution waiting."""
    try:
        return _threads.get()
    except LookupError:
        limiter = trio.CapacityLimiter(THREADS)
        _threads.set(limiter)
        return limiter


def result_message(call_id: str, name: str, value: Any) -> Message:
    """Return *value* as a result message: text and blocks as they are, other data as JSON."""
    if value is None:
        content: Any = ""
    elif isinstance(value, str) or _are_blocks(value):
        content = value
    else:
        try:
            content = compact_json(value)
        except (TypeError, ValueError):
            content = str(value)
    message = tool_result_message(call_id, name, content)
    if not has_content(message):
        message["content"] = [text_content(NO_OUTPUT)]
    return message


def failure_message(call_id: str, name: str, exc: BaseException, scrub: Callable[[str], str]) -> Message:
    """Return an exception as a result message: its class and text, without credentials, not its traceback."""
    exc = first_leaf(exc)
    text = clean_text(scrub(f"{type(exc).__name__}: {exc}".rstrip(": ")))
    return tool_result_message(call_id, name, f"the tool {name!r} failed: {text}", error=True)


def _are_blocks(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(block, dict) and block.get("type") in _RESULT_BLOCKS for block in value)
    )
