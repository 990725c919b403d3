"""The official OpenAI SDK on trio: `AsyncOpenAI` with the HTTP client it brings, `stream=True`.

The SDK is no dependency of this project. It is imported by name, in a virtual environment of its own.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from .reading import Read, run_reader

openai: Any = importlib.import_module("openai")


@asynccontextmanager
async def open_client(url: str) -> AsyncIterator[Read]:
    """Yield a function that streams one completion from *url*."""
    async with openai.AsyncOpenAI(api_key="bench", base_url=url, max_retries=0) as client:

        async def read(pieces: list[str], started: Callable[[], None]) -> None:
            stream = await client.chat.completions.create(
                model="bench", messages=[{"role": "user", "content": "Go."}], stream=True
            )
            async for chunk in stream:
                if chunk.choices and (text := chunk.choices[0].delta.content):
                    if not pieces:
                        started()
                    pieces.append(text)

        yield read


if __name__ == "__main__":
    run_reader(open_client)
