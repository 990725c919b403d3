"""LiteLLM on asyncio: `acompletion` with `stream=True`.

The library is no dependency of this project. It is imported by name, in a virtual environment of its own.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from .reading import Read, run_reader_on_asyncio

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else importing it asks the network
litellm: Any = importlib.import_module("litellm")


@asynccontextmanager
async def open_client(url: str) -> AsyncIterator[Read]:
    """Yield a function that streams one answer from *url*."""

    async def read(pieces: list[str], started: Callable[[], None]) -> None:
        stream = await litellm.acompletion(
            model="openai/bench",
            api_base=url,
            api_key="bench",
            messages=[{"role": "user", "content": "Go."}],
            stream=True,
        )
        async for chunk in stream:
            if chunk.choices and (text := chunk.choices[0].delta.content):
                if not pieces:
                    started()
                pieces.append(text)

    yield read


if __name__ == "__main__":
    run_reader_on_asyncio(open_client)
