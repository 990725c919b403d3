"""pydantic-ai on trio: `direct.model_request_stream`, its shortest way to a model, without an agent.

The library is no dependency of this project. It is imported by name, in a virtual environment of its own.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from .reading import Read, run_reader

direct: Any = importlib.import_module("pydantic_ai.direct")
messages: Any = importlib.import_module("pydantic_ai.messages")
models: Any = importlib.import_module("pydantic_ai.models.openai")
providers: Any = importlib.import_module("pydantic_ai.providers.openai")


@asynccontextmanager
async def open_client(url: str) -> AsyncIterator[Read]:
    """Yield a function that streams one answer from *url*."""
    provider = providers.OpenAIProvider(base_url=url, api_key="bench")
    model = models.OpenAIChatModel("bench", provider=provider)
    request = [messages.ModelRequest.user_text_prompt("Go.")]

    async def read(pieces: list[str], started: Callable[[], None]) -> None:
        async with direct.model_request_stream(model, request) as stream:
            async for event in stream:
                if event.event_kind == "part_start":
                    text = event.part.content
                elif event.event_kind == "part_delta":
                    text = event.delta.content_delta
                else:
                    continue
                if not pieces:
                    started()
                pieces.append(text)

    yield read


if __name__ == "__main__":
    run_reader(open_client)
