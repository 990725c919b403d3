"""What can be wrong with definitions, and with one assembly."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .results import FragmentUsage


class ContextErrorCode(StrEnum):
    """What an error of this room is about."""

    DEFINITION = "DEFINITION"
    """A definition, or the list of them, is not valid."""
    FRAGMENT_FORMAT = "FRAGMENT_FORMAT"
    """A `format` raised, or returned what is neither text nor messages."""
    FRAGMENT_TRANSFORM = "FRAGMENT_TRANSFORM"
    """A transform raised, or returned what are no fragments, or one id twice."""
    FRAGMENT_TRUST_ROLE = "FRAGMENT_TRUST_ROLE"
    """Text that is not trusted would be a system message."""
    FRAGMENT_TRUST_RAISED = "FRAGMENT_TRUST_RAISED"
    """A transform gave a fragment more trust than its definition does."""
    FRAGMENT_TOO_LARGE = "FRAGMENT_TOO_LARGE"
    FRAGMENT_MUTATED = "FRAGMENT_MUTATED"
    """A fragment differs from its original."""
    FRAGMENT_SET_CHANGED = "FRAGMENT_SET_CHANGED"
    """There are other fragments than the originals, or in another order."""
    UNKNOWN_FRAGMENT = "UNKNOWN_FRAGMENT"
    """A mutable id that no original has."""
    ADDITIONAL_MESSAGE = "ADDITIONAL_MESSAGE"
    """An additional message that is not a user's, or holds what a user can't send."""
    TOKEN_COUNTER = "TOKEN_COUNTER"
    """The caller's counter raised, or returned what is no count."""
    INPUT_TOO_LARGE = "INPUT_TOO_LARGE"
    INPUT_TOO_MANY_TOKENS = "INPUT_TOO_MANY_TOKENS"


class ContextDefinitionError(ValueError):
    """Definitions that can't be compiled."""

    def __init__(
        self,
        text: str,
        *,
        code: ContextErrorCode = ContextErrorCode.DEFINITION,
        id: str | None = None,
        field: str | None = None,
    ) -> None:
        super().__init__(text)
        self.code = code
        self.id = id
        """Of the fragment; None: it is about the whole, or the definition has no valid id."""
        self.field = field


class ContextBuildError(ValueError):
    """An assembly that must not be sent. The text has the fragment's id, the figure and the limit.

    Attributes that do not belong to its `code` are None.
    """

    def __init__(
        self,
        code: ContextErrorCode,
        text: str,
        *,
        id: str | None = None,
        field: str | None = None,
        chars: int | None = None,
        max_chars: float | None = None,
        input_chars: int | None = None,
        max_input_chars: float | None = None,
        input_tokens: int | None = None,
        max_input_tokens: float | None = None,
        fragment_usage: Sequence[FragmentUsage] | None = None,
    ) -> None:
        super().__init__(text)
        self.code = code
        self.id = id
        """Of the fragment; None: it is about no single one."""
        self.field = field
        """The field that differs from its original."""
        self.chars = chars
        self.max_chars = max_chars
        self.input_chars = input_chars
        self.max_input_chars = max_input_chars
        self.input_tokens = input_tokens
        self.max_input_tokens = max_input_tokens
        self.fragment_usage: tuple[FragmentUsage, ...] | None = (
            None if fragment_usage is None else tuple(fragment_usage)
        )
        """Where the input comes from, when it is too large."""
