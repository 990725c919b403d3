"""`kill()` and `kill_nowait()`, at every moment (ACCEPTANCE 3; field-faults B6)."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import aiio
from aiio.context.events import Done, Error, ErrorKind

from .scripted import CONTEXT, HANG, MODEL, Head, Pause, Step, Wire, finish, frames, say, scripted


async def killed(io: aiio.IO, after: float, wire: Wire, times: int = 1) -> Any:
    """Write, kill after some seconds, and return the terminal event."""
    found: list[Any] = []

    async def write() -> None:
        found.append(await io.write(CONTEXT))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await trio.sleep(after)
        for _ in range(times):
            await io.kill("stop it")
        assert io.state == "closed"
        assert wire.open == 0
    return found[0]


@pytest.mark.parametrize(
    ("script", "after"),
    [
        ((Head(after=math.inf),), 1.0),
        ((say("Half"), HANG), 1.0),
        ((Head(after=2), Pause(2), say("x"), HANG), 3.0),
    ],
    ids=["connecting", "reading", "before the first frame"],
)
@pytest.mark.parametrize("times", [1, 2])
async def test_kill_in_flight(
    script: tuple[Step, ...], after: float, times: int, autojump_clock: MockClock
) -> None:
    async with scripted(*script) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        terminal = await killed(io, after, wire, times)
        assert isinstance(terminal, Error)
        assert (terminal.kind, terminal.cancelled, terminal.error) == (
            ErrorKind.CANCELLED,
            True,
            "cancelled: stop it",
        )
        assert trio.current_time() == after
        assert not env.active_io
        with pytest.raises(trio.ClosedResourceError):
            await io.write(CONTEXT)


async def test_all_who_kill_at_once_wait_until_it_has_settled(autojump_clock: MockClock) -> None:
    async with scripted(say("Half"), HANG) as (env, wire):
        io, requests = aiio.IO(env=env, model=MODEL), list[Any]()

        async def kill() -> None:
            await io.kill()
            assert (io.state, wire.open) == ("closed", 0)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                io.write, CONTEXT, {"on_text_delta": lambda event: requests.append(io._request)}
            )
            await trio.sleep(1)
            for _ in range(3):
                nursery.start_soon(kill)
        (request,) = requests
        await request.wait_settled()  # who comes later does not wait


async def test_kill_while_idle(autojump_clock: MockClock) -> None:
    async with scripted(finish()) as (env, _):
        io = aiio.IO(env=env, model=MODEL)
        await io.kill()
        await io.kill()
        io.kill_nowait()
        assert io.state == "closed"


async def test_kill_while_queued(autojump_clock: MockClock) -> None:
    async with scripted(say("x"), Pause(10), finish(), max_active=1) as (env, wire):
        first, second = (aiio.IO(env=env, model=MODEL) for _ in range(2))
        events: list[Any] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.write, CONTEXT)
            await wait_all_tasks_blocked()
            nursery.start_soon(second.write, CONTEXT, {"on_start": events.append, "on_error": events.append})
            await wait_all_tasks_blocked()
            assert (second.state, env.queued) == ("sending", 1)
            await second.kill()
            assert (second.state, env.queued) == ("closed", 0)
        assert [event.type.value for event in events] == ["error"]
        assert len(wire.requests) == 1


async def test_kill_from_a_listener_to_io_start_stops_it_before_anything_is_sent(
    autojump_clock: MockClock,
) -> None:
    async with scripted(say("x"), HANG) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)

        def hear(event: Any) -> None:
            if event.name == "io_start":
                io.kill_nowait("not now")

        env.on_event(hear)
        terminal = await io.write(CONTEXT)
        assert isinstance(terminal, Error)
        assert (terminal.cancelled, terminal.error) == (True, "cancelled: not now")
        assert (wire.requests, io.state, list(env.active_io)) == ([], "closed", [])


async def test_kill_from_a_callback_stops_the_events(autojump_clock: MockClock) -> None:
    texts: list[str] = []
    async with scripted(
        frames(*[[{"type": "text_delta", "content_index": 0, "text": c}] for c in "abc"]), HANG
    ) as (
        env,
        wire,
    ):
        io = aiio.IO(env=env, model=MODEL)

        def on_text(event: Any) -> None:
            texts.append(event.text)
            if event.text == "b":
                io.kill_nowait("seen enough")

        terminal = await io.write(CONTEXT, {"on_text_delta": on_text})
        assert texts == ["a", "b"]
        assert isinstance(terminal, Error)
        assert terminal.error == "cancelled: seen enough"
        assert terminal.message == {"type": 3, "content": [{"type": "text", "text": "ab"}]}
        assert (io.state, wire.open) == ("closed", 0)


@pytest.mark.parametrize("callback", ["on_start", "on_done"])
async def test_kill_from_the_first_and_last_callback(callback: str, autojump_clock: MockClock) -> None:
    async with scripted(say("x"), finish()) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        terminal = await io.write(CONTEXT, {callback: lambda event: io.kill_nowait()})
        assert isinstance(terminal, Error if callback == "on_start" else Done)
        assert (io.state, wire.open) == ("closed", 0)


async def test_kill_after_the_end_is_a_no_op_for_the_answer(autojump_clock: MockClock) -> None:
    async with scripted(say("x"), finish()) as (env, _):
        io = aiio.IO(env=env, model=MODEL)
        assert isinstance(await io.write(CONTEXT), Done)
        await io.kill()
        assert io.state == "closed"


async def test_a_cancelled_wait_leaves_the_request_killed(autojump_clock: MockClock) -> None:
    async with scripted(say("x"), HANG, close_takes=3) as (env, _):
        io = aiio.IO(env=env, model=MODEL)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(io.write, CONTEXT)
            await wait_all_tasks_blocked()
            with trio.move_on_after(1):
                await io.kill()
            assert io.state == "reading"
        assert io.state == "closed"


CALL = {"type": "tool_call_start", "content_index": 1, "call_id": "c1", "name": "look"}
B6: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]] | None]] = {
    "nothing": ([], None),
    "half a text": (
        [{"type": "text_delta", "content_index": 0, "text": "Half"}],
        [{"type": "text", "text": "Half"}],
    ),
    "text and half tool arguments": (
        [
            {"type": "text_delta", "content_index": 0, "text": "Let me see."},
            {"type": "text_end", "content_index": 0},
            CALL,
            {"type": "tool_call_delta", "content_index": 1, "arguments": '{"city": "Par'},
        ],
        [
            {"type": "text", "text": "Let me see."},
            {
                "type": "tool_call",
                "call_id": "c1",
                "name": "look",
                "arguments": '{"city": "Par',
                "partial": True,
            },
        ],
    ),
    "thinking without its end": (
        [{"type": "thinking_delta", "content_index": 0, "text": "Hm, "}],
        [{"type": "thinking", "text": "Hm, "}],
    ),
    "a full tool call": (
        [
            {**CALL, "content_index": 0},
            {"type": "tool_call_delta", "content_index": 0, "arguments": '{"city": "Paris"}'},
            {"type": "tool_call_end", "content_index": 0},
        ],
        [{"type": "tool_call", "call_id": "c1", "name": "look", "arguments": {"city": "Paris"}}],
    ),
}


@pytest.mark.parametrize("name", B6)
async def test_B6_kill_keeps_a_valid_partial(name: str, autojump_clock: MockClock) -> None:
    events, content = B6[name]
    async with scripted(frames(events), HANG) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        terminal = await killed(io, 1, wire)
    assert isinstance(terminal, Error)
    assert terminal.usage is not None
    assert terminal.usage["source"] == "estimate"
    if content is None:
        assert terminal.message is None
        return
    assert terminal.message == {"type": 3, "content": content}
    aiio.validate_message(terminal.message)
    context = [*CONTEXT]
    aiio.append_message(context, terminal.message)
    async with scripted(say("more"), finish()) as (env, wire):
        assert isinstance(await aiio.IO(env=env, model=MODEL).write(context), Done)
