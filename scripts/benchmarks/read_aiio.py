"""aiio as its users call it: `IO.write` with callbacks over a registered endpoint, the rest as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiio

from .loads import HELD, parse_load
from .reading import Read, run_reader

PROVIDERS = {"anthropic": "anthropic", "ndjson": "ollama", "ws": "openai_responses_ws"}
"""By the content of a load; Chat Completions for all others."""

READING: set[aiio.IO] = set()
"""Those with a request in flight, in all clients of this process."""


@asynccontextmanager
async def open_client(url: str) -> AsyncIterator[Read]:
    """Yield a function that runs one write against *url*."""
    async with aiio.open_env() as env:
        content = parse_load(urlsplit(url).path).content
        provider, kept = PROVIDERS.get(content, "openai_chat"), content == "kept"
        env.register_endpoint("bench", provider=provider, url=url, http_keep=kept)

        async def read(pieces: list[str], started: Callable[[], None]) -> None:
            keep = pieces.append
            errors: list[aiio.Error] = []
            io = aiio.IO(env=env, model="bench/bench")

            def keep_text(event: aiio.TextDelta) -> None:
                keep(event.text)

            def keep_arguments(event: aiio.ToolCallDelta) -> None:
                keep(event.arguments)

            callbacks: dict[str, Callable[[Any], object]] = {
                "on_text_start": lambda event: started(),
                "on_tool_call_start": lambda event: started(),
                "on_text_delta": keep_text,
                "on_tool_call_delta": keep_arguments,
                "on_error": errors.append,
            }
            READING.add(io)
            try:
                terminal = await io.write([aiio.user_message("Go.")], callbacks)
            finally:
                READING.discard(io)
                if content in HELD:  # what counts is the partial message
                    pieces[:] = [text_of(error) for error in errors]
            if terminal.type != "done" and content not in HELD:
                raise RuntimeError(f"the write failed: {terminal}")

        yield read


def text_of(error: aiio.Error) -> str:
    """Return what the partial message of a write that was stopped says."""
    if not error.cancelled or error.message is None:
        raise RuntimeError(f"not stopped with a partial message: {error}")
    return "".join(block["text"] for block in error.message["content"])


def kill_all() -> None:
    """Kill every IO that reads."""
    for io in list(READING):
        io.kill_nowait()


if __name__ == "__main__":
    run_reader(open_client, kill=kill_all)
