"""Stock httpx on trio: one client for all requests, `client.stream`, lines as they come, a typed decode."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx

from .read_bare import decode
from .reading import Read, run_reader


@asynccontextmanager
async def open_client(url: str) -> AsyncIterator[Read]:
    """Yield a function that reads one stream from *url*."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)  # by default 100 and 20
    async with httpx.AsyncClient(limits=limits, timeout=None) as client:
        request = {"model": "bench", "stream": True, "messages": [{"role": "user", "content": "Go."}]}

        async def read(pieces: list[str], started: Callable[[], None]) -> None:
            async with client.stream("POST", f"{url}/chat/completions", json=request) as response:
                async for line in response.aiter_lines():
                    data = line.removeprefix("data: ")
                    if data in ("", "[DONE]"):
                        continue
                    chunk = decode(data)
                    if chunk.choices and (text := chunk.choices[0].delta.content):
                        if not pieces:
                            started()
                        pieces.append(text)

        yield read


if __name__ == "__main__":
    run_reader(open_client)
