"""The dialects the loopback server speaks: where each listens, and who renders it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .actions import Renderer
from .block_dialects import AnthropicRenderer, ResponsesRenderer
from .flat_dialects import ChatRenderer, GeminiRenderer, OllamaRenderer


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One wire format."""

    name: str
    provider: str
    """Key of aiio's provider for it."""
    base: str
    """Path of an endpoint's base URL."""
    target: str
    """What the path of a request ends in, before the query."""
    renderer: Callable[[str], Renderer]
    """Makes the renderer of one answer; takes the model's id."""


DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            name="chat",
            provider="openai_chat",
            base="/v1",
            target="/chat/completions",
            renderer=ChatRenderer,
        ),
        Dialect(
            name="responses",
            provider="openai_responses",
            base="/v1",
            target="/responses",
            renderer=ResponsesRenderer,
        ),
        Dialect(
            name="anthropic", provider="anthropic", base="", target="/messages", renderer=AnthropicRenderer
        ),
        Dialect(
            name="gemini",
            provider="gemini",
            base="/v1beta",
            target=":streamGenerateContent",
            renderer=GeminiRenderer,
        ),
        Dialect(name="ollama", provider="ollama", base="", target="/api/chat", renderer=OllamaRenderer),
    )
}
"""By name."""


def dialect_of(target: str) -> Dialect | None:
    """Return the dialect that a request to *target* speaks; None: none of them."""
    path = target.partition("?")[0]
    return next((found for found in DIALECTS.values() if path.endswith(found.target)), None)


def dialect(name: str) -> Dialect:
    """Return the dialect *name*. ValueError: there is none; the text lists them."""
    if name not in DIALECTS:
        raise ValueError(f"unknown dialect {name!r}; there are {', '.join(DIALECTS)}")
    return DIALECTS[name]
