"""What the built-in dialects share: the state of an answer does the work, the provider passes it on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from aiio.env.errors import HttpStatusError, ProviderError

from .base import Events, Provider, ProviderIO
from .faults import status_fault


class AnswerState(Protocol):
    """One answer in the making."""

    @property
    def complete(self) -> bool:
        """Whether a positive end signal came; usage may follow."""
        ...

    def take(self, native: Any, clock: Callable[[], float], /) -> Events:
        """Return the events that *native* stands for; *clock* tells epoch seconds."""
        ...

    def finish(self) -> Events:
        """Return the last events at the end of the stream; without an end signal no terminal one."""
        ...

    def abandon(self) -> Events:
        """Return the content that is still held back, when the answer is cut short."""
        ...


class AnswerDialect(Provider):
    """A provider whose stream state is an `AnswerState`; `new_state` is left to the dialect."""

    def now(self) -> float:
        """Return the wall clock, epoch seconds: for dates in headers and in answers."""
        return time.time()

    def translate(self, native: Any, state: Any, io: ProviderIO) -> Events:
        """Return the events that *native* stands for."""
        answer: AnswerState = state
        return answer.take(native, self.now)

    def ending(self, state: Any) -> bool:
        """Tell whether an end signal was seen; usage and an end marker may follow."""
        answer: AnswerState = state
        return answer.complete

    def finish(self, state: Any, io: ProviderIO) -> Events:
        """Return the last events; without an end signal there is no terminal one."""
        answer: AnswerState = state
        return answer.finish()

    def abandon(self, state: Any, io: ProviderIO) -> Events:
        """Return the content that is still held back."""
        answer: AnswerState = state
        return answer.abandon()

    def classify_error(self, error: Exception) -> ProviderError:
        """Return *error* with the provider's own message, code and retry delay, when it is an HTTP answer."""
        if isinstance(error, HttpStatusError):
            return status_fault(error, endpoint=self.io.endpoint_name, now=self.now())
        return super().classify_error(error)
