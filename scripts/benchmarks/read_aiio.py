"""aiio as its users call it: `IO.write` with callbacks over a registered endpoint, the rest as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiio

from .loads import parse_load
from .reading import Read, run_reader

PROVIDERS = {"anthropic": "anthropic", "ndjson": "ollama", "ws": "openai_responses_ws"}
"""By the content of a load; Chat Completions for all others."""


@asynccontextmanager
async def open_client(url: str) -> AsyncIterator[Read]:
    """Yield a function that runs one write against *url*."""
    async with aiio.open_env() as env:
        content = parse_load(urlsplit(url).path).content
        env.register_endpoint("bench", provider=PROVIDERS.get(content, "openai_chat"), url=url)

        async def read(started: Callable[[], None]) -> list[str]:
            pieces: list[str] = []
            keep = pieces.append

            def keep_text(event: aiio.TextDelta) -> None:
                keep(event.text)

            def keep_arguments(event: aiio.ToolCallDelta) -> None:
                keep(event.arguments)

            terminal = await aiio.IO(env=env, model="bench/bench").write(
                [aiio.user_message("Go.")],
                {
                    "on_text_start": lambda event: started(),
                    "on_tool_call_start": lambda event: started(),
                    "on_text_delta": keep_text,
                    "on_tool_call_delta": keep_arguments,
                },
            )
            if terminal.type != "done":
                raise RuntimeError(f"the write failed: {terminal}")
            return pieces

        yield read


if __name__ == "__main__":
    run_reader(open_client)
