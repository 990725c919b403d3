"""The official Ollama client on trio: `AsyncClient.chat` with `stream=True`.

The client is no dependency of this project. It is imported by name, in a virtual environment of its own.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from .reading import Read, run_reader

ollama: Any = importlib.import_module("ollama")


@asynccontextmanager
async def open_client(url: str) -> AsyncIterator[Read]:
    """Yield a function that streams one answer from *url*."""
    client = ollama.AsyncClient(host=url, trust_env=False)

    async def read(pieces: list[str], started: Callable[[], None]) -> None:
        chunks = await client.chat(model="bench", messages=[{"role": "user", "content": "Go."}], stream=True)
        async for chunk in chunks:
            if text := chunk.message.content:
                if not pieces:
                    started()
                pieces.append(text)

    yield read


if __name__ == "__main__":
    run_reader(open_client)
