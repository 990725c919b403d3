"""The official Anthropic SDK on trio: `AsyncAnthropic` with the HTTP client it brings, `stream=True`.

The SDK is no dependency of this project. It is imported by name, in a virtual environment of its own.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from .reading import Read, run_reader

anthropic: Any = importlib.import_module("anthropic")


@asynccontextmanager
async def open_client(url: str) -> AsyncIterator[Read]:
    """Yield a function that streams one message from *url*."""
    async with anthropic.AsyncAnthropic(api_key="bench", base_url=url, max_retries=0) as client:

        async def read(pieces: list[str], started: Callable[[], None]) -> None:
            stream = await client.messages.create(
                model="bench", max_tokens=64, messages=[{"role": "user", "content": "Go."}], stream=True
            )
            async for event in stream:
                if event.type == "content_block_delta" and event.delta.type == "text_delta":
                    if not pieces:
                        started()
                    pieces.append(event.delta.text)

        yield read


if __name__ == "__main__":
    run_reader(open_client)
