"""An answer of any frames, taken as IO does, without sockets: what comes out, and whether it keeps the laws.

outcome = answered("openai_chat", [[b'{"choices":[]}'], [b"[DONE]"]], End.STREAM)
check_outcome(outcome)                          # AssertionError: a law is broken, and which
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast

import msgspec

from aiio.context.callbacks import handlers_by_class
from aiio.context.events import (
    BlockEvent,
    Done,
    Error,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from aiio.context.session_format import entry_line, parse_entry
from aiio.context.types import Message, user_message
from aiio.context.validate import has_content, has_replay_data, validate_message
from aiio.env.errors import ErrorKind, ProviderError
from aiio.env.registry import BUILTIN_PROVIDERS
from aiio.io.answer import Answer
from aiio.io.io import IO
from aiio.io.readouts import ContextUsage, PlanUsage
from aiio.io.sanitize import encode_body, split_request
from aiio.io.settle import Ending, settle
from aiio.io.state import Cause
from aiio.providers.base import Provider, dialect_class

NAMES = tuple(BUILTIN_PROVIDERS)
"""All dialects."""
NOW = 1_800_000_000.0
CONTEXT = [user_message("u")]
MAX_SENT = 100
"""Messages that one answer may have sent: each is the answer to a frame, or a part of the request."""

_SETTINGS: dict[str, Mapping[str, Any]] = {
    "openai_chat": {"quirks": {"think_tags": True, "finish_optional": True}},
    "gemini": {"quirks": {"finish_optional": True}},
}
"""Other settings that change how an answer is read."""


class End(Enum):
    """What ends an answer whose frames do not."""

    STREAM = 0
    """The clean end of the stream."""
    FAULT = 1
    """The connection broke."""
    KILL = 2
    STUCK = 3


class DryIO:
    """What providers, `Answer` and `settle` ask of an IO, with nothing behind it but its real readouts."""

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self.settings = settings or {}
        self.current_model = "m1"
        self.endpoint_name = "fuzz"
        self.token = "key-1"
        self.env = self
        self.kept: Mapping[str, Any] | None = None
        self._context_usage, self._plan_usage = ContextUsage(), PlanUsage()

    def scrub(self, text: str) -> str:
        """Return *text*: there are no secrets. AttributeError: it is none."""
        return text.replace("key-1", "key-1")

    def tools(self) -> list[dict[str, Any]]:
        """Return no tools."""
        return []

    def set_context_usage(self, *, used: Any = None, total: Any = None) -> None:
        """Take a report."""
        self._context_usage.report(used, total)

    def set_plan_usage(self, *, label: Any = None, quotas: Any = None) -> None:
        """Take a report."""
        self._plan_usage.report(label, quotas)

    def keep(self, memory: Mapping[str, Any]) -> None:
        """Take note."""
        self.kept = memory

    def repaired(self, what: str, **facts: Any) -> None:
        """Not looked at."""


@dataclass
class Outcome:
    """What an answer became."""

    dialect: str
    events: list[Any] = field(default_factory=list)
    """All that callbacks would hear, but the terminal event."""
    terminal: Any = None
    crash: BaseException | None = None
    """What a provider raised that its contract does not allow."""
    sent: int = 0
    """Messages that the provider wanted sent."""


@functools.cache
def _io(dialect: str, other: bool) -> DryIO:
    return DryIO(_SETTINGS.get(dialect) if other else None)


@functools.cache
def _class(dialect: str) -> type[Provider]:
    """Return the dialect's class, whose clock stands still and whose `abandon` does not hide a crash."""

    def abandon(self: Any, state: Any, io: Any) -> Any:
        try:
            return list(base.abandon(self, state, io))
        except Exception as exc:
            self.crash = exc
            raise

    base = dialect_class(dialect)
    more = {"now": lambda self: NOW, "abandon": abandon, "crash": None}
    return cast(type[Provider], type(base.__name__, (base,), more))


_TALKING = ("openai_realtime", "gemini_live")
"""Dialects that send in the middle of the answer what their request made."""


@functools.cache
def _asked(dialect: str, other: bool) -> Any:
    """Return a provider of one of `_TALKING` that made its request; each answer is read by a copy of it."""
    io: Any = _io(dialect, other)
    provider: Any = _class(dialect)("http://x", io)
    provider.request(CONTEXT, io)
    return provider


_HEARING: list[list[Any]] = []


def _hear(event: Any) -> None:
    _HEARING[0].append(event)


_HANDLERS = handlers_by_class({}, {"on_data": _hear})  # once: looking at a function takes long


def answered(dialect: str, reads: Sequence[list[bytes]], end: End, *, other: bool = False) -> Outcome:
    """Take *reads* as `Request` does, end them with *end* unless they end themselves, and settle.

    Args:
      dialect: the registry's name.
      reads: the frames that each read brings.
      end: what comes after them.
      other: with the dialect's other settings, where it has some.
    """
    outcome = Outcome(dialect)
    io: Any = _io(dialect, other)
    provider: Any = (
        copy.copy(_asked(dialect, other)) if dialect in _TALKING else _class(dialect)("http://x", io)
    )
    _HEARING[:] = [outcome.events]
    answer = Answer(io, CONTEXT, _HANDLERS)
    answer.begin(provider, provider.new_state())
    ending = _read(answer, reads, end, outcome)
    if provider.crash is not None:
        outcome.crash = provider.crash
    events, outcome.terminal = settle(ending, answer, cast(IO, io))
    outcome.crash = outcome.crash or provider.crash
    outcome.events += events
    return outcome


def _read(answer: Answer, reads: Sequence[list[bytes]], end: End, outcome: Outcome) -> Ending:
    """Take *reads* and *end*; return why the answer ended."""
    try:
        late = False
        for frames in reads:
            answer.take(frames)
            outcome.sent += len(answer.outbox)
            answer.outbox = []
            if answer.over:
                return Ending(cause=Cause.ANSWERED)
            late = answer.complete() or late
        if end is End.KILL and not late:
            return Ending(cause=Cause.KILL, reason="enough")
        if end is End.STUCK and not late:
            return Ending(cause=Cause.STUCK, silence=1.0, budget=1.0)
        if end is End.FAULT and not late:
            raise ProviderError(ErrorKind.NETWORK, "the connection broke")
        answer.finish()
    except ProviderError as exc:
        if _is_crash(exc):
            outcome.crash = exc.__cause__
        return Ending(cause=Cause.FAULT, fault=exc)
    return Ending(cause=Cause.ANSWERED)


def _is_crash(fault: ProviderError) -> bool:
    """Tell whether *fault* is a provider's bug: only `translate` may raise, and nothing but ValueError."""
    return " failed: " in fault.message and fault.kind is ErrorKind.MALFORMED and fault.__cause__ is not None


# -- the laws

_STARTS = {TextStart: "text", ThinkingStart: "thinking", ToolCallStart: "tool_call"}
_DELTAS = {TextDelta: "text", ThinkingDelta: "thinking", ToolCallDelta: "tool_call"}
_ENDS = {TextEnd: "text", ThinkingEnd: "thinking", ToolCallEnd: "tool_call"}


def check_outcome(outcome: Outcome) -> None:
    """Assert what holds for any frames: no crash, blocks in order, one terminal, a message to be stored."""
    if outcome.crash is not None:
        raise AssertionError(f"{outcome.dialect} raised {outcome.crash!r}") from outcome.crash
    assert outcome.sent <= MAX_SENT
    _check_blocks(outcome.events)
    terminal = outcome.terminal
    assert isinstance(terminal, Done | Error)
    if isinstance(terminal, Error):
        assert terminal.emitted == bool(outcome.events), "what was emitted is not what is said of it"
    assert isinstance(terminal.usage, dict)
    msgspec.json.encode(terminal.usage)
    _check_facts(terminal)
    if terminal.message is not None:
        check_message(terminal.message)


def _check_facts(terminal: Done | Error) -> None:
    """Assert that what else is said of the answer has the types that it is said to have."""
    if isinstance(terminal, Done):
        assert terminal.done_reason is None or isinstance(terminal.done_reason, str)
        assert terminal.native is None or isinstance(terminal.native, dict)
        return
    assert isinstance(terminal.error, str)
    assert terminal.error
    assert terminal.code is None or isinstance(terminal.code, str)
    assert terminal.request_id is None or isinstance(terminal.request_id, str)
    assert terminal.status is None or type(terminal.status) is int
    assert terminal.native is None or isinstance(terminal.native, dict)
    assert terminal.retry_after_ms is None or 0 <= terminal.retry_after_ms < float("inf")


def _check_blocks(events: Sequence[Any]) -> None:
    """Assert that each block starts once, after those before it, grows and ends as what it is.

    An answer that the server begins anew may begin with block 0 again, when no block is open.
    """
    open_blocks: dict[int, str] = {}
    last = -1
    for event in events:
        cls: Any = type(event)
        assert isinstance(event, BlockEvent), event
        index = event.content_index
        if cls in _STARTS:
            assert index > last or (not index and not open_blocks), f"{event} after block {last}"
            last = index
            open_blocks[index] = _STARTS[cls]
        elif cls in _DELTAS:
            assert open_blocks.get(index) == _DELTAS[cls], f"{event} in none of {open_blocks}"
        else:
            assert open_blocks.pop(index, None) == _ENDS[cls], f"{event} ends none of {open_blocks}"


def check_message(message: Message) -> None:
    """Assert that *message* is valid and can be stored; what was stored is read back."""
    validate_message(message)
    assert has_content(message) or has_replay_data(message)
    for block in message["content"]:
        assert isinstance(block, dict)
        assert isinstance(block["type"], str)
        match block["type"]:
            case "text" | "thinking":
                assert isinstance(block["text"], str)
            case "tool_call":
                assert isinstance(block["call_id"], str)
                assert isinstance(block["name"], str)
    stored = entry_line(message, 0)
    assert parse_entry(stored) is not None


def check_replay(message: Message, dialect: str) -> None:
    """Assert that *dialect* makes a request of a conversation that goes on after *message*."""
    io: Any = _io(dialect, False)
    context = [user_message("u"), message, user_message("v")]
    before = json.dumps(message)
    _, body = split_request(_class(dialect)("http://x", io).request(context, io))
    encode_body(body)
    assert json.dumps(message) == before


# -- any bytes

_GROUPS = (1 << 30, 1, 2, 5)  # frames a read


def reads_of(data: bytes) -> tuple[list[list[bytes]], list[list[bytes]], End, bool, str]:
    """Return what *data* stands for: frames in reads, one by one, the end, other settings, a dialect.

    Two bytes that choose, then lines, each of which is a frame.
    """
    choice, other = (*data[:2], 0, 0)[:2]
    frames = [line for line in data[2:].split(b"\n") if line]
    size = _GROUPS[choice & 3]
    grouped = [frames[at : at + size] for at in range(0, len(frames), size)] if frames else []
    singly = [[frame] for frame in frames]
    return grouped, singly, End(choice >> 2 & 3), bool(choice & 16), NAMES[other % len(NAMES)]


def check_bytes(dialect: str, data: bytes) -> None:
    """Assert the laws for an answer of *dialect* that *data* stands for."""
    grouped, singly, end, other, elsewhere = reads_of(data)
    outcome = answered(dialect, grouped, end, other=other)
    check_outcome(outcome)
    if outcome.terminal.message is not None:
        check_replay(outcome.terminal.message, elsewhere)
    if data[:1] and data[0] & 32 and grouped != singly:
        assert alike(answered(dialect, singly, end, other=other)) == alike(outcome)


def alike(outcome: Outcome) -> Any:
    """Return what two readings of the same frames must have in common: all but the ids that are made here."""
    said = [(type(one), one.content_index, getattr(one, "text", None)) for one in outcome.events]
    return said, type(outcome.terminal)
