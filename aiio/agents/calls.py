"""Making the calls of one answer: every call gets a result, whatever its tool does.

What goes wrong is told to the model, as an error result that says what to do. It is no exception for the
caller: a model that asks for nonsense is the model's trouble, and it can mend it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import trio

from aiio.context.log import get_logger
from aiio.context.text import compact_json
from aiio.context.types import Block, Message, tool_result_message
from aiio.env.groups import first_leaf
from aiio.env.tool_calls import call_function, failure_message, misfit, result_message
from aiio.env.toolbox import Toolbox
from aiio.env.tools import Tool
from aiio.io.limits import as_words

_ENVELOPE = frozenset({"result", "system", "display"})

CANCELLED = "cancelled: the call was stopped before it had a result; it may have been carried out in part"


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
    """Told `tool_start` {call} and `tool_done` {call, outcome, result, display}.

    The result is None when cancelled, the display when the tool gave none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """What came of a call."""

    message: Message
    """The result message, for the model."""
    system: str | None = None
    """What else the model is told, as a system message after the results of all calls of its answer."""
    display: Any = None
    """What is for people only: it goes to who listens to the Env's events."""


class Refused(Exception):
    """A call that gets an error result: `outcome` for the log, the text for the model."""

    def __init__(self, outcome: str, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome


async def make_calls(
    calls: Sequence[Block], toolbox: Toolbox, policy: CallPolicy, results: dict[int, CallResult]
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


def note_for_model(calls: Sequence[Block], results: Mapping[int, CallResult]) -> str | None:
    """Return what the model must be told beside the results; None: the results say it all.

    No dialect can send back a call without a name or without parsed arguments; it leaves the call out, and
    with it the result that says what was wrong.
    """
    lost = [place for place, call in enumerate(calls) if not _can_be_sent(call) and place in results]
    if not lost:
        return None
    return "\n".join(
        ["Tool calls that were not made:"] + [results[place].message["content"][0]["text"] for place in lost]
    )


def _can_be_sent(call: Block) -> bool:
    name = call.get("name")
    named = isinstance(name, str) and name.strip() != ""
    return named and not call.get("partial") and not isinstance(call.get("arguments"), str)


async def _make_call(call: Block, toolbox: Toolbox, policy: CallPolicy) -> CallResult:
    """Make one call and return its result. Raises only cancellation, and what is no Exception."""
    began = trio.current_time()
    outcome = "cancelled"
    result: CallResult | None = None
    name, call_id = str(call.get("name") or ""), call["call_id"]
    policy.emit("tool_start", call=call)
    try:
        try:
            tool, arguments = _checked(call, toolbox, cut=policy.cut)
            value = await _run_tool(tool, arguments, policy)
            outcome, result = "done", _result(call_id, name, value)
        except Refused as exc:
            outcome = exc.outcome
            result = CallResult(message=tool_result_message(call_id, name, str(exc), error=True))
        except Exception as exc:  # noqa: BLE001  # a tool may raise anything, and its model should hear of it
            outcome = "raised"
            result = CallResult(message=failure_message(call_id, name, exc, policy.scrub))
        except BaseExceptionGroup as group:  # a tool with a nursery, cancelled while it failed
            urgent = first_leaf(group)
            if not isinstance(urgent, Exception):
                raise urgent from None
            outcome = "raised"
            result = CallResult(message=failure_message(call_id, name, urgent, policy.scrub))
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
        policy.emit(
            "tool_done",
            call=call,
            outcome=outcome,
            result=None if result is None else result.message,
            display=None if result is None else result.display,
        )


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
    unfit = misfit(tool.fn, arguments)
    if unfit:
        schema = compact_json(tool.schema["input_schema"])
        raise Refused(
            "arguments", f"the call of {name!r} was not made: {unfit}; call it again to match {schema}"
        )
    return tool, arguments


async def _run_tool(tool: Tool, arguments: Mapping[str, Any], policy: CallPolicy) -> Any:
    """Return what *tool* returns. Refused: it took too long. Raises what the tool raises."""
    with trio.move_on_after(policy.timeout):
        return await call_function(tool.fn, arguments)
    raise Refused(
        "timeout",
        f"the tool {tool.name!r} was stopped after {as_words(policy.timeout)} without a result; its work may "
        "be done in part: check, ask for less, or go on without it",
    )


def _result(call_id: str, name: str, value: Any) -> CallResult:
    """Return what a tool returned, the result alone or `{result, system?, display?}`, as a result."""
    if not _is_envelope(value):
        return CallResult(message=result_message(call_id, name, value))
    return CallResult(
        message=result_message(call_id, name, value["result"]),
        system=value.get("system") or None,
        display=value.get("display"),
    )


def _is_envelope(value: object) -> bool:
    """Tell whether *value* is a result and what goes with it. Any other key makes it plain data."""
    return (
        isinstance(value, dict)
        and "result" in value
        and value.keys() <= _ENVELOPE
        and isinstance(value.get("system"), str | None)
    )
