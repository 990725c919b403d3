"""The twelve response events: what a provider's answer becomes, whatever dialect it came in.

Events are made once per delta, so they are msgspec Structs: small, compared by value, matched with
`match`, and `msgspec.json.encode(event)` is their NDJSON line. The live block of a block event is not a
field of it: it is looked up (and its text joined) only when somebody asks, which keeps a long
answer linear and a line of NDJSON as small as its delta.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, ClassVar, TypeAlias

import msgspec

from .types import Block, Message, Usage


class EventType(StrEnum):
    """The `type` of an event."""

    START = "start"
    TEXT_START = "text_start"
    TEXT_DELTA = "text_delta"
    TEXT_END = "text_end"
    THINKING_START = "thinking_start"
    THINKING_DELTA = "thinking_delta"
    THINKING_END = "thinking_end"
    TOOL_CALL_START = "tool_call_start"
    TOOL_CALL_DELTA = "tool_call_delta"
    TOOL_CALL_END = "tool_call_end"
    DONE = "done"
    ERROR = "error"


class ErrorKind(StrEnum):
    """Who has to act on an error: see `Error.kind`."""

    AUTH = "auth"
    """Credentials were refused, or could not even be sent."""
    NETWORK = "network"
    """The bytes did not come, or a limit of ours fired."""
    PROVIDER = "provider"
    """The provider answered, and said no."""
    MALFORMED = "malformed"
    """What came (or what a plug-in made) could not be read."""
    CANCELLED = "cancelled"
    """`kill()`, or a cancel scope around the write. Only ever a terminal kind."""


class FinishReason(StrEnum):
    """Why the model stopped, in one vocabulary for all dialects; `Done.done_reason` has its own word."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_USE = "tool_use"
    REFUSAL = "refusal"
    PAUSED = "paused"
    OTHER = "other"


class _Typed:
    """Gives a Struct the `type` it is tagged with."""

    __slots__ = ()
    type: ClassVar[EventType]


class _Live:
    """Gives a block event its live block, made current when it is looked at."""

    __slots__ = ("_block",)
    _block: Callable[[], Block | None]

    @property
    def content(self) -> Block | None:
        """The block this event belongs to, as assembled so far; None before the event was dispatched.

        It is the live object of the message: later deltas change it. Looking costs what joining the
        pieces since the last look costs.
        """
        try:
            look = self._block
        except AttributeError:
            return None
        return look()


class _Event(msgspec.Struct, gc=False, omit_defaults=True, tag_field="type"):
    pass


class _BlockEvent(_Live, _Event):
    content_index: int
    """Position of the block in the message; dense, in order of first appearance."""


class Start(_Typed, _Event, tag="start"):
    """An attempt begins. Sent once per attempt; a resend with new credentials sends a second one."""

    type: ClassVar[EventType] = EventType.START
    message: Message | None = None
    """When given, replaces the assembled message."""


class TextStart(_Typed, _BlockEvent, tag="text_start"):
    """A text block opens."""

    type: ClassVar[EventType] = EventType.TEXT_START


class TextDelta(_Typed, _BlockEvent, tag="text_delta"):
    """More text."""

    type: ClassVar[EventType] = EventType.TEXT_DELTA
    text: str


class TextEnd(_Typed, _BlockEvent, tag="text_end"):
    """A text block is whole."""

    type: ClassVar[EventType] = EventType.TEXT_END
    text: str | None = None
    """When given, the authoritative text: it replaces what was streamed."""
    metadata: dict[str, Any] | None = None
    """Keys laid onto the block (citations, ids, a refusal mark)."""


class ThinkingStart(_Typed, _BlockEvent, tag="thinking_start"):
    """A reasoning block opens."""

    type: ClassVar[EventType] = EventType.THINKING_START


class ThinkingDelta(_Typed, _BlockEvent, tag="thinking_delta"):
    """More reasoning."""

    type: ClassVar[EventType] = EventType.THINKING_DELTA
    text: str


class ThinkingEnd(_Typed, _BlockEvent, tag="thinking_end"):
    """A reasoning block is whole."""

    type: ClassVar[EventType] = EventType.THINKING_END
    text: str | None = None
    """When given, the authoritative text."""
    metadata: dict[str, Any] | None = None
    """What the dialect needs to replay the block: signature, encrypted content, ids."""


class ToolCallStart(_Typed, _BlockEvent, tag="tool_call_start"):
    """The model begins to call a tool."""

    type: ClassVar[EventType] = EventType.TOOL_CALL_START
    call_id: str
    name: str
    arguments: str = ""


class ToolCallDelta(_Typed, _BlockEvent, tag="tool_call_delta"):
    """More of the arguments, as a piece of JSON text."""

    type: ClassVar[EventType] = EventType.TOOL_CALL_DELTA
    arguments: str


class ToolCallEnd(_Typed, _BlockEvent, tag="tool_call_end"):
    """A tool call is whole."""

    type: ClassVar[EventType] = EventType.TOOL_CALL_END
    arguments: Any = msgspec.UNSET
    """When given, the authoritative arguments, parsed or raw; else what was streamed is parsed."""
    metadata: dict[str, Any] | None = None
    """Keys laid onto the block, for replay."""


class Placed(msgspec.Struct, gc=False):
    """A whole block that no event describes: an image, audio, a server-side tool's item.

    Not a response event: a provider's `translate` may return it, the assembler puts it in place, and
    nobody hears of it before the terminal message.
    """

    content_index: int
    block: Block


class Working(msgspec.Struct, gc=False, frozen=True):
    """The provider reported work on the answer, nothing else: not a response event, but progress."""


class Send(msgspec.Struct, gc=False, frozen=True):
    """The next message of a dialog over a two-way connection (a WebSocket): sent as soon as it is met.

    Not a response event, and no progress: a provider's `translate` may return it.
    """

    data: bytes
    """UTF-8 text."""


class Done(_Typed, _Event, tag="done"):
    """The answer is complete: a positive end signal came."""

    type: ClassVar[EventType] = EventType.DONE
    message: Message | None = None
    """The assistant message; None when the provider intended silence."""
    usage: Usage | None = None
    """Always there once dispatched."""
    done_reason: str | None = None
    """The provider's own word (`stop`, `end_turn`, `MAX_TOKENS`, ...)."""
    finish: FinishReason = FinishReason.STOP
    """The same in one vocabulary."""
    native: dict[str, Any] | None = None
    """What else the provider said about the response: id, model, service tier, ..."""


class Error(_Typed, _Event, tag="error"):
    """The request ended early. Whatever had arrived is in `message`."""

    type: ClassVar[EventType] = EventType.ERROR
    error: str
    """One sentence for a person. Never holds a credential."""
    kind: ErrorKind = ErrorKind.PROVIDER
    message: Message | None = None
    """The partial message, valid and replayable; None when nothing had arrived."""
    usage: Usage | None = None
    """Always there once dispatched, estimated if need be."""
    cancelled: bool = False
    """`kill()` or a cancel scope around the write."""
    limit: str | None = None
    """`"overall" | "connect" | "stuck"` when a limit of ours fired."""
    budget_ms: float | None = None
    """What that limit allowed."""
    silence_ms: float | None = None
    """How long no message data had come, when a limit fired."""
    emitted: bool = False
    """Whether any content event was delivered before this."""
    retryable: bool = False
    """The fault is of the passing kind: the same request may succeed later. See `safe_to_retry`."""
    retry_after_ms: float | None = None
    """How long the provider asked us to wait, when it did."""
    status: int | None = None
    """HTTP status, or WebSocket close code."""
    code: str | None = None
    """The provider's own error code or type."""
    request_id: str | None = None
    native: dict[str, Any] | None = None
    """The provider's error object and other detail, scrubbed of credentials."""

    @property
    def safe_to_retry(self) -> bool:
        """Whether sending the same request again can neither repeat delivered content nor be pointless."""
        return self.retryable and not self.emitted


BlockEvent: TypeAlias = (
    TextStart
    | TextDelta
    | TextEnd
    | ThinkingStart
    | ThinkingDelta
    | ThinkingEnd
    | ToolCallStart
    | ToolCallDelta
    | ToolCallEnd
)
Terminal: TypeAlias = Done | Error
ResponseEvent: TypeAlias = Start | BlockEvent | Terminal

EVENT_CLASSES: dict[str, type[ResponseEvent]] = {
    cls.type.value: cls
    for cls in (
        Start,
        TextStart,
        TextDelta,
        TextEnd,
        ThinkingStart,
        ThinkingDelta,
        ThinkingEnd,
        ToolCallStart,
        ToolCallDelta,
        ToolCallEnd,
        Done,
        Error,
    )
}
"""Event classes by their `type`."""

_CLASSES = frozenset(EVENT_CLASSES.values())


def is_response_event(value: object) -> bool:
    """Tell whether *value* is an event, or a dict that `validate_response_event` would accept."""
    try:
        validate_response_event(value)
    except TypeError:
        return False
    return True


def validate_response_event(value: object) -> Any:
    """Return *value* if it is a well-formed event: known type, `content_index` an int >= 0 on block events.

    A Struct is returned as it is. A dict (what a plug-in may hand in) is returned as it is too; `as_event`
    converts it.

    Raises:
      TypeError: quoting at most 120 characters of the value.
    """
    if type(value) in _CLASSES:
        if isinstance(value, _BlockEvent) and (
            type(value.content_index) is not int or value.content_index < 0
        ):
            raise TypeError(f"invalid response event: {_excerpt(value)}")
        return value
    if isinstance(value, dict):
        as_event(value)
        return value
    raise TypeError(f"invalid response event: {_excerpt(value)}")


def as_event(value: dict[str, Any]) -> ResponseEvent:
    """Convert a plug-in's dict into its event. TypeError: see `validate_response_event`."""
    kind = value.get("type")
    cls = EVENT_CLASSES.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise TypeError(f"invalid response event: {_excerpt(value)}")
    try:
        event: ResponseEvent = msgspec.convert({**value, "type": str(kind)}, cls)
    except msgspec.ValidationError as exc:
        raise TypeError(f"invalid response event ({exc}): {_excerpt(value)}") from exc
    if isinstance(event, _BlockEvent) and event.content_index < 0:
        raise TypeError(f"invalid response event: {_excerpt(value)}")
    return event


def _excerpt(value: object) -> str:
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        text = repr(value)
    return text[:120]
