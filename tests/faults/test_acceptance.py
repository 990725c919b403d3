"""What a reader of the seeds tries first, 2 to 4: the assembler, write and kill, and the three limits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs
from trio.testing import MockClock

import aiio
from aiio.providers import define_provider
from tests.serving import Server, Step, hang, head, last_chunk, pause, respond, serve, sse, stall

from .peer import CONTEXT, DONE, GOOD, MODEL, answer, events, paced, peer, stop, text, thinking, write


@define_provider(name="verbatim")
class Verbatim:
    """A plug-in whose frames are lists of events, over real HTTP."""

    def request(self, context: Sequence[Any], io: Any) -> tuple[dict[str, str], Any]:
        return {}, {"messages": list(context)}

    def translate(self, native: Any, state: Any, io: Any) -> Any:
        return native


async def assembled(*frames: list[dict[str, Any]]) -> tuple[Any, list[Any]]:
    """Return the terminal event for an answer of *frames*, and all events."""
    async with (
        serve(respond(sse(*(json.dumps(one).encode() for one in frames)))) as server,
        aiio.Env(environ={}) as env,
    ):
        env.register_provider(Verbatim)
        env.register_endpoint("peer", provider="verbatim", url=server.url)
        heard: list[Any] = []
        terminal = await aiio.IO(env=env, model=MODEL, on_data=heard.append).write(CONTEXT)
        assert [one for one in heard if isinstance(one, aiio.Done | aiio.Error)] == [terminal]
        return terminal, heard


def delta(kind: str, index: int, piece: str) -> dict[str, Any]:
    return {"type": f"{kind}_delta", "content_index": index, "text": piece}


FINISH = [{"type": "done", "done_reason": "stop"}]


# --- 2: the assembler -----------------------------------------------------------------------------


async def test_acceptance_2_index_gaps_are_closed_up(patient_clock: MockClock) -> None:
    terminal, _ = await assembled([delta("text", 3, "late")], [delta("text", 0, "early")], FINISH)
    assert [block["text"] for block in terminal.message["content"]] == ["early", "late"]
    aiio.validate_message(terminal.message)


async def test_acceptance_2_repeated_starts_lose_nothing(patient_clock: MockClock) -> None:
    start = {"type": "text_start", "content_index": 0}
    terminal, _ = await assembled(
        [start, delta("text", 0, "One. ")], [start, delta("text", 0, "Two.")], [start], FINISH
    )
    assert [block["text"] for block in terminal.message["content"]] == ["One. Two."]


@pytest.mark.parametrize("raw", ['{"a": ', "{'a': 1}", '{"a": 1}}', "nonsense", '{"a": 1,}'])
async def test_acceptance_2_malformed_tool_json_is_kept_raw(patient_clock: MockClock, raw: str) -> None:
    terminal, _ = await assembled(
        [{"type": "tool_call_start", "content_index": 0, "call_id": "c", "name": "f"}],
        [{"type": "tool_call_delta", "content_index": 0, "arguments": raw}],
        [{"type": "tool_call_end", "content_index": 0}],
        FINISH,
    )
    (block,) = terminal.message["content"]
    assert (block["arguments"], block["partial"]) == (raw, True)


async def test_acceptance_2_text_end_is_authoritative(patient_clock: MockClock) -> None:
    terminal, heard = await assembled(
        [delta("text", 0, "Helo")], [{"type": "text_end", "content_index": 0, "text": "Hello"}], FINISH
    )
    assert [block["text"] for block in terminal.message["content"]] == ["Hello"]
    (end,) = [one for one in heard if isinstance(one, aiio.TextEnd)]
    assert end.text == "Hello"


@pytest.mark.parametrize(
    "bad", [{"type": "text_delta", "content_index": -1, "text": "x"}, {"type": "shout"}, 7]
)
async def test_acceptance_2_an_event_that_is_none_is_one_malformed_error(
    patient_clock: MockClock, bad: Any
) -> None:
    terminal, _ = await assembled([delta("text", 0, "Kept.")], [bad], FINISH)
    assert isinstance(terminal, aiio.Error)
    assert terminal.kind is aiio.ErrorKind.MALFORMED
    assert [block["text"] for block in (terminal.message or {})["content"]] == ["Kept."]


async def test_acceptance_2_messages_of_old_answers_stay_as_they_were(patient_clock: MockClock) -> None:
    """Each write has an assembler of its own: what one answer left is not touched by the next."""
    async with serve(*answer(*GOOD)) as server, peer(server) as env:
        io = aiio.IO(env=env, model=MODEL)
        first = (await write(io)).done.message
        kept = json.dumps(first)
        second = (await write(io)).done.message
        assert (json.dumps(first), json.dumps(second)) == (kept, kept)
        assert first is not second


# --- 3: write and kill ----------------------------------------------------------------------------


async def wait_for_state(io: aiio.IO, state: str, server: Server) -> None:
    while io.state != state or not server.open:
        await trio.sleep(0.001)


@pytest.mark.parametrize("phase", ["sending", "reading"])
async def test_acceptance_3_write_while_busy_is_refused_and_disturbs_nothing(
    patient_clock: MockClock, phase: str
) -> None:
    wait = [pause(5)] if phase == "sending" else []
    steps: list[Step] = [
        *wait,
        head(),
        events(text("One. ")),
        pause(5),
        events(text("Two."), stop(), DONE),
        last_chunk(),
    ]
    async with serve(*steps) as server, peer(server) as env:
        io = aiio.IO(env=env, model=MODEL)
        async with trio.open_nursery() as nursery:
            found: list[Any] = []

            async def first() -> None:
                found.append(await write(io))

            nursery.start_soon(first)
            await wait_for_state(io, phase, server)
            for _ in range(3):
                with pytest.raises(trio.BusyResourceError):
                    await io.write(CONTEXT)
                with pytest.raises(trio.BusyResourceError):
                    async with io.stream(CONTEXT):
                        pass
            assert io.state == phase
        assert found[0].text == "One. Two."
        assert server.connections == 1


@pytest.mark.parametrize("phase", ["idle", "queued", "connect", "read", "after"])
@pytest.mark.parametrize("how", ["kill", "kill_nowait"])
async def test_acceptance_3_kill_works_in_every_phase_and_twice(
    patient_clock: MockClock, phase: str, how: str
) -> None:
    steps: list[Step] = {
        "connect": [stall()],
        "after": answer(*GOOD),
    }.get(phase, [head(), events(text("Par")), stall()])
    async with serve(*steps) as server, peer(server, max_active=1) as env:
        io, other = aiio.IO(env=env, model=MODEL), aiio.IO(env=env, model=MODEL)
        found: list[Any] = []

        async def run() -> None:
            found.append(await write(io))

        async def kill() -> None:
            if how == "kill":
                await io.kill("enough")
            else:
                io.kill_nowait("enough")

        async with trio.open_nursery() as nursery:
            if phase == "queued":
                nursery.start_soon(other.write, CONTEXT)
                await server.wait_open(1)
            if phase != "idle":
                nursery.start_soon(run)
                await trio.testing.wait_all_tasks_blocked(0.002)
            await kill()
            await kill()
            if phase == "queued":
                await other.kill()
        await kill()
        assert io.state == "closed"
        if phase in ("queued", "connect", "read"):
            error = found[0].error
            assert (error.kind, error.cancelled) == (aiio.ErrorKind.CANCELLED, True)
            assert found[0].text == ("Par" if phase == "read" else "")
        with pytest.raises(trio.ClosedResourceError):
            await io.write(CONTEXT)
        with pytest.raises(trio.ClosedResourceError):
            async with io.stream(CONTEXT):
                pass
        assert list(env.active_io) == []
        await server.wait_idle()


async def test_acceptance_3_kill_returns_when_the_write_has_settled(patient_clock: MockClock) -> None:
    async with serve(head(), events(text("Par")), stall()) as server, peer(server) as env:
        io = aiio.IO(env=env, model=MODEL)
        found: list[Any] = []

        async def run() -> None:
            found.append(await io.write(CONTEXT, {"on_error": lambda one: found.append("callback")}))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await server.wait_open(1)
            await trio.sleep(1)
            await io.kill()
            assert found[0] == "callback"
            assert io.state == "closed"


async def test_acceptance_3_kill_of_one_leaves_the_others_alone(patient_clock: MockClock) -> None:
    slow = [head(), events(text("Hi")), pause(5), events(stop(), DONE), last_chunk()]
    async with serve(*slow) as server, peer(server) as env:
        ios = [aiio.IO(env=env, model=MODEL) for _ in range(5)]
        kinds: dict[int, str] = {}

        async def run(number: int) -> None:
            kinds[number] = (await ios[number].write(CONTEXT)).type

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(run, number)
            await trio.sleep(1)
            await ios[2].kill()
        assert kinds == {0: "done", 1: "done", 2: "error", 3: "done", 4: "done"}


# --- 4: three limits ------------------------------------------------------------------------------

LIMITS: dict[str, Any] = {"timeout": "3s", "connect_timeout": "2s", "stuck_timeout": "1s"}


@pytest.mark.parametrize(
    ("limit", "steps", "seconds"),
    [
        ("connect", [stall()], 2.0),
        ("stuck", [pause(1.5), head(), stall()], 2.5),
        ("overall", [head(), *paced([text(".")] * 9, 0.9)], 3.0),
        (None, [pause(1.5), *answer(*GOOD)], 1.5),
    ],
)
async def test_acceptance_4_each_limit_fires_by_itself(
    patient_clock: MockClock, limit: str | None, steps: list[Step], seconds: float
) -> None:
    async with serve(*steps) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL, **LIMITS))
        per_byte = len(server.requests[0].body) / 1000 if limit == "connect" else 0
        assert seen.took == pytest.approx(seconds + per_byte)
        assert (seen.terminal.type == "done") == (limit is None)
        if limit is not None:
            assert seen.error.limit == limit


@pytest.mark.parametrize("frame", [text("."), thinking("."), events], ids=["text", "thinking", "mixed"])
async def test_acceptance_4_stuck_is_reset_by_every_frame(patient_clock: MockClock, frame: Any) -> None:
    frames = [text("a"), thinking("b")] * 10 if frame is events else [frame] * 20
    async with serve(head(), *paced(frames, 0.99), stall()) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL, stuck_timeout="1s"))
        assert seen.error.limit == "stuck"
        assert seen.took == pytest.approx(20 * 0.99 + 1)
        assert seen.error.silence_ms == pytest.approx(1000)


@pytest.mark.parametrize("size", [0, 1, 1000, 100_000])
async def test_acceptance_4_connect_grows_by_one_ms_per_body_byte(
    patient_clock: MockClock, size: int
) -> None:
    async with serve(hang()) as server, peer(server) as env:
        with capture_logs() as logs:
            seen = await write(
                aiio.IO(env=env, model=MODEL), [aiio.user_message("é" * size + "x")], connect_timeout="2s"
            )
        sent = len(server.requests[0].body)
        assert sent > 2 * size
        assert seen.took == pytest.approx(2 + sent / 1000)
        assert seen.error.budget_ms == pytest.approx(2000 + sent)
        (line,) = [one for one in logs if one["event"] == "request.settled"]
        assert (line["connect_budget_ms"], line["body_bytes"]) == (pytest.approx(2000 + sent), sent)


async def test_acceptance_4_queue_and_connect_have_no_part_in_each_other(patient_clock: MockClock) -> None:
    async with serve(pause(1.9), *answer(*GOOD)) as server, peer(server, max_active=1) as env:
        kinds: list[str] = []

        async def run() -> None:
            kinds.append((await aiio.IO(env=env, model=MODEL, **LIMITS).write(CONTEXT)).type)

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(run)
        assert kinds == ["done"] * 4
