"""Streams of events: many readers, none of whom the run waits for; and what they are told."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
import structlog
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from aiio.env.errors import HttpStatusError
from aiio.runs.code_steps import run_code
from aiio.runs.context import RunContext
from aiio.runs.errors import RunError
from aiio.runs.harness import Harness
from aiio.runs.item_stream import ItemSnapshot
from aiio.runs.items import create_message, item_text
from aiio.runs.model_step import call_model
from aiio.runs.parallel import in_parallel
from aiio.runs.response_events import ResponseEvents
from aiio.runs.streams import EVENTS_KEPT, Broadcaster, EventSource, EventStream, StreamEvent
from tests.agents.peer import MODEL, answer, call, peer
from tests.io.scripted import HANG, Fail, Pause, Step, finish, frames, say


def event(number: int) -> StreamEvent:
    return StreamEvent(EventSource.FRAMEWORK, "aiio:n", {"n": number})


async def numbers(stream: EventStream) -> list[int]:
    return [found.data["n"] async for found in stream]


async def events_of(harness: Harness, step: Any, input: Any = "q") -> list[StreamEvent]:
    """Run *step*, and return what a reader that comes afterwards is told."""
    context = harness.create_context()
    with suppress(RunError):
        await harness.run(step, input, context=context)
    async with context.event_stream() as stream:
        return [found async for found in stream]


def sdk(events: Sequence[StreamEvent]) -> list[str]:
    return [found.type.removeprefix("response.") for found in events if found.source is EventSource.SDK]


def framework(events: Sequence[StreamEvent]) -> list[str]:
    return [found.type for found in events if found.source is EventSource.FRAMEWORK]


# -- the broadcaster --------------------------------------------------------------------------------


async def test_B5_every_reader_replays_from_the_start_of_the_buffer_and_then_hears_live() -> None:
    source = Broadcaster()
    source.publish(event(0))
    early: list[int] = []
    late: list[int] = []

    async def read(into: list[int]) -> None:
        async with EventStream(source) as stream:
            async for found in stream:
                into.append(found.data["n"])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, early)
        await wait_all_tasks_blocked()
        source.publish(event(1))
        nursery.start_soon(read, late)
        await wait_all_tasks_blocked()
        assert (early, late) == ([0, 1], [0, 1])
        source.publish(event(2))
        await wait_all_tasks_blocked()
        assert (early, late) == ([0, 1, 2], [0, 1, 2])
        source.close()


async def test_B5_the_buffer_holds_10000_events_and_a_slow_reader_misses_the_oldest() -> None:
    assert EVENTS_KEPT == 10_000
    source = Broadcaster(3)
    structlog.reset_defaults()
    with capture_logs() as lines:
        async with EventStream(source) as slow:
            for number in range(2):
                source.publish(event(number))
            assert (await slow.__anext__()).data["n"] == 0
            for number in range(2, 7):
                source.publish(event(number))
            source.close()
            async with EventStream(source) as late:
                assert await numbers(late) == [4, 5, 6]
                assert late.missed == 0
            assert (await slow.__anext__()).data["n"] == 4
            assert slow.missed == 3
            for number in range(7, 10):
                source.publish(event(number))
            assert await numbers(slow) == [7, 8, 9]
            assert slow.missed == 5
    warned = [line for line in lines if line["event"] == "run.events_missed"]
    assert len(warned) in (0, 1)  # 0: the log of this process is set up otherwise


async def test_B5_a_reader_that_does_not_read_never_stalls_the_run() -> None:
    harness = Harness(event_buffer=10)
    context = harness.create_context()

    async def work(_: Any, inner: RunContext) -> int:
        for number in range(100):
            inner.item_log.append(create_message(str(number)))
        return 1

    async with context.event_stream() as stream:
        assert await harness.run(run_code("work", work), context=context) == 1
        assert len([found async for found in stream]) == 10
        assert stream.missed == 92


async def test_B5_once_all_readers_have_left_events_are_discarded() -> None:
    source = Broadcaster()
    assert source.wanted
    async with EventStream(source) as one:
        async with EventStream(source):
            source.publish(event(0))
        source.publish(event(1))
        assert source.wanted
    still: bool = source.wanted
    assert not still
    source.publish(event(2))
    with pytest.raises(StopAsyncIteration):
        await one.__anext__()
    async with EventStream(source) as again:
        source.publish(event(3))
        source.close()
        assert await numbers(again) == [3]


async def test_B5_a_cancelled_reader_loses_nothing() -> None:
    source = Broadcaster()
    async with EventStream(source) as stream:
        with trio.move_on_after(0):
            await stream.__anext__()
        source.publish(event(0))
        with trio.CancelScope() as scope:
            scope.cancel()
            await stream.__anext__()
        assert scope.cancelled_caught
        assert (await stream.__anext__()).data["n"] == 0
        assert stream.next_nowait() is None


async def test_B5_without_a_buffer_there_are_no_streams() -> None:
    harness = Harness(event_buffer=0)
    context = harness.create_context()
    async with context.event_stream() as stream:
        await harness.run(run_code("work", lambda input, context: 1), context=context)
        assert [found async for found in stream] == []


async def test_B5_a_run_that_begins_again_opens_its_stream_again() -> None:
    harness = Harness()
    context = harness.create_context()
    step = run_code("work", lambda input, context: 1)
    await harness.run(step, context=context)
    async with context.event_stream() as stream:
        await harness.run(step, context=context)
        assert len([found async for found in stream]) == 4


# -- what a run tells --------------------------------------------------------------------------------


async def test_B5_an_answer_has_the_events_of_openresponses() -> None:
    async with peer([say("Hel"), say("lo"), finish(usage={"input_tokens": 10, "output_tokens": 2})]) as (
        env,
        _,
    ):
        harness = Harness(env=env, model=MODEL, name="mine")
        found = await events_of(harness, call_model("ask"))
    assert sdk(found) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert framework(found) == [
        "mine:step_started",
        "mine:item_appended",
        "mine:model_call_started",
        "mine:model_call_first_event",
        "mine:model_call_completed",
        "mine:item_appended",
        "mine:step_completed",
    ]
    by_type = {one.type: one for one in found}
    delta, done = by_type["response.output_text.delta"], by_type["response.output_item.done"]
    assert (delta.output_index, delta.content_index, delta.data["delta"]) == (0, 0, "lo")
    assert (done.output_index, done.content_index) == (0, None)
    assert done.data["item"]["content"] == [{"type": "output_text", "text": "Hello"}]
    completed = by_type["response.completed"].data["response"]
    assert (completed["status"], completed["usage"]["input_tokens"]) == ("completed", 10)
    assert completed["output"] == [done.data["item"]]
    appended = by_type["mine:item_appended"].data["item"]
    assert appended["id"] == delta.data["item_id"] == done.data["item"]["id"]
    ids = {one.data["response_id"] for one in found if one.source is EventSource.SDK}
    assert len(ids) == 1


async def test_B5_reasoning_calls_refusals_and_notes_have_events_of_their_own() -> None:
    def block(kind: str, index: int, *pieces: dict[str, Any], **end: Any) -> list[dict[str, Any]]:
        events = [{"type": f"{kind}_delta", "content_index": index, **piece} for piece in pieces]
        return [*events, {"type": f"{kind}_end", "content_index": index, **end}]

    note = {"type": "url_citation", "url": "https://x.test"}
    script = [
        frames(
            block("thinking", 0, {"text": "hm"}, {"text": "m"}),
            block("text", 1, {"text": "one"}, metadata={"annotations": [note]}),
            block("text", 2, {"text": "two"}),
        ),
        call("look", '{"a":1}', index=3),
        finish(usage={"input_tokens": 1}),
    ]
    last = [frames(block("text", 0, {"text": "I won't"}, metadata={"refusal": True})), finish()]
    async with peer(script, last) as (env, _):

        def look(a: int) -> str:
            """Look."""
            return "seen"

        found = await events_of(Harness(env=env, model=MODEL), call_model("ask", tools=[look]))
    first = found[: [one.type for one in found].index("response.completed") + 1]
    assert sdk(first)[2:-1] == [
        "output_item.added",
        "content_part.added",
        "reasoning.delta",
        "reasoning.delta",
        "reasoning.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.annotation.added",
        "output_text.done",
        "content_part.done",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    places = {(one.output_index, one.content_index) for one in first if one.type.endswith("_text.delta")}
    assert places == {(1, 0), (1, 1)}
    outputs = first[-1].data["response"]["output"]
    assert [item["type"] for item in outputs] == ["reasoning", "message", "function_call"]
    assert [part["text"] for part in outputs[1]["content"]] == ["one", "two"]
    assert (outputs[2]["name"], outputs[2]["arguments"]) == ("look", '{"a":1}')
    assert [name for name in sdk(found) if name.startswith("refusal")] == ["refusal.delta", "refusal.done"]
    (tools,) = [one for one in found if one.type == "aiio:tool_call_completed"]
    assert (tools.data["name"], tools.data["error"]) == ("look", False)
    rounds = [name for name in framework(found) if "tool_" in name]
    assert rounds == [
        "aiio:tool_round_started",
        "aiio:tool_call_started",
        "aiio:tool_call_completed",
        "aiio:tool_round_completed",
    ]
    logged = [one.data["item"]["id"] for one in found if one.type == "aiio:item_appended"]
    told = [one.data["item"]["id"] for one in found if one.type == "response.output_item.done"]
    assert [id for id in logged if id in told] == told  # each under the id it was told by


async def test_B5_what_a_server_side_tool_did_is_told_when_it_is_there() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    placed = {"type": "server", "dialect": "x", "item": search}
    image = {"type": "image", "content": "eA==", "mimetype": "image/png"}
    whole = {"type": 3, "content": [placed, {"type": "text", "text": "found"}, image]}
    script = [frames([{"type": "start", "message": whole}]), say(" it", 1), finish()]
    async with peer(script) as (env, _):
        found = await events_of(Harness(env=env, model=MODEL), call_model("ask"))
    names = sdk(found)
    assert names.count("web_search_call.completed") == 1
    assert names.count("output_item.done") == 3
    assert names[-1] == "completed"


@pytest.mark.parametrize(
    ("script", "status", "told"),
    [
        ([say("half"), Fail(HttpStatusError(500))], "failed", "model_call_failed"),
        ([say("half"), HANG], "failed", "model_call_stalled"),
        ([say("half"), finish("length", finish="length")], "incomplete", "model_call_completed"),
    ],
)
async def test_B5_an_answer_that_is_cut_ends_its_items_and_says_how(
    autojump_clock: MockClock, script: list[Step], status: str, told: str
) -> None:
    async with peer(script) as (env, _):
        found = await events_of(Harness(env=env, model=MODEL), call_model("ask", recoveries=0))
    (last,) = [one for one in found if one.type == f"response.{status}"]
    assert last.data["response"]["status"] == status
    assert last.data["response"]["output"][0]["content"][0]["text"] == "half"
    assert f"aiio:{told}" in framework(found)
    appended = [one.data["item"] for one in found if one.type == "aiio:item_appended"]
    assert appended[-1]["id"] == last.data["response"]["output"][0]["id"]


async def test_B5_an_aborted_answer_is_incomplete_because_it_was_cancelled(autojump_clock: MockClock) -> None:
    async with peer([say("half"), HANG]) as (env, _):
        harness = Harness(env=env, model=MODEL)
        context = harness.create_context()
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                with pytest.raises(RunError, match="enough"):
                    await harness.run(call_model("ask"), "q", context=context)

            nursery.start_soon(run)
            await trio.sleep(1)
            context.abort("enough")
        async with context.event_stream() as stream:
            found = [one async for one in stream]
    (last,) = [one for one in found if one.type == "response.incomplete"]
    assert last.data["response"]["incomplete_details"] == {"reason": "cancelled"}


async def test_B5_emit_gates_what_a_model_step_shows_but_not_turns_and_items() -> None:
    async with peer(answer("Hello.")) as (env, _):
        harness = Harness(env=env, model=MODEL)
        heard: list[str] = []
        harness.on_event(lambda name, data: heard.append(name))
        silent = await events_of(harness, call_model("ask", emit=False))
        kept = await events_of(
            harness, call_model("ask", emit=lambda event: event.type.endswith("text.done"))
        )

        def broken(event: StreamEvent) -> bool:
            raise KeyError("mine")

        pipe = await events_of(harness, call_model("ask", emit=broken))
    always = ["aiio:step_started", "aiio:item_appended", "aiio:item_appended", "aiio:step_completed"]
    assert (sdk(silent), framework(silent)) == ([], always)
    assert (sdk(kept), framework(kept)) == (["output_text.done"], always)
    assert sdk(pipe) == []
    errors = [one.data["error"] for one in pipe if one.type == "aiio:stream_pipe_error"]
    assert set(errors) == {"KeyError"}
    assert "aiio:model_call_started" in heard  # listeners of the harness hear it all


async def test_B5_a_session_is_one_stream_turn_after_turn() -> None:
    async with (
        peer(answer("Hello.")) as (env, _),
        Harness(env=env, model=MODEL, step=call_model("ask")) as harness,
        harness.event_stream("t") as stream,
    ):
        for _ in range(2):
            harness.execute("q", thread_id="t")
            await harness.get_agent_response("t")
        harness.forget_session("t")
        found = [one async for one in stream]
    turns = [one.type for one in found if ":turn_" in one.type]
    assert turns == ["aiio:turn_started", "aiio:turn_completed"] * 2
    assert sdk(found).count("completed") == 2


async def test_B5_paths_share_the_stream_of_their_run_and_say_whose_they_are() -> None:
    async with peer(answer("Hello.")) as (env, _):
        harness = Harness(env=env, model=MODEL)
        found = await events_of(harness, in_parallel("p", [call_model("a"), call_model("b")]))
    deltas = [one.data for one in found if one.type == "response.output_text.delta"]
    assert {data["step_id"] for data in deltas} == {"a", "b"}
    assert len({data["context_id"] for data in deltas}) == 2


async def test_B5_a_second_attempt_is_the_same_response_and_ids_are_given_only_where_they_belong() -> None:
    told: list[StreamEvent] = []
    events = ResponseEvents(told.append, facts={}, model="m", first=lambda: None)
    events.begin()
    events.begin()  # sent again with other credentials
    assert sdk(told) == ["created", "in_progress"]
    item = create_message("mine", "assistant")
    known = item["id"]
    events.adopt(None, [item])
    events.adopt({"type": 3, "content": [{"type": "text", "text": "unheard"}]}, [item])
    assert item["id"] == known


# -- items -------------------------------------------------------------------------------------------


async def snapshots(stream: Any) -> list[ItemSnapshot]:
    async with stream:
        return [found async for found in stream]


async def test_B5_the_item_stream_gives_cumulative_snapshots_until_they_are_complete(
    autojump_clock: MockClock,
) -> None:
    script: list[Step] = [say("Hel"), Pause(1), say("lo"), Pause(1), say("!"), finish()]
    async with peer(script) as (env, _):
        harness = Harness(env=env, model=MODEL)
        context = harness.create_context()
        seen: list[ItemSnapshot] = []

        async def watch() -> None:
            seen.extend(await snapshots(context.item_stream()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await wait_all_tasks_blocked()
            await harness.run(call_model("ask"), "q", context=context)
        told = [(one.item["role"], item_text(one.item), one.is_complete) for one in seen]
        assert told == [
            ("user", "q", True),
            ("assistant", "Hel", False),
            ("assistant", "Hello", False),
            ("assistant", "Hello!", False),
            ("assistant", "Hello!", True),
        ]
        assert len({one.item["id"] for one in seen}) == 2


async def test_B5_the_item_stream_has_calls_thoughts_and_what_tools_said(autojump_clock: MockClock) -> None:
    start = {"type": "tool_call_start", "content_index": 1, "call_id": "c", "name": "look"}
    piece = {"type": "tool_call_delta", "content_index": 1}
    script: list[Step] = [
        frames([{"type": "thinking_delta", "content_index": 0, "text": "hm"}]),
        frames([start, {**piece, "arguments": '{"a":'}]),
        Pause(1),
        frames([{**piece, "arguments": "1}"}]),
        finish(),
    ]
    async with peer(script, answer("done")) as (env, _):

        def look(a: int) -> str:
            """Look."""
            return "seen"

        async with Harness(env=env, model=MODEL, step=call_model("ask", tools=[look])) as harness:
            seen: list[ItemSnapshot] = []

            async def watch() -> None:
                seen.extend(await snapshots(harness.item_stream("t")))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(watch)
                await wait_all_tasks_blocked()
                harness.execute("q", thread_id="t")
                await harness.get_agent_response("t")
                harness.forget_session("t")
    growing = [one.item for one in seen if not one.is_complete and one.item["type"] == "function_call"]
    assert next(item["arguments"] for item in growing) == '{"a":'
    complete = [one.item for one in seen if one.is_complete]
    kinds = [item["type"] for item in complete]
    assert kinds == ["message", "reasoning", "function_call", "function_call_output", "message"]
    assert complete[2]["arguments"] == '{"a":1}'
