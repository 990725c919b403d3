"""How a compatible server differs from OpenAI's Chat Completions, as data.

Endpoints carry these as the setting `quirks`; the dialect reads them and knows no vendor. The defaults are
OpenAI's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_ALLOWED: dict[str, tuple[object, ...]] = {
    "max_tokens_field": ("max_completion_tokens", "max_tokens"),
    "stream_options": (True, False, "obfuscation"),
    "system_role": ("system", "developer"),
    "system_first": (True, False),
    "auth_header": ("bearer", "api-key"),
    "reasoning_replay": (None, "reasoning_content", "reasoning_details", "thinking_parts"),
    "reasoning_in_completion": (True, False),
    "empty_content": ("null", "omit", "empty"),
    "tool_id": (None, "mistral9"),
    "tool_then_user": (True, False),
    "refusal": ("field", "text"),
    "files": ("part", "inline"),
    "finish_optional": (True, False),
    "think_tags": (True, False),
}


class Quirks(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One server's ways."""

    max_tokens_field: str = "max_tokens"
    """Where the limit on output tokens goes."""
    stream_options: bool | str = True
    """Whether to ask for usage; `"obfuscation"`: and for frames without padding, which OpenAI alone knows."""
    system_role: str = "system"
    system_first: bool = False
    """All system texts become one message at the front (templates that refuse any other order)."""
    auth_header: str = "bearer"
    reasoning_replay: str | None = None
    """The form in which thinking goes back; None: it does not."""
    reasoning_in_completion: bool = True
    """Whether reasoning tokens are counted in `completion_tokens`."""
    empty_content: str = "null"
    """The content of an assistant message that only calls tools."""
    tool_id: str | None = None
    """`"mistral9"`: call ids are nine letters or digits."""
    tool_then_user: bool = True
    """Whether a user message may follow a tool result directly."""
    refusal: str = "field"
    """Whether an earlier refusal goes back as such or as plain text."""
    files: str = "part"
    """`"inline"`: the server knows no file parts; text-like files are put into the text."""
    finish_optional: bool = False
    """The server names no finish reason: content and the end of the stream make an answer."""
    think_tags: bool = False
    """Read a leading `<think>...</think>` as thinking."""

    @classmethod
    def of(cls, given: object) -> Quirks:
        """Return the quirks in the mapping *given*. ValueError: it names the key or value unknown here."""
        if not isinstance(given, Mapping):
            raise ValueError(f"quirks must be a mapping, not {given!r}")  # noqa: TRY004  # a setting's value
        known: dict[str, Any] = {}
        for key, value in given.items():
            allowed = _ALLOWED.get(key)
            if allowed is None:
                raise ValueError(f"unknown quirk {key!r}; known: {', '.join(sorted(_ALLOWED))}")
            if not any(value == one and type(value) is type(one) for one in allowed):
                raise ValueError(
                    f"quirk {key!r} can't be {value!r}; use one of {', '.join(map(repr, allowed))}"
                )
            known[key] = value
        return cls(**known)


assert set(Quirks.__struct_fields__) == set(_ALLOWED)
