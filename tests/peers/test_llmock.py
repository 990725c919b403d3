"""llmock injects faults and judges its client: a caller who heeds what aiio says of an error does it right.

aiio retries nothing by itself. The caller here does what its errors advise, `retryable` and
`retry_after_ms`, as any program would; llmock sees the attempts and their times.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

import aiio
from aiio.context.events import Done, Error, ErrorKind
from aiio.context.types import user_message
from aiio.env.env import Env, open_env

from .processes import ask

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]

PATHS = {
    "openai_chat": "/v1",
    "openai_responses": "/v1",
    "anthropic": "/anthropic",
    "gemini": "/gemini/v1beta",
}
each = pytest.mark.parametrize("protocol", PATHS)

ATTEMPTS = 4

FAULTS: dict[str, dict[str, Any]] = {
    "a rate limit": {"type": "fail", "status": 429, "retry_after": 0.3},
    "overload": {"type": "fail", "status": 503, "times": 2},
    "a server error": {"type": "fail", "status": 500},
    "a cut": {"type": "stream_fault", "kind": "truncate", "after_chunks": 3},
    "a lost connection": {"type": "stream_fault", "kind": "disconnect", "after_chunks": 3},
    "a frame that is no JSON": {"type": "stream_fault", "kind": "malformed", "after_chunks": 2},
    "a stall": {"type": "stream_fault", "kind": "stall", "after_chunks": 2, "stall_seconds": 30},
    "a slow first token": {"type": "slow_first_token", "seconds": 0.5},
}
"""What goes wrong, once unless it says how often."""

FINAL = {
    "a bad request": {"type": "fail", "status": 400},
    "a bad key": {"type": "fail", "status": 401},
    "no such model": {"type": "fail", "status": 404},
}
"""What no retry mends."""

UNMENDED = FAULTS["a frame that is no JSON"]
"""What no retry is advised for. llmock warns of it: it can't see that the caller was told."""


async def caller(env: Env) -> list[Done | Error]:
    """Ask until there is an answer or an error that is final; return how each attempt ended."""
    attempts: list[Done | Error] = []
    for attempt in range(ATTEMPTS):
        io = aiio.IO(env=env, model="peer/m", stuck_timeout="2s", settings={"max_tokens": 64})
        terminal = await io.write([user_message("Tell me of the sea.")])
        attempts.append(terminal)
        if isinstance(terminal, Done) or not terminal.retryable:
            break
        asked = terminal.retry_after_ms or 0
        await trio.sleep(max(asked / 1000, 0.1 * 2**attempt))
    return attempts


async def attempts_at(
    url: str, protocol: str, fault: dict[str, Any]
) -> tuple[list[Done | Error], dict[str, Any]]:
    """Let *fault* happen to a caller; return its attempts and llmock's verdict on it."""
    await trio.to_thread.run_sync(ask, f"{url}/_llmock/scenario", {"behaviors": [fault]})
    async with open_env() as env:
        env.register_endpoint("peer", provider=protocol, url=url + PATHS[protocol], auth="key-of-the-test")
        attempts = await caller(env)
    return attempts, await trio.to_thread.run_sync(partial(ask, f"{url}/_llmock/verdict"))


@each
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_what_can_be_mended_is_mended_by_heeding_the_error(
    llmock: str, protocol: str, fault: dict[str, Any]
) -> None:
    attempts, verdict = await attempts_at(llmock, protocol, fault)
    assert verdict["errors"] == 0, verdict
    *failed, last = attempts
    assert all(isinstance(one, Error) for one in failed)
    if fault is UNMENDED:
        assert isinstance(last, Error)
        assert last.kind is ErrorKind.MALFORMED
        return
    assert isinstance(last, Done), last
    assert verdict["warnings"] == 0
    if fault["type"] != "slow_first_token":
        assert len(failed) == fault.get("times", 1)


@each
@pytest.mark.parametrize("fault", FINAL.values(), ids=FINAL.keys())
async def test_what_is_final_is_said_to_be(llmock: str, protocol: str, fault: dict[str, Any]) -> None:
    attempts, verdict = await attempts_at(llmock, protocol, fault)
    assert verdict["errors"] == verdict["warnings"] == 0, verdict
    [only] = attempts
    assert isinstance(only, Error)
    assert not only.retryable
    assert only.status == fault["status"]


@each
async def test_E3_a_cut_stream_is_never_an_answer(llmock: str, protocol: str) -> None:
    attempts, verdict = await attempts_at(llmock, protocol, FAULTS["a cut"])
    first = attempts[0]
    assert isinstance(first, Error)
    assert first.kind is ErrorKind.NETWORK
    assert "truncated_stream_accepted" not in {finding["code"] for finding in verdict["findings"]}
