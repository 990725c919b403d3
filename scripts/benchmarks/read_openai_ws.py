"""The official OpenAI SDK's WebSocket client: `AsyncOpenAI.responses.connect`, on asyncio as it demands.

The SDK is no dependency of this project. It is imported by name, in a virtual environment of its own, with
the library `websockets` in a version that its extra `realtime` allows.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from .reading import Read, run_reader_on_asyncio

openai: Any = importlib.import_module("openai")


@asynccontextmanager
async def open_client(url: str) -> AsyncIterator[Read]:
    """Yield a function that reads one response from *url*, over a socket of its own."""
    async with openai.AsyncOpenAI(api_key="bench", base_url=url, max_retries=0) as client:

        async def read(pieces: list[str], started: Callable[[], None]) -> None:
            async with client.responses.connect() as connection:
                await connection.response.create(model="bench", input="Go.")
                async for event in connection:
                    if event.type == "response.output_text.delta":
                        if not pieces:
                            started()
                        pieces.append(event.delta)
                    elif event.type == "response.completed":
                        break

        yield read


if __name__ == "__main__":
    run_reader_on_asyncio(open_client)
