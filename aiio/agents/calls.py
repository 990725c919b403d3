"""Making the calls of one answer: every call gets a result, whatever its tool does.

What goes wrong is told to the model, as an error result that says what to do. It is no exception for the
caller: a model that asks for nonsense is the model's trouble, and it can mend it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from aiio.context.log import get_logger
from aiio.context.text import clean_text, compact_json
from aiio.context.types import Block, ContentType, Message, text_content, tool_result_message
from aiio.context.validate import has_content
from aiio.env.groups import first_leaf
from aiio.env.tools import Tool
from aiio.io.limits import as_words

from .toolbox import Toolbox

CANCELLED = "cancelled: the call was stopped before it had a result; it may have been carried out in part"
NO_OUTPUT = "(no output)"

THREADS = 40
"""Sync tools that run at a time in one trio run, abandoned ones included."""

_RESULT_BLOCKS = (ContentType.TEXT, ContentType.IMAGE, ContentType.BINARY)
_threads: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("aiio.agents.threads")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPolicy:
    """How calls are made."""

    timeout: float
    """Seconds one call may take; `math.inf` is no limit."""
    concurrency: int
    """Calls of one answer made at a time."""
    scrub: Callable[[str], str]
    """Masks credentials in the text of exceptions."""
    agent: str
    """Whose calls, for the log."""
    cut: bool = False
    """Whether the answer ended at its length limit."""
    emit: Callable[..., None] = lambda name, **data: None
    """Told `tool_start` {call} and `tool_done` {call, outcome, result}; the result is None when cancelled."""


class Refused(Exception):
    """A call that gets an error result: `outcome` for the log, the text for the model."""

    def __init__(self, outcome: str, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome


async def make_calls(
    calls: Sequence[Block], toolbox: Toolbox, policy: CallPolicy, results: dict[int, Message]
) -> None:
    """Make *calls*, begun in order, some at a time; put the result of each into *results*, by its place.

    Args:
      calls: tool call blocks with unique `call_id`s.
      toolbox: where tools are looked up, each when its turn comes.
      policy: limits.
      results: filled as calls end. After a cancellation those that had not ended are missing.

    Raises nothing that a tool raises, but for what is no Exception (KeyboardInterrupt), as itself.

    Cancellation: async tools are cancelled; a sync tool's thread is abandoned and may run on.
    """
    waiting = iter(enumerate(calls))

    async def work() -> None:
        for place, call in waiting:
            results[place] = await _make_call(call, toolbox, policy)

    try:
        async with trio.open_nursery() as nursery:
            for _ in range(min(policy.concurrency, len(calls))):
                nursery.start_soon(work, name="aiio.tools")
    except BaseExceptionGroup as group:
        leaf = first_leaf(group)
        raise leaf from leaf.__cause__


def note_for_model(calls: Sequence[Block], results: Mapping[int, Message]) -> str | None:
    """Return what the model must be told beside the results; None: the results say it all.

    No dialect can send back a call without a name or without parsed arguments; it leaves the call out, and
    with it the result that says what was wrong.
    """
    lost = [place for place, call in enumerate(calls) if not _can_be_sent(call) and place in results]
    if not lost:
        return None
    return "\n".join(
        ["Tool calls that were not made:"] + [results[place]["content"][0]["text"] for place in lost]
    )


def _can_be_sent(call: Block) -> bool:
    name = call.get("name")
    named = isinstance(name, str) and name.strip() != ""
    return named and not call.get("partial") and not isinstance(call.get("arguments"), str)


async def _make_call(call: Block, toolbox: Toolbox, policy: CallPolicy) -> Message:
    """Make one call and return its result message. Raises only cancellation, and what is no Exception."""
    began = trio.current_time()
    outcome = "cancelled"
    result: Message | None = None
    name, call_id = str(call.get("name") or ""), call["call_id"]
    policy.emit("tool_start", call=call)
    try:
        try:
            tool, arguments = _checked(call, toolbox, cut=policy.cut)
            value = await _run_tool(tool, arguments, policy)
            outcome, result = "done", _result(call_id, name, value)
        except Refused as exc:
            outcome, result = exc.outcome, tool_result_message(call_id, name, str(exc), error=True)
        except Exception as exc:  # noqa: BLE001  # a tool may raise anything, and its model should hear of it
            outcome, result = "raised", _failure(call_id, name, exc, policy)
        except BaseExceptionGroup as group:  # a tool with a nursery, cancelled while it failed
            urgent = first_leaf(group)
            if not isinstance(urgent, Exception):
                raise urgent from None
            outcome, result = "raised", _failure(call_id, name, urgent, policy)
            await trio.lowlevel.checkpoint_if_cancelled()
        return result
    finally:
        get_logger().info(
            "tool.settled",
            agent=policy.agent,
            tool=name,
            call_id=call_id,
            outcome=outcome,
            elapsed_ms=round((trio.current_time() - began) * 1000, 1),
        )
        policy.emit("tool_done", call=call, outcome=outcome, result=result)


def _checked(call: Block, toolbox: Toolbox, *, cut: bool) -> tuple[Tool, dict[str, Any]]:
    """Return what to run. Refused: the call can't be made; the text says what the model should do."""
    name, arguments = call.get("name"), call.get("arguments")
    tool = toolbox.find(name) if isinstance(name, str) else None
    if tool is None:
        offered = ", ".join(schema["name"] for schema in toolbox.schemas()) or "none"
        raise Refused("unknown", f"there is no tool {name!r}; tools you may call: {offered}")
    if not tool.eligible:
        raise Refused("unavailable", f"the tool {name!r} is not available now; go on without it")
    if call.get("partial"):
        why = (
            "its arguments were cut off at the length limit" if cut else "its arguments are no complete JSON"
        )
        advice = "call it again with less in them" if cut else "call it again"
        raise Refused("arguments", f"the call of {name!r} was not made: {why}; {advice}")
    if not isinstance(arguments, dict):
        raise Refused(
            "arguments",
            f"the call of {name!r} was not made: its arguments must be a JSON object; call it again with one",
        )
    misfit = _misfit(tool.fn, arguments)
    if misfit:
        schema = compact_json(tool.schema["input_schema"])
        raise Refused(
            "arguments", f"the call of {name!r} was not made: {misfit}; call it again to match {schema}"
        )
    return tool, arguments


def _misfit(fn: Callable[..., Any], arguments: Mapping[str, Any]) -> str | None:
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


async def _run_tool(tool: Tool, arguments: Mapping[str, Any], policy: CallPolicy) -> Any:
    """Return what *tool* returns. Refused: it took too long. Raises what the tool raises."""
    with trio.move_on_after(policy.timeout):
        return await _called(tool.fn, arguments)
    raise Refused(
        "timeout",
        f"the tool {tool.name!r} was stopped after {as_words(policy.timeout)} without a result; its work may "
        "be done in part: check, ask for less, or go on without it",
    )


async def _called(fn: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call *fn*: awaited when it is async, else in a thread, abandoned when cancelled."""
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


def _result(call_id: str, name: str, value: Any) -> Message:
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


def _are_blocks(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(block, dict) and block.get("type") in _RESULT_BLOCKS for block in value)
    )


def _failure(call_id: str, name: str, exc: BaseException, policy: CallPolicy) -> Message:
    """Return an exception as a result message: its class and text, without credentials, not its traceback."""
    exc = first_leaf(exc)
    text = clean_text(policy.scrub(f"{type(exc).__name__}: {exc}".rstrip(": ")))
    return tool_result_message(call_id, name, f"the tool {name!r} failed: {text}", error=True)
