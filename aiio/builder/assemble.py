"""Fragments put together into messages, counted, and held against the budget. Nothing is ever cut off."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from aiio.context.types import Message, text_content
from aiio.context.usage import estimate_context_tokens

from .errors import ContextBuildError, ContextErrorCode
from .fragments import ContextFragment
from .messages import CharUnit, counter_of, message_chars, texts_of
from .results import BuiltContext, ContextPlan, FragmentUsage, TokenSource

SEPARATOR = "\n\n"
"""Between texts that become one message."""

TokenCounter: TypeAlias = Callable[[str], int]
"""Returns the tokens of a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """How a builder counts."""

    unit: CharUnit
    tokens: TokenCounter | None
    """None: by estimate, where there is a budget for tokens."""

    def chars(self, fragment: ContextFragment) -> int:
        """Return the characters of *fragment*."""
        return message_chars(fragment.as_messages(), counter_of(self.unit))

    def token_source(self, max_input_tokens: float) -> TokenSource | None:
        """Return how tokens are counted under a budget of so many; None: not at all."""
        if self.tokens is not None:
            return TokenSource.COUNTER
        return None if max_input_tokens == math.inf else TokenSource.ESTIMATE

    def tokens_of(self, messages: Sequence[Message], id: str | None = None) -> int:
        """Return the tokens of *messages*, of the fragment *id*. ContextBuildError: TOKEN_COUNTER."""
        if self.tokens is None:
            return estimate_context_tokens(messages)
        return sum(self._counted(text, id) for message in messages for text in texts_of(message) if text)

    def _counted(self, text: str, id: str | None) -> int:
        assert self.tokens is not None  # or there is nothing to call
        where = "" if id is None else f"fragment {id!r}: "
        code = ContextErrorCode.TOKEN_COUNTER
        try:
            found: object = self.tokens(text)
        except Exception as exc:
            said = f"{where}the token counter raised {type(exc).__name__}: {exc}"
            raise ContextBuildError(code, said, id=id) from exc
        if isinstance(found, bool) or not isinstance(found, int) or found < 0:
            raise ContextBuildError(code, f"{where}the token counter returned {found!r}", id=id)
        return found


def check_size(fragment: ContextFragment, chars: int) -> None:
    """ContextBuildError: FRAGMENT_TOO_LARGE."""
    if chars > fragment.max_chars:
        raise ContextBuildError(
            ContextErrorCode.FRAGMENT_TOO_LARGE,
            f"fragment {fragment.id!r} has {chars} characters, {fragment.max_chars} at most",
            id=fragment.id,
            chars=chars,
            max_chars=fragment.max_chars,
        )


@dataclass(slots=True)
class _Merger:
    """Messages in the order of their fragments; texts of one role and trust in a row become one message."""

    messages: list[Message] = field(default_factory=list)
    separators: int = 0
    _run: list[str] = field(default_factory=list)
    _first: ContextFragment | None = None
    """Of the run."""

    def add(self, fragment: ContextFragment) -> int:
        """Take *fragment*; return the number of messages that begin with it."""
        if fragment.messages is not None:
            if fragment.messages:
                self.end_run()
                self.messages += fragment.messages
            return len(fragment.messages)
        if not fragment.content:
            return 0
        first = self._first
        if first is not None and (first.role, first.trust) == (fragment.role, fragment.trust):
            self._run.append(fragment.content)
            self.separators += 1
            return 0
        self.end_run()
        self._first, self._run = fragment, [fragment.content]
        return 1

    def end_run(self) -> None:
        """Make a message of the texts since the last one."""
        if self._first is not None:
            (message,) = self._first.as_messages()
            self.messages.append({**message, "content": [text_content(SEPARATOR.join(self._run))]})
            self._first = None


def assemble(plan: ContextPlan, counting: Counting) -> BuiltContext:
    """Return what *plan* makes. Its messages become the result's.

    Raises:
      ContextBuildError: INPUT_TOO_LARGE, INPUT_TOO_MANY_TOKENS, TOKEN_COUNTER.
    """
    merger = _Merger()
    source = counting.token_source(plan.max_input_tokens)
    usage: list[FragmentUsage] = []
    for fragment in plan.fragments:
        alone = fragment.as_messages()
        usage.append(
            FragmentUsage(
                id=fragment.id,
                source_id=fragment.source_id,
                trust=fragment.trust,
                lifetime=fragment.lifetime,
                chars=counting.chars(fragment),
                max_chars=fragment.max_chars,
                message_count=merger.add(fragment),
                tokens=None if source is None else counting.tokens_of(alone, fragment.id),
            )
        )
    merger.end_run()
    separators = merger.separators * len(SEPARATOR)
    additional = message_chars(plan.additional_messages, counter_of(counting.unit))
    messages = [*merger.messages, *plan.additional_messages]
    built = BuiltContext(
        messages=messages,
        fragment_usage=tuple(usage),
        input_chars=sum(one.chars for one in usage) + separators + additional,
        separator_chars=separators,
        additional_chars=additional,
        max_input_chars=plan.max_input_chars,
        input_tokens=None if source is None else counting.tokens_of(messages),
        max_input_tokens=plan.max_input_tokens,
        token_source=source,
        changes=plan.changes,
    )
    _check_budget(built)
    return built


def _check_budget(built: BuiltContext) -> None:
    if built.input_chars > built.max_input_chars:
        raise ContextBuildError(
            ContextErrorCode.INPUT_TOO_LARGE,
            f"the input has {built.input_chars} characters, {built.max_input_chars} at most{_largest(built)}",
            input_chars=built.input_chars,
            max_input_chars=built.max_input_chars,
            input_tokens=built.input_tokens,
            max_input_tokens=built.max_input_tokens,
            fragment_usage=built.fragment_usage,
        )
    if built.input_tokens is not None and built.input_tokens > built.max_input_tokens:
        raise ContextBuildError(
            ContextErrorCode.INPUT_TOO_MANY_TOKENS,
            f"the input has {built.input_tokens} tokens by {built.token_source}, "
            f"{built.max_input_tokens} at most{_largest(built)}",
            input_chars=built.input_chars,
            max_input_chars=built.max_input_chars,
            input_tokens=built.input_tokens,
            max_input_tokens=built.max_input_tokens,
            fragment_usage=built.fragment_usage,
        )


def _largest(built: BuiltContext) -> str:
    """Say what takes the most."""
    parts = [(usage.chars, f"fragment {usage.id!r}") for usage in built.fragment_usage]
    chars, name = max([*parts, (built.additional_chars, "additional messages")], key=lambda part: part[0])
    return f"; most of it: {name} with {chars} characters"
