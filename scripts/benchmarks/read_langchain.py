"""LangChain on asyncio: `ChatOpenAI.astream`.

The library is no dependency of this project. It is imported by name, in a virtual environment of its own.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from .reading import Read, run_reader_on_asyncio

langchain_openai: Any = importlib.import_module("langchain_openai")


@asynccontextmanager
async def open_client(url: str) -> AsyncIterator[Read]:
    """Yield a function that streams one answer from *url*."""
    model = langchain_openai.ChatOpenAI(model="bench", base_url=url, api_key="bench", max_retries=0)

    async def read(pieces: list[str], started: Callable[[], None]) -> None:
        async for chunk in model.astream("Go."):
            if chunk.content:
                if not pieces:
                    started()
                pieces.append(chunk.content)

    yield read


if __name__ == "__main__":
    run_reader_on_asyncio(open_client)
