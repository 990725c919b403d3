"""What a run raises: `RunError` for what went wrong while running, `RunConfigError` for how it was set up."""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class RunErrorKind(StrEnum):
    """What kind of trouble a run met."""

    STEP_FAILED = "step_failed"
    MODEL_REFUSED = "model_refused"
    MODEL_PARSE_ERROR = "model_parse_error"
    MODEL_RATE_LIMIT = "model_rate_limit"
    FORK_PARTIAL = "fork_partial"
    CHANNEL_TIMEOUT = "channel_timeout"
    CHANNEL_CLOSED = "channel_closed"
    CANCELLED = "cancelled"
    ITEM_SCHEMA_MISMATCH = "item_schema_mismatch"
    BUDGET_EXCEEDED = "budget_exceeded"
    STEERING_DENIED = "steering_denied"
    HANDLE_EVICTED = "handle_evicted"
    SYSTEM_ONE_FAILED = "system_one_failed"


class RunError(Exception):
    """Something that went wrong while a run ran.

    Args:
      kind: one of `RunErrorKind`.
      message: one sentence for a person.
      detail: what else is known, kept in `detail` under these names.
    """

    def __init__(self, kind: RunErrorKind, message: str, **detail: Any) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.detail: dict[str, Any] = detail


class RunConfigError(ValueError):
    """A run that was set up wrongly.

    Args:
      code: a word for programs, `MISSING_MODEL`.
      message: what is wrong.
      hint: what to do about it.
      docs_url: where to read on.
    """

    def __init__(self, code: str, message: str, *, hint: str, docs_url: str | None = None) -> None:
        super().__init__(f"{message} ({hint})")
        self.code = code
        self.hint = hint
        self.docs_url = docs_url


def cancelled(reason: str) -> RunError:
    """Return the error of a run that was stopped by *reason*."""
    return RunError(RunErrorKind.CANCELLED, reason, reason=reason)


def error_kind(error: object) -> str | None:
    """Return the kind of a run's error, also of a foreign one that carries a string `kind`; None: no such."""
    kind = getattr(error, "kind", None)
    return str(kind) if isinstance(kind, str) else None


def is_run_error(error: object) -> bool:
    """Tell whether *error* is a run's error, or a foreign one that carries a string `kind`."""
    return error_kind(error) is not None
