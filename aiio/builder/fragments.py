"""Fragments: the parts a prompt is made of, and what they are defined by."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeAlias, TypeVar

from aiio.context.types import Message, MessageType, text_content

from .errors import ContextBuildError, ContextErrorCode
from .messages import MESSAGE_TYPES, Role, foreign_block, read_messages, unasked_result

Input = TypeVar("Input")

Formatted: TypeAlias = "str | Mapping[str, Sequence[Mapping[str, Any]]] | None"
"""What a `format` returns: text, `{"messages": [...]}`, or None (as empty text: nothing is sent)."""


class Trust(StrEnum):
    """How far the text of a fragment is to be believed, most first."""

    SYSTEM = "system"
    """The author wrote it."""
    APP = "app"
    """The host's data."""
    USER = "user"
    """What the user says, or said."""
    EXTERNAL = "external"
    """Of tools, the web, files."""

    @property
    def rank(self) -> int:
        """Higher is more trust."""
        return -list(Trust).index(self)

    @property
    def may_be_system(self) -> bool:
        """Whether it may stand in a system message."""
        return self in (Trust.SYSTEM, Trust.APP)


class Lifetime(StrEnum):
    """How long a fragment stays as it is: a hint for accounting and caching, without effect on the order."""

    TURN = "turn"
    SESSION = "session"
    STATIC = "static"


_SYSTEM_ROLES = (Role.SYSTEM, Role.DEVELOPER)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextFragment:
    """One part of a prompt: a text, or messages. Checked and copied when it is made, so also by `replace`.

    Raises:
      ContextBuildError: FRAGMENT_TRUST_ROLE, or FRAGMENT_FORMAT for messages that are none.
      TypeError, ValueError: another field is not valid, or not exactly one of content and messages is given.
    """

    id: str
    source_id: str
    """Where it comes from."""
    trust: Trust
    lifetime: Lifetime
    max_chars: float
    """An int, or `math.inf`."""
    role: Role
    """Of the text; messages have their own."""
    content: str | None = None
    messages: tuple[Message, ...] | None = None
    """Ours, whatever was given; records and empty ones are left out."""

    def __post_init__(self) -> None:
        settle = object.__setattr__  # frozen is for everybody else
        for name in ("id", "source_id"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"{name} must be a text that is not blank, not {value!r}")
        for name, kind in (("trust", Trust), ("lifetime", Lifetime), ("role", Role)):
            settle(self, name, _member(kind, name, getattr(self, name)))
        settle(self, "max_chars", checked_budget("max_chars", self.max_chars, least=1))
        if (self.content is None) == (self.messages is None):
            raise ValueError(f"fragment {self.id!r} needs either content or messages")
        if self.role in _SYSTEM_ROLES:
            self._require_trust(f"the role {self.role.value!r}")
        if self.messages is not None:
            settle(self, "messages", self._read(self.messages))
        elif not isinstance(self.content, str):
            raise TypeError(f"content must be text, not a {type(self.content).__name__}")

    def as_messages(self) -> tuple[Message, ...]:
        """Return what it would be if it stood alone: its messages themselves, or one of its text, or none."""
        if self.messages is not None:
            return self.messages
        kind = MESSAGE_TYPES[self.role].value
        return ({"type": kind, "content": [text_content(self.content)]},) if self.content else ()

    def _read(self, values: object) -> tuple[Message, ...]:
        try:
            messages = tuple(read_messages(values, "messages"))
        except (TypeError, ValueError) as exc:
            text = f"fragment {self.id!r}: {exc}"
            raise ContextBuildError(ContextErrorCode.FRAGMENT_FORMAT, text, id=self.id) from exc
        if self.trust.may_be_system:
            return messages
        for at, message in enumerate(messages):
            if message["type"] == MessageType.SYSTEM:
                self._require_trust(f"a system message (the one at {at})")
            if (found := foreign_block(message)) is not None:
                self._require_trust(f"{found} (in the message at {at})")
        if (call_id := unasked_result(messages)) is not None:
            # An agent keeps a result that nobody asked for as a system message.
            self._require_trust(f"a tool result that no call asked for ({call_id!r})")
        return messages

    def _require_trust(self, what: str) -> None:
        if not self.trust.may_be_system:
            text = f"fragment {self.id!r}: {what} needs the trust 'system' or 'app', not {self.trust.value!r}"
            raise ContextBuildError(ContextErrorCode.FRAGMENT_TRUST_ROLE, text, id=self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentDefinition(Generic[Input]):
    """What makes a fragment of every input. Checked by `define_context_fragments`; a dict will do."""

    id: str
    source_id: str
    trust: Trust | str
    format: Callable[[Input], Formatted]
    """Sync and pure. What it puts into a fragment that is trusted, its author vouches for."""
    max_chars: float
    """May exceed the budget of the whole; `math.inf`: unbounded."""
    lifetime: Lifetime | str = Lifetime.TURN
    role: Role | str = Role.USER


def checked_budget(name: str, value: object, *, least: int = 0) -> float:
    """Return a budget: an int or infinity. TypeError: no number. ValueError: NaN, too low, a fraction."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be an int or math.inf, not {value!r}")
    if not value >= least:  # NaN is not
        raise ValueError(f"{name} must be at least {least}, not {value!r}")
    if isinstance(value, int) or value == math.inf:
        return value
    if not value.is_integer():
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    return int(value)


_Kind = TypeVar("_Kind", bound=StrEnum)


def _member(kind: type[_Kind], name: str, value: object) -> _Kind:
    for member in kind:
        if value == member:
            return member
    raise ValueError(f"{name} must be one of {', '.join(kind)}, not {value!r}")
