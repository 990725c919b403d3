"""Finish reasons and usage of Chat Completions, in OpenAI's terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiio.context.events import FinishReason
from aiio.context.types import Usage

FINISH: dict[str, FinishReason] = {
    "stop": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_USE,
    "function_call": FinishReason.TOOL_USE,
    "content_filter": FinishReason.REFUSAL,
    "sensitive": FinishReason.REFUSAL,
    "refusal": FinishReason.REFUSAL,
}
"""The normalized word for each of the providers', lower-cased."""

FAILED = frozenset({"error", "insufficient_system_resource", "network_error"})
"""Finish reasons that mean the answer failed."""


def finish_of(reason: str | None, *, called: bool, refused: bool) -> FinishReason:
    """Return the normalized finish for the provider's *reason*; None: it gave none.

    Args:
      called: a tool was called; many servers say `stop` then.
      refused: the model refused in so many words.
    """
    if refused:
        return FinishReason.REFUSAL
    found = FinishReason.STOP if not reason else FINISH.get(reason.lower(), FinishReason.OTHER)
    return FinishReason.TOOL_USE if called and found is FinishReason.STOP else found


def chat_usage(
    raw: Mapping[str, Any], *, reasoning_included: bool = True, service_tier: str | None = None
) -> Usage:
    """Return a copy of *raw* in which reasoning tokens are part of `completion_tokens`.

    Where the reported total tells, `usage_normalize` sees to that; this is for servers known to count them
    apart (*reasoning_included* is False) that report no total.
    """
    usage = dict(raw)
    completion, spoken = raw.get("completion_tokens"), raw.get("completion_tokens_details")
    reasoning = spoken.get("reasoning_tokens") if isinstance(spoken, dict) else None
    if (
        not reasoning_included
        and raw.get("total_tokens") is None
        and type(completion) is type(reasoning) is int
    ):
        usage["completion_tokens"] = completion + reasoning
    if service_tier and usage.get("service_tier") is None:
        usage["service_tier"] = service_tier
    return usage
