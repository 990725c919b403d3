"""B6: what had arrived when a request was stopped is kept, valid, and replays."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

import aiio
from tests.providers.strict_chat import check_chat_body
from tests.serving import Step, drop, half_close, head, last_chunk, raw, reset, respond, serve, sse, stall

from .peer import (
    CONTEXT,
    GOOD,
    MODEL,
    Seen,
    answer,
    blocks_of,
    call,
    chunk_json,
    events,
    peer,
    read_by_client,
    text,
    text_of,
    thinking,
    usage,
    write,
)

# --- B6: what had arrived is kept, and replays ----------------------------------------------------

WHOLE_CALL = [call(id="c1", name="look"), call('{"at": '), call("[1, 2]}")]
ARRIVED: dict[str, tuple[bytes, ...]] = {
    "nothing": (),
    "half-a-text": (text("Half a sen"),),
    "half-a-call": (text("I look."), call(id="c1", name="look"), call('{"at": [1,')),
    "half-thinking": (
        chunk_json({"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "Let me"}]}),
        chunk_json({"reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": "sig"}]}),
    ),
    "plain-thinking": (thinking("Let me see"),),
    "whole-call": (text("I look."), *WHOLE_CALL),
    "whole-then-half-a-call": (
        text("I look."),
        *WHOLE_CALL,
        call(id="c2", name="look", index=1),
        call('{"at"', index=1),
    ),
    "thinking-then-text": (thinking("Done thinking."), text("So")),
    "usage-so-far": (text("Half"), chunk_json({}, usage={"prompt_tokens": 9, "completion_tokens": 4})),
}


async def _killed(io: aiio.IO, context: list[Any], seen: Seen) -> None:
    async with trio.open_nursery() as nursery:

        async def kill() -> None:
            await trio.sleep(5)
            await io.kill()

        nursery.start_soon(kill)
        await write(io, context, seen=seen)


async def _cancelled(io: aiio.IO, context: list[Any], seen: Seen) -> None:
    with trio.move_on_after(5):
        await write(io, context, seen=seen)


def _limited(**options: Any) -> Callable[[aiio.IO, list[Any], Seen], Awaitable[None]]:
    async def run(io: aiio.IO, context: list[Any], seen: Seen) -> None:
        await write(io, context, seen=seen, **options)

    return run


ENDS: dict[str, tuple[list[Step], Callable[[aiio.IO, list[Any], Seen], Awaitable[None]]]] = {
    "kill": ([stall()], _killed),
    "outer": ([stall()], _cancelled),
    "overall": ([stall()], _limited(timeout="5s")),
    "stuck": ([stall()], _limited(stuck_timeout="5s")),
    "cut": ([drop()], _limited()),
    "polite-end": ([last_chunk()], _limited()),
    "half-closed": ([half_close()], _limited()),
    "reset": ([read_by_client(), reset()], _limited()),
    "garbage": ([raw(b"zz\r\nnot a chunk")], _limited()),
    "bad-json": ([events(b'{"choices": [')], _limited()),
    "bad-bytes": ([events(b'{"choices": [{"delta": {"content": "\xff"}}]}')], _limited()),
    "error-in-band": ([events(b'{"error": {"message": "overloaded", "code": 503}}')], _limited()),
}


@pytest.mark.parametrize("arrived", list(ARRIVED))
@pytest.mark.parametrize("end", list(ENDS))
async def test_B6_the_partial_is_kept_valid_and_replays(
    patient_clock: MockClock, end: str, arrived: str
) -> None:
    steps, run = ENDS[end]
    async with serve(head(), events(*ARRIVED[arrived]), *steps) as server, peer(server) as env:
        seen = Seen()
        await run(aiio.IO(env=env, model=MODEL), list(CONTEXT), seen)
        error = seen.error
        assert (error.usage or {})["source"] == "estimate" or arrived == "usage-so-far"
        assert error.emitted == (arrived != "nothing")
        check_partial(arrived, error.message)
        await server.wait_idle()

        partial = [] if error.message is None else [error.message]
        results = [
            aiio.tool_result_message(one["call_id"], one["name"], "seen")
            for one in blocks_of(error.message, "tool_call")
        ]
        server.script(respond(sse(*GOOD)))
        again = [*CONTEXT, *json.loads(json.dumps(partial)), *results, aiio.user_message("Go on")]
        replay = await write(aiio.IO(env=env, model=MODEL), again)
        assert replay.text == "Hi"
        body = server.requests[-1].json()
        check_chat_body(body)
        assert ("Half" in json.dumps(body)) == arrived.startswith(("half-a-text", "usage"))


def check_partial(arrived: str, message: Any) -> None:
    """Assert what is left of what had *arrived*."""
    calls = blocks_of(message, "tool_call")
    match arrived:
        case "nothing":
            assert message is None
        case "half-a-text":
            assert text_of(message) == "Half a sen"
        case "half-a-call":
            assert text_of(message) == "I look."
            assert [(one["arguments"], one["partial"]) for one in calls] == [('{"at": [1,', True)]
        case "half-thinking" | "plain-thinking":
            (block,) = message["content"]
            assert block["type"] == "thinking"
            assert block["text"].startswith("Let me")
            assert set(block) <= {"type", "text"}, "unfinished thinking has no signature"
        case "whole-call" | "whole-then-half-a-call":
            assert text_of(message) == "I look."
            assert calls[0]["arguments"] in ({"at": [1, 2]}, '{"at": [1, 2]}')
            assert all(one["partial"] for one in calls[1:])
            assert [one["arguments"] for one in calls[1:]] == ['{"at"'][: len(calls) - 1]
        case "thinking-then-text":
            assert [block["type"] for block in message["content"]] == ["thinking", "text"]
            assert [block["text"] for block in message["content"]] == ["Done thinking.", "So"]
        case "usage-so-far":
            assert text_of(message) == "Half"


async def test_B6_usage_that_came_before_the_cut_is_reported(patient_clock: MockClock) -> None:
    async with serve(head(), events(text("Half"), usage(9, 4)), drop()) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL))
        counts = seen.error.usage or {}
        assert (counts["input_tokens"], counts["output_tokens"], counts["source"]) == (9, 4, "provider")


async def test_B6_a_call_that_was_killed_half_way_is_never_made_by_an_agent(patient_clock: MockClock) -> None:
    called: list[Any] = []

    def look(at: list[int]) -> str:
        """Look at places."""
        called.append(at)
        return "seen"

    half = [head(), events(*ARRIVED["half-a-call"]), drop()]
    async with serve(*half) as server, peer(server) as env:
        agent = aiio.Agent(env=env, model=MODEL, tools=[look])
        with capture_logs():
            await agent.run("Look.")
        assert called == []
        server.script(*answer(*GOOD))
        await agent.run("Go on.")
        check_chat_body(server.requests[-1].json())


async def test_B6_every_block_that_opened_is_closed_before_the_terminal(patient_clock: MockClock) -> None:
    for name, payloads in ARRIVED.items():
        async with serve(head(), events(*payloads), drop()) as server, peer(server) as env:
            seen = await write(aiio.IO(env=env, model=MODEL))
            opened = [
                one.content_index
                for one in seen.events
                if isinstance(one, aiio.TextStart | aiio.ThinkingStart | aiio.ToolCallStart)
            ]
            closed = [
                one.content_index
                for one in seen.events
                if isinstance(one, aiio.TextEnd | aiio.ThinkingEnd | aiio.ToolCallEnd)
            ]
            assert sorted(opened) == sorted(closed), name
