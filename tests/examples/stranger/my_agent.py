"""A program of somebody else's: an agent that looks up the weather, and always has an answer."""

from __future__ import annotations

import aiio

looked_up: list[str] = []


def weather(city: str) -> str:
    """Return the weather in a city."""
    looked_up.append(city)
    return f"sunny in {city}"


async def ask(env: aiio.Env, model: str, question: str) -> str:
    """Answer *question*, or say what went wrong, and what had been said by then."""
    agent = aiio.Agent(env=env, model=model, tools=[weather], stuck_timeout="20s")
    result = await agent.run(question)
    match result.terminal:
        case aiio.Done():
            return result.text
        case aiio.Error(limit="stuck"):
            return f"{result.text} [the model went silent]"
        case aiio.Error(status=429, retry_after_ms=float() | int() as wait):
            return f"[busy, try again in {wait / 1000:g} s]"
        case error:
            return f"{result.text} [failed: {error.kind.value}]"
