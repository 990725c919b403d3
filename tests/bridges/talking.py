"""What the tests of bridges share: a chat server's answers, and an Env that knows it, all on trio's side."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiio.env.env import Env, open_env
from tests.serving import Server, Step, chunk, head, last_chunk, serve, stall

MODEL = "peer/m"


def frame(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def delta(text: str) -> Step:
    """A chunk with a piece of text."""
    return chunk(frame({"choices": [{"index": 0, "delta": {"content": text}}]}))


def answer(*texts: str) -> list[Step]:
    """A whole answer in pieces."""
    stop = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return [head(), *map(delta, texts), chunk(frame(stop)), chunk(b"data: [DONE]\n\n"), last_chunk()]


def half(text: str) -> list[Step]:
    """The beginning of an answer; nothing more comes."""
    return [head(), delta(text), stall()]


@asynccontextmanager
async def talking(*steps: Step) -> AsyncIterator[tuple[Env, Server]]:
    """An Env with a loopback server behind the endpoint `peer`."""
    async with serve(*steps) as server, open_env(config=False) as env:
        env.register_endpoint("peer", url=f"{server.url}/v1")
        yield env, server


def threads() -> set[threading.Thread]:
    """The threads that run now, without the workers that trio keeps for a while when they have no work.

    And without one that loads a list of prices: it is let go when its Env is left.
    """
    passing = ("Trio thread", "_load from trio.to_thread")
    return {thread for thread in threading.enumerate() if not thread.name.startswith(passing)}
